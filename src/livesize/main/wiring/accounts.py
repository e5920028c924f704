"""Whom the control plane runs as, where root starts it: the system user livesize, and nobody else.

The control plane owns the cluster's authority and is heard by the agent, which is root. So its user
is no one that another program runs as: `nobody` is refused, which is where programs of all kinds
end up. A machine without the user gets it at the first start.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import click
import msgspec

CONTROL_PLANE_USER = "livesize"
ADD_USER = (
    *("useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"),
    *("--shell", "/usr/sbin/nologin", "--comment", "Livesize control plane", CONTROL_PLANE_USER),
)
OVERFLOW_UID = 65534
"""The kernel's nobody: also whoever has no name here (user_namespaces(7))."""


class Account(msgspec.Struct, frozen=True):
    name: str
    uid: int
    gid: int


def control_plane_account() -> Account | None:
    """An account that is the control plane's alone, or None where we are not root and stay who we
    are. Root of a user namespace in which nobody else exists is an ordinary user already."""
    uid_map = Path("/proc/self/uid_map").read_text()
    if os.geteuid() != 0 or users_in(uid_map) == 1:
        return None
    entry = _find() or _made()
    account = Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    check_own(account, pwd.getpwuid(account.uid).pw_name)
    return account if user_exists(account.uid, uid_map) else None


def check_own(account: Account, first_of_uid: str) -> None:
    """Raises where others are this user too; ``first_of_uid`` is whom the system calls its uid."""
    if account.uid in (0, OVERFLOW_UID) or first_of_uid != account.name:
        raise click.ClickException(
            f"the user {account.name} has the uid {account.uid}, which is {first_of_uid}'s too: the"
            f" control plane needs one that no other program has. Remove it (userdel"
            f" {account.name}), and start again"
        )


def users_in(uid_map: str) -> int:
    """How many there can be in this user namespace (user_namespaces(7))."""
    return sum(int(line.split()[2]) for line in uid_map.splitlines())


def user_exists(uid: int, uid_map: str) -> bool:
    """In this user namespace: lines of first, first outside, and count."""
    ranges = [line.split() for line in uid_map.splitlines()]
    return any(int(first) <= uid < int(first) + int(count) for first, _, count in ranges)


def _find() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(CONTROL_PLANE_USER)
    except KeyError:
        return None


def _made() -> pwd.struct_passwd:
    """Another start may have been quicker: what counts is that it is there."""
    try:
        done = subprocess.run(ADD_USER, capture_output=True, text=True, check=False)
        why = done.stderr.strip()
    except OSError as failure:
        why = str(failure)
    entry = _find()
    if entry is None:
        words = [f"'{word}'" if " " in word else word for word in ADD_USER]
        raise click.ClickException(
            f"the control plane needs the user {CONTROL_PLANE_USER}, which could not be made"
            f" ({why}): run `{' '.join(words)}` as root"
        )
    click.echo(f"user {CONTROL_PLANE_USER} made, for the control plane", err=True)
    return entry

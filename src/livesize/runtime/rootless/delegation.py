"""Finds the control groups that an ordinary user may write.

On version 2 the service manager of each user, user@UID.service, has a group that is the user's own.
Pods stand in it beside the manager's tree, as root's pods stand beside systemd's: what the manager
does with its own units changes nothing of them. We must run somewhere below that group ourselves:
only then may processes be moved from our group to another.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from livesize.runtime.cgroups.detect import parse_mounts
from livesize.runtime.cgroups.v2 import REQUIRED_CONTROLLERS
from livesize.runtime.interface import RuntimeCallError

START_BELOW = (
    "start it below your own service manager: systemd-run --user livesize up, or"
    " `livesize units install up --user`"
)
DELEGATE_FILE = "/etc/systemd/system/user@.service.d/delegate.conf"
_WRITTEN = (".", "cgroup.procs", "cgroup.subtree_control")


class Delegation(msgspec.Struct, frozen=True):
    """``group``: the directory below which groups may be made. Empty: there is none."""

    group: str
    controllers: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in REQUIRED_CONTROLLERS if name not in self.controllers)


def find_delegation(proc: Path = Path("/proc/self")) -> Delegation:
    """The outermost group above our own that we may write."""
    mounts = parse_mounts((proc / "mountinfo").read_text()).unified
    own = _own_group((proc / "cgroup").read_text())
    if not mounts or own is None:
        return Delegation("")
    found = Delegation("")
    group = Path(mounts[0], own.lstrip("/"))
    while group != Path(mounts[0]):
        group = group.parent
        if not all(os.access(group / name, os.W_OK) for name in _WRITTEN):
            break
        controllers = (group / "cgroup.controllers").read_text().split()
        found = Delegation(str(group), tuple(controllers))
    return found


def require_delegation(found: Delegation) -> str:
    """The group's directory, or a sentence that says what to do."""
    if not found.group:
        raise RuntimeCallError(
            "an ordinary user may make no control groups here; on cgroup v2 with systemd,"
            f" {START_BELOW}"
        )
    if found.missing:
        raise RuntimeCallError(
            f"your control groups lack {', '.join(found.missing)}; as root, write"
            f" '[Service]\\nDelegate=cpu cpuset memory pids' to {DELEGATE_FILE},"
            " run systemctl daemon-reload, and log in again"
        )
    return found.group


def _own_group(text: str) -> str | None:
    """From /proc/self/cgroup: the line of version 2."""
    for line in text.splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            return path
    return None

"""What an ordinary user has of what `livesize up` needs without root, and what cannot be had.

Which groups the user may write is known to the code that makes groups; main hands in the facts.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import msgspec

from livesize.cli.doctor.checks import Finding

_DELEGATE = (
    "as root: mkdir -p /etc/systemd/system/user@.service.d; printf"
    " '[Service]\\nDelegate=cpu cpuset memory pids\\n' >"
    " /etc/systemd/system/user@.service.d/delegate.conf; systemctl daemon-reload; log in again"
)
_SWITCHES = (
    # file below /proc/sys, the value that forbids, and what to do
    ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)


class UserFacts(msgspec.Struct, frozen=True):
    """``group``: the directory of control groups that the user may write; empty: none.
    ``switches``: what the kernel's switches say. ``lingers``: the user's services go on when the
    user has logged out."""

    name: str
    group: str
    controllers: tuple[str, ...]
    switches: dict[str, str]
    lingers: bool


def observe_user(
    find_group: Callable[[], tuple[str, tuple[str, ...]]], root: Path = Path("/")
) -> UserFacts:
    name = pwd.getpwuid(os.geteuid()).pw_name
    group, controllers = find_group()
    switches = {path: _read(root / "proc/sys" / path) for path, _, _ in _SWITCHES}
    lingers = (root / "var/lib/systemd/linger" / name).exists()
    return UserFacts(name, group, controllers, switches, lingers)


def rootless_findings(facts: UserFacts) -> list[Finding]:
    return [
        check_user_namespaces(facts),
        check_delegation(facts),
        check_cpuset(facts),
        check_linger(facts),
        *_NOT_WITHOUT_ROOT,
    ]


def check_user_namespaces(facts: UserFacts) -> Finding:
    for path, forbidden, remedy in _SWITCHES:
        if facts.switches.get(path) == forbidden:
            what = f"no user namespaces for ordinary users: {path.replace('/', '.')} is {forbidden}"
            return Finding("user-namespaces", False, what, f"as root: {remedy}")
    return Finding("user-namespaces", True, "ordinary users may have user namespaces")


def check_delegation(facts: UserFacts) -> Finding:
    if not facts.group:
        remedy = (
            "needs cgroup v2 and systemd; start it below your service manager: systemd-run --user"
            " livesize up, or `livesize units install up --user`"
        )
        return Finding("delegation", False, "no control groups of your own here", remedy)
    missing = [name for name in ("cpu", "memory", "pids") if name not in facts.controllers]
    if missing:
        what = f"{facts.group} has no {', '.join(missing)}"
        return Finding("delegation", False, what, _DELEGATE)
    what = f"{facts.group} is yours, with {', '.join(facts.controllers)}"
    return Finding("delegation", True, what)


def check_cpuset(facts: UserFacts) -> Finding:
    if "cpuset" in facts.controllers:
        return Finding("cpuset", True, "containers can be bound to CPUs", optional=True)
    what = "cpuset is not delegated: --cpu-policy static cannot be had"
    return Finding("cpuset", False, what, _DELEGATE, optional=True)


def check_linger(facts: UserFacts) -> Finding:
    if facts.lingers:
        what = f"services of {facts.name} go on after logging out"
        return Finding("linger", True, what, optional=True)
    what = f"pods end when {facts.name} logs out"
    return Finding("linger", False, what, f"loginctl enable-linger {facts.name}", optional=True)


_ONE_USER = (
    "containers run as user 0 of a namespace of their own: runAsUser, fsGroup and"
    " supplementalGroups cannot be had"
)
_NOT_WITHOUT_ROOT = tuple(
    Finding("without-root", False, what, f"run livesize with sudo {why}", optional=True)
    for what, why in (
        (_ONE_USER, "where other users are needed"),
        ("no pod can be made the last to be killed when memory runs short", "for that"),
        ("neither containerd nor virtual machines", "for them"),
    )
)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

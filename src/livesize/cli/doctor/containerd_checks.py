"""What this machine has of what `--runtime containerd` needs; all of it optional.

Which programs there are is known to the code that starts them; main hands the doctor a probe.
"""

from __future__ import annotations

import re

import msgspec

from livesize.cli.doctor.checks import Finding

_NETWORKS = {
    True: "CNI",
    False: "no CNI configuration: pods need hostNetwork: true there",
    None: "its CNI configuration is for root to read",
}
_VERSION = re.compile(r"\d+\.\d+\.\d+")


class ContainerdTools(msgspec.Struct, frozen=True):
    """``version``: what containerd says of itself. ``network``: there is a CNI configuration; None:
    this user may not look.
    ``cgroup_driver``: of the one at ``endpoint``; empty: none answers there."""

    missing: tuple[str, ...]
    version: str
    has_grpc: bool
    network: bool | None
    endpoint: str = ""
    cgroup_driver: str = ""


def check_containerd(tools: ContainerdTools) -> Finding:
    if tools.missing:
        what = f"{', '.join(tools.missing)} not installed"
        remedy = "for --runtime containerd: apt-get install containerd runc"
        return Finding("containerd", False, what, remedy, optional=True)
    if not tools.has_grpc:
        remedy = "for --runtime containerd: pip install 'livesize[containerd]'"
        return Finding("containerd", False, "grpcio is not installed", remedy, optional=True)
    found = _VERSION.search(tools.version)
    network = _NETWORKS[tools.network]
    what = f"containerd {found[0] if found else '(unknown version)'}, {network}; {_groups(tools)}"
    return Finding("containerd", True, what, optional=True)


def _groups(tools: ContainerdTools) -> str:
    match tools.cgroup_driver:
        case "":
            return "a private one writes control groups itself, unless --cgroup-driver systemd"
        case "systemd":
            return f"for the one at {tools.endpoint} systemd writes the control groups"
        case _:
            return f"the one at {tools.endpoint} writes control groups itself"

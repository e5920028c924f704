"""Decides what the launcher is told: command, environment, files, limits of power. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from livesize.api.kernel_units import CgroupVersion
from livesize.runtime.images import Image
from livesize.runtime.interface import ContainerConfig, StartRefusedError
from livesize.runtime.process.seccomp import build_filter
from livesize.runtime.security import GrantedCapabilities, grant_capabilities

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# There is no device controller here: who may make a device file has every disk of the machine.
_NEVER = frozenset({"MKNOD"})

_MASKED_PATHS = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
_READ_ONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


class LaunchPaths(msgspec.Struct, frozen=True):
    """Files and folders of one start, all absolute, and the groups to join. ``own_groups``: the
    folders of its groups, and where each stands in /sys/fs/cgroup. ``rootless``: we are root of a
    user namespace only."""

    ready: str
    pid_file: str
    upper: str
    work: str
    root: str
    join: tuple[str, ...]
    own_groups: tuple[tuple[str, str], ...] = ()
    rootless: bool = False


def own_groups(
    join: tuple[str, ...], group: str, version: CgroupVersion
) -> tuple[tuple[str, str], ...]:
    """From the files to join by: the folder of each hierarchy's group, and the hierarchy's name,
    which version 2 has none of."""
    folders = [path.rpartition("/")[0] for path in join]
    if version is CgroupVersion.V2:
        return ((folders[0], ""),)
    tops = [folder.removesuffix(f"/{group}") for folder in folders]
    return tuple(
        (folder, top.rpartition("/")[2]) for folder, top in zip(folders, tops, strict=True)
    )


def plan_launch(
    config: ContainerConfig, image: Image, paths: LaunchPaths, resolv_conf: str, machine: str
) -> dict[str, Any]:
    """What the launcher reads: builtin types only. ``machine`` as platform.machine() names it."""
    granted = holdable_capabilities(config)
    seccomp = b"" if config.seccomp_unconfined else build_filter(machine, granted.names)
    return {
        **msgspec.structs.asdict(paths),
        "lower": image.rootfs,
        "argv": list(command_line(config, image)),
        "env": environment(config, image),
        "cwd": config.working_dir or image.workdir or "/",
        "hostname": config.hostname[:63],
        "files": _identity_files(config.hostname, resolv_conf),
        "user": image.user,
        "uid": config.run_as_user,
        "gid": config.run_as_group,
        "groups": list(config.groups),
        "read_only": config.read_only_root,
        "own_network": not config.host_network,
        "oom_score_adj": config.oom_score_adj,
        "capabilities": granted.mask,
        "seccomp": seccomp.hex(),
        "masked_paths": list(_MASKED_PATHS),
        "read_only_paths": list(_READ_ONLY_PATHS),
        "mounts": [(one.source, one.target, one.read_only) for one in config.mounts],
    }


def holdable_capabilities(config: ContainerConfig) -> GrantedCapabilities:
    """Raises StartRefusedError for what this runtime could not hold."""
    granted = grant_capabilities(config)
    for name in sorted(granted.names & _NEVER):
        raise StartRefusedError(
            f"container {config.name} asks for the capability {name}, and the process runtime has"
            " nothing to hold devices back with: drop it, or run the node with --runtime containerd"
        )
    return granted


def command_line(config: ContainerConfig, image: Image) -> tuple[str, ...]:
    """A pod's command replaces entrypoint and cmd; its args alone replace only cmd."""
    if config.command:
        return (*config.command, *config.args)
    return (*image.entrypoint, *(config.args or image.cmd))


def environment(config: ContainerConfig, image: Image) -> dict[str, str]:
    """The image's variables below the pod's."""
    merged = {"PATH": DEFAULT_PATH, "HOSTNAME": config.hostname}
    for pair in image.env:
        name, _, value = pair.partition("=")
        merged[name] = value
    merged.update(config.env)
    return merged


def _identity_files(hostname: str, resolv_conf: str) -> dict[str, str]:
    return {
        "/etc/hostname": f"{hostname}\n",
        "/etc/hosts": f"127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\t{hostname}\n",
        "/etc/resolv.conf": resolv_conf,
    }

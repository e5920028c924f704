"""Decides what the launcher is told: command, environment, files, limits of power. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from livesize.runtime.images import Image
from livesize.runtime.interface import ContainerConfig

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The usual set of a container without MKNOD and NET_RAW: there is no device controller to hold
# the first, and on the host's network the second could listen to the host.
_KEPT_CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "SYS_CHROOT": 18,
    "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}
CAPABILITY_MASK = sum(1 << number for number in _KEPT_CAPABILITIES.values())

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
    """Files and folders of one start, all absolute, and the groups to join. ``rootless``: we are
    root of a user namespace only."""

    ready: str
    pid_file: str
    upper: str
    work: str
    root: str
    join: tuple[str, ...]
    rootless: bool = False


def plan_launch(
    config: ContainerConfig, image: Image, paths: LaunchPaths, resolv_conf: str, seccomp: bytes
) -> dict[str, Any]:
    """What the launcher reads: builtin types only."""
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
        "capabilities": CAPABILITY_MASK,
        "seccomp": seccomp.hex(),
        "masked_paths": list(_MASKED_PATHS),
        "read_only_paths": list(_READ_ONLY_PATHS),
        "mounts": [(one.source, one.target, one.read_only) for one in config.mounts],
    }


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

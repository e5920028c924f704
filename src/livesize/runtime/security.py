"""What a pod's securityContext says of one container's powers, and what follows from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from livesize.runtime.interface import ContainerConfig, PodConfig, StartRefusedError

# capabilities(7), by number.
_NAMES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip
CAPABILITIES = {name: number for number, name in enumerate(_NAMES)}
ALL = "ALL"

# The usual set of a container without MKNOD and NET_RAW, which a pod can ask for: on the host's
# network the second could listen to the host.
DEFAULT_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)


class GrantedCapabilities(msgspec.Struct, frozen=True):
    names: frozenset[str]

    @property
    def mask(self) -> int:
        return sum(1 << CAPABILITIES[name] for name in self.names)


def grant_capabilities(config: ContainerConfig) -> GrantedCapabilities:
    """The default ones, changed as the container asks: ALL first, then those added by name, then
    those dropped by name, in the order that container runtimes have agreed upon."""
    added, dropped = _known(config.add_capabilities), _known(config.drop_capabilities)
    names = set(DEFAULT_CAPABILITIES)
    if ALL in added:
        names = set(CAPABILITIES)
    if ALL in dropped:
        names = set()
    names |= added - {ALL}
    return GrantedCapabilities(frozenset(names - dropped))


def require_non_root(config: ContainerConfig, pod: PodConfig, image_user: str) -> None:
    """Kubernetes' words: what cannot be known to be another user than root counts as root."""
    if not config.run_as_non_root:
        return
    who = f'(pod: "{pod.name}_{pod.namespace}({pod.uid})", container: {config.name})'
    if config.run_as_user == 0:
        raise StartRefusedError(f"container's runAsUser breaks non-root policy {who}")
    if config.run_as_user is not None:
        return
    user = image_user.partition(":")[0]
    if not user or (user.isdecimal() and int(user) == 0):
        raise StartRefusedError(f"container has runAsNonRoot and image will run as root {who}")
    if not user.isdecimal():
        raise StartRefusedError(
            f"container has runAsNonRoot and image has non-numeric user ({user}), cannot verify"
            f" user is non-root {who}"
        )


def _known(names: Iterable[str]) -> set[str]:
    upper = {name.upper() for name in names}
    for name in sorted(upper - {ALL} - CAPABILITIES.keys()):
        raise StartRefusedError(
            f"there is no capability {name!r}; names are as in capabilities(7), without CAP_"
        )
    return upper

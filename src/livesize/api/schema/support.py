"""What becomes of a field of a pod: carried out, refused with a sentence, or kept for nothing."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


class Used(msgspec.Struct, frozen=True, tag=True):
    """``where``: the modules below livesize that carry it out."""

    where: tuple[str, ...]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The API server answers 422 with ``detail``. ``fine``: values that ask for nothing, such as
    the default that clients send."""

    detail: str
    fine: tuple[Any, ...] = ()


class AtNode(msgspec.Struct, frozen=True, tag=True):
    """A node refuses it in the module ``where``: the pod fails with UnsupportedByNode."""

    where: str


class StoredOnly(msgspec.Struct, frozen=True, tag=True):
    """Stored without effect; docs/pod-fields.md repeats the reason."""

    why: str


Support: TypeAlias = Used | Refused | AtNode | StoredOnly


def used(*where: str) -> Used:
    return Used(where)


CONFIG = used("agent.pods.config")
PROBED = used("agent.probes.plan")
VARIABLES = used("agent.volumes.environment")
FILES = used("agent.volumes.conversion")
NODE = AtNode("agent.admission.support")
VM = used("api.vm_size")
SOFT = StoredOnly(
    "a preference: the scheduler places by room, and breaks no rule by not weighing it"
)
TERM = used("api.placement")
SELINUX = Refused("Livesize sets no SELinux labels: leave it out")
APPARMOR = Refused("Livesize loads no AppArmor profiles: leave it out")
WINDOWS = Refused("Livesize runs Linux containers only: leave it out")
POD_AFFINITY = Refused(
    "the scheduler places pods by room, labels, taints and node affinity, not"
    " beside or away from other pods: use nodeSelector or nodeAffinity, or say it"
    " as a preference"
)
PROFILES = Refused("nodes have no seccomp profiles of their own: use RuntimeDefault")
CLAIMS = Refused("Livesize hands out no devices: leave it out, and ask for cpu and memory")

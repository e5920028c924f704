"""Turns a pod object into what the runtime needs to start it. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from livesize.agent.allocation.ledger import Allocation
from livesize.agent.volumes.environment import expanded
from livesize.api.hashes import container_hash, container_hash_without_resources
from livesize.api.kernel_units import CgroupVersion, KernelLimits, pod_limits, to_kernel
from livesize.api.objects import Object, lookup, name_of, namespace_of, uid_of
from livesize.api.peer_names import HostsLine, hostname_of, peer_lines, subdomain_of
from livesize.api.qos import qos_class
from livesize.api.resources import (
    containers_of,
    init_containers_of,
    is_vm,
    moments,
    parse_resources,
    sidecars_of,
    with_cells,
)
from livesize.runtime.interface import ContainerConfig, Mount, PodConfig

_GUARANTEED_OOM_SCORE = -997
_BEST_EFFORT_OOM_SCORE = 1000


class ContainerInputs(msgspec.Struct, frozen=True):
    """What one start of a container gets besides its image and its size."""

    env: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()


def wanted_limits(allocation: Allocation, version: CgroupVersion) -> dict[str, KernelLimits]:
    """What the kernel is to hold for each container."""
    return {size["name"]: to_kernel(parse_resources(size), version) for size in allocation.sizes()}


def wanted_pod_limits(allocation: Allocation, version: CgroupVersion) -> KernelLimits:
    """Enough for the containers and sidecars together, and for each init container beside the
    sidecars that have started before it: as Kubernetes, the pod's group stays that large."""
    running = {size["name"]: parse_resources(size) for size in allocation.allocated}
    if not allocation.starting:
        return pod_limits(running.values(), version)
    starting = []
    for one in allocation.starting:
        sidecar = running.pop(one.size["name"]) if one.stays else None
        starting.append((sidecar or parse_resources(one.size), one.stays))
    together = moments(running.values(), starting)
    most, *others = (pod_limits(resources, version) for resources in together)
    for limits in others:
        most = larger_limits(most, limits)
    return most


def start_limits(allocation: Allocation, container: str, version: CgroupVersion) -> KernelLimits:
    """What a container may have if it starts now. In the middle of a resize that is the smaller
    of old and new: as if its own decrease were done and its increase were not, which keeps the
    containers within the pod's limit whatever else has been applied."""
    new = to_kernel(parse_resources(allocation.size(container)), version)
    if allocation.settled:
        return new
    old = to_kernel(parse_resources(allocation.size_before(container)), version)
    return smaller_limits(old, new)


def smaller_limits(left: KernelLimits, right: KernelLimits) -> KernelLimits:
    return KernelLimits(
        cpu_weight=min(left.cpu_weight, right.cpu_weight),
        cpu_quota_us=_smaller(left.cpu_quota_us, right.cpu_quota_us),
        memory_limit_bytes=_smaller(left.memory_limit_bytes, right.memory_limit_bytes),
    )


def larger_limits(left: KernelLimits, right: KernelLimits) -> KernelLimits:
    return KernelLimits(
        cpu_weight=max(left.cpu_weight, right.cpu_weight),
        cpu_quota_us=_larger(left.cpu_quota_us, right.cpu_quota_us),
        memory_limit_bytes=_larger(left.memory_limit_bytes, right.memory_limit_bytes),
    )


def pod_config(pod: Object, limits: KernelLimits) -> PodConfig:
    return PodConfig(
        uid_of(pod),
        namespace_of(pod),
        name_of(pod),
        limits,
        vm=is_vm(pod),
        host_network=bool(lookup(pod, "spec", "hostNetwork", default=False)),
        hostname=hostname_of(pod),
        privileged=any(
            _is_privileged(one) for one in (*containers_of(pod), *init_containers_of(pod))
        ),
        sysctls=tuple(
            (one["name"].replace("/", "."), str(one.get("value", "")))
            for one in lookup(pod, "spec", "securityContext", "sysctls", default=[])
        ),
    )


def sized(container: Object, size: Object) -> Object:
    """The container as it is started: with the size that was allocated."""
    resources = {
        **(container.get("resources") or {}),
        **{side: size[side] for side in ("requests", "limits") if size.get(side)},
    }
    return with_cells({**container, "resources": resources}, size.get("cells") or ())


def started_hash(container: Object, allocation: Allocation) -> str:
    """The hash of a start at what is allocated now: tells whether a restart is still due."""
    return container_hash(sized(container, allocation.size(container["name"])))


def container_config(
    pod: Object,
    container: Object,
    allocation: Allocation,
    limits: KernelLimits,
    inputs: ContainerInputs,
    *,
    attempt: int,
) -> ContainerConfig:
    known = dict(inputs.env)
    return ContainerConfig(
        pod_uid=uid_of(pod),
        name=container["name"],
        image=container.get("image", ""),
        command=expanded(container.get("command"), known),
        args=expanded(container.get("args"), known),
        env=inputs.env,
        working_dir=container.get("workingDir") or "",
        hostname=hostname_of(pod),
        limits=limits,
        attempt=attempt,
        hash=started_hash(container, allocation),
        hash_without_resources=container_hash_without_resources(container),
        run_as_user=_number(_security(pod, container, "runAsUser")),
        run_as_group=_number(_security(pod, container, "runAsGroup")),
        run_as_non_root=bool(_security(pod, container, "runAsNonRoot")),
        add_capabilities=_capabilities(container, "add"),
        drop_capabilities=_capabilities(container, "drop"),
        seccomp_unconfined=_security(pod, container, "seccompProfile") == {"type": "Unconfined"},
        read_only_root=bool(
            lookup(container, "securityContext", "readOnlyRootFilesystem", default=False)
        ),
        stdin=bool(container.get("stdin")),
        stdin_once=bool(container.get("stdinOnce")),
        tty=bool(container.get("tty")),
        mounts=inputs.mounts,
        groups=_groups(pod),
        privileged=_is_privileged(container),
    )


def scored_size(pod: Object, name: str, size_of: Callable[[str], Object]) -> Object:
    """The size that says how late a container dies: its own; of a sidecar at least that of the
    smallest container, so that it does not die before those it serves (Kubernetes)."""
    if name not in sidecars_of(pod):
        return size_of(name)
    served = (size_of(container["name"]) for container in containers_of(pod))
    return max(size_of(name), min(served, key=_request_bytes), key=_request_bytes)


def oom_score_adj(pod: Object, size: Object, node_memory_bytes: int) -> int:
    """As Kubernetes: the more of the node's memory a container asked for, the later it dies."""
    match qos_class(pod):
        case "Guaranteed":
            return _GUARANTEED_OOM_SCORE
        case "BestEffort":
            return _BEST_EFFORT_OOM_SCORE
        case "Burstable":
            share = 1000 * _request_bytes(size) // max(node_memory_bytes, 1)
            return max(3, min(1000 - share, 999))


def _request_bytes(size: Object) -> int:
    return parse_resources(size).requests.memory_bytes or 0


def _smaller(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def _larger(left: int | None, right: int | None) -> int | None:
    """No limit is more than any."""
    return None if left is None or right is None else max(left, right)


def _is_privileged(container: Object) -> bool:
    return bool(lookup(container, "securityContext", "privileged", default=False))


def _groups(pod: Object) -> tuple[int, ...]:
    context = lookup(pod, "spec", "securityContext", default={})
    owner = [] if context.get("fsGroup") is None else [context["fsGroup"]]
    return tuple(sorted({*owner, *(context.get("supplementalGroups") or [])}))


def _capabilities(container: Object, side: str) -> tuple[str, ...]:
    return tuple(lookup(container, "securityContext", "capabilities", side, default=[]) or ())


def _number(found: object) -> int | None:
    return None if found is None else int(str(found))


def _security(pod: Object, container: Object, field: str) -> object:
    """A container's own word wins over its pod's."""
    own = lookup(container, "securityContext", field)
    return lookup(pod, "spec", "securityContext", field) if own is None else own


HOSTS_PATH = "/etc/hosts"
_HEAD = "# Made by Livesize: the pod itself, its peers, and the entries of its spec.hostAliases.\n"


def hosts_file(pod: Object) -> str:
    """Empty: it names none, and its containers have the file that the runtime makes."""
    aliases, service = lookup(pod, "spec", "hostAliases", default=[]), subdomain_of(pod)
    if not aliases and not service:
        return ""
    address = lookup(pod, "status", "podIP") or "127.0.1.1"
    own: list[HostsLine] = [(address, hostname_of(pod))]
    lines: list[HostsLine] = [("127.0.0.1", "localhost"), ("::1", "localhost")]
    lines += peer_lines(pod, address) if service else own
    lines += [(one["ip"], *(one.get("hostnames") or ())) for one in aliases]
    return _HEAD + "".join("\t".join(line) + "\n" for line in lines)

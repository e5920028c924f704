"""What containerd is asked for, made of what the agent asks for. Pure.

Everything the next agent must know of a pod or container stands in its labels and annotations,
so there is no second record that could disagree with containerd's own.
"""

from __future__ import annotations

import msgspec

from livesize.api.cpu_list import format_cpu_list
from livesize.api.kernel_units import CPU_PERIOD_US, CgroupVersion, KernelLimits
from livesize.runtime.containerd import messages
from livesize.runtime.containerd.messages import ProtobufMessage
from livesize.runtime.interface import ContainerConfig, PodConfig, StartRefusedError
from livesize.runtime.security import grant_capabilities

NODE_LABEL = "livesize.dev/node-uid"
POD_LABEL = "livesize.dev/pod-uid"
CONTAINER_LABEL = "livesize.dev/container"
HASH_LABEL = "livesize.dev/hash"
HASH_WITHOUT_RESOURCES_LABEL = "livesize.dev/hash-without-resources"
POD_ANNOTATION = "livesize.dev/pod"
CONFIG_ANNOTATION = "livesize.dev/config"

_UNCONFINED = 1  # SecurityProfile.ProfileType of CRI
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
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
_READ_ONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_SMALLEST_OOM_SCORE = 1
_HOSTNAME_LENGTH = 63


class StartedConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a container's view tells of its start. The hashes are labels (IBM: the second one "is
    also stored as a one of the container's labels"); those of older containers stand here."""

    image: str
    hash: str = ""
    hash_without_resources: str = ""


def sandbox_config(
    pod: PodConfig, *, node_uid: str, attempt: int, cgroup_parent: str, log_directory: str
) -> ProtobufMessage:
    return messages.PodSandboxConfig(
        metadata=messages.PodSandboxMetadata(
            name=pod.name, uid=pod.uid, namespace=pod.namespace, attempt=attempt
        ),
        hostname="" if pod.host_network else (pod.hostname or pod.name)[:_HOSTNAME_LENGTH],
        log_directory=log_directory,
        labels=pod_labels(node_uid, pod.uid),
        annotations={POD_ANNOTATION: msgspec.json.encode(pod).decode()},
        linux=messages.LinuxPodSandboxConfig(
            cgroup_parent=cgroup_parent,
            security_context=messages.LinuxSandboxSecurityContext(
                namespace_options=_namespaces(host_network=pod.host_network),
                privileged=pod.privileged,
                seccomp=messages.SecurityProfile(),
            ),
            sysctls=dict(pod.sysctls),
        ),
    )


def container_config(
    config: ContainerConfig,
    pod: PodConfig,
    *,
    node_uid: str,
    image_id: str,
    log_path: str,
    version: CgroupVersion,
) -> ProtobufMessage:
    started = StartedConfig(config.image)
    return messages.ContainerConfig(
        metadata=messages.ContainerMetadata(name=config.name, attempt=config.attempt),
        image=messages.ImageSpec(image=image_id),
        command=config.command,
        args=config.args,
        working_dir=config.working_dir,
        envs=[messages.KeyValue(key=name, value=value) for name, value in config.env],
        mounts=[
            messages.Mount(container_path=one.target, host_path=one.source, readonly=one.read_only)
            for one in config.mounts
        ],
        labels={
            **pod_labels(node_uid, config.pod_uid),
            CONTAINER_LABEL: config.name,
            HASH_LABEL: config.hash,
            HASH_WITHOUT_RESOURCES_LABEL: config.hash_without_resources,
        },
        annotations={CONFIG_ANNOTATION: msgspec.json.encode(started).decode()},
        log_path=log_path,
        stdin=config.stdin,
        stdin_once=config.stdin_once,
        tty=config.tty,
        linux=messages.LinuxContainerConfig(
            resources=_first_resources(config, version),
            security_context=_security(config, host_network=pod.host_network),
        ),
    )


def pod_labels(node_uid: str, pod_uid: str) -> dict[str, str]:
    return {NODE_LABEL: node_uid, POD_LABEL: pod_uid}


def cpu_resources(
    weight: int | None, quota_us: int | None, version: CgroupVersion
) -> ProtobufMessage:
    """Only CPU is touched: to CRI zero means "leave it", and -1 "no limit"."""
    resources = messages.LinuxContainerResources(
        cpu_period=CPU_PERIOD_US, cpu_quota=-1 if quota_us is None else quota_us
    )
    _set_weight(resources, weight, version)
    return resources


def memory_resources(limit_bytes: int | None) -> ProtobufMessage:
    limit = -1 if limit_bytes is None else limit_bytes
    return messages.LinuxContainerResources(memory_limit_in_bytes=limit)


def cpu_list_resources(cpus: tuple[int, ...]) -> ProtobufMessage:
    return messages.LinuxContainerResources(cpuset_cpus=format_cpu_list(cpus))


def _first_resources(config: ContainerConfig, version: CgroupVersion) -> ProtobufMessage:
    """Limits of a new container; there zero is "no limit". A score of zero would be left to
    whatever the runtime happens to have."""
    limits: KernelLimits = config.limits
    resources = messages.LinuxContainerResources(
        cpu_period=CPU_PERIOD_US,
        cpu_quota=limits.cpu_quota_us or 0,
        memory_limit_in_bytes=limits.memory_limit_bytes or 0,
        oom_score_adj=config.oom_score_adj or _SMALLEST_OOM_SCORE,
        cpuset_cpus=format_cpu_list(config.cpus),
    )
    _set_weight(resources, limits.cpu_weight, version)
    return resources


def _set_weight(resources: ProtobufMessage, weight: int | None, version: CgroupVersion) -> None:
    """On version 2 the weight itself: runtimes do not agree how shares become a weight."""
    if weight is None:
        return
    match version:
        case CgroupVersion.V1:
            resources.cpu_shares = weight
        case CgroupVersion.V2:
            resources.unified["cpu.weight"] = str(weight)


def _security(config: ContainerConfig, *, host_network: bool) -> ProtobufMessage:
    security = messages.LinuxContainerSecurityContext(
        capabilities=_capabilities(config),
        namespace_options=_namespaces(host_network=host_network),
        readonly_rootfs=config.read_only_root,
        supplemental_groups=config.groups,
        no_new_privs=True,
        masked_paths=_MASKED_PATHS,
        readonly_paths=_READ_ONLY_PATHS,
        seccomp=messages.SecurityProfile(
            profile_type=_UNCONFINED if config.seccomp_unconfined else 0
        ),
    )
    if config.privileged:
        _unbind(security)
    if config.run_as_user is not None:
        security.run_as_user.value = config.run_as_user
    if config.run_as_group is not None:
        security.run_as_group.value = config.run_as_group
    return security


def _capabilities(config: ContainerConfig) -> ProtobufMessage:
    """All that it has, by name: what containerd would give by itself depends on its version."""
    return messages.Capability(
        drop_capabilities=("ALL",), add_capabilities=sorted(grant_capabilities(config).names)
    )


def with_image_user(config: ContainerConfig, image_user: str) -> ContainerConfig:
    """The image's user as the container's own; CRI takes a group only beside a user."""
    user = image_user.partition(":")[0] or "0"
    if not user.isdecimal():
        raise StartRefusedError(
            f"container {config.name} sets runAsGroup, and its image has a user by name ({user}):"
            " set runAsUser too"
        )
    return msgspec.structs.replace(config, run_as_user=int(user))


def _unbind(security: ProtobufMessage) -> None:
    """Whoever is privileged may all that root may: every capability, every device, /proc and /sys
    as the machine has them."""
    security.privileged = True
    security.no_new_privs = False
    for field in ("capabilities", "masked_paths", "readonly_paths", "seccomp"):
        security.ClearField(field)


def _namespaces(*, host_network: bool) -> ProtobufMessage:
    return messages.NamespaceOption(
        network=messages.NODE_NETWORK if host_network else messages.POD_NAMESPACE,
        pid=messages.CONTAINER_NAMESPACE,
        ipc=messages.POD_NAMESPACE,
    )

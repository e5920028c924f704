"""What containerd says of a container, in the agent's words. Pure."""

from __future__ import annotations

import json

import msgspec

from livesize.api.kernel_units import CgroupVersion, KernelLimits
from livesize.api.objects import Object, lookup
from livesize.runtime.containerd import messages
from livesize.runtime.containerd.messages import ProtobufMessage
from livesize.runtime.containerd.requests import (
    CONFIG_ANNOTATION,
    HASH_LABEL,
    HASH_WITHOUT_RESOURCES_LABEL,
    POD_ANNOTATION,
    POD_LABEL,
    StartedConfig,
)
from livesize.runtime.interface import ContainerPhase, ContainerView, PodConfig

OOM_REASON = "OOMKilled"
UNKNOWN_EXIT_CODE = 255  # it ended and nobody saw how
_NANOSECONDS = 1_000_000_000


def container_view(response: ProtobufMessage) -> ContainerView | None:
    """Of a verbose ContainerStatusResponse. None: it never ran, or is not one of ours."""
    status = response.status
    if status.state == messages.CONTAINER_CREATED or CONFIG_ANNOTATION not in status.annotations:
        return None
    started = msgspec.json.decode(status.annotations[CONFIG_ANNOTATION], type=StartedConfig)
    running = status.state == messages.CONTAINER_RUNNING
    known = status.state == messages.CONTAINER_EXITED
    started_ns = status.started_at or status.created_at
    # What ends at once may have ended before containerd noted that it had begun.
    finished_ns = max(status.finished_at, started_ns)
    return ContainerView(
        id=status.id,
        pod_uid=status.labels[POD_LABEL],
        name=status.metadata.name,
        phase=ContainerPhase.RUNNING if running else ContainerPhase.EXITED,
        attempt=status.metadata.attempt,
        image=started.image,
        image_id=status.image_ref,
        hash=status.labels.get(HASH_LABEL, started.hash),
        hash_without_resources=status.labels.get(
            HASH_WITHOUT_RESOURCES_LABEL, started.hash_without_resources
        ),
        pid=_pid(response) if running else 0,
        started_at=started_ns / _NANOSECONDS,
        finished_at=None if running else finished_ns / _NANOSECONDS,
        exit_code=None if running else status.exit_code if known else UNKNOWN_EXIT_CODE,
        oom_killed=not running and status.reason == OOM_REASON,
        log_path=status.log_path,
    )


def pod_of(sandbox: ProtobufMessage) -> PodConfig | None:
    """The pod a PodSandbox was made for. None: not one of ours."""
    text = sandbox.annotations.get(POD_ANNOTATION)
    return None if text is None else msgspec.json.decode(text, type=PodConfig)


def recorded_limits(response: ProtobufMessage, version: CgroupVersion) -> KernelLimits:
    """The limits that containerd would set again with the next update, of a verbose
    ContainerStatusResponse. A weight of 0: it does not say."""
    resources = lookup(_verbose(response), "runtimeSpec", "linux", "resources", default={})
    weight = (
        lookup(resources, "cpu", "shares")
        if version is CgroupVersion.V1
        else lookup(resources, "unified", "cpu.weight")
    )
    return KernelLimits(
        _positive(weight) or 0,
        _positive(lookup(resources, "cpu", "quota")),
        _positive(lookup(resources, "memory", "limit")),
    )


def _positive(value: object) -> int | None:
    """What is not above zero is no limit."""
    text = str(value)
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _pid(response: ProtobufMessage) -> int:
    return int(_verbose(response).get("pid") or 0)


def _verbose(response: ProtobufMessage) -> Object:
    """What only the verbose part knows, as JSON."""
    try:
        info = json.loads(response.info["info"])
    except (ValueError, KeyError):
        return {}
    return info if isinstance(info, dict) else {}

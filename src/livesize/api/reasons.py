"""Every reason, condition type and event reason that we write, as data."""

from __future__ import annotations

import enum


class ConditionType(enum.StrEnum):
    """Conditions of pods, nodes and workloads. The three of a resize are derived, never stored."""

    POD_SCHEDULED = "PodScheduled"
    READY_TO_START = "PodReadyToStartContainers"
    INITIALIZED = "Initialized"
    CONTAINERS_READY = "ContainersReady"
    READY = "Ready"
    MEMORY_PRESSURE = "MemoryPressure"
    DISK_PRESSURE = "DiskPressure"
    PID_PRESSURE = "PIDPressure"
    POD_RESIZED = "PodResized"
    POD_RESIZE_PENDING = "PodResizePending"
    POD_RESIZE_IN_PROGRESS = "PodResizeInProgress"
    SAFE_TO_HOTPLUG = "SafeToHotplug"
    LIVE_MIGRATABLE = "LiveMigratable"
    DISRUPTION_TARGET = "DisruptionTarget"
    DISRUPTION_ALLOWED = "DisruptionAllowed"
    REPLICA_FAILURE = "ReplicaFailure"
    PROGRESSING = "Progressing"
    AVAILABLE = "Available"


RESIZE_CONDITIONS = frozenset(
    {
        ConditionType.POD_RESIZED,
        ConditionType.POD_RESIZE_PENDING,
        ConditionType.POD_RESIZE_IN_PROGRESS,
    }
)


class Reason(enum.StrEnum):
    """Reasons in conditions, container states and pod statuses."""

    VCPUS_UNPLUGGED = "VcpusUnplugged"

    UNRESIZABLE = "Unresizable"
    RESIZER_FAILED = "ResizerFailed"
    DEFERRED = "Deferred"
    INFEASIBLE = "Infeasible"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    CONTAINERS_NOT_READY = "ContainersNotReady"
    CONTAINERS_NOT_INITIALIZED = "ContainersNotInitialized"
    READINESS_GATES_NOT_READY = "ReadinessGatesNotReady"
    POD_COMPLETED = "PodCompleted"
    CONTAINER_CREATING = "ContainerCreating"
    IMAGE_MISSING = "ErrImageNeverPull"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    CREATE_FAILED = "CreateContainerError"
    CONFIG_FAILED = "CreateContainerConfigError"
    POD_INITIALIZING = "PodInitializing"
    COMPLETED = "Completed"
    OOM_KILLED = "OOMKilled"
    OUT_OF_CPU = "OutOfcpu"
    OUT_OF_MEMORY = "OutOfmemory"
    NODE_READY = "KubeletReady"
    NODE_STATUS_UNKNOWN = "NodeStatusUnknown"
    CONTAINER_STATUS_UNKNOWN = "ContainerStatusUnknown"
    EVICTED_BY_API = "EvictionByEvictionAPI"
    SUFFICIENT_PODS = "SufficientPods"
    INSUFFICIENT_PODS = "InsufficientPods"
    SYNC_FAILED = "SyncFailed"
    REPLICA_SET_CREATED = "NewReplicaSetCreated"
    REPLICA_SET_FOUND = "FoundNewReplicaSet"
    REPLICA_SET_UPDATED = "ReplicaSetUpdated"
    REPLICA_SET_AVAILABLE = "NewReplicaSetAvailable"
    REPLICA_SET_CREATE_ERROR = "ReplicaSetCreateError"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    DEPLOYMENT_PAUSED = "DeploymentPaused"
    DEPLOYMENT_RESUMED = "DeploymentResumed"
    MINIMUM_AVAILABLE = "MinimumReplicasAvailable"
    MINIMUM_UNAVAILABLE = "MinimumReplicasUnavailable"


class EventType(enum.StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


class EventReason(enum.StrEnum):
    RESIZE_STARTED = "ResizeStarted"
    RESIZE_COMPLETED = "ResizeCompleted"
    RESIZE_DEFERRED = "ResizeDeferred"
    RESIZE_INFEASIBLE = "ResizeInfeasible"
    RESIZE_ERROR = "ResizeError"
    RESIZE_REVERTED = "ResizeReverted"
    RESIZE_NOT_REVERTED = "ResizeNotReverted"
    RESIZE_EVICTED = "ResizeEvicted"
    RESIZE_RESTARTS = "ResizeRestarts"
    RESIZE_RELEASED = "ResizeReleased"
    SAFE_TO_HOTPLUG = "SafeToHotplug"
    SCHEDULED = "Scheduled"
    FAILED_SCHEDULING = "FailedScheduling"
    CREATED = "Created"
    STARTED = "Started"
    KILLING = "Killing"
    BACK_OFF = "BackOff"
    FAILED = "Failed"
    FAILED_SANDBOX = "FailedCreatePodSandBox"
    SANDBOX_CHANGED = "SandboxChanged"
    UNHEALTHY = "Unhealthy"
    EVICTED = "Evicted"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    FAILED_POST_START = "FailedPostStartHook"
    FAILED_PRE_STOP = "FailedPreStopHook"
    FAILED_POST_RESIZE = "FailedPostResizeHook"
    OUT_OF_CPU = "OutOfcpu"
    OUT_OF_MEMORY = "OutOfmemory"
    NODE_READY = "NodeReady"
    NODE_NOT_READY = "NodeNotReady"
    WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
    EXTERNAL_PROVISIONING = "ExternalProvisioning"
    PROVISIONING_SUCCEEDED = "ProvisioningSucceeded"
    PROVISIONING_FAILED = "ProvisioningFailed"
    FAILED_BINDING = "FailedBinding"
    VOLUME_MISMATCH = "VolumeMismatch"
    VOLUME_FAILED_DELETE = "VolumeFailedDelete"
    CLAIM_LOST = "ClaimLost"
    SUCCESSFUL_CREATE = "SuccessfulCreate"
    SUCCESSFUL_DELETE = "SuccessfulDelete"
    FAILED_CREATE = "FailedCreate"
    FAILED_DELETE = "FailedDelete"
    SCALING_REPLICA_SET = "ScalingReplicaSet"
    REPLICA_SET_CREATE_ERROR = "ReplicaSetCreateError"
    RECREATING_FAILED_POD = "RecreatingFailedPod"


_WARNINGS = frozenset(
    {
        EventReason.RESIZE_DEFERRED,
        EventReason.RESIZE_INFEASIBLE,
        EventReason.RESIZE_ERROR,
        EventReason.RESIZE_REVERTED,
        EventReason.RESIZE_NOT_REVERTED,
        EventReason.RESIZE_EVICTED,
        EventReason.RESIZE_RESTARTS,
        EventReason.FAILED_SCHEDULING,
        EventReason.BACK_OFF,
        EventReason.FAILED,
        EventReason.FAILED_SANDBOX,
        EventReason.SANDBOX_CHANGED,
        EventReason.UNHEALTHY,
        EventReason.EVICTED,
        EventReason.FAILED_POST_START,
        EventReason.FAILED_PRE_STOP,
        EventReason.FAILED_POST_RESIZE,
        EventReason.OUT_OF_CPU,
        EventReason.OUT_OF_MEMORY,
        EventReason.NODE_NOT_READY,
        EventReason.PROVISIONING_FAILED,
        EventReason.VOLUME_MISMATCH,
        EventReason.VOLUME_FAILED_DELETE,
        EventReason.CLAIM_LOST,
        EventReason.FAILED_CREATE,
        EventReason.FAILED_DELETE,
        EventReason.REPLICA_SET_CREATE_ERROR,
        EventReason.RECREATING_FAILED_POD,
    }
)


def event_type(reason: EventReason) -> EventType:
    return EventType.WARNING if reason in _WARNINGS else EventType.NORMAL

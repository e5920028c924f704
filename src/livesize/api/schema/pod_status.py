"""What a pod's status says: its containers, its virtual machine, its newest resize."""

from __future__ import annotations

from livesize.api.schema.fields import (
    Message,
    Type,
    anything,
    boolean,
    integer,
    list_of,
    map_of,
    object_of,
    quantities,
    quantity,
    scalar,
    string,
)
from livesize.api.schema.resources import ContainerSize, ResourceRequirements


class PodCondition(Message):
    type = string(1)
    status = string(2)
    lastProbeTime = scalar(Type.TIME, 3)
    lastTransitionTime = scalar(Type.TIME, 4)
    reason = string(5)
    message = string(6)
    observedGeneration = integer(7)


class ContainerStateWaiting(Message):
    reason = string(1)
    message = string(2)


class ContainerStateRunning(Message):
    startedAt = scalar(Type.TIME, 1)


class ContainerStateTerminated(Message):
    exitCode = integer(1, keeps_zero=True)
    signal = integer(2)
    reason = string(3)
    message = string(4)
    startedAt = scalar(Type.TIME, 5)
    finishedAt = scalar(Type.TIME, 6)
    containerID = string(7)


class ContainerState(Message):
    waiting = object_of(ContainerStateWaiting, 1, keeps_zero=True)
    running = object_of(ContainerStateRunning, 2, keeps_zero=True)
    terminated = object_of(ContainerStateTerminated, 3, keeps_zero=True)


class ContainerStatus(Message):
    name = string(1)
    state = object_of(ContainerState, 2)
    lastState = object_of(ContainerState, 3)
    ready = boolean(4, keeps_zero=True)
    restartCount = integer(5, keeps_zero=True)
    image = string(6)
    imageID = string(7)
    containerID = string(8)
    started = boolean(9, keeps_zero=True)
    allocatedResources = quantities(10, description="What the node has promised.")
    resources = object_of(
        ResourceRequirements,
        11,
        keeps_zero=True,
        description="What the machine itself reports, read back after every change.",
    )
    allocatedResourcesStatus = anything()
    stopSignal = anything()
    user = anything()
    volumeMounts = anything()


class PodIP(Message):
    ip = string(1)


class HostIP(Message):
    ip = string(1)


class VirtualMachineMaximum(Message):
    cpu = quantity()
    memory = quantity()


class VirtualMachineGuest(Message):
    """What is plugged into the guest, and what the guest itself says."""

    vcpusPlugged = integer()
    vcpusOnline = integer()
    memoryRequested = quantity()
    memoryPlugged = quantity()
    memorySeen = quantity()
    memoryAvailable = quantity()
    agent = boolean()
    bootId = string()
    uptimeSeconds = scalar(Type.NUMBER)


class VirtualMachineDevice(Message):
    alias = string()
    kind = string()
    node = integer()
    size = quantity()
    requested = quantity()
    current = quantity()
    unplug = string(description="pending or rejected: what became of taking it away.")


class VirtualMachineMemoryStatus(Message):
    """How its memory changes, what it boots with, what it was asked to have, and the most it can
    have."""

    technology = string()
    maxBootTime = quantity()
    current = quantity()
    maxExpandable = quantity()


class VirtualMachineCellStatus(Message):
    """One NUMA cell: what it boots with, what it was asked to have, what is plugged into it, and
    what the guest sees of it."""

    id = integer()
    boot = quantity()
    requested = quantity()
    plugged = quantity()
    seen = quantity()


class PodVirtualMachineStatus(Message):
    state = string()
    reason = string()
    message = string()
    exitCode = integer()
    startedAt = string()
    finishedAt = string()
    lastState = map_of(Type.ANYTHING)
    restartCount = integer()
    virtualMachineID = string()
    pid = integer()
    resourceUpdateInProgress = boolean()
    memoryLimitInBytesBeingUpdated = integer()
    accelerator = string()
    resources = object_of(ResourceRequirements)
    allocatedResources = quantities()
    maximum = object_of(VirtualMachineMaximum)
    memory = object_of(VirtualMachineMemoryStatus)
    cells = list_of(VirtualMachineCellStatus)
    guest = object_of(VirtualMachineGuest)
    devices = list_of(VirtualMachineDevice)


class ResizeStep(Message):
    name = string()
    time = string()
    seconds = scalar(Type.NUMBER)
    outcome = string()
    message = string()


class PolicyInForce(Message):
    """What a change of each resource does to one container: NoRestart, RestartContainer or
    RestartOnly."""

    name = string()
    cpu = string()
    memory = string()


class ResizeState(Message):
    """The one stored state of a resize; every dialect is derived from it."""

    generation = integer()
    requestedBy = string()
    desired = list_of(ContainerSize)
    allocated = list_of(ContainerSize)
    previous = list_of(ContainerSize)
    requestedTime = string()
    requestedVersion = string()
    action = string()
    phase = string()
    reason = string()
    message = string()
    transitionTime = string()
    observedGeneration = integer()
    steps = list_of(ResizeStep)
    resizePolicy = list_of(PolicyInForce)


class PodStatus(Message):
    phase = string(1, "Pending", "Running", "Succeeded", "Failed", "Unknown")
    conditions = list_of(PodCondition, 2, key="type")
    message = string(3)
    reason = string(4)
    hostIP = string(5)
    podIP = string(6)
    startTime = scalar(Type.TIME, 7)
    containerStatuses = list_of(ContainerStatus, 8)
    qosClass = string(9, "Guaranteed", "Burstable", "BestEffort")
    initContainerStatuses = list_of(ContainerStatus, 10)
    nominatedNodeName = string(11)
    podIPs = list_of(PodIP, 12, key="ip")
    ephemeralContainerStatuses = list_of(ContainerStatus, 13)
    resize = string(14)
    hostIPs = list_of(HostIP, 16, key="ip", is_atomic=True)
    observedGeneration = integer(
        17, description="The generation of the spec that this status is about."
    )
    virtualMachineStatus = object_of(PodVirtualMachineStatus)
    resizeState = object_of(
        ResizeState,
        description="The one state of a resize, from which all its other signs are derived.",
    )
    allocatedResources = anything()
    extendedResourceClaimStatus = anything()
    resourceClaimStatuses = list_of(Type.ANYTHING, key="name")
    resources = anything()

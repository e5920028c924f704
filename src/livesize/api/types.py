"""The shapes of the objects we serve, for the type checker and for readers.

At run time an object is a plain dict (``livesize.api.objects``); these say which fields we know.
Fields we do not know are kept all the same. Names are the wire's, hence camelCase.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

Quantity: TypeAlias = str | int | float
ResourceList: TypeAlias = dict[str, Quantity]


class OwnerReference(TypedDict, total=False):
    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool
    blockOwnerDeletion: bool


class ObjectMeta(TypedDict, total=False):
    name: str
    generateName: str
    namespace: str
    uid: str
    resourceVersion: str
    generation: int
    creationTimestamp: str
    deletionTimestamp: str
    deletionGracePeriodSeconds: int
    labels: dict[str, str]
    annotations: dict[str, str]
    finalizers: list[str]
    ownerReferences: list[OwnerReference]
    managedFields: list[dict[str, Any]]


class Condition(TypedDict, total=False):
    type: str
    status: str
    reason: str
    message: str
    lastTransitionTime: str
    lastProbeTime: str
    lastHeartbeatTime: str
    observedGeneration: int


class ResourceRequirements(TypedDict, total=False):
    requests: ResourceList
    limits: ResourceList
    resizePolicy: dict[str, str]  # IBM: resource name to RestartOnly and so on


class ContainerResizePolicy(TypedDict, total=False):
    resourceName: str
    restartPolicy: str


class ContainerRestartRuleOnExitCodes(TypedDict, total=False):
    operator: str
    values: list[int]


class ContainerRestartRule(TypedDict, total=False):
    action: str
    exitCodes: ContainerRestartRuleOnExitCodes


class EnvVar(TypedDict, total=False):
    name: str
    value: str


class ContainerPort(TypedDict, total=False):
    name: str
    containerPort: int
    hostPort: int
    protocol: str


class Container(TypedDict, total=False):
    name: str
    image: str
    imagePullPolicy: str
    command: list[str]
    args: list[str]
    workingDir: str
    env: list[EnvVar]
    ports: list[ContainerPort]
    resources: ResourceRequirements
    resizePolicy: list[ContainerResizePolicy]
    restartPolicy: str
    restartPolicyRules: list[ContainerRestartRule]
    resourcesAllocated: ResourceList  # derived (ARK)
    securityContext: dict[str, Any]
    terminationMessagePath: str
    terminationMessagePolicy: str


class ContainerSize(TypedDict, total=False):
    """One container's resources by name: desired, allocated and IBM's newResources."""

    name: str
    requests: ResourceList
    limits: ResourceList


class ResizeRequest(TypedDict, total=False):
    """Derived (IBM)."""

    requestStatus: Literal["None", "Requested", "Accepted", "Rejected", "Done"]
    newResources: list[ContainerSize]


class KernelBoot(TypedDict, total=False):
    image: str
    initrd: str
    commandLine: str


class DiskBoot(TypedDict, total=False):
    image: str


class VirtualMachineCpu(TypedDict, total=False):
    max: Quantity


class VirtualMachineMemory(TypedDict, total=False):
    max: Quantity
    boot: Quantity


class PodVirtualMachine(TypedDict, total=False):
    """Instead of containers: one virtual machine. It boots from a kernel or from a disk, each the
    name of an image; maxima and boot memory are fixed when it is made."""

    kernel: KernelBoot
    disk: DiskBoot
    cpu: VirtualMachineCpu
    memory: VirtualMachineMemory
    resources: ResourceRequirements
    resizePolicy: list[ContainerResizePolicy]
    resourcesAllocated: ResourceList  # derived (ARK)


class PodSpec(TypedDict, total=False):
    containers: list[Container]
    virtualMachine: PodVirtualMachine
    initContainers: list[Container]
    ephemeralContainers: list[Container]
    nodeName: str
    nodeSelector: dict[str, str]
    restartPolicy: Literal["Always", "OnFailure", "Never"]
    terminationGracePeriodSeconds: int
    activeDeadlineSeconds: int
    schedulerName: str
    dnsPolicy: str
    hostNetwork: bool
    hostname: str
    enableServiceLinks: bool
    securityContext: dict[str, Any]
    tolerations: list[dict[str, Any]]
    volumes: list[dict[str, Any]]
    overhead: ResourceList
    priority: int
    priorityClassName: str
    resizeRequest: ResizeRequest  # derived (IBM)


class ContainerStatus(TypedDict, total=False):
    name: str
    image: str
    imageID: str
    containerID: str
    ready: bool
    started: bool
    restartCount: int
    state: dict[str, Any]
    lastState: dict[str, Any]
    resources: ResourceRequirements  # actual
    allocatedResources: ResourceList  # derived


class VirtualMachineGuest(TypedDict, total=False):
    """What is plugged into the guest, and what the guest itself says."""

    vcpusPlugged: int
    vcpusOnline: int
    memoryRequested: Quantity
    memoryPlugged: Quantity
    memorySeen: Quantity
    memoryAvailable: Quantity
    agent: bool
    bootId: str
    uptimeSeconds: float


class VirtualMachineDevice(TypedDict, total=False):
    alias: str
    kind: str
    node: int
    size: Quantity
    requested: Quantity
    current: Quantity


class VirtualMachineMaximum(TypedDict, total=False):
    cpu: Quantity
    memory: Quantity


class PodVirtualMachineStatus(TypedDict, total=False):
    state: str  # Waiting, Starting, Running, Stopped
    reason: str
    message: str
    exitCode: int
    startedAt: str
    finishedAt: str
    lastState: dict[str, Any]
    restartCount: int
    virtualMachineID: str
    pid: int
    resourceUpdateInProgress: bool
    memoryLimitInBytesBeingUpdated: int
    accelerator: str
    resources: ResourceRequirements  # actual
    allocatedResources: ResourceList  # derived
    maximum: VirtualMachineMaximum
    guest: VirtualMachineGuest
    devices: list[VirtualMachineDevice]


class PolicyInForce(TypedDict, total=False):
    """What a change of each resource does to one container: NoRestart, RestartContainer or
    RestartOnly."""

    name: str
    cpu: str
    memory: str


class ResizeStep(TypedDict, total=False):
    name: str
    time: str
    seconds: float
    outcome: str
    message: str


class ResizeState(TypedDict, total=False):
    """The one stored state of a resize; every dialect is derived from it."""

    generation: int
    requestedBy: str
    desired: list[ContainerSize]
    allocated: list[ContainerSize]
    previous: list[ContainerSize]
    requestedTime: str
    requestedVersion: str
    action: str
    phase: str
    reason: str
    message: str
    transitionTime: str
    observedGeneration: int
    steps: list[ResizeStep]
    resizePolicy: list[PolicyInForce]


class PodStatus(TypedDict, total=False):
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
    conditions: list[Condition]
    reason: str
    message: str
    hostIP: str
    podIP: str
    podIPs: list[dict[str, str]]
    startTime: str
    qosClass: Literal["Guaranteed", "Burstable", "BestEffort"]
    observedGeneration: int
    containerStatuses: list[ContainerStatus]
    initContainerStatuses: list[ContainerStatus]
    virtualMachineStatus: PodVirtualMachineStatus
    resizeState: ResizeState
    resize: str


class Pod(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus


class Resizing(TypedDict, total=False):
    """Body of POST pods/X/resizing. The fields after ``request`` are ours, and optional."""

    apiVersion: str
    kind: str
    metadata: ObjectMeta
    request: ResizeRequest
    generation: int
    phase: str
    reason: str
    message: str
    allocated: list[ContainerSize]
    steps: list[ResizeStep]
    status: PodStatus
    events: list[Event]


class Eviction(TypedDict, total=False):
    """Body of POST pods/X/eviction, in policy/v1."""

    apiVersion: str
    kind: str
    metadata: ObjectMeta
    deleteOptions: dict[str, Any]


class NodeSystemInfo(TypedDict, total=False):
    machineID: str
    systemUUID: str
    bootID: str
    kernelVersion: str
    osImage: str
    containerRuntimeVersion: str
    kubeletVersion: str
    operatingSystem: str
    architecture: str


class NodeStatus(TypedDict, total=False):
    capacity: ResourceList
    allocatable: ResourceList
    conditions: list[Condition]
    addresses: list[dict[str, str]]
    nodeInfo: NodeSystemInfo
    daemonEndpoints: dict[str, Any]
    images: list[dict[str, Any]]


class Node(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: dict[str, Any]
    status: NodeStatus


class Namespace(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: dict[str, Any]
    status: dict[str, Any]


class ScopeRequirement(TypedDict, total=False):
    scopeName: str
    operator: str
    values: list[str]


class ScopeSelector(TypedDict, total=False):
    matchExpressions: list[ScopeRequirement]


class ResourceQuotaSpec(TypedDict, total=False):
    hard: ResourceList
    scopes: list[str]
    scopeSelector: ScopeSelector


class ResourceQuotaStatus(TypedDict, total=False):
    hard: ResourceList
    used: ResourceList


class ResourceQuota(TypedDict, total=False):
    """What all objects of a namespace together may use."""

    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: ResourceQuotaSpec
    status: ResourceQuotaStatus


class LimitRangeItem(TypedDict, total=False):
    type: str
    max: ResourceList
    min: ResourceList
    default: ResourceList  # limits of containers that give none
    defaultRequest: ResourceList
    maxLimitRequestRatio: ResourceList


class LimitRangeSpec(TypedDict, total=False):
    limits: list[LimitRangeItem]


class LimitRange(TypedDict, total=False):
    """What each container or pod of a namespace gets if it says nothing, and its bounds."""

    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: LimitRangeSpec


class LocalObjectReference(TypedDict, total=False):
    name: str


class ServiceAccount(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    secrets: list[dict[str, Any]]
    imagePullSecrets: list[LocalObjectReference]
    automountServiceAccountToken: bool


class ConfigMap(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    data: dict[str, str]
    binaryData: dict[str, str]
    immutable: bool


class Secret(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    data: dict[str, str]
    stringData: dict[str, str]  # written into data
    type: str
    immutable: bool


class ServicePort(TypedDict, total=False):
    name: str
    protocol: str
    appProtocol: str
    port: int
    targetPort: Any  # a number, or the name of a container's port
    nodePort: int


class ServiceSpec(TypedDict, total=False):
    type: str
    selector: dict[str, str]
    ports: list[ServicePort]
    clusterIP: str
    clusterIPs: list[str]
    externalIPs: list[str]
    externalName: str
    sessionAffinity: str
    ipFamilies: list[str]
    ipFamilyPolicy: str
    internalTrafficPolicy: str


class Service(TypedDict, total=False):
    """Stored and served; nothing routes by it."""

    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: ServiceSpec
    status: dict[str, Any]


class PodDisruptionBudgetSpec(TypedDict, total=False):
    minAvailable: Any  # a number, or a percentage
    maxUnavailable: Any
    selector: dict[str, Any]
    unhealthyPodEvictionPolicy: str


class PodDisruptionBudget(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec
    status: dict[str, Any]


class PriorityClass(TypedDict, total=False):
    """What pods that name it are worth."""

    apiVersion: str
    kind: str
    metadata: ObjectMeta
    value: int
    globalDefault: bool
    description: str
    preemptionPolicy: str


class ObjectReference(TypedDict, total=False):
    apiVersion: str
    kind: str
    namespace: str
    name: str
    uid: str
    resourceVersion: str
    fieldPath: str


class Event(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    involvedObject: ObjectReference
    reason: str
    message: str
    type: Literal["Normal", "Warning"]
    count: int
    firstTimestamp: str
    lastTimestamp: str
    eventTime: str
    source: dict[str, str]
    reportingComponent: str
    reportingInstance: str


class VolumeResourceRequirements(TypedDict, total=False):
    requests: ResourceList
    limits: ResourceList


class PersistentVolumeClaimSpec(TypedDict, total=False):
    accessModes: list[str]
    resources: VolumeResourceRequirements
    storageClassName: str
    volumeMode: str
    volumeName: str
    selector: dict[str, Any]


class PersistentVolumeClaimStatus(TypedDict, total=False):
    phase: str
    accessModes: list[str]
    capacity: ResourceList
    conditions: list[Condition]


class PersistentVolumeClaim(TypedDict, total=False):
    """Storage that pods name and that outlives them."""

    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec
    status: PersistentVolumeClaimStatus


class HostPathVolumeSource(TypedDict, total=False):
    path: str
    type: str


class LocalVolumeSource(TypedDict, total=False):
    path: str
    fsType: str


class PersistentVolumeSpec(TypedDict, total=False):
    capacity: ResourceList
    accessModes: list[str]
    hostPath: HostPathVolumeSource
    local: LocalVolumeSource
    claimRef: ObjectReference
    nodeAffinity: dict[str, Any]
    persistentVolumeReclaimPolicy: str
    storageClassName: str
    volumeMode: str
    mountOptions: list[str]


class PersistentVolumeStatus(TypedDict, total=False):
    phase: str
    message: str
    reason: str
    lastPhaseTransitionTime: str


class PersistentVolume(TypedDict, total=False):
    """A folder of a machine that a claim can have."""

    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: PersistentVolumeSpec
    status: PersistentVolumeStatus


class StorageClass(TypedDict, total=False):
    """How volumes for claims are made, when, and what becomes of them."""

    apiVersion: str
    kind: str
    metadata: ObjectMeta
    provisioner: str
    parameters: dict[str, str]
    reclaimPolicy: str
    volumeBindingMode: str
    allowVolumeExpansion: bool
    mountOptions: list[str]
    allowedTopologies: list[dict[str, Any]]


class Lease(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: dict[str, Any]

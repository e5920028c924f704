"""The pod template: what a pod asks for, apart from the pod. Kinds that make pods carry one.

A field of a pod's spec says too what becomes of it (``support``): nothing is ignored in silence."""

from __future__ import annotations

from livesize.api.schema.containers import Container, EphemeralContainer
from livesize.api.schema.fields import (
    Message,
    Type,
    boolean,
    integer,
    list_of,
    object_of,
    quantities,
    string,
    string_map,
    strings,
)
from livesize.api.schema.meta import ObjectMeta
from livesize.api.schema.placement import Affinity, Toleration, TopologySpreadConstraint
from livesize.api.schema.references import LocalObjectReference
from livesize.api.schema.resources import ContainerSize, ResourceRequirements
from livesize.api.schema.security import PodSecurityContext
from livesize.api.schema.support import CLAIMS, CONFIG, NODE, WINDOWS, Refused, StoredOnly, used
from livesize.api.schema.virtual_machine import PodVirtualMachine
from livesize.api.schema.volumes import Volume


class HostAlias(Message):
    ip = string(1, support=used("agent.pods.config"))
    hostnames = strings(2, support=used("agent.pods.config"))


class PodDNSConfigOption(Message):
    name = string(1)
    value = string(2, keeps_zero=True)


class PodDNSConfig(Message):
    nameservers = strings(1)
    searches = strings(2)
    options = list_of(PodDNSConfigOption, 3)


class PodReadinessGate(Message):
    conditionType = string(1, support=used("agent.report"))


class PodOS(Message):
    name = string(1, support=Refused(WINDOWS.detail, ("", "linux")))


class PodSchedulingGate(Message):
    name = string(1)


class ResizeRequest(Message):
    """Derived (IBM)."""

    requestStatus = string(0, "None", "Requested", "Accepted", "Rejected", "Done")
    newResources = list_of(ContainerSize)


class PodSpec(Message, refuses_unknown=True):
    volumes = list_of(Volume, 1, key="name")
    containers = list_of(
        Container,
        2,
        key="name",
        description="The containers of the pod; none is added or removed later.",
    )
    restartPolicy = string(3, "Always", "OnFailure", "Never", support=used("api.restart_policy"))
    terminationGracePeriodSeconds = integer(4, keeps_zero=True, support=used("agent.pods.machine"))
    activeDeadlineSeconds = integer(5, keeps_zero=True, support=used("agent.pods.plan"))
    dnsPolicy = string(
        6,
        support=Refused(
            "containers get the node's own /etc/resolv.conf: leave it out, or say Default",
            ("", "ClusterFirst", "ClusterFirstWithHostNet", "Default"),
        ),
    )
    nodeSelector = string_map(7, is_atomic=True, support=used("scheduler.snapshot"))
    serviceAccountName = string(8, support=used("agent.volumes.fields"))
    serviceAccount = string(9, support=used("api.pod_template"))
    nodeName = string(
        10,
        description="The node the pod runs on; set once, by the scheduler.",
        support=used("agent.agent", "scheduler.snapshot"),
    )
    hostNetwork = boolean(11, support=CONFIG)
    hostPID = boolean(
        12, support=Refused("containers have process namespaces of their own: leave it out")
    )
    hostIPC = boolean(
        13, support=Refused("containers have IPC namespaces of their own: leave it out")
    )
    securityContext = object_of(PodSecurityContext, 14, keeps_zero=True)
    imagePullSecrets = list_of(LocalObjectReference, 15, key="name")
    hostname = string(16, support=used("api.peer_names"))
    subdomain = string(17, support=used("api.peer_names"))
    affinity = object_of(Affinity, 18, keeps_zero=True)
    schedulerName = string(19, support=used("scheduler.snapshot"))
    initContainers = list_of(Container, 20, key="name")
    automountServiceAccountToken = boolean(
        21,
        keeps_zero=True,
        support=Refused(
            (
                "pods get no token of their service account yet: leave it out or say false,"
                " and give the container its credentials as a Secret"
            ),
            (False,),
        ),
    )
    tolerations = list_of(Toleration, 22)
    hostAliases = list_of(HostAlias, 23, key="ip")
    priorityClassName = string(24, support=used("apiserver.admission.mutation"))
    priority = integer(
        25, keeps_zero=True, support=used("scheduler.snapshot", "agent.admission.plan")
    )
    dnsConfig = object_of(
        PodDNSConfig,
        26,
        keeps_zero=True,
        support=Refused(
            "containers get the node's own /etc/resolv.conf: leave it out, and name hosts"
            " in spec.hostAliases"
        ),
    )
    shareProcessNamespace = boolean(
        27,
        keeps_zero=True,
        support=Refused("each container has a process namespace of its own: leave it out"),
    )
    readinessGates = list_of(PodReadinessGate, 28)
    runtimeClassName = string(
        29,
        keeps_zero=True,
        support=Refused(
            "a node has one runtime, and there are no RuntimeClasses: leave it out, and"
            " choose with `livesize up --runtime`"
        ),
    )
    enableServiceLinks = boolean(
        30,
        keeps_zero=True,
        support=StoredOnly(
            "true, the default, gives variables with the addresses of Services, and here"
            " a Service has no address that anything routes; false is what happens"
        ),
    )
    preemptionPolicy = string(
        31,
        keeps_zero=True,
        support=StoredOnly(
            "no pod is ever removed to make room for another, so both policies come to Never"
        ),
    )
    overhead = quantities(32, support=used("api.accounting"))
    topologySpreadConstraints = list_of(
        TopologySpreadConstraint, 33, key="topologyKey", keys=("topologyKey", "whenUnsatisfiable")
    )
    ephemeralContainers = list_of(EphemeralContainer, 34, key="name", support=NODE)
    setHostnameAsFQDN = boolean(
        35,
        keeps_zero=True,
        support=Refused(
            "a pod has no name in a domain, as there is no DNS of the cluster: leave it out"
        ),
    )
    os = object_of(PodOS, 36, keeps_zero=True)
    hostUsers = boolean(
        37,
        keeps_zero=True,
        support=Refused(
            "containers have no user namespace of their own: leave it out or say true", (True,)
        ),
    )
    schedulingGates = list_of(PodSchedulingGate, 38, key="name", support=used("scheduler.snapshot"))
    resources = object_of(
        ResourceRequirements,
        40,
        keeps_zero=True,
        support=Refused("pod-level resources are not supported: give each container its own"),
    )
    hostnameOverride = string(
        41, keeps_zero=True, support=Refused("it is not carried out yet: use spec.hostname")
    )
    virtualMachine = object_of(
        PodVirtualMachine, description="A virtual machine instead of containers."
    )
    resizeRequest = object_of(
        ResizeRequest,
        description="How far the newest resize is, as one word. Derived, never written.",
        support=used("api.dialects"),
    )
    resourceClaims = list_of(Type.ANYTHING, key="name", support=CLAIMS)


class PodTemplateSpec(Message):
    metadata = object_of(ObjectMeta, 1)
    spec = object_of(PodSpec, 2)

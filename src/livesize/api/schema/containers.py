"""Containers, as pods ask for them."""

from __future__ import annotations

from livesize.api.schema.environment import EnvFromSource, EnvVar
from livesize.api.schema.fields import (
    Message,
    Type,
    anything,
    boolean,
    integer,
    list_of,
    object_of,
    quantities,
    string,
    strings,
)
from livesize.api.schema.probes import Lifecycle, Probe
from livesize.api.schema.resources import ContainerResizePolicy, ResourceRequirements
from livesize.api.schema.security import SecurityContext
from livesize.api.schema.support import CONFIG, PROBED, Refused, StoredOnly, used


class ContainerPort(Message):
    name = string(1, support=PROBED)
    hostPort = integer(2, support=used("api.validation.unsupported"))
    containerPort = integer(3, keeps_zero=True, support=PROBED)
    protocol = string(
        4, support=StoredOnly("a program opens its ports itself; the word is for who reads the pod")
    )
    hostIP = string(
        5,
        support=Refused(
            ("ports are not mapped: leave it out, and let the program choose where it listens"),
            ("",),
        ),
    )


class ContainerRestartRuleOnExitCodes(Message):
    operator = string(1, support=used("api.restart_policy"))
    values = list_of(Type.INTEGER, 2, support=used("api.restart_policy"))


class ContainerRestartRule(Message):
    action = string(1, support=used("api.validation.lifecycle"))
    exitCodes = object_of(ContainerRestartRuleOnExitCodes, 2, keeps_zero=True)


class VolumeMount(Message):
    name = string(1, support=used("agent.volumes.keeper"))
    readOnly = boolean(2, support=used("agent.volumes.keeper"))
    mountPath = string(3, support=used("agent.volumes.keeper"))
    subPath = string(4, support=used("agent.volumes.keeper"))
    mountPropagation = string(
        5,
        keeps_zero=True,
        support=Refused(
            ("mounts made later do not pass between node and container: leave it out or say None"),
            ("", "None"),
        ),
    )
    subPathExpr = string(6, support=used("agent.volumes.keeper"))
    recursiveReadOnly = string(
        7,
        keeps_zero=True,
        support=Refused(
            "what is mounted below a volume stays as it is: leave it out or say IfPossible",
            ("", "Disabled", "IfPossible"),
        ),
    )


class VolumeDevice(Message):
    name = string(1)
    devicePath = string(2)


class EphemeralContainerCommon(Message):
    name = string(1, support=CONFIG)
    image = string(2, support=CONFIG)
    command = strings(3, support=CONFIG)
    args = strings(4, support=CONFIG)
    workingDir = string(5, support=CONFIG)
    ports = list_of(ContainerPort, 6, key="containerPort", keys=("containerPort", "protocol"))
    env = list_of(EnvVar, 7, key="name")
    resources = object_of(
        ResourceRequirements,
        8,
        description=(
            "CPU and memory that are asked for. Changing them, here or through"
            " pods/resize, resizes the running container."
        ),
    )
    volumeMounts = list_of(VolumeMount, 9, key="mountPath")
    livenessProbe = object_of(Probe, 10, keeps_zero=True)
    readinessProbe = object_of(Probe, 11, keeps_zero=True)
    lifecycle = object_of(Lifecycle, 12, keeps_zero=True)
    terminationMessagePath = string(13, support=used("agent.pods.last_words"))
    imagePullPolicy = string(14, support=used("agent.pods.pulling"))
    securityContext = object_of(SecurityContext, 15, keeps_zero=True)
    stdin = boolean(16, support=CONFIG)
    stdinOnce = boolean(17, support=CONFIG)
    tty = boolean(18, support=CONFIG)
    envFrom = list_of(EnvFromSource, 19)
    terminationMessagePolicy = string(20, support=used("agent.pods.last_words"))
    volumeDevices = list_of(
        VolumeDevice,
        21,
        key="devicePath",
        support=Refused("volumes are folders, never block devices: use volumeMounts"),
    )
    startupProbe = object_of(Probe, 22, keeps_zero=True)
    resizePolicy = list_of(
        ContainerResizePolicy,
        23,
        description=(
            "What a resize of a resource does to the running container. A resource that"
            " is not named is resized without a restart."
        ),
    )
    restartPolicy = string(24, keeps_zero=True, support=used("api.restart_policy"))
    restartPolicyRules = list_of(ContainerRestartRule, 25)


class Container(EphemeralContainerCommon, refuses_unknown=True):
    resourcesAllocated = quantities(
        description="What the node has promised. Derived, written by the node only.",
        support=used("api.dialects"),
    )
    targetContainerName = anything(
        support=Refused("only ephemeral containers have one: leave it out")
    )


class EphemeralContainer(Message, inlined={1: EphemeralContainerCommon}):
    targetContainerName = string(2)

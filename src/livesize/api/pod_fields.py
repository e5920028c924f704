"""Every field that a pod may ask for something with, and what becomes of it: one row each. Pure.

``Used`` names the modules that carry it out, ``Refused`` says why the API server answers 422 and
what to do instead, ``AtNode`` names the module in which a node refuses it, and ``Kept`` is stored
without effect, for a reason that docs/pod-fields.md repeats. ``Inside`` has fields of its own.
tests/unit/test_house_pod_fields.py walks the schemas that we serve and fails for a field without a
row: nothing is ignored in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from livesize.api.objects import Object


class Used(msgspec.Struct, frozen=True, tag=True):
    """``where``: modules below livesize."""

    where: tuple[str, ...]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """``fine``: values that ask for nothing, such as the default that clients send."""

    detail: str
    fine: tuple[Any, ...] = ()


class AtNode(msgspec.Struct, frozen=True, tag=True):
    """A node refuses it: the pod fails with UnsupportedByNode and a sentence."""

    where: str


class Kept(msgspec.Struct, frozen=True, tag=True):
    why: str


class Inside(msgspec.Struct, frozen=True, tag=True):
    """An object, or a list of objects, of that shape."""

    shape: str


Row: TypeAlias = Used | Refused | AtNode | Kept | Inside


def refused_fields(spec: Object) -> Iterator[tuple[str, str]]:
    """Each field of a pod's ``spec`` that no node carries out, and why, as a sentence."""
    return _refused(spec, "PodSpec", "spec")


def _refused(value: Any, shape: str, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _refused(item, shape, f"{where}[{index}]")
    elif isinstance(value, dict):
        rows = POD_FIELDS[shape]
        for field, item in value.items():
            match rows.get(field):
                case Refused(detail=detail, fine=fine) if not _asks_nothing(item, fine):
                    yield f"{where}.{field}", detail
                case Inside(shape=inner):
                    yield from _refused(item, inner, f"{where}.{field}")
                case _:
                    pass


def _asks_nothing(value: Any, fine: tuple[Any, ...]) -> bool:
    """Null, empty, false where nothing else is said, or one of the values that are fine."""
    if not fine:
        return not value
    return value is None or value in fine


def _used(*where: str) -> Used:
    return Used(where)


_CONFIG = _used("agent.pods.config")
_PROBED = _used("agent.probes.plan")
_VARIABLES = _used("agent.volumes.environment")
_FILES = _used("agent.volumes.wanted")
_NODE = AtNode("agent.admission.supported")
_VM = _used("api.vm_size")
_SOFT = Kept("a preference: the scheduler places by room, and breaks no rule by not weighing it")
_TERM = _used("api.placement")
_SELINUX = Refused("Livesize sets no SELinux labels: leave it out")
_APPARMOR = Refused("Livesize loads no AppArmor profiles: leave it out")
_WINDOWS = Refused("Livesize runs Linux containers only: leave it out")
_POD_AFFINITY = Refused(
    "the scheduler places pods by room, labels, taints and node affinity, not beside or away from"
    " other pods: use nodeSelector or nodeAffinity, or say it as a preference"
)
_PROFILES = Refused("nodes have no seccomp profiles of their own: use RuntimeDefault")
_CLAIMS = Refused("Livesize hands out no devices: leave it out, and ask for cpu and memory")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_KEY_SELECTOR: Mapping[str, Row] = {"name": _VARIABLES, "key": _VARIABLES, "optional": _VARIABLES}
_ENV_SOURCE: Mapping[str, Row] = {"name": _VARIABLES, "optional": _VARIABLES}
_REQUIREMENT: Mapping[str, Row] = {"key": _TERM, "operator": _TERM, "values": _TERM}
_POD_TERMS: Mapping[str, Row] = {_REQUIRED: _POD_AFFINITY, _PREFERRED: _SOFT}
_HANDLER: Mapping[str, Row] = {
    "exec": Inside("ExecAction"),
    "httpGet": Inside("HTTPGetAction"),
    "tcpSocket": Inside("TCPSocketAction"),
}
_NAMED_ITEMS: Mapping[str, Row] = {
    "name": _FILES,
    "items": Inside("KeyToPath"),
    "optional": _FILES,
}

_POD_SPEC: Mapping[str, Row] = {
    "volumes": Inside("Volume"),
    "containers": Inside("Container"),
    "initContainers": Inside("Container"),
    "ephemeralContainers": _NODE,
    "virtualMachine": Inside("PodVirtualMachine"),
    "restartPolicy": _used("api.restart_policy"),
    "terminationGracePeriodSeconds": _used("agent.pods.machine"),
    "activeDeadlineSeconds": _used("agent.pods.deadline"),
    "dnsPolicy": Refused(
        "containers get the node's own /etc/resolv.conf: leave it out, or say Default",
        # There is no DNS of the cluster; where there is none, Kubernetes falls back to Default too.
        ("", "ClusterFirst", "ClusterFirstWithHostNet", "Default"),
    ),
    "dnsConfig": Refused(
        "containers get the node's own /etc/resolv.conf: leave it out, and name hosts in"
        " spec.hostAliases"
    ),
    "nodeSelector": _used("scheduler.snapshot"),
    "serviceAccountName": _used("agent.volumes.fields"),
    "serviceAccount": _used("api.pod_template"),
    "automountServiceAccountToken": Refused(
        "pods get no token of their service account yet: leave it out or say false, and give the"
        " container its credentials as a Secret",
        (False,),
    ),
    "nodeName": _used("agent.agent", "scheduler.snapshot"),
    "hostNetwork": _CONFIG,
    "hostPID": Refused("containers have process namespaces of their own: leave it out"),
    "hostIPC": Refused("containers have IPC namespaces of their own: leave it out"),
    "hostUsers": Refused(
        "containers have no user namespace of their own: leave it out or say true", (True,)
    ),
    "shareProcessNamespace": Refused(
        "each container has a process namespace of its own: leave it out"
    ),
    "securityContext": Inside("PodSecurityContext"),
    "imagePullSecrets": Inside("LocalObjectReference"),
    "hostname": _CONFIG,
    "hostnameOverride": Refused("it is not carried out yet: use spec.hostname"),
    "subdomain": Kept(
        "names a pod in the cluster's DNS, of which there is none; every StatefulSet sets it"
    ),
    "setHostnameAsFQDN": Refused(
        "a pod has no name in a domain, as there is no DNS of the cluster: leave it out"
    ),
    "affinity": Inside("Affinity"),
    "schedulerName": _used("scheduler.snapshot"),
    "tolerations": Inside("Toleration"),
    "hostAliases": Inside("HostAlias"),
    "priorityClassName": _used("apiserver.admission.filling"),
    "priority": _used("scheduler.snapshot", "agent.admission.plan"),
    "preemptionPolicy": Kept(
        "no pod is ever removed to make room for another, so both policies come to Never"
    ),
    "readinessGates": Inside("PodReadinessGate"),
    "runtimeClassName": Refused(
        "a node has one runtime, and there are no RuntimeClasses: leave it out, and choose with"
        " `livesize up --runtime`"
    ),
    "enableServiceLinks": Kept(
        "true, the default, gives variables with the addresses of Services, and here a Service has"
        " no address that anything routes; false is what happens"
    ),
    "overhead": _used("api.accounting"),
    "topologySpreadConstraints": Inside("TopologySpreadConstraint"),
    "os": Inside("PodOS"),
    "schedulingGates": _used("scheduler.snapshot"),
    "resourceClaims": _CLAIMS,
    "resources": Refused("pod-level resources are not supported: give each container its own"),
    "resizeRequest": _used("api.dialects"),
}

_CONTAINER: Mapping[str, Row] = {
    "name": _CONFIG,
    "image": _CONFIG,
    "imagePullPolicy": _used("agent.pods.pulling"),
    "command": _CONFIG,
    "args": _CONFIG,
    "workingDir": _CONFIG,
    "ports": Inside("ContainerPort"),
    "env": Inside("EnvVar"),
    "envFrom": Inside("EnvFromSource"),
    "resources": Inside("ResourceRequirements"),
    "resizePolicy": Inside("ContainerResizePolicy"),
    "resourcesAllocated": _used("api.dialects"),
    "restartPolicy": _used("api.restart_policy"),
    "restartPolicyRules": Inside("ContainerRestartRule"),
    "volumeMounts": Inside("VolumeMount"),
    "volumeDevices": Refused("volumes are folders, never block devices: use volumeMounts"),
    "livenessProbe": Inside("Probe"),
    "readinessProbe": Inside("Probe"),
    "startupProbe": Inside("Probe"),
    "lifecycle": Inside("Lifecycle"),
    "terminationMessagePath": _used("agent.pods.last_words"),
    "terminationMessagePolicy": _used("agent.pods.last_words"),
    "securityContext": Inside("SecurityContext"),
    "stdin": _CONFIG,
    "stdinOnce": _CONFIG,
    "tty": _CONFIG,
    "targetContainerName": Refused("only ephemeral containers have one: leave it out"),
}

_SECURITY: Mapping[str, Row] = {
    "runAsUser": _CONFIG,
    "runAsGroup": _CONFIG,
    "runAsNonRoot": _CONFIG,
    "seccompProfile": Inside("SeccompProfile"),
    "seLinuxOptions": _SELINUX,
    "appArmorProfile": _APPARMOR,
    "windowsOptions": _WINDOWS,
}

POD_FIELDS: Mapping[str, Mapping[str, Row]] = {
    "PodSpec": _POD_SPEC,
    "Container": _CONTAINER,
    "SecurityContext": {
        **_SECURITY,
        "capabilities": Inside("Capabilities"),
        "privileged": _CONFIG,
        "readOnlyRootFilesystem": _CONFIG,
        "allowPrivilegeEscalation": Refused(
            "a process gets no more privileges than its parent has (no_new_privs): leave it out or"
            " say false",
            (False,),
        ),
        "procMount": Refused(
            "/proc is always masked: leave it out or say Default", ("", "Default")
        ),
    },
    "PodSecurityContext": {
        **_SECURITY,
        "supplementalGroups": _CONFIG,
        "fsGroup": _CONFIG,
        "sysctls": Inside("Sysctl"),
        "fsGroupChangePolicy": Kept(
            "a volume gets its group when it is made, and its files are not walked, which is"
            " OnRootMismatch"
        ),
        "supplementalGroupsPolicy": Refused(
            "the runtime decides whether groups of the image count: leave it out", ("", "Merge")
        ),
        "seLinuxChangePolicy": _SELINUX,
    },
    "Capabilities": {"add": _CONFIG, "drop": _CONFIG},
    "SeccompProfile": {"type": _CONFIG, "localhostProfile": _PROFILES},
    "Sysctl": {"name": _CONFIG, "value": _CONFIG},
    "LocalObjectReference": {"name": _used("api.pod_references")},
    "ContainerPort": {
        "name": _PROBED,
        "containerPort": _PROBED,
        "hostPort": _used("api.validation.unsupported"),
        "hostIP": Refused(
            "ports are not mapped: leave it out, and let the program choose where it listens",
            ("",),
        ),
        "protocol": Kept("a program opens its ports itself; the word is for who reads the pod"),
    },
    "ContainerRestartRule": {
        "action": _used("api.validation.lifecycle"),
        "exitCodes": Inside("ContainerRestartRuleOnExitCodes"),
    },
    "ContainerRestartRuleOnExitCodes": {
        "operator": _used("api.restart_policy"),
        "values": _used("api.restart_policy"),
    },
    "ContainerResizePolicy": {
        "resourceName": _used("api.resize_policy"),
        "restartPolicy": _used("api.resize_policy"),
        "name": _used("api.resize_policy"),
        "policy": _used("api.resize_policy"),
    },
    "ResourceRequirements": {
        "requests": _used("api.resources"),
        "limits": _used("api.resources"),
        "resizePolicy": _used("api.resize_policy"),
        "claims": _CLAIMS,
    },
    "EnvVar": {"name": _VARIABLES, "value": _VARIABLES, "valueFrom": Inside("EnvVarSource")},
    "EnvVarSource": {
        "fieldRef": Inside("ObjectFieldSelector"),
        "resourceFieldRef": Inside("ResourceFieldSelector"),
        "configMapKeyRef": Inside("ConfigMapKeySelector"),
        "secretKeyRef": Inside("SecretKeySelector"),
    },
    "ObjectFieldSelector": {
        "apiVersion": Kept("there is one version of a pod"),
        "fieldPath": _VARIABLES,
    },
    "ResourceFieldSelector": {
        "containerName": _VARIABLES,
        "resource": _VARIABLES,
        "divisor": _VARIABLES,
    },
    "ConfigMapKeySelector": _KEY_SELECTOR,
    "SecretKeySelector": _KEY_SELECTOR,
    "EnvFromSource": {
        "prefix": _VARIABLES,
        "configMapRef": Inside("ConfigMapEnvSource"),
        "secretRef": Inside("SecretEnvSource"),
    },
    "ConfigMapEnvSource": _ENV_SOURCE,
    "SecretEnvSource": _ENV_SOURCE,
    "VolumeMount": {
        "name": _used("agent.volumes.keeper"),
        "mountPath": _used("agent.volumes.keeper"),
        "readOnly": _used("agent.volumes.keeper"),
        "subPath": _used("agent.volumes.keeper"),
        "subPathExpr": _used("agent.volumes.keeper"),
        "mountPropagation": Refused(
            "mounts made later do not pass between node and container: leave it out or say None",
            ("", "None"),
        ),
        "recursiveReadOnly": Refused(
            "what is mounted below a volume stays as it is: leave it out or say IfPossible",
            ("", "Disabled", "IfPossible"),
        ),
    },
    "Probe": {
        **_HANDLER,
        "grpc": _NODE,
        "initialDelaySeconds": _PROBED,
        "timeoutSeconds": _PROBED,
        "periodSeconds": _PROBED,
        "successThreshold": _PROBED,
        "failureThreshold": _PROBED,
        "terminationGracePeriodSeconds": _PROBED,
    },
    "Lifecycle": {
        "postStart": Inside("LifecycleHandler"),
        "preStop": Inside("LifecycleHandler"),
        "stopSignal": Refused("containers are stopped with SIGTERM: use a preStop hook"),
    },
    "LifecycleHandler": {**_HANDLER, "sleep": Inside("SleepAction")},
    "ExecAction": {"command": _PROBED},
    "HTTPGetAction": {
        "path": _PROBED,
        "port": _PROBED,
        "host": _PROBED,
        "scheme": _PROBED,
        "httpHeaders": Inside("HTTPHeader"),
    },
    "HTTPHeader": {"name": _PROBED, "value": _PROBED},
    "TCPSocketAction": {"port": _PROBED, "host": _PROBED},
    "SleepAction": {"seconds": _PROBED},
    "Volume": {
        "name": _FILES,
        "hostPath": Inside("HostPathVolumeSource"),
        "emptyDir": Inside("EmptyDirVolumeSource"),
        "secret": Inside("SecretVolumeSource"),
        "persistentVolumeClaim": Inside("PersistentVolumeClaimVolumeSource"),
        "downwardAPI": Inside("DownwardAPIVolumeSource"),
        "configMap": Inside("ConfigMapVolumeSource"),
        "projected": Inside("ProjectedVolumeSource"),
        "nfs": _NODE,
    },
    "HostPathVolumeSource": {"path": _FILES, "type": _FILES},
    "EmptyDirVolumeSource": {"medium": _FILES, "sizeLimit": _FILES},
    "SecretVolumeSource": {
        "secretName": _FILES,
        "items": Inside("KeyToPath"),
        "defaultMode": _FILES,
        "optional": _FILES,
    },
    "PersistentVolumeClaimVolumeSource": {
        "claimName": _used("agent.volumes.claims"),
        "readOnly": _used("agent.volumes.keeper"),
    },
    "DownwardAPIVolumeSource": {"items": Inside("DownwardAPIVolumeFile"), "defaultMode": _FILES},
    "DownwardAPIVolumeFile": {
        "path": _FILES,
        "fieldRef": Inside("ObjectFieldSelector"),
        "resourceFieldRef": Inside("ResourceFieldSelector"),
        "mode": _FILES,
    },
    "ConfigMapVolumeSource": {**_NAMED_ITEMS, "defaultMode": _FILES},
    "KeyToPath": {"key": _FILES, "path": _FILES, "mode": _FILES},
    "ProjectedVolumeSource": {"sources": Inside("VolumeProjection"), "defaultMode": _FILES},
    "VolumeProjection": {
        "secret": Inside("SecretProjection"),
        "downwardAPI": Inside("DownwardAPIProjection"),
        "configMap": Inside("ConfigMapProjection"),
        "serviceAccountToken": _NODE,
    },
    "SecretProjection": _NAMED_ITEMS,
    "ConfigMapProjection": _NAMED_ITEMS,
    "DownwardAPIProjection": {"items": Inside("DownwardAPIVolumeFile")},
    "Affinity": {
        "nodeAffinity": Inside("NodeAffinity"),
        "podAffinity": Inside("PodAffinity"),
        "podAntiAffinity": Inside("PodAffinity"),
    },
    "NodeAffinity": {_REQUIRED: Inside("NodeSelector"), _PREFERRED: _SOFT},
    "NodeSelector": {"nodeSelectorTerms": Inside("NodeSelectorTerm")},
    "NodeSelectorTerm": {
        "matchExpressions": Inside("Requirement"),
        "matchFields": Inside("Requirement"),
    },
    "Requirement": _REQUIREMENT,
    "PodAffinity": _POD_TERMS,
    "Toleration": {
        "key": _TERM,
        "operator": _TERM,
        "value": _TERM,
        "effect": _TERM,
        "tolerationSeconds": Kept("a taint keeps new pods away, and removes none that runs"),
    },
    "TopologySpreadConstraint": {
        "whenUnsatisfiable": Refused(
            "the scheduler places pods by room and does not spread them: say ScheduleAnyway, or"
            " choose nodes with nodeSelector",
            ("ScheduleAnyway",),
        ),
        **dict.fromkeys(
            (
                "maxSkew",
                "topologyKey",
                "labelSelector",
                "minDomains",
                "nodeAffinityPolicy",
                "nodeTaintsPolicy",
                "matchLabelKeys",
            ),
            _SOFT,
        ),
    },
    "HostAlias": {"ip": _used("agent.pods.hosts"), "hostnames": _used("agent.pods.hosts")},
    "PodReadinessGate": {"conditionType": _used("agent.readiness")},
    "PodOS": {"name": Refused(_WINDOWS.detail, ("", "linux"))},
    "PodVirtualMachine": {
        "kernel": Inside("KernelBoot"),
        "disk": Inside("DiskBoot"),
        "cpu": Inside("VirtualMachineCpu"),
        "memory": Inside("VirtualMachineMemory"),
        "resources": Inside("ResourceRequirements"),
        "resizePolicy": Inside("ContainerResizePolicy"),
        "resourcesAllocated": _used("api.dialects"),
    },
    "KernelBoot": dict.fromkeys(("image", "initrd", "commandLine"), _used("agent.vm.sizes")),
    "DiskBoot": {"image": _used("agent.vm.sizes")},
    "VirtualMachineCpu": {"max": _VM},
    "VirtualMachineMemory": {"max": _VM, "boot": _VM},
}

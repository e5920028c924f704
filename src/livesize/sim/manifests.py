"""Manifests of the workloads in a sequence: what their user wants, and what that means. Pure.

The rules are said here once more, in the words of docs/workloads.md and of IBM's table, because the
checkers judge the product by them: what a manifest asks for, which change restarts what, what may
become of a pod that cannot be resized.
"""

from __future__ import annotations

import json
from random import Random
from typing import Final

import msgspec

from livesize.api.kinds.deployment import DEPLOYMENTS
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.stateful_set import STATEFUL_SETS
from livesize.api.objects import Object, lookup
from livesize.api.quantity import format_cpu, format_memory
from livesize.api.resources import parse_amounts
from livesize.runtime.fake import FAKE_IMAGE

NAMESPACE: Final = "default"
CONTAINER: Final = "app"
APP: Final = "app"
"""The label that tells which workload a pod belongs to."""
ACTION: Final = "resizeAction"
HELD: Final = "livesize.dev/held"
RESTARTED: Final = "kubectl.kubernetes.io/restartedAt"
_ON_DEADLINE, _DEADLINE = "livesize.dev/on-deadline", "livesize.dev/resize-deadline"
_PARALLELISM, _NOTED = "livesize.dev/resize-parallelism", "livesize.dev/resize-policy"
_MIB = 1 << 20
CPU, MEMORY = "cpu", "memory"
LIVE, RESTARTS, RECREATES = 1, 2, 3

_CPU_MILLI = (250, 500, 750, 1000, 1500, 2000)
_MEMORY_MIB = (128, 256, 512, 768)
_TOO_LARGE_MILLI = 9000
_TOO_LARGE_SHARE = 0.05
_BURSTING_SHARE = 0.5


class ManifestSizes(msgspec.Struct, frozen=True):
    """Limits; requests are the same, or of CPU the half: another QoS class."""

    cpu_milli: int
    memory_mib: int
    is_burstable: bool = False

    @property
    def request_milli(self) -> int:
        return int(self.cpu_milli * _BURSTING_SHARE) if self.is_burstable else self.cpu_milli

    def __str__(self) -> str:
        burstable = " burstable" if self.is_burstable else ""
        return f"{self.cpu_milli}m {self.memory_mib}Mi{burstable}"

    def resources(self) -> Object:
        memory = format_memory(self.memory_mib * _MIB)
        return {
            "requests": {CPU: format_cpu(self.request_milli), MEMORY: memory},
            "limits": {CPU: format_cpu(self.cpu_milli), MEMORY: memory},
        }

    def amount(self, resource: str) -> int:
        """Its limit: milli-CPUs, or MiB."""
        return self.cpu_milli if resource == CPU else self.memory_mib

    def changed(self, other: ManifestSizes) -> frozenset[str]:
        cpu = (self.cpu_milli, self.request_milli) != (other.cpu_milli, other.request_milli)
        memory = self.memory_mib != other.memory_mib
        return frozenset(name for name, is_other in ((CPU, cpu), (MEMORY, memory)) if is_other)


class PolicyForm(msgspec.Struct, frozen=True):
    """How a container says what a change does: in Kubernetes' list, in IBM's map, or in our
    annotation. What the last two do not name is RestartOnly."""

    listed: tuple[tuple[str, str], ...] = ()
    mapped: tuple[tuple[str, str], ...] = ()
    noted: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        said = self.listed or self.mapped or self.noted
        return " ".join(f"{name} {word}" for name, word in said) or "no policies"

    def of(self, resource: str) -> int:
        if self.mapped or self.noted:
            return _WORDS[dict(self.mapped or self.noted).get(resource, "RestartOnly")]
        return _WORDS[dict(self.listed).get(resource, "NotRequired")]


_WORDS = {
    "NotRequired": LIVE,
    "RestartContainer": RESTARTS,
    "LiveResizeable": LIVE,
    "ContainerRestartOnly": RESTARTS,
    "RestartOnly": RECREATES,
}
_LIVE = ((CPU, "LiveResizeable"), (MEMORY, "LiveResizeable"))
SILENT = PolicyForm()
POLICY_FORMS = (
    SILENT,
    PolicyForm(listed=((CPU, "NotRequired"), (MEMORY, "RestartContainer"))),
    PolicyForm(listed=((CPU, "RestartContainer"), (MEMORY, "NotRequired"))),
    PolicyForm(mapped=_LIVE),
    PolicyForm(mapped=((CPU, "LiveResizeable"), (MEMORY, "ContainerRestartOnly"))),
    PolicyForm(mapped=((CPU, "LiveResizeable"),)),
    PolicyForm(noted=_LIVE),
    PolicyForm(noted=((MEMORY, "LiveResizeable"),)),
)


class OwnStrategy(msgspec.Struct, frozen=True):
    """What the user sets of the way in which pods are replaced, and a hold has to give back.
    ``partition`` and ``is_on_delete``: of a StatefulSet; ``is_paused``: of a Deployment."""

    partition: int = 0
    is_on_delete: bool = False
    is_paused: bool = False

    def __str__(self) -> str:
        if self.is_suspended:
            return "paused" if self.is_paused else "OnDelete"
        return f"partition {self.partition}"

    @property
    def is_suspended(self) -> bool:
        """No controller replaces a pod."""
        return self.is_on_delete or self.is_paused


class Manifest(msgspec.Struct, frozen=True):
    """``version`` and ``restarts``: what makes a rollout. ``is_parallel`` and ``recreates`` never
    change: podManagementPolicy, and the strategy Recreate of a Deployment."""

    name: str
    is_deployment: bool
    replicas: int
    sizes: ManifestSizes
    version: int = 1
    restarts: int = 0
    policy: PolicyForm = SILENT
    action: str = ""
    is_action_on_template: bool = False
    on_deadline: str = ""
    deadline_seconds: int = 5
    parallelism: int = 1
    is_parallel: bool = False
    recreates: bool = False
    strategy: OwnStrategy = OwnStrategy()

    def __str__(self) -> str:
        kind = "Deployment" if self.is_deployment else "StatefulSet"
        said = f"{self.action or 'no action'}, {self.on_deadline or 'default'} at the deadline"
        return (
            f"{kind} {self.name}: {self.replicas} x {self.sizes}, version {self.version}"
            f".{self.restarts}, {self.policy}, {said}, {self.strategy}"
        )

    @property
    def resource(self) -> Resource:
        return DEPLOYMENTS if self.is_deployment else STATEFUL_SETS

    # What it asks for

    @property
    def asks(self) -> bool:
        """For its resizes in place."""
        if self.action:
            return self.action != "Restart"
        return bool(self.policy.mapped or self.policy.noted)

    @property
    def may_recreate(self) -> bool:
        """A pod that cannot be resized is recreated."""
        if self.on_deadline:
            return self.on_deadline in ("Restart", "Evict")
        return self.action != "InPlaceResize"

    @property
    def fingerprint(self) -> tuple[int, int]:
        """What only a rollout changes."""
        return self.version, self.restarts

    @property
    def notes(self) -> tuple[PolicyForm, str]:
        """What of a template else may change without a rollout."""
        action = self.action if self.is_action_on_template else ""
        return msgspec.structs.replace(self.policy, noted=()), action

    def recreates_for(self, before: ManifestSizes) -> bool:
        """Whatever was asked, this change takes new pods."""
        return self.recreates_to_change(self.sizes.changed(before))

    def recreates_to_change(self, changed: frozenset[str]) -> bool:
        if not changed:
            return False
        return self.action == "Restart" or any(self.policy.of(one) == RECREATES for one in changed)

    def restarts_for(self, changed: frozenset[str]) -> bool:
        return any(self.policy.of(one) == RESTARTS for one in changed)

    # How it is written

    def body(self) -> Object:
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {
                "name": self.name,
                "namespace": NAMESPACE,
                "annotations": self.annotations(),
            },
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": {APP: self.name}},
                "template": self.template(),
                **self.own_spec(),
                **({} if self.is_deployment else {"podManagementPolicy": self._management()}),
            },
        }

    def annotations(self) -> dict[str, str]:
        noted = json.dumps({CONTAINER: dict(self.policy.noted)}) if self.policy.noted else ""
        said = {
            ACTION: "" if self.is_action_on_template else self.action,
            _ON_DEADLINE: self.on_deadline,
            _DEADLINE: f"{self.deadline_seconds}s",
            _PARALLELISM: str(self.parallelism),
            _NOTED: noted,
        }
        return {name: value for name, value in said.items() if value}

    def template(self) -> Object:
        container: Object = {
            "name": CONTAINER,
            "image": FAKE_IMAGE,
            "command": ["serve"],
            "env": [{"name": "VERSION", "value": str(self.version)}],
            "resources": self.sizes.resources(),
        }
        if self.policy.mapped:
            container["resources"]["resizePolicy"] = dict(self.policy.mapped)
        if self.policy.listed:
            container["resizePolicy"] = [
                {"resourceName": name, "restartPolicy": word} for name, word in self.policy.listed
            ]
        annotations = {RESTARTED: str(self.restarts)} if self.restarts else {}
        if self.action and self.is_action_on_template:
            annotations[ACTION] = self.action
        return {
            "metadata": {"labels": {APP: self.name}, "annotations": annotations},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
        }

    def own_spec(self) -> Object:
        """OwnStrategy and pause, as a user writes them."""
        strategy = self.strategy
        if self.is_deployment:
            kind = "Recreate" if self.recreates else "RollingUpdate"
            return {"paused": strategy.is_paused, "strategy": {"type": kind}}
        if strategy.is_on_delete:
            return {"updateStrategy": {"type": "OnDelete"}}
        rolling = {"partition": strategy.partition}
        return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}

    def _management(self) -> str:
        return "Parallel" if self.is_parallel else "OrderedReady"


class SeenTemplate(msgspec.Struct, frozen=True):
    """What a pod, or a template, shows of the manifest that it comes from."""

    sizes: ManifestSizes
    version: int
    restarts: int
    listed: tuple[tuple[str, str], ...]
    mapped: tuple[tuple[str, str], ...]
    action: str

    def __str__(self) -> str:
        policy = PolicyForm(self.listed, self.mapped)
        return f"{self.sizes}, version {self.version}.{self.restarts}, {policy}, {self.action}"

    @property
    def fingerprint(self) -> tuple[int, int]:
        return self.version, self.restarts

    def is_of(self, manifest: Manifest) -> bool:
        return self.fingerprint == manifest.fingerprint and self.sizes == manifest.sizes

    def has_notes(self, manifest: Manifest) -> bool:
        policy, action = manifest.notes
        said = (dict(self.listed), dict(self.mapped), self.action)
        return said == (dict(policy.listed), dict(policy.mapped), action)


def facts_of(pod: Object) -> SeenTemplate:
    """Of a pod, or of a template."""
    container = pod["spec"]["containers"][0]
    annotations = lookup(pod, "metadata", "annotations", default={})
    policies = container.get("resizePolicy") or ()
    resources = container["resources"]
    limits, requests = parse_amounts(resources["limits"]), parse_amounts(resources["requests"])
    cpu_milli, memory_bytes = limits.cpu_milli or 0, limits.memory_bytes or 0
    return SeenTemplate(
        sizes=ManifestSizes(cpu_milli, memory_bytes // _MIB, requests.cpu_milli != cpu_milli),
        version=int(container["env"][0]["value"]),
        restarts=int(annotations.get(RESTARTED, 0)),
        listed=tuple((one["resourceName"], one["restartPolicy"]) for one in policies),
        mapped=tuple((resources.get("resizePolicy") or {}).items()),
        action=annotations.get(ACTION, ""),
    )


def draw_sizes(random: Random, *, is_burstable: bool) -> ManifestSizes:
    cpu_milli = random.choice(_CPU_MILLI)
    if random.random() < _TOO_LARGE_SHARE:
        cpu_milli = _TOO_LARGE_MILLI * 2
    return ManifestSizes(cpu_milli, random.choice(_MEMORY_MIB), is_burstable)


def draw_manifest(random: Random, name: str) -> Manifest:
    """As a user first applies it."""
    is_deployment = random.random() < 0.4
    replicas = random.randint(1, 4)
    is_on_delete = not is_deployment and random.random() < 0.1
    partition = 0 if is_deployment or is_on_delete else random.choice((0, 0, 0, 1, 2))
    return Manifest(
        name=name,
        is_deployment=is_deployment,
        replicas=replicas,
        sizes=ManifestSizes(random.choice(_CPU_MILLI[:4]), random.choice(_MEMORY_MIB)),
        policy=random.choice((SILENT, SILENT, *POLICY_FORMS)),
        action=random.choice(("InPlaceResizePreferred",) * 3 + ("InPlaceResize",) * 3 + ("",)),
        is_action_on_template=random.random() < 0.3,
        on_deadline=random.choice(("", "", "", "Keep", "Revert", "Restart", "Evict")),
        deadline_seconds=random.choice((2, 5, 10)),
        parallelism=random.choice((1, 1, 2, 3)),
        is_parallel=random.random() < 0.5,
        recreates=is_deployment and random.random() < 0.25,
        strategy=OwnStrategy(partition, is_on_delete),
    )

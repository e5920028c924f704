"""The users of workloads: each has one StatefulSet or Deployment and changes it again and again.

They resize, roll out, scale, pause, re-apply what they had at first as a GitOps tool does, go back,
delete pods, and try each request again until the API server has answered. What they want is in
their IntentLog before it is sent, so that checkers know of it in time.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Protocol, TypeVar

import msgspec

from livesize.api.errors import StatusError
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.pod_disruption_budget import DISRUPTION_BUDGETS
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, name_of, uid_of
from livesize.client.interface import Client
from livesize.machinery.clock import Clock
from livesize.sim.intents import IntentLog
from livesize.sim.manifests import (
    APP,
    HELD,
    NAMESPACE,
    POLICY_FORMS,
    Manifest,
    OwnStrategy,
    draw_sizes,
)
from livesize.sim.trace import Trace

_RETRY_SECONDS = 0.5
_AWAY = (409, 410, 429, 500, 503, 504)
_MOST_REPLICAS = 5

T = TypeVar("T")


class Way(enum.Enum):
    """How a manifest is written."""

    PART = "patch"
    """What differs, as kubectl patch, scale and edit do."""
    WHOLE = "apply"
    """All of it, as kubectl apply does, from a copy: what it has of an earlier hold is no hold."""
    REPLACE = "replace"
    """The same; what it does not say is gone."""


class Witness(Protocol):
    """Who is told what users do, before they do it and when they are answered."""

    def sends(self, log: IntentLog, manifest: Manifest) -> None: ...

    def answered(self, log: IntentLog, manifest: Manifest, answer: Object) -> None: ...

    def deletes(self, uid: str) -> None: ...


class WorkloadUser:
    def __init__(
        self,
        client: Client,
        log: IntentLog,
        witness: Witness,
        clock: Clock,
        random: Random,
        trace: Trace,
    ) -> None:
        self.log = log
        self.refusals: list[str] = []
        self.counts: dict[str, int] = {}
        self._client = client
        self._witness = witness
        self._clock = clock
        self._random = random
        self._trace = trace
        self._original = log.newest
        self._before = log.newest
        self._has_budget = False
        self._copied_hold = ""
        """As it stood on the workload when this user last read it while it was held."""

    async def create(self) -> None:
        manifest = self._original

        async def create() -> Object:
            try:
                return await self._client.create(manifest.resource, manifest.body(), NAMESPACE)
            except StatusError as refusal:
                if refusal.reason != "AlreadyExists":  # else an earlier try got through
                    raise
                return await self._client.get(manifest.resource, manifest.name, NAMESPACE)

        self._witness.sends(self.log, manifest)
        made = await self._until_answered("create", create)
        if made is not None:
            self._witness.answered(self.log, manifest, made)

    async def run(self, operations: int) -> None:
        await self.create()
        await self._clock.sleep(self._random.uniform(2, 10))
        for _ in range(operations):
            await self._operate()
            await self._clock.sleep(self._pause())

    async def write(self, manifest: Manifest, way: Way, what: str) -> None:
        before = self.log.acknowledged
        resource, name = manifest.resource, manifest.name
        body = manifest.body() if way is Way.REPLACE else merge_patch(before, manifest, way)
        if way is not Way.PART and self._copied_hold:
            body["metadata"]["annotations"][HELD] = self._copied_hold
        scales = way is Way.PART and body == {"spec": {"replicas": manifest.replicas}}

        async def write() -> Object:
            if way is Way.REPLACE:
                return await self._client.update(resource, body)
            if scales and self._random.random() < 0.5:
                await self._client.patch(
                    resource, name, body, namespace=NAMESPACE, subresource="scale"
                )
                return await self._client.get(resource, name, NAMESPACE)
            return await self._client.patch(resource, name, body, namespace=NAMESPACE)

        self._count(what)
        self._trace.add("user", f"{way.value} {name}: {what}")
        self._witness.sends(self.log, manifest)
        answer = await self._until_answered(what, write)
        if answer is not None:
            annotations = answer["metadata"].get("annotations", {})
            self._copied_hold = annotations.get(HELD, self._copied_hold)
            if manifest.template() != before.template():
                self._before = before
            self._witness.answered(self.log, manifest, answer)

    async def delete_pods(self, choose: Callable[[list[Object]], list[Object]]) -> None:
        selection = Selection(NAMESPACE, labels=f"{APP}={self.log.name}")

        async def find() -> list[Object]:
            return list((await self._client.list(PODS, selection)).items)

        for pod in choose(await self._until_answered("list", find) or []):
            await self.delete_pod(pod)

    async def delete_pod(self, pod: Object, *, grace_seconds: int | None = None) -> None:
        self._witness.deletes(uid_of(pod))

        async def delete() -> Object:
            return await self._client.delete(
                PODS,
                name_of(pod),
                NAMESPACE,
                uid=uid_of(pod),
                grace_period_seconds=grace_seconds,
            )

        await self._gone("delete pod", delete)

    async def remove_node(self, name: str) -> None:
        await self._gone("remove node", lambda: self._client.delete(NODES, name))

    async def remove_budget(self) -> None:
        name = self.log.name
        await self._gone("budget", lambda: self._client.delete(DISRUPTION_BUDGETS, name, NAMESPACE))
        self._has_budget = False

    # What they do

    async def _operate(self) -> None:
        random, manifest = self._random, self.log.acknowledged
        operation = random.choices(_NAMES, _WEIGHTS)[0]
        way = random.choices((Way.PART, Way.WHOLE, Way.REPLACE), (8, 2, 1))[0]
        if operation == "delete pod":
            self._count(operation)
            await self.delete_pods(lambda pods: random.sample(pods, min(len(pods), 1)))
        elif operation == "budget":
            await self._toggle_budget()
        elif operation == "re-apply":
            await self.write(self._original, random.choice((Way.WHOLE, Way.REPLACE)), operation)
        elif operation == "re-apply settings":
            same = ("strategy", "action", "is_action_on_template", "on_deadline", "replicas")
            own = {field: getattr(self._original, field) for field in same}
            await self.write(msgspec.structs.replace(manifest, **own), Way.WHOLE, operation)
        elif operation == "undo":
            back: dict[str, Any] = {"sizes": self._before.sizes}
            if random.random() < 0.3:
                back |= {"version": self._before.version, "restarts": self._before.restarts}
            await self.write(msgspec.structs.replace(manifest, **back), way, operation)
        else:
            await self.write(_CHANGES[operation](manifest, random), way, operation)

    async def _toggle_budget(self) -> None:
        name = self.log.name
        if self._has_budget:
            await self.remove_budget()
        else:
            most = self._random.choice((0, 1, 1, 2))
            spec = {"maxUnavailable": most, "selector": {"matchLabels": {APP: name}}}
            body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}

            async def create() -> Object:
                try:
                    return await self._client.create(DISRUPTION_BUDGETS, body, NAMESPACE)
                except StatusError as refusal:
                    if refusal.reason != "AlreadyExists":
                        raise
                    return {}

            await self._until_answered("budget", create)
            self._has_budget = True
        self._count("budget")

    async def _gone(self, what: str, delete: Callable[[], Awaitable[Object]]) -> None:
        async def absent() -> Object:
            try:
                return await delete()
            except StatusError as refusal:
                if refusal.code not in (404, 409):
                    raise
                return {}

        await self._until_answered(what, absent)

    def _pause(self) -> float:
        """Some do the next thing at once, some when the last one is done."""
        return self._random.choice(
            (
                self._random.uniform(0, 0.3),
                self._random.uniform(0, 3),
                self._random.uniform(1, 10),
                self._random.uniform(5, 20),
            )
        )

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def _until_answered(self, what: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """None: refused for good, which is remembered."""
        while True:
            try:
                return await work()
            except ConnectionError:
                await self._clock.sleep(_RETRY_SECONDS)
            except StatusError as refusal:
                if refusal.code not in _AWAY:
                    self._trace.add("user", f"{what} refused {refusal.code}")
                    self.refusals.append(f"{what} {self.log.name}: {refusal.message}")
                    return None
                await self._clock.sleep(_RETRY_SECONDS)


def merge_patch(before: Manifest, after: Manifest, way: Way) -> Object:
    """What turns the one into the other. ``Way.WHOLE``: it says also what is as it was."""
    old, new = before.body(), after.body()
    annotations = {
        **dict.fromkeys(old["metadata"]["annotations"]),
        **new["metadata"]["annotations"],
    }
    spec = {key: part for key, part in new["spec"].items() if key != "template"}
    if not after.is_deployment and after.strategy.is_on_delete:
        spec["updateStrategy"] = {**spec["updateStrategy"], "rollingUpdate": None}
    template: Object = {**new["spec"]["template"]}
    noted = {
        **dict.fromkeys(old["spec"]["template"]["metadata"]["annotations"]),
        **template["metadata"]["annotations"],
    }
    template["metadata"] = {**template["metadata"], "annotations": noted}
    spec["template"] = template
    if way is Way.WHOLE:
        return {"metadata": {"annotations": annotations}, "spec": spec}
    spec = {key: part for key, part in spec.items() if old["spec"][key] != new["spec"][key]}
    patch: Object = {"spec": spec}
    if old["metadata"]["annotations"] != new["metadata"]["annotations"]:
        patch["metadata"] = {"annotations": annotations}
    return patch


# Operations


def _resize(manifest: Manifest, random: Random) -> Manifest:
    is_burstable = manifest.sizes.is_burstable ^ (random.random() < 0.05)
    sizes = draw_sizes(random, is_burstable=is_burstable)
    return msgspec.structs.replace(manifest, sizes=sizes)


def _roll(manifest: Manifest, random: Random) -> Manifest:
    if random.random() < 0.3:
        return msgspec.structs.replace(manifest, restarts=manifest.restarts + 1)
    rolled = msgspec.structs.replace(manifest, version=manifest.version + 1)
    return _resize(rolled, random) if random.random() < 0.3 else rolled


def _scale(manifest: Manifest, random: Random) -> Manifest:
    return msgspec.structs.replace(manifest, replicas=random.randint(0, _MOST_REPLICAS))


def _set_policy(manifest: Manifest, random: Random) -> Manifest:
    changed = msgspec.structs.replace(manifest, policy=random.choice(POLICY_FORMS))
    return _resize(changed, random) if random.random() < 0.3 else changed


def _set_action(manifest: Manifest, random: Random) -> Manifest:
    actions = ("InPlaceResize", "InPlaceResizePreferred", "InPlaceResizePreferred", "", "Restart")
    place = random.random() < 0.3
    return msgspec.structs.replace(
        manifest, action=random.choice(actions), is_action_on_template=place
    )


def _set_fallback(manifest: Manifest, random: Random) -> Manifest:
    fallbacks = ("", "Keep", "Revert", "Restart", "Evict")
    return msgspec.structs.replace(
        manifest,
        on_deadline=random.choice(fallbacks),
        deadline_seconds=random.choice((2, 5, 10)),
        parallelism=random.choice((1, 2, 3)),
    )


def _set_strategy(manifest: Manifest, random: Random) -> Manifest:
    """Pause and resume, or another partition, now and then OnDelete."""
    if manifest.is_deployment:
        strategy = OwnStrategy(is_paused=not manifest.strategy.is_paused)
    else:
        is_on_delete = random.random() < 0.25
        partition = 0 if is_on_delete else random.choice((0, 0, 1, 2, 3, 4))
        strategy = OwnStrategy(partition, is_on_delete)
    changed = msgspec.structs.replace(manifest, strategy=strategy)
    return _resize(changed, random) if random.random() < 0.2 else changed


def _same(manifest: Manifest, _random: Random) -> Manifest:
    return manifest


_CHANGES: dict[str, Callable[[Manifest, Random], Manifest]] = {
    "resize": _resize,
    "roll": _roll,
    "scale": _scale,
    "policy": _set_policy,
    "action": _set_action,
    "fallback": _set_fallback,
    "strategy": _set_strategy,
    "sync": _same,
}
_OPERATIONS = {
    "resize": 32,
    "roll": 8,
    "scale": 9,
    "policy": 7,
    "action": 6,
    "fallback": 4,
    "strategy": 9,
    "sync": 4,
    "undo": 6,
    "re-apply": 4,
    "re-apply settings": 4,
    "delete pod": 5,
    "budget": 4,
}
_NAMES, _WEIGHTS = tuple(_OPERATIONS), tuple(_OPERATIONS.values())

"""The checkers of workloads. They stand outside the system: they read the store's changes, the fake
machines, and what users wanted (intents.py), and know nothing of holds and plans.

- ``no needless recreation``: a pod begins to leave only for a reason that is found here: its user
  deleted it or has scaled it away, its node turned it away, a rollout has not reached it yet, its
  policy or resizeAction recreates, or it cannot be resized and may be recreated;
- ``no needless restart``: a container starts again only where the size has changed of a resource
  whose policy says so;
- ``resized as asked``: what is asked of a pod is what its user asks for, above the partition;
- ``budgets are heeded``: containers of a pod that serves are not restarted for a resize while no
  disruption is allowed;
- ``own strategy``: partition, type and paused are the user's, or a hold says that they come back;
- ``no other template``: the template is the user's, but for going back where that was asked for.

What was right a moment ago (livesize.sim.intents) is a reason: components act on what they read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from livesize.api.conditions import is_true
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.pod_disruption_budget import DISRUPTION_BUDGETS
from livesize.api.objects import Object, generation_of, lookup, name_of, uid_of
from livesize.apiserver.keys import ROOT, resource_of
from livesize.apiserver.records import decode_record
from livesize.machinery.clock import Clock
from livesize.sim.checks import CheckFailedError
from livesize.sim.intents import IntentLog
from livesize.sim.machine_sizes import has_on_machine, sizes_on_machine
from livesize.sim.manifests import (
    APP,
    CONTAINER,
    HELD,
    Manifest,
    ManifestSizes,
    OwnStrategy,
    SeenTemplate,
    facts_of,
)
from livesize.sim.node import SimNode
from livesize.store.interface import Change, ChangeKind, Store

ACTING_SECONDS = 10.0
"""So long ago may be what a component has read, and acts on."""
_WRITING_SECONDS = 1.0
_ROUNDED_SECONDS = 1.0
_ENDED = ("Failed", "Succeeded")
_TURNED_AWAY = ("OutOfcpu", "OutOfmemory")


class TrackedPod(msgspec.Struct):
    """``behind_since``: since when its machine has not got what it asks for, or None.
    ``restarts_allowed``: changes of a resource whose policy restarts its container."""

    name: str
    uid: str
    log: IntentLog
    facts: SeenTemplate
    made: float
    pod: Object
    behind_since: float | None = None
    ready_since: float | None = None
    restarts_allowed: int = 0
    is_leaving: bool = False

    @property
    def ordinal(self) -> int:
        return int(self.name.rpartition("-")[2])

    @property
    def node(self) -> str:
        return str(lookup(self.pod, "spec", "nodeName", default=""))

    @property
    def has_ended(self) -> bool:
        return lookup(self.pod, "status", "phase") in _ENDED


class TrackedWorkload(msgspec.Struct):
    """``rolls_since``: of the newest change that its controller has to roll out, until that is
    done; ``rolled_at``: when it was done. ``scaled_away``: pods that are to go, of a Deployment."""

    log: IntentLog
    stored: Object | None = None
    rolls_since: float | None = None
    rolled_at: float = float("-inf")
    rolled_since: float = float("-inf")
    scaled_away: int = 0
    scaled_at: float = float("-inf")
    has_returned: bool = False
    """A rollout was taken back whose first write had ended a resize (docs/workloads.md, Limits)."""
    went_back_at: int = 0
    """The version in which the product has gone back to former sizes."""
    went_back_since: float = float("-inf")


class WorkloadChecks:
    """``failed`` is called with the first promise that was broken. Satisfies Witness."""

    def __init__(
        self, store: Store, clock: Clock, nodes: Mapping[str, SimNode], node_cpu_milli: int
    ) -> None:
        self.pods: dict[str, TrackedPod] = {}
        """Those that are there, by uid."""
        self.workloads: dict[str, TrackedWorkload] = {}
        self.budgets: dict[str, list[tuple[float, int | None]]] = {}
        """By workload: since when its budget allows so many disruptions; None: there is none."""
        self.counts = {"pods recreated": 0, "pods resized": 0, "holds": 0}
        self.reasons: dict[str, int] = {}
        """Why pods were recreated, how often."""
        self._store = store
        self._clock = clock
        self._nodes = nodes
        self._node_cpu_milli = node_cpu_milli
        self._deleted: set[str] = set()
        self._before: dict[str, tuple[int, float, Object | None]] = {}
        self._versions: dict[tuple[str, int], tuple[float, Object | None]] = {}

    # What users do

    def sends(self, log: IntentLog, manifest: Manifest) -> None:
        now, before = self._clock.monotonic(), log.newest
        workload = self.workloads.get(log.name)
        if workload is None:
            self.workloads[log.name] = TrackedWorkload(log)
            return
        workload.has_returned = self._returns(workload, before, manifest)
        log.send(manifest, now)
        if manifest.replicas < before.replicas:
            workload.scaled_away += before.replicas - manifest.replicas
            workload.scaled_at = now
        if self._is_rolling(workload, now) or rolls_out(before, manifest):
            self._roll(workload, now)
        self._look_at_rollout(workload, now)

    def answered(self, log: IntentLog, manifest: Manifest, answer: Object) -> None:
        """A value that a hold has set itself cannot be told from it, and changes nothing."""
        now, workload = self._clock.monotonic(), self.workloads[log.name]
        version = int(answer["metadata"]["resourceVersion"])
        written, before = self._versions.get((log.name, version), (0.0, answer))
        if written < log.sent_at:
            before = workload.stored  # the write has changed nothing
        held = held_strategy(before, manifest)
        if held is not None and _is_the_holds_own(manifest, before):
            manifest = msgspec.structs.replace(manifest, strategy=held)
        if workload.went_back_at > version:
            manifest = msgspec.structs.replace(manifest, sizes=log.acknowledged.sizes)
        elif workload.went_back_since >= log.sent_at:
            sizes = facts_of(template_of(answer)).sizes  # a part of a manifest may not name them
            manifest = msgspec.structs.replace(manifest, sizes=sizes)
        log.acknowledge(manifest, now)
        if self._is_rolling(workload, now):
            self._roll(workload, now)

    def deletes(self, uid: str) -> None:
        self._deleted.add(uid)

    # What the store says

    async def follow(self) -> None:
        async for batch in self._store.watch(ROOT, after_revision=0):
            for change in batch:
                self._take(change)

    def _take(self, change: Change) -> None:
        resource = resource_of(change.entry.key)
        if resource is None or resource.kind not in _KINDS:
            return
        obj = decode_record(resource, change.entry.value, change.revision).served
        is_gone = change.kind is ChangeKind.DELETE
        if resource == PODS:
            self._take_pod(obj, is_gone=is_gone)
        elif resource == DISRUPTION_BUDGETS:
            allowed = lookup(obj, "status", "disruptionsAllowed", default=0)
            states = self.budgets.setdefault(name_of(obj), [])
            states.append((self._clock.monotonic(), None if is_gone else allowed))
        elif not is_gone:
            self._take_workload(obj, change.revision)

    def _take_workload(self, stored: Object, revision: int) -> None:
        now, workload = self._clock.monotonic(), self.workloads[name_of(stored)]
        before, workload.stored = workload.stored, stored
        self._versions[name_of(stored), revision] = (now, before)
        if HELD in stored["metadata"].get("annotations", {}) and not is_held(before):
            self.counts["holds"] += is_held(stored)
        log = workload.log
        self._check_template(workload, facts_of(template_of(stored)), revision, now)
        wanted = [one.strategy for one in log.candidates(now, 0.0)]
        found = held_strategy(stored, log.newest) or strategy_in(stored)
        if found not in wanted:
            raise CheckFailedError(
                "own strategy", f"{log.name} stands with {found}, and its user wants {wanted[-1]}"
            )
        self._look_at_rollout(workload, now)

    def _check_template(
        self, workload: TrackedWorkload, template: SeenTemplate, revision: int, now: float
    ) -> None:
        log = workload.log
        intents = log.candidates(now, 0.0)
        if any(template.is_of(one) and template.has_notes(one) for one in intents):
            return
        if template.sizes in log.former_sizes and self._may_go_back(workload, now):
            workload.went_back_at, workload.went_back_since = revision, now
            log.go_back(template.sizes, now)
            return
        raise CheckFailedError(
            "no other template", f"{log.name} has {template}, and its user wants {intents[-1]}"
        )

    def _may_go_back(self, workload: TrackedWorkload, now: float) -> bool:
        """It was asked to, and a pod cannot be resized."""
        candidates = [
            one
            for one in workload.log.candidates(now, ACTING_SECONDS)
            if one.on_deadline == "Revert"
        ]
        return any(
            self._cannot_be_resized(pod, intent, now)
            for pod in self.pods_of(workload)
            for intent in candidates
        )

    def _take_pod(self, pod: Object, *, is_gone: bool) -> None:
        now, uid = self._clock.monotonic(), uid_of(pod)
        workload = self.workloads[pod["metadata"]["labels"][APP]]
        facts = facts_of(pod)
        known = self.pods.get(uid)
        if known is None:
            known = TrackedPod(name_of(pod), uid, workload.log, facts, now, pod)
            self.pods[uid] = known
        before, known.pod = known.facts, pod
        if not known.is_leaving and (is_gone or lookup(pod, "metadata", "deletionTimestamp")):
            known.is_leaving = True
            self._check_leaving(workload, known, now)
        elif facts != before:
            if facts.sizes != before.sizes:
                self._check_resize(workload, known, facts.sizes, now)
                self._check_budget(workload, known, facts.sizes, now)
            known.restarts_allowed += self._may_restart(known, before.sizes, facts.sizes, now)
        known.facts = facts
        if not is_true(pod, "Ready"):
            known.ready_since = None
        elif known.ready_since is None:
            known.ready_since = now
        self._look_at_machine(known, now)
        if is_gone:
            del self.pods[uid]
        self._look_at_rollout(workload, now)

    # Whether a pod may leave

    def _check_leaving(self, workload: TrackedWorkload, pod: TrackedPod, now: float) -> None:
        reason = self.why_it_leaves(workload, pod, now)
        if not reason:
            raise CheckFailedError(
                "no needless recreation",
                f"pod {pod.name} ({pod.facts}) is deleted, and nothing asks for that:"
                f" its user wants {workload.log.newest}",
            )
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self.counts["pods recreated"] += reason not in ("user", "scaled")

    def why_it_leaves(self, workload: TrackedWorkload, pod: TrackedPod, now: float) -> str:
        """Empty: for no reason."""
        if pod.uid in self._deleted:
            return "user"
        if lookup(pod.pod, "status", "reason", default="") in _TURNED_AWAY and pod.has_ended:
            return "turned away"
        intents = workload.log.candidates(now, ACTING_SECONDS)
        for intent in intents:
            reason = self._why_it_is_replaced(workload, pod, intent, now)
            if reason:
                return reason
        return "scaled" if self._is_scaled_away(workload, pod, intents, now) else ""

    def _why_it_is_replaced(
        self, workload: TrackedWorkload, pod: TrackedPod, intent: Manifest, now: float
    ) -> str:
        if self._is_surplus(workload, pod, intent, now):
            return "rollout"
        if intent.is_deployment and pod.facts.is_of(intent) and self._has_more(workload, intent):
            return "surplus"  # an answer was lost, and one more was made
        if is_suspended(workload, intent) or not is_in_scope(pod, intent):
            return ""
        if pod.facts.fingerprint != intent.fingerprint or self._is_rolled(workload, pod, now):
            return "rollout"
        behind = self.behind(pod, intent.sizes)
        if intent.recreates_for(pod.facts.sizes) or intent.recreates_to_change(behind):
            return "policy"
        return "fallback" if self._may_be_given_up(workload, pod, intent, now) else ""

    def _has_more(self, workload: TrackedWorkload, intent: Manifest) -> bool:
        return len(self.pods_of(workload)) >= intent.replicas

    def _is_surplus(
        self, workload: TrackedWorkload, pod: TrackedPod, intent: Manifest, now: float
    ) -> bool:
        """A Deployment that was paused in the middle of a rollout gives up old pods that it has
        beyond its replicas, when as many new ones serve."""
        if not intent.strategy.is_paused or not self._has_more(workload, intent):
            return False
        return takes_another(pod, intent) or self._is_rolled(workload, pod, now)

    def _is_scaled_away(
        self, workload: TrackedWorkload, pod: TrackedPod, intents: list[Manifest], now: float
    ) -> bool:
        if not intents[-1].is_deployment:
            return any(pod.ordinal >= one.replicas for one in intents)
        least = min(one.replicas for one in intents)
        is_fresh = (
            now - workload.scaled_at < ACTING_SECONDS
        )  # who scales has not seen the others go
        if workload.scaled_away and (is_fresh or len(self.pods_of(workload)) >= least):
            workload.scaled_away -= 1
            return True
        return False

    def _is_rolled(self, workload: TrackedWorkload, pod: TrackedPod, now: float) -> bool:
        """It is older than the newest change that goes with a rollout, or not of the newest intent:
        a rollout that takes long makes old pods, too."""
        if workload.rolls_since is not None:
            is_old = not pod.facts.is_of(workload.log.newest)
            return is_old or pod.made <= workload.rolls_since + ACTING_SECONDS
        if now - workload.rolled_at > ACTING_SECONDS:
            return False
        return pod.made <= workload.rolled_since

    def _may_be_given_up(
        self, workload: TrackedWorkload, pod: TrackedPod, intent: Manifest, now: float
    ) -> bool:
        if not intent.may_recreate or not self._cannot_be_resized(pod, intent, now):
            return False
        return not _serves(pod, now) or self._budget_allows(workload.log.name, now)

    def _cannot_be_resized(self, pod: TrackedPod, intent: Manifest, now: float) -> bool:
        """It would have another QoS class, no node like its own has so much, or its deadline is
        over."""
        if pod.facts.sizes.is_burstable != intent.sizes.is_burstable:
            return True
        if intent.sizes.request_milli > self._node_cpu_milli:
            return True
        if pod.behind_since is None:
            return False
        return now - pod.behind_since >= intent.deadline_seconds - _ROUNDED_SECONDS

    def _budget_allows(self, name: str, now: float) -> bool:
        """Now, or a moment ago."""
        states = self.budgets.get(name, [])
        if not states or states[0][0] >= now - ACTING_SECONDS:
            return True
        last = max(place for place, (since, _) in enumerate(states) if since <= now)
        recent = [
            allowed
            for place, (since, allowed) in enumerate(states)
            if since >= now - ACTING_SECONDS
            or place == last
            or (place + 1 < len(states) and states[place + 1][0] >= now - ACTING_SECONDS)
        ]
        return any(allowed is None or allowed > 0 for allowed in recent)

    # Rollouts

    def _roll(self, workload: TrackedWorkload, now: float) -> None:
        workload.rolls_since = now

    def _is_rolling(self, workload: TrackedWorkload, now: float) -> bool:
        """Or was a moment ago, as far as its status says."""
        return workload.rolls_since is not None or now - workload.rolled_at < _WRITING_SECONDS

    def _look_at_rollout(self, workload: TrackedWorkload, now: float) -> None:
        """It begins where a pod has not what only new pods can have; it is done when every pod has
        all of the manifest, and status says so."""
        log = workload.log
        intents = log.candidates(now, 0.0)
        pods = self.pods_of(workload)
        if any(
            takes_another(pod, intent) and is_in_scope(pod, intent)
            for intent in intents
            if not is_suspended(workload, intent)
            for pod in pods
        ):
            self._roll(workload, now)
        elif workload.rolls_since is not None and log.is_answered and self._is_done(workload):
            workload.rolled_since, workload.rolled_at = workload.rolls_since, now
            workload.rolls_since = None

    def _is_done(self, workload: TrackedWorkload) -> bool:
        intent, stored = workload.log.acknowledged, workload.stored
        if stored is None or intent.strategy.is_suspended or is_held(stored):
            return False
        pods = [pod for pod in self.pods_of(workload) if is_in_scope(pod, intent)]
        count = intent.replicas - (0 if intent.is_deployment else intent.strategy.partition)
        status = stored.get("status") or {}
        is_seen = status.get("observedGeneration") == generation_of(stored)
        is_updated = is_seen and status.get("updatedReplicas", 0) >= count
        return is_updated and all(
            pod.facts.is_of(intent) and pod.facts.has_notes(intent) for pod in pods
        )

    def _returns(self, workload: TrackedWorkload, before: Manifest, after: Manifest) -> bool:
        if before.template() == after.template():
            return workload.has_returned
        return (
            after.is_deployment
            and before.fingerprint != after.fingerprint
            and any(
                pod.facts.fingerprint == after.fingerprint and not pod.facts.is_of(after)
                for pod in self.pods_of(workload)
            )
        )

    # Resizes and restarts

    def _check_resize(
        self, workload: TrackedWorkload, pod: TrackedPod, after: ManifestSizes, now: float
    ) -> None:
        self.counts["pods resized"] += 1
        candidates = [
            one
            for one in pod.log.candidates(now, ACTING_SECONDS)
            if after == one.sizes
            and is_in_scope(pod, one)
            and (one.strategy.is_on_delete or not is_suspended(workload, one))
        ]
        if not candidates:
            raise CheckFailedError(
                "resized as asked", f"pod {pod.name} is to have {after}, and nobody asks for that"
            )

    def _check_budget(
        self, workload: TrackedWorkload, pod: TrackedPod, after: ManifestSizes, now: float
    ) -> None:
        """``pod`` has the sizes of before. Whatever its policies were a moment ago, it restarts."""
        changed = after.changed(pod.facts.sizes)
        intents = pod.log.candidates(now, ACTING_SECONDS)
        restarts = all(one.restarts_for(changed) for one in intents)
        if restarts and _serves(pod, now) and not self._budget_allows(workload.log.name, now):
            raise CheckFailedError(
                "budgets are heeded",
                f"the container of pod {pod.name} restarts for {after}, and no disruption of"
                f" {workload.log.name} is allowed",
            )

    def _may_restart(
        self, pod: TrackedPod, before: ManifestSizes, after: ManifestSizes, now: float
    ) -> bool:
        """By the user's policies, for what is to change; also of what could not be done before."""
        changed = after.changed(before) | self.behind(pod, after)
        intents = pod.log.candidates(now, ACTING_SECONDS)
        return any(one.restarts_for(changed) for one in intents)

    def behind(self, pod: TrackedPod, sizes: ManifestSizes) -> frozenset[str]:
        """What its machine does not have of them."""
        node = self._nodes.get(pod.node)
        real = None if node is None else sizes_on_machine(node.machine, pod.uid)
        return frozenset(
            name for name, amount in (real or {}).items() if amount != sizes.amount(name)
        )

    def look_at_machines(self) -> None:
        """Called now and then."""
        now = self._clock.monotonic()
        for pod in self.pods.values():
            self._look_at_machine(pod, now)

    def _look_at_machine(self, pod: TrackedPod, now: float) -> None:
        node = self._nodes.get(pod.node)
        held = None if node is None else node.machine.pods.get(pod.uid)
        if node is None or held is None:
            pod.behind_since = None
            return
        view = held.containers.get(CONTAINER)
        if view is not None and view.attempt > pod.restarts_allowed:
            raise CheckFailedError(
                "no needless restart",
                f"the container of pod {pod.name} was started {view.attempt + 1} times, and its"
                f" policy allows {pod.restarts_allowed} restarts",
            )
        if has_on_machine(node.machine, pod.uid, pod.facts.sizes):
            pod.behind_since = None
        elif pod.behind_since is None:
            pod.behind_since = now

    def pods_of(self, workload: TrackedWorkload) -> list[TrackedPod]:
        return [
            pod
            for pod in self.pods.values()
            if pod.log is workload.log and not pod.is_leaving and not pod.has_ended
        ]


_KINDS = ("Pod", "PodDisruptionBudget", "StatefulSet", "Deployment")


def _serves(pod: TrackedPod, now: float) -> bool:
    """And did so a moment ago."""
    return pod.ready_since is not None and now - pod.ready_since >= ACTING_SECONDS


# What a change is, and what is the user's own


def rolls_out(before: Manifest, after: Manifest) -> bool:
    """The write needs no pod's consent: their controller replaces what is not of ``after``."""
    if after.strategy.is_suspended:
        return False
    if before.fingerprint != after.fingerprint or after.recreates_for(before.sizes):
        return True
    if after.asks:
        return False
    exposes = before.strategy != after.strategy
    is_other = before.sizes != after.sizes or before.notes != after.notes
    return before.asks or exposes or is_other


def takes_another(pod: TrackedPod, intent: Manifest) -> bool:
    """Only another pod can have what the manifest says. (Pods of a StatefulSet whose QoS class
    would change are recreated one by one, and the others stay.)"""
    if pod.facts.fingerprint != intent.fingerprint or intent.recreates_for(pod.facts.sizes):
        return True
    is_other_class = pod.facts.sizes.is_burstable != intent.sizes.is_burstable
    return intent.is_deployment and intent.may_recreate and is_other_class


def is_suspended(workload: TrackedWorkload, intent: Manifest) -> bool:
    """No controller replaces a pod. A pause that was written while a hold has paused the Deployment
    changes nothing."""
    if workload.stored is not None and intent.strategy.is_paused and is_held(workload.stored):
        return held_strategy(workload.stored, intent) == intent.strategy
    return intent.strategy.is_suspended


def is_in_scope(pod: TrackedPod, intent: Manifest) -> bool:
    return intent.is_deployment or pod.ordinal >= intent.strategy.partition


def template_of(workload: Object) -> Object:
    template: Object = workload["spec"]["template"]
    return template


def is_held(workload: Object | None) -> bool:
    return _hold(workload) is not None


def _hold(workload: Object | None) -> Any:
    text = lookup(workload, "metadata", "annotations", HELD)
    if workload is None or text is None:
        return None
    hold = json.loads(text)
    return hold if hold["uid"] == uid_of(workload) else None


def held_strategy(workload: Object | None, manifest: Manifest) -> OwnStrategy | None:
    """What a hold will put back; None where there is none."""
    hold = _hold(workload)
    if hold is None:
        return None
    if manifest.is_deployment:
        return OwnStrategy(is_paused=hold.get("paused", False))
    return _strategy_of_set(hold["strategy"])


def strategy_in(workload: Object) -> OwnStrategy:
    spec = workload["spec"]
    if workload["kind"] == "Deployment":
        return OwnStrategy(is_paused=bool(spec.get("paused")))
    return _strategy_of_set(spec["updateStrategy"])


def _strategy_of_set(strategy: Object) -> OwnStrategy:
    partition: int = lookup(strategy, "rollingUpdate", "partition", default=0)
    return OwnStrategy(partition, strategy["type"] == "OnDelete")


def _is_the_holds_own(manifest: Manifest, before: Object | None) -> bool:
    """What was written is what the hold has written."""
    assert before is not None
    if manifest.is_deployment:
        return manifest.strategy.is_paused
    hold = _hold(before)
    is_partition = manifest.strategy.partition == hold.get("partition", 0)
    return is_partition and not manifest.strategy.is_on_delete

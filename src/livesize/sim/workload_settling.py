"""How workloads have to stand when all is quiet: what is not as it should be, without an excuse.

Every pod has what its user wants, on its machine; no workload is held; the strategy is the user's.
These are excuses, and each one is verified on the objects and machines: a Pending pod for which no
node has room, and whom it keeps waiting; a user who has paused, or deletes pods himself; and a pod
that cannot be resized, which the workload's status names with a reason that is true. ``strict``: no
excuse counts, because users have asked for something that is possible everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import msgspec

from livesize.api.accounting import requests_of
from livesize.api.objects import Object, lookup
from livesize.api.resources import Amounts
from livesize.sim.checks import has_room
from livesize.sim.machine_sizes import has_on_machine
from livesize.sim.manifests import Manifest
from livesize.sim.node import SimNode
from livesize.sim.workload_checks import (
    TrackedPod,
    TrackedWorkload,
    WorkloadChecks,
    held_strategy,
    is_held,
    is_in_scope,
    strategy_in,
)

_STATUS = "livesize.dev/resize-status"
_MIB = 1 << 20


class Quiet(msgspec.Struct, frozen=True):
    """``nodes``: those that are there."""

    checks: WorkloadChecks
    nodes: Mapping[str, SimNode]
    allocatable: Amounts
    strict: bool = False

    def differences(self) -> list[str]:
        found = [
            one
            for workload in self.checks.workloads.values()
            for one in self._of_workload(workload)
        ]
        leaving = [pod for pod in self.checks.pods.values() if pod.is_leaving]
        found += [f"pod {pod.name} leaves" for pod in leaving]
        for name, node in self.nodes.items():
            found += [
                f"{name} still has pod {held.config.name}, which is not its own"
                for uid, held in node.machine.pods.items()
                if uid not in self.checks.pods or self.checks.pods[uid].node != name
            ]
        return found

    def _of_workload(self, workload: TrackedWorkload) -> Iterator[str]:
        intent, stored = workload.log.acknowledged, workload.stored
        assert stored is not None
        own = held_strategy(stored, intent) or strategy_in(stored)
        if own != intent.strategy:
            yield f"{intent.name} stands with {own}, and its user wants {intent.strategy}"
        pods = self.checks.pods_of(workload)
        is_stuck = not self.strict and any(self._is_without_room(pod) for pod in pods)
        is_paused = intent.strategy.is_paused and len(pods) > intent.replicas  # with pods to spare
        if not is_stuck and not is_paused and not _is_complete(pods, intent):
            yield f"{intent.name} has {len(pods)} pods, and is to have {intent.replicas}"
        keeping = 0
        for pod in pods:
            if self._is_done(pod, intent):
                continue
            if self._is_without_room(pod):
                keeping += pod.name in _said(stored)
                continue
            is_excused = is_stuck or (workload.has_returned and not is_held(stored))
            excuse = "" if self.strict else self._excuse(pod, intent, stored, is_stuck=is_excused)
            if not excuse:
                said = _said(stored).get(pod.name, "nothing")
                real = self._real(pod)
                yield f"pod {pod.name} has {real} of {intent}, and its status says {said}"
            keeping += excuse == "waits"
        if is_held(stored) and not keeping:
            yield f"{intent.name} is held, and nothing keeps it from its end"

    def _is_done(self, pod: TrackedPod, intent: Manifest) -> bool:
        node = self.nodes.get(pod.node)
        if node is None or not has_on_machine(node.machine, pod.uid, pod.facts.sizes):
            return False
        if not is_in_scope(pod, intent):
            return True
        return pod.facts.is_of(intent) and pod.facts.has_notes(intent)

    def _excuse(self, pod: TrackedPod, intent: Manifest, stored: Object, *, is_stuck: bool) -> str:
        """``waits``: the resize does, as status says."""
        node = self.nodes.get(pod.node)
        if node is None:
            return ""
        has_its_own = has_on_machine(node.machine, pod.uid, pod.facts.sizes)
        concerned = intent.asks or intent.action == "Restart"
        in_scope = is_in_scope(pod, intent) and not _is_scaled_away(pod, intent)
        if in_scope and (is_held(stored) or (intent.strategy.is_on_delete and concerned)):
            reason = _said(stored).get(pod.name, "")
            if reason and self._is_true(reason, pod, intent, is_stuck=is_stuck):
                return "waits"
            is_sized = pod.facts.sizes == intent.sizes and has_its_own
            return "user" if intent.strategy.is_on_delete and is_sized else ""
        if intent.strategy.is_suspended or is_stuck or not in_scope:
            is_refused = not has_its_own and not self._has_room(pod, requests_of(pod.pod))
            return "user" if has_its_own or is_refused else ""
        return ""

    def _is_true(self, reason: str, pod: TrackedPod, intent: Manifest, *, is_stuck: bool) -> bool:
        """What is to be recreated waits for a budget only, or for room for another pod."""
        on_delete = intent.strategy.is_on_delete
        is_protected = self.checks.budgets.get(intent.name, [(0.0, None)])[-1][1] == 0
        must = intent.recreates_for(pod.facts.sizes)
        must = must or intent.recreates_to_change(self.checks.behind(pod, intent.sizes))
        keeps = not (intent.may_recreate or must) or is_protected or is_stuck or on_delete
        wanted = Amounts(intent.sizes.request_milli, intent.sizes.memory_mib * _MIB)
        reasons = {
            "AwaitsDeletion": on_delete,
            "DisruptionBudget": is_protected,
            "RestartOnly": keeps and must,
            "Restart": keeps and must,
            "Invalid": keeps and pod.facts.sizes.is_burstable != intent.sizes.is_burstable,
            "Infeasible": keeps and intent.sizes.request_milli > (self.allocatable.cpu_milli or 0),
            "Deferred": keeps and not self._has_room(pod, wanted),
        }
        return reasons.get(reason, False)

    def _has_room(self, pod: TrackedPod, wanted: Amounts) -> bool:
        others = [one.pod for one in self.checks.pods.values() if one is not pod]
        return has_room(wanted, pod.node, others, {pod.node: self.allocatable})

    def _is_without_room(self, pod: TrackedPod) -> bool:
        """No node takes it."""
        if self.strict or pod.node:
            return False
        pods = [one.pod for one in self.checks.pods.values()]
        allocatable = dict.fromkeys(self.nodes, self.allocatable)
        wanted = requests_of(pod.pod)
        return not any(has_room(wanted, node, pods, allocatable) for node in self.nodes)

    def _real(self, pod: TrackedPod) -> str:
        node = self.nodes.get(pod.node)
        if node is None:
            return f"{pod.facts} and no node"
        has = has_on_machine(node.machine, pod.uid, pod.facts.sizes)
        return f"{pod.facts}{'' if has else ', not on its machine,'}"


def _is_complete(pods: list[TrackedPod], intent: Manifest) -> bool:
    if intent.is_deployment:
        return len(pods) == intent.replicas
    return sorted(pod.ordinal for pod in pods) == list(range(intent.replicas))


def _is_scaled_away(pod: TrackedPod, intent: Manifest) -> bool:
    """It stays as long as one before it waits for room, and has the size that it has."""
    return not intent.is_deployment and pod.ordinal >= intent.replicas


def _said(stored: Object) -> dict[str, str]:
    """Reasons by pod."""
    status = json.loads(lookup(stored, "metadata", "annotations", _STATUS, default="{}"))
    return {one["pod"]: one["reason"] for one in status.get("unfinished", ())}

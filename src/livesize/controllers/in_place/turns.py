"""Whose turn it is: the pods of a workload in the order in which they are begun. Pure.

As many are under way as the parallelism says. What waits takes no turn. A restart that has failed
stops all others. Restarts of containers heed disruption budgets, and are done one at a time where
there are any, because a budget's count follows them late.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from livesize.api.objects import Object, evolve, generation_of, lookup, name_of, uid_of
from livesize.api.reasons import EventReason
from livesize.api.workload_resize import (
    ANNOTATIONS,
    RESIZE_STATUS,
    Hold,
    TemplateChange,
    held,
    hold_of,
    is_deployment,
    parallelism_of,
    previous_sizes,
    template_change,
    template_of,
    with_sizes,
)
from livesize.api.workload_status import ResizeStatus, format_status, last_status
from livesize.controllers.in_place.actions import (
    EvictPod,
    ReportStatus,
    WorkloadAction,
    WorkloadPlan,
    WriteWorkload,
)
from livesize.controllers.in_place.pod_plan import Aim, PodJudge, PodStanding, PodState
from livesize.controllers.in_place.status import (
    build_status,
    says_the_same,
    seconds_since,
    stuck_event,
)
from livesize.controllers.in_place.view import WorkloadView, has_budget, may_be_disrupted

DEFAULT_PARALLELISM = 1
REPORT_SECONDS = 1.0
"""While things change, the status is written once in this time."""
_BUDGET = "DisruptionBudget"


class Turns:
    """``states``: of all pods that the resize is about, in the order of their turns."""

    def __init__(self, view: WorkloadView, aim: Aim, pods: Sequence[Object], now: float) -> None:
        self._view, self._now = view, now
        self._judge = PodJudge(aim, view.answers, now)
        self.states = [self._judge.judge(pod) for pod in pods]
        self._begin()

    @property
    def is_finished(self) -> bool:
        fine = (PodStanding.DONE, PodStanding.COUNTED, PodStanding.GONE)
        return all(state.standing in fine for state in self.states)

    def has(self, standing: PodStanding) -> bool:
        return any(state.standing is standing for state in self.states)

    def look_ahead(self) -> None:
        """Say of every pod what would be done with it if it were its turn."""
        self.states = [self._look_ahead(state) for state in self.states]

    def may_recreate(self, place: int) -> bool:
        """Whether every budget allows it; where not, the pod's state says so."""
        state = self.states[place]
        if self._may_disrupt(state.pod):
            return True
        said = f"no disruption is allowed now; {state.reason}: {state.message}"
        self.states[place] = msgspec.structs.replace(state, reason=_BUDGET, message=said)
        return False

    # The plan

    def plan(
        self, write: WriteWorkload | None = None, evictions: tuple[EvictPod, ...] = ()
    ) -> WorkloadPlan:
        """Pods first; then ``write``, which may rest on them, with the status in it."""
        actions: list[WorkloadAction] = [one for state in self.states for one in state.actions]
        actions += evictions
        waits = [state.wait_seconds for state in self.states if state.wait_seconds is not None]
        status = self._status()
        if write is not None:
            path = (*ANNOTATIONS, RESIZE_STATUS)
            noted = evolve(write.workload, path, format_status(status))
            actions.append(msgspec.structs.replace(write, workload=noted))
        else:
            before = last_status(self._view.workload)
            due = 0.0 if self.is_finished else REPORT_SECONDS - seconds_since(before, self._now)
            if not says_the_same(before, status):
                if due > 0:
                    waits.append(due)
                else:
                    event = stuck_event(before, status, self.states)
                    actions.append(ReportStatus(format_status(status), event, status.message))
        silent = tuple(uid_of(one.pod) for one in self.states if one.reason == "NotJudged")
        return WorkloadPlan(tuple(actions), min(waits, default=None), silent)

    def revert(self, hold: Hold | None) -> WorkloadPlan:
        """The template goes back to the sizes before. Once: where it has them, pods wait. No pod is
        of the revision that it gets, so that all are held again."""
        workload = self._view.workload
        back = with_sizes(workload, previous_sizes(workload) or {})
        if template_change(template_of(workload), template_of(back)) is TemplateChange.NONE:
            return self.plan()
        if hold is not None:
            counts = [
                lookup(workload, place, "replicas", default=0) for place in ("spec", "status")
            ]
            again = msgspec.structs.replace(
                hold,
                generation=generation_of(workload) + 1,
                partition=hold.partition if is_deployment(workload) else max(counts),
            )
            back = held(back, again)
        stuck = next(one for one in self.states if one.standing is PodStanding.REVERT)
        why = f"pod {name_of(stuck.pod)}: {stuck.reason}: {stuck.message}"
        message = f"the former sizes are asked for again, because of {why}"
        return WorkloadPlan((WriteWorkload(back, EventReason.RESIZE_REVERTED, message),))

    def _status(self) -> ResizeStatus:
        hold = hold_of(self._view.workload)
        generation = generation_of(self._view.workload) if hold is None else hold.generation
        return build_status(generation, self.states, self._now)

    # Turns

    def _begin(self) -> None:
        if self.has(PodStanding.ROLLOUT) or self.has(PodStanding.FAILED):
            return
        left = parallelism_of(self._view.workload) or DEFAULT_PARALLELISM
        left -= sum(state.standing is PodStanding.UNDER_WAY for state in self.states)
        for place, state in enumerate(self.states):
            if left <= 0:
                return
            if state.standing is PodStanding.QUEUED:
                begun = self._look_ahead(state)
                if begun.disrupts and not self._may_disrupt(begun.pod):
                    message = "its containers would restart, and no disruption is allowed now"
                    begun = PodState(begun.pod, PodStanding.WAITS, _BUDGET, message)
                self.states[place] = begun
                left -= begun.takes_turn

    def _look_ahead(self, state: PodState) -> PodState:
        if state.standing is not PodStanding.QUEUED:
            return state
        return self._judge.begin(state.pod)

    def _may_disrupt(self, pod: Object) -> bool:
        under_way = any(
            one.disrupts and one.standing is PodStanding.UNDER_WAY for one in self.states
        )
        if under_way and has_budget(pod, self._view):
            return False
        return may_be_disrupted(pod, self._view)

"""Judges pods and resizes one at a time, in order of arrival, against the ledger.

Everything here happens within one turn of the event loop: the verdict stands before the next
change is looked at. A promise made here is only in memory; the pod's worker makes it durable
before it touches anything. A deferred resize blocks no other. The judge tries it again, by
``retry_key``, the moment room appears.
"""

from __future__ import annotations

import msgspec

from livesize.agent.admission.plan import (
    Accept,
    Admission,
    Admit,
    Defer,
    Infeasible,
    NodeRoom,
    Reject,
    Verdict,
    judge_new,
    judge_resize,
    refusal_message,
    retry_key,
)
from livesize.agent.allocation.ledger import (
    Allocation,
    Ledger,
    StartingSize,
    footprint_of,
    pod_requests,
    requests_total,
    sizes_equal,
    with_resource,
)
from livesize.agent.cpus.assigner import CpuAssigner
from livesize.agent.cpus.plan import Assigned, Assignment, TooFew, not_whole
from livesize.api.objects import Object, generation_of, lookup, name_of, namespace_of, uid_of
from livesize.api.reasons import Reason
from livesize.api.requested_action import RequestedAction
from livesize.api.resize_state import (
    UNFINISHED,
    ResizePhase,
    allocated_sizes,
    order_of_request,
    phase_of,
    resize_state,
)
from livesize.api.resources import (
    NOTHING,
    Amounts,
    ResourceName,
    init_containers_of,
    is_vm,
    maximum,
    resizable_of,
    size_of,
    stays,
)
from livesize.api.runtime_features import NO_FEATURES, RuntimeFeatures
from livesize.api.vm_size import Technology, boots_with_maximum, known_technology, vm_size_of


class RefusedResize(msgspec.Struct, frozen=True):
    """A resize that was not accepted: Deferred or Infeasible, and why."""

    generation: int
    phase: ResizePhase
    message: str
    arrival: int


class Judge:
    def __init__(
        self,
        ledger: Ledger,
        *,
        runs_vms: bool = False,
        cpus: CpuAssigner | None = None,
        features: RuntimeFeatures = NO_FEATURES,
        technology: Technology = Technology.AUTO,
    ) -> None:
        """``cpus``: under the static CPU policy, who has which alone; ``features``: of the runtime
        of containers; ``technology``: of VMs that say none."""
        self._ledger = ledger
        self._features = features
        self._runs_vms = runs_vms
        self._cpus = cpus
        self._technology = technology
        self._refusals: dict[str, RefusedResize] = {}
        self._pods: dict[str, Object] = {}  # of the refused, as last seen

    def refusal(self, uid: str) -> RefusedResize | None:
        return self._refusals.get(uid)

    def admit(self, pod: Object, *, already_runs: bool) -> Admission:
        """A pod this node does not know yet. One that already runs here was admitted before."""
        entry = self._first_allocation(pod)
        verdict: Admission = Admit() if already_runs else self._judge_new(pod, entry)
        assigned = self._assign(pod, entry.allocated)
        match verdict, assigned:
            case Admit(), Assigned(cpus=cpus) if not already_runs:
                self._ledger.promise(msgspec.structs.replace(entry, cpus=cpus))
            case Admit(), Assigned(cpus=cpus):
                self._ledger.record(msgspec.structs.replace(entry, cpus=cpus))
            case Admit(), TooFew() if already_runs:
                self._ledger.record(entry)  # it goes on with those that share
            case Admit(), TooFew():
                reason = Reason.OUT_OF_CPU.value
                return Reject(reason, f"Pod was rejected: {assigned.sentence()}")
            case _:
                pass
        return verdict

    def _judge_new(self, pod: Object, entry: Allocation) -> Admission:
        room = NodeRoom(self._ledger.allocatable, self._ledger.used_by_others(entry.uid))
        return judge_new(
            pod,
            room,
            held=footprint_of(entry),
            runs_vms=self._runs_vms,
            features=self._features,
        )

    def restore_promise(self, pod: Object) -> Allocation | None:
        """A resize that is Done, by the API server, and that this node has forgotten.
        It lost its power before the promise was on disk, and with it all that ran here: nothing is
        held of what was before. Others may have been given the room by now."""
        entry = self._ledger.get(uid_of(pod))
        done = int(resize_state(pod).get("generation", 0))
        if entry is None or done <= entry.generation or phase_of(pod) is not ResizePhase.DONE:
            return None
        reported = tuple(allocated_sizes(pod).values())
        assigned = self._assign(pod, reported)
        if not isinstance(assigned, Assigned):
            return None  # it is judged anew, like any other
        entry = entry.accepted(reported, done, assigned.cpus).applied(reported)
        self._ledger.record(entry)
        return entry

    def is_open(self, pod: Object) -> bool:
        """A resize was asked that has not been judged, neither here nor by the scheduler."""
        entry = self._ledger.get(uid_of(pod))
        requested = int(resize_state(pod).get("generation", 0))
        unheard = entry is not None and requested > entry.generation
        return unheard and phase_of(pod) is ResizePhase.REQUESTED

    def consider(self, pod: Object) -> bool:
        """Judge the pod's resize, if one was asked that has not been judged; True if so."""
        uid = uid_of(pod)
        entry = self._ledger.get(uid)
        requested = int(resize_state(pod).get("generation", 0))
        if entry is None or requested <= entry.generation:
            return False
        refused = self._refusals.get(uid)
        if refused is not None and refused.generation == requested:
            self._pods[uid] = pod  # its priority may have changed
            return False
        self._pods[uid] = pod
        self._judge(pod, entry, order_of_request(pod))
        return True

    def retry(self) -> list[str]:
        """There may be room: judge again what was refused; return the pods that were promised
        something. Of what is infeasible the other resource may have waited for room."""
        refused = sorted(
            (retry_key(self._pods[uid], refusal.arrival), uid)
            for uid, refusal in self._refusals.items()
        )
        accepted = []
        for _, uid in refused:
            entry = self._ledger.get(uid)
            assert entry is not None
            self._judge(self._pods[uid], entry, self._refusals[uid].arrival)
            if self._ledger.get(uid) is not entry:
                accepted.append(uid)
        return accepted

    def forget(self, uid: str) -> None:
        self._refusals.pop(uid, None)
        self._pods.pop(uid, None)

    def _judge(self, pod: Object, entry: Allocation, arrival: int) -> None:
        desired = tuple(size_of(container) for container in resizable_of(pod))
        generation = int(resize_state(pod)["generation"])
        assigned = self._assign(pod, desired)
        verdict = self._verdict(entry, desired, assigned)
        match verdict:
            case Accept():
                assert isinstance(assigned, Assigned)
                self._ledger.promise(entry.accepted(desired, generation, assigned.cpus))
                self.forget(entry.uid)
            case Defer():
                why = refusal_message(pod, verdict, entry.allocated)
                self._refuse(
                    entry.uid, RefusedResize(generation, ResizePhase.DEFERRED, why, arrival)
                )
            case Infeasible():
                entry = self._accept_other(pod, entry, desired)
                why = refusal_message(pod, verdict, entry.allocated)
                self._refuse(
                    entry.uid, RefusedResize(generation, ResizePhase.INFEASIBLE, why, arrival)
                )

    def _accept_other(
        self, pod: Object, entry: Allocation, desired: tuple[Object, ...]
    ) -> Allocation:
        """A size of one resource that the node can never hold does not block the other: the judge
        judges that alone (decisions 9). The generation stays unaccepted."""
        if resize_state(pod).get("action") == RequestedAction.RESTART:
            return entry  # what is done in part would not restart
        for resource in ResourceName:
            part = with_resource(entry.allocated, desired, resource)
            if sizes_equal(part, entry.allocated):
                continue
            assigned = self._assign(pod, part)
            accepts = isinstance(self._verdict(entry, part, assigned), Accept)
            if accepts and isinstance(assigned, Assigned):
                promised = entry.accepted(part, entry.generation, assigned.cpus)
                self._ledger.promise(promised)
                return promised
        return entry

    def _verdict(
        self, entry: Allocation, desired: tuple[Object, ...], assigned: Assignment
    ) -> Verdict:
        if self._cpus is not None:
            broken = not_whole(desired, (entry.allocated, entry.actuated))
            if broken:
                return Infeasible(broken)
        requested = pod_requests(entry, desired)
        room = NodeRoom(self._ledger.allocatable, self._ledger.used_by_others(entry.uid))
        verdict = judge_resize(requested, self._ledger.footprint(entry.uid), room)
        if isinstance(assigned, TooFew) and not isinstance(verdict, Infeasible):
            why = assigned.sentence()
            return Defer(why) if assigned.ever_fits else Infeasible(why)
        return verdict

    def _assign(self, pod: Object, sizes: tuple[Object, ...]) -> Assignment:
        return Assigned({}) if self._cpus is None else self._cpus.assign(pod, sizes)

    def _refuse(self, uid: str, refusal: RefusedResize) -> None:
        """A verdict that stands is not given again, though its numbers may have changed."""
        before = self._refusals.get(uid)
        stands = before is not None and (before.generation, before.phase) == (
            refusal.generation,
            refusal.phase,
        )
        if not stands:
            self._refusals[uid] = refusal

    def _first_allocation(self, pod: Object) -> Allocation:
        """Pods are admitted at allocated; a resize asked before that is judged afterwards."""
        sizes = tuple(allocated_sizes(pod).values())
        state = resize_state(pod)
        if phase_of(pod) in UNFINISHED:
            generation = int(state["generation"]) - 1
        else:
            generation = int(state.get("generation", generation_of(pod)))
        return Allocation(
            uid=uid_of(pod),
            namespace=namespace_of(pod),
            name=name_of(pod),
            generation=generation,
            allocated=sizes,
            actuated=sizes,
            held=self._held_from_the_start(pod, sizes),
            overhead=lookup(pod, "spec", "overhead", default={}),
            arrival=self._ledger.next_arrival(),
            starting=tuple(
                StartingSize({"name": one["name"]} if stays(one) else size_of(one), stays(one))
                for one in init_containers_of(pod)
            ),
        )

    def _held_from_the_start(self, pod: Object, sizes: tuple[Object, ...]) -> Amounts:
        """A VM with a balloon boots with its maximum, and has that until it was applied that its
        guest gives it back (decisions 46)."""
        if not is_vm(pod):
            return NOTHING
        technology = known_technology(pod) or self._technology
        if not boots_with_maximum(technology):
            return NOTHING
        most_bytes = vm_size_of(pod).max_memory_bytes
        requested = requests_total(sizes)
        held = maximum(requested, Amounts(memory_bytes=most_bytes))
        return NOTHING if held == requested else held

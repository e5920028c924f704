"""Design 5.2 under random operations: pods come, go, grow and shrink, containers end, writes fail,
memory is held, the agent is killed, the node changes its size.

At every write: "container limits ≤ pod limit at every instant", "Σ footprint of admitted pods ≤
allocatable on every node". Whenever all has come to rest: each pod has on the machine what the API
says, nothing is counted twice, whoever waits would not fit, and "a container restarts only for the
reasons in decisions 11".
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from design.living_node import WAIT_SECONDS, LivingNode
from livesize.agent.admission.plan import Accept, NodeRoom, judge_resize
from livesize.agent.allocation.ledger import footprint_of
from livesize.api.accounting import footprint, requests_of
from livesize.api.kernel_units import CgroupVersion, pod_limits, to_kernel
from livesize.api.objects import Object, generation_of, lookup, uid_of
from livesize.api.resize_state import (
    ResizePhase,
    allocated_sizes,
    is_terminal,
    phase_of,
    resize_state,
)
from livesize.api.resources import ZERO, add, parse_resources
from livesize.runtime.fake import FAKE_IMAGE
from livesize.runtime.interface import (
    ContainerGroup,
    ContainerPhase,
    PodGroup,
    RuntimeCallError,
)
from virtual_time import CLOCK

NAMES = ("a", "b", "c", "d")
CONTAINERS = ("one", "two", "three")
MIB = 1 << 20
AT_REST = (ResizePhase.NONE, ResizePhase.DONE, ResizePhase.DEFERRED, ResizePhase.INFEASIBLE)

first_sizes = st.tuples(st.sampled_from([100, 250, 500]), st.sampled_from([64, 128, 256]))
sizes = st.tuples(
    st.sampled_from([100, 200, 400, 700, 1000, 1500, 2500, 5000]),
    st.sampled_from([32, 64, 128, 512, 1024, 2048, 5000]),
)
picks = st.integers(0, 11)
seldom = st.integers(0, 3).map(lambda number: number == 3)


class Operations(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.node = LivingNode(Path(self._folder.name), cpu_milli=4000)
        self.exits: Counter[tuple[str, str]] = Counter()
        self.may_restart: Counter[tuple[str, str]] = Counter()
        self.history: list[str] = []

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.node.end()
            self._folder.cleanup()

    # Operations

    @initialize(wanted=st.lists(first_sizes, min_size=3, max_size=3), restarts=st.booleans())
    def begin(self, wanted: list[tuple[int, int]], restarts: bool) -> None:
        for name, count in (("a", 1), ("b", 2), ("c", 3)):
            self.create(name, wanted[:count], guaranteed=name != "b", restarts=restarts)
        self.settle()

    @rule(
        name=st.sampled_from(NAMES),
        wanted=st.lists(first_sizes | sizes, min_size=1, max_size=3),
        guaranteed=st.booleans(),
        restarts=seldom,
    )
    def create(
        self, name: str, wanted: list[tuple[int, int]], guaranteed: bool, restarts: bool
    ) -> None:
        if name in self.pods():
            return
        policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
        containers = [
            {
                "name": called,
                "image": FAKE_IMAGE,
                "resources": resources(size, guaranteed=guaranteed),
                **({"resizePolicy": policy} if restarts else {}),
            }
            for called, size in zip(CONTAINERS, wanted, strict=False)
        ]
        self.history.append(f"create {name} {wanted} {guaranteed=} {restarts=}")
        self.node.wait(self.node.create(name, containers))

    @rule(pick=picks, size=sizes)
    def resize_all_containers(self, pick: int, size: tuple[int, int]) -> None:
        self.resize(pick, [size, size, size])

    @rule(pick=picks, cpu=st.sampled_from([100, 500, 1000, 2000]))
    def resize_one_container_and_settle(self, pick: int, cpu: int) -> None:
        self.resize(pick, [(cpu, 64), None, None])
        self.settle()

    @rule(pick=picks, wanted=st.lists(st.none() | sizes, min_size=3, max_size=3))
    def resize(self, pick: int, wanted: list[tuple[int, int] | None]) -> None:
        pod = self.picked(pick)
        if pod is None:
            return
        guaranteed = lookup(pod, "status", "qosClass") == "Guaranteed"
        changes = {
            one["name"]: resources(size, guaranteed=guaranteed)
            for one, size in zip(pod["spec"]["containers"], wanted, strict=False)
            if size is not None
        }
        for one in pod["spec"]["containers"]:
            if one["name"] in changes and one.get("resizePolicy"):
                self.may_restart[uid_of(pod), one["name"]] += 1
        if changes:
            self.history.append(f"resize {pod['metadata']['name']} {changes}")
            self.node.wait(self.node.resize(pod["metadata"]["name"], changes))

    @rule(pick=picks, surely=seldom)
    def delete(self, pick: int, surely: bool) -> None:
        """Whoever was not let in makes way for somebody else; others seldom go."""
        pod = self.picked(pick, ended=True)
        if pod is not None and (surely or is_terminal(pod)):
            self.history.append(f"delete {pod['metadata']['name']}")
            self.node.wait(self.node.delete(pod["metadata"]["name"]))

    @rule(pick=picks, which=picks)
    def a_container_ends(self, pick: int, which: int) -> None:
        found = self.running(pick, which)
        if found is not None:
            self.history.append(f"ends {found}")
            self.exits[found] += 1
            self.node.wait(self.node.end_container(*found))

    @rule(pick=picks, which=picks, share=st.sampled_from([0, 40, 90]))
    def memory_is_held_or_freed(self, pick: int, which: int, share: int) -> None:
        """So much of what it may have."""
        found = self.running(pick, which)
        if found is not None:
            group = self.node.machine.group(ContainerGroup(*found))
            most = group.limits.memory_limit_bytes or 64 * MIB
            self.history.append(f"{found} holds {share} % of {most >> 20} MiB")
            self.node.machine.use_memory(*found, MIB + (most - MIB) * share // 100)

    @rule(pick=picks, which=picks, of_pod=st.booleans(), times=st.integers(1, 3))
    def writes_fail(self, pick: int, which: int, of_pod: bool, times: int) -> None:
        found = self.running(pick, which)
        if found is not None:
            group = PodGroup(found[0]) if of_pod else ContainerGroup(*found)
            self.history.append(f"{times} writes fail of {group}")
            for _ in range(times):
                self.node.machine.fail_next_write(group, RuntimeCallError("not now"))

    @rule(cpu=st.sampled_from([4000, 2000, 8000]))
    def the_agent_dies(self, cpu: int) -> None:
        self.history.append(f"the agent dies, {cpu=}")
        self.node.wait(self.node.restart_agent(cpu))

    @rule(milliseconds=st.integers(0, 5))
    def time_passes(self, milliseconds: int) -> None:
        self.node.wait(asyncio.sleep(milliseconds / 1000))

    @rule()
    def settle(self) -> None:
        self.history.append("settle")
        self.node.wait(self._settled())
        assert not self.node.machine.broken, self.told(self.node.machine.broken[0])

    # What must be true

    async def _settled(self) -> None:
        deadline = CLOCK.monotonic() + WAIT_SECONDS
        while why := await self._unsettled():
            assert CLOCK.monotonic() < deadline, self.told(why)
            assert not self.node._running.done(), self.told("the agent ended")
            await asyncio.sleep(0.002)

    async def _unsettled(self) -> str:
        """What is not as it must come to be; empty: all is at rest."""
        pods = await self.node.pods()
        alive = {uid_of(pod): pod for pod in pods.values() if not is_terminal(pod)}
        if set(self.node.machine.pods) != set(alive):
            return f"on the machine {set(self.node.machine.pods)}, in the API {set(alive)}"
        for pod in alive.values():
            why = self._waits(pod) or self._differs(pod) or self._restarted(pod)
            if why:
                return f"{pod['metadata']['name']}: {why}; {resize_state(pod)}"
        return self._miscounted(list(alive.values()))

    def _waits(self, pod: Object) -> str:
        """A state that must not last."""
        state, phase = resize_state(pod), phase_of(pod)
        if lookup(pod, "metadata", "deletionTimestamp"):
            return "leaves"
        if lookup(pod, "status", "phase") != "Running":
            return "does not run"
        if any("running" not in one["state"] for one in pod["status"]["containerStatuses"]):
            return "a container does not run"
        if int(lookup(pod, "status", "observedGeneration", default=0)) < generation_of(pod):
            return "not observed"
        if phase is ResizePhase.ERROR and self._is_held(pod):
            return "" if "below current usage" in state["message"] else "another error"
        return "" if phase in AT_REST else "a resize is under way"

    def _is_held(self, pod: Object) -> bool:
        for name, size in allocated_sizes(pod).items():
            limit = parse_resources(size).limits.memory_bytes
            if limit is not None and self.node.held_bytes(uid_of(pod), name) > limit:
                return True
        return False

    def _differs(self, pod: Object) -> str:
        """The machine has what the API says was allocated, and says so; or it will, once memory
        that is held is given up."""
        if self._is_held(pod):
            return ""
        version, uid = CgroupVersion.V1, uid_of(pod)
        sizes = {name: parse_resources(size) for name, size in allocated_sizes(pod).items()}
        for name, size in sizes.items():
            group = self.node.machine.groups.get(ContainerGroup(uid, name))
            if group is None or group.limits != to_kernel(size, version):
                return f"{name} has {group}, allocated {size}"
        limits = self.node.machine.group(PodGroup(uid)).limits
        if limits != pod_limits(sizes.values(), version):
            return f"the pod has {limits}"
        actual = {one["name"]: one["resources"] for one in pod["status"]["containerStatuses"]}
        if any(parse_resources(actual[name]) != size for name, size in sizes.items()):
            return f"actual is told as {actual}"
        if phase_of(pod) in (ResizePhase.DONE, ResizePhase.NONE):
            desired = {
                c["name"]: parse_resources(c["resources"]) for c in pod["spec"]["containers"]
            }
            return "" if desired == sizes else "it is called done, and is not what was asked"
        return self._would_fit(pod)

    def _would_fit(self, pod: Object) -> str:
        """Whoever was refused does not fit: nobody waits for what is there."""
        assert self.node.agent is not None
        ledger, uid = self.node.agent._admission.ledger, uid_of(pod)
        entry = ledger.get(uid)
        if entry is None:
            return "not in the books"
        room = NodeRoom(ledger.allocatable, ledger.used_by_others(uid))
        verdict = judge_resize(requests_of(pod), footprint_of(entry), room)
        return "it would fit, and waits" if isinstance(verdict, Accept) else ""

    def _restarted(self, pod: Object) -> str:
        uid = uid_of(pod)
        for name, attempt in self.node.attempts(uid).items():
            ended = self.exits[uid, name]
            if not ended <= attempt <= ended + self.may_restart[uid, name]:
                return f"{name} was started again {attempt} times, ended {ended} times"
        return ""

    def _miscounted(self, alive: list[Object]) -> str:
        """Ledger, API and machine count the same."""
        assert self.node.agent is not None
        together = ZERO
        for pod in alive:
            together = add(together, footprint(pod))
        used = self.node.agent._admission.ledger.used
        if any(self._is_held(pod) for pod in alive):
            return ""  # the API counts by container, the books the whole pod, until it is applied
        return "" if together == used else f"{together} in the API, {used} in the books"

    def told(self, why: str) -> str:
        return "\n  ".join([why, *self.history])

    # Choosing

    def pods(self) -> dict[str, Object]:
        return self.node.wait(self.node.pods())

    def picked(self, pick: int, *, ended: bool = False) -> Object | None:
        pods = [
            pod
            for _, pod in sorted(self.pods().items())
            if not lookup(pod, "metadata", "deletionTimestamp") and (ended or not is_terminal(pod))
        ]
        return pods[pick % len(pods)] if pods else None

    def running(self, pick: int, which: int) -> tuple[str, str] | None:
        pod = self.picked(pick)
        known = None if pod is None else self.node.machine.pods.get(uid_of(pod))
        if known is None:
            return None
        runs = [n for n, v in sorted(known.containers.items()) if v.phase is ContainerPhase.RUNNING]
        return (known.config.uid, runs[which % len(runs)]) if runs else None


def resources(size: tuple[int, int], *, guaranteed: bool) -> Object:
    cpu, memory = size
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    if guaranteed:
        return {"requests": requests, "limits": requests}
    return {"requests": requests, "limits": {"cpu": f"{cpu * 2}m", "memory": f"{memory * 2}Mi"}}


CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def run(examples: int, steps: int) -> None:
    """What was found is told as it was done: an agent at work is not the same twice, so there is
    nothing to be gained from trying to find a shorter way to it."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=CHECKS,
    )
    run_state_machine_as_test(Operations, settings=chosen)


def test_a_hundred_random_operations() -> None:
    run(6, 20)


@pytest.mark.containers
@pytest.mark.matrix
def test_a_thousand_random_operations() -> None:
    run(25, 50)

"""One verb and one state machine (B1): the same resize of a container pod and of a VM pod.

States, conditions, events and history are asked for in the same words; only the size differs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from livesize.api.conditions import find_condition
from livesize.api.group_changes import SetMemory
from livesize.api.kinds.event import EVENTS
from livesize.api.objects import Object, lookup
from livesize.api.resize_state import resize_state
from livesize.api.vm_status import statuses_of
from livesize.runtime.interface import ContainerGroup, RuntimeCallError
from unit.agent.vm_world import VmWorld
from unit.agent.world import CrashAt, container
from virtual_time import virtual_time

pytestmark = virtual_time

SMALL = {"cpu": "1", "memory": "512Mi"}
LARGE = {"cpu": "3", "memory": "1Gi"}


def both(size: dict[str, str]) -> Object:
    return {"requests": size, "limits": size}


class Subject:
    """A pod at SMALL of one kind or the other; ``name`` is its only container."""

    def __init__(self, world: VmWorld, kind: str) -> None:
        self.world = world
        self.is_vm = kind == "vm"
        self.name = "vm" if self.is_vm else "app"
        self.uid = ""

    async def start(self, **more: Any) -> None:
        if self.is_vm:
            self.uid = await self.world.run_vm("db", **SMALL, cpu_max="12", **more)
        else:
            await self.world.api.run_pod("db", container("app", **SMALL, **more))
            self.uid = await self.world.running("db")

    async def ask(self, **size: str) -> None:
        await self.world.api.resize("db", self.name, **size)

    async def reaches(self, phase: str) -> None:
        await self.world.phase("db", phase)

    @property
    def actual(self) -> Object:
        (status,) = statuses_of(self.world.api.pod("db"))
        resources: Object = status["resources"]
        return resources

    @property
    def pod(self) -> Object:
        return self.world.api.served("db")

    @property
    def state(self) -> Object:
        return resize_state(self.world.api.pod("db"))

    def events(self) -> list[Object]:
        kept = self.world.api.objects.items()
        return [
            obj
            for key, obj in kept
            if key[0] == EVENTS.plural and obj["involvedObject"]["name"] == "db"
        ]

    def condition(self, kind: str) -> Object | None:
        return find_condition(self.pod, kind)


@pytest.fixture(params=["container", "vm"])
async def subject(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    world = VmWorld(tmp_path)
    await world.start()
    yield Subject(world, request.param)
    await world.stop()
    assert world.violations == []


@pytest.mark.parametrize("asked", [{"cpu": "3"}, {"memory": "1Gi"}, LARGE])
async def test_asked_accepted_done(subject: Subject, asked: dict[str, str]) -> None:
    await subject.start()
    pid = subject.world.pid(subject.uid, subject.name)
    await subject.ask(**asked)
    assert subject.state["phase"] == "Requested"
    resized = subject.condition("PodResized")
    assert resized is not None
    assert resized["status"] == "Requested"
    await subject.reaches("Done")
    wanted = both({**SMALL, **asked})
    assert subject.actual == wanted
    assert subject.state["allocated"] == [{"name": subject.name, **wanted}]
    assert subject.state["desired"] == [{"name": subject.name, **wanted}]
    assert (await subject.world.api.told("db")) == ["None", "Requested", "InProgress", "Done"]
    resized = subject.condition("PodResized")
    assert resized is not None
    assert resized["status"] == "Done"
    assert subject.condition("PodResizePending") is None
    assert subject.condition("PodResizeInProgress") is None
    assert lookup(subject.pod, "spec", "resizeRequest", "requestStatus") == "Done"
    assert subject.pod["status"]["observedGeneration"] == 2
    assert subject.world.pid(subject.uid, subject.name) == pid


async def test_down_again(subject: Subject) -> None:
    await subject.start()
    await subject.ask(**LARGE)
    await subject.reaches("Done")
    await subject.ask(**SMALL)
    await subject.reaches("Done")
    assert subject.actual == both(SMALL)
    assert subject.state["generation"] == 3


async def test_history(subject: Subject) -> None:
    await subject.start()
    await subject.ask(**LARGE)
    await subject.reaches("Done")
    steps = subject.state["steps"]
    names = [step["name"] for step in steps]
    assert names[:2] == ["checkpoint", "accept"]
    assert names[-1] == "actuated"
    assert names.index("pod:cpu") < names.index(f"container:{subject.name}:cpu")
    assert names.index("pod:memory") < names.index(f"container:{subject.name}:memory")
    assert {step["outcome"] for step in steps} == {"Done"}
    assert all(step["seconds"] >= 0 and step["time"] for step in steps)

    assert [step["time"] for step in steps] == sorted(step["time"] for step in steps)
    assert subject.state["requestedBy"] == "test"
    assert subject.state["message"] == "The machine reports the desired resources."


async def test_events(subject: Subject) -> None:
    await subject.start()
    await subject.ask(**LARGE)
    await subject.reaches("Done")
    wanted = {"Created", "Started", "ResizeStarted", "ResizeCompleted"}
    await subject.world.until(
        lambda: wanted <= set(subject.world.api.event_reasons("db")), "events are told"
    )
    said = {event["reason"]: event["message"] for event in subject.events()}
    size = (
        f'{{"name":"{subject.name}","resources":{json.dumps(both(LARGE), separators=(",", ":"))}}}'
    )
    for reason, what in (("ResizeStarted", "started"), ("ResizeCompleted", "completed")):
        assert said[reason] == f'Pod resize {what}: {{"containers":[{size}],"generation":2}}'
    reasons = subject.world.api.event_reasons("db")
    assert (reasons.count("ResizeStarted"), reasons.count("ResizeCompleted")) == (1, 1)


async def test_more_than_the_node_has_is_infeasible(subject: Subject) -> None:
    await subject.start()
    await subject.ask(cpu="9")
    await subject.reaches("Infeasible")
    pending = subject.condition("PodResizePending")
    assert pending is not None
    assert pending["reason"] == "Infeasible"
    assert subject.actual == both(SMALL)
    assert subject.world.machine.writes == []
    assert subject.world.history == [], "nothing of the machine was touched"
    resized = subject.condition("PodResized")
    assert resized is not None
    assert (resized["status"], resized["reason"]) == ("Rejected", "Unresizable")
    assert lookup(subject.pod, "spec", "resizeRequest", "requestStatus") == "Rejected"
    assert subject.state["allocated"] == [{"name": subject.name, **both(SMALL)}]
    await subject.world.until(
        lambda: "ResizeInfeasible" in subject.world.api.event_reasons("db"), "it is told"
    )
    await subject.ask(cpu="2")
    await subject.reaches("Done")


async def test_no_room_now_is_deferred_until_there_is(subject: Subject) -> None:
    await subject.start()
    await subject.world.api.run_pod("big", container("app", cpu="6"))
    await subject.world.running("big")
    await subject.ask(cpu="3")
    await subject.reaches("Deferred")
    assert subject.actual == both(SMALL)
    await subject.world.until(
        lambda: "ResizeDeferred" in subject.world.api.event_reasons("db"), "it is told"
    )
    await subject.world.api.mark_deleted("big")
    await subject.reaches("Done")
    assert subject.actual == both({**SMALL, "cpu": "3"})


async def test_a_deferred_one_gives_way_to_one_that_fits(subject: Subject) -> None:
    await subject.start()
    await subject.world.api.run_pod("big", container("app", cpu="6"))
    await subject.world.running("big")
    await subject.ask(cpu="3")
    await subject.reaches("Deferred")
    await subject.ask(cpu="2")
    await subject.reaches("Done")
    assert subject.actual == both({**SMALL, "cpu": "2"})
    assert subject.condition("PodResizePending") is None


async def test_a_failing_machine_is_an_error_that_is_tried_again(subject: Subject) -> None:
    await subject.start()
    group = ContainerGroup(subject.uid, subject.name)
    for _ in range(8):
        subject.world.machine.fail_next_write(group, RuntimeCallError("the disk of groups is full"))
    await subject.ask(**LARGE)
    await subject.reaches("Error")
    progress = subject.condition("PodResizeInProgress")
    assert progress is not None
    assert progress["reason"] == "Error"
    assert "the disk of groups is full" in progress["message"]
    assert subject.state["steps"][-1]["outcome"] == "Failed"
    await subject.reaches("Done")
    assert subject.actual == both(LARGE)
    assert "ResizeError" in subject.world.api.event_reasons("db")


async def test_only_the_newest_of_several_requests_counts(subject: Subject) -> None:
    await subject.start()
    with subject.world.client.deaf():
        for cpu in ("2", "4", "3"):
            await subject.ask(cpu=cpu)
    await subject.reaches("Done")
    assert subject.actual == both({**SMALL, "cpu": "3"})
    assert subject.state["generation"] == 4


async def test_a_restart_by_policy(subject: Subject) -> None:
    await subject.start(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}])
    await subject.ask(memory="1Gi")
    await subject.reaches("Done")
    assert subject.world.attempt(subject.uid, subject.name) == 0
    await subject.ask(cpu="3")
    await subject.reaches("Done")
    assert subject.world.attempt(subject.uid, subject.name) == 1
    assert subject.actual == both(LARGE)


async def test_the_way_back_from_an_error_is_open(subject: Subject) -> None:
    await subject.start()
    group = ContainerGroup(subject.uid, subject.name)
    subject.world.broken.add(group)
    await subject.ask(**LARGE)
    await subject.reaches("Error")
    await subject.ask(**SMALL)
    subject.world.broken.clear()
    await subject.reaches("Done")
    assert subject.actual == both(SMALL)
    resized = subject.condition("PodResized")
    assert resized is not None
    assert "reason" not in resized


async def test_an_unfinished_resize_does_not_hold_up_a_deletion(subject: Subject) -> None:
    await subject.start()
    group = ContainerGroup(subject.uid, subject.name)
    subject.world.broken.add(group)
    await subject.ask(**LARGE)
    await subject.reaches("Error")
    await subject.world.api.mark_deleted("db")
    await subject.world.until(lambda: not subject.world.api.has("db"), "it is gone")
    assert subject.uid not in subject.world.machine.pods


async def test_a_finished_resize_is_left_alone_by_the_next_agent(subject: Subject) -> None:
    await subject.start()
    await subject.ask(**LARGE)
    await subject.reaches("Done")
    world = subject.world
    pid = world.pid(subject.uid, subject.name)
    world.history.clear()
    await world.stop()
    await world.start()
    await subject.ask(cpu="2")
    await subject.reaches("Done")
    assert (await world.api.told("db"))[-3:] == ["Requested", "InProgress", "Done"]
    done = [post["generation"] for post in world.client.posts if post["phase"] == "Done"]
    assert done == [2, 3], "nothing is said twice"
    assert world.pid(subject.uid, subject.name) == pid
    assert not [one for one in world.history if isinstance(one, tuple) and _is_memory(one[1])]


def _is_memory(change: object) -> bool:
    return isinstance(change, SetMemory)


POINTS = [
    f"resize/{step}/{side}"
    for step in ("checkpoint", "accept", "pod:cpu", "container:{}:memory", "actuated", "report")
    for side in ("before", "after")
]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(("first", "second"), [(SMALL, LARGE), (LARGE, SMALL)])
async def test_the_agent_dies_there_and_the_next_one_finishes(
    subject: Subject, point: str, first: dict[str, str], second: dict[str, str]
) -> None:
    await subject.start()
    world, name = subject.world, subject.name
    if first != SMALL:
        await subject.ask(**first)
        await subject.reaches("Done")
    pid = world.pid(subject.uid, name)
    await world.stop()
    await world.start(CrashAt(point.format(name)))
    await subject.ask(**second)
    await world.crashed()
    await world.start()
    await subject.reaches("Done")
    assert subject.actual == both(second)
    assert subject.state["allocated"] == [{"name": name, **both(second)}]
    assert (world.pid(subject.uid, name), world.attempt(subject.uid, name)) == (pid, 0)
    assert subject.condition("PodResizeInProgress") is None
    await world.stop()
    (entry,) = await world.checkpointed()
    assert entry.settled


async def test_the_api_server_is_away_meanwhile(subject: Subject) -> None:
    await subject.start()
    subject.world.client.is_down = True
    await subject.ask(**LARGE)
    uid, name = subject.uid, subject.name
    await subject.world.until(lambda: subject.world.quota_us(uid, name) == 300_000, "applied")
    subject.world.client.is_down = False
    await subject.reaches("Done")
    assert subject.actual == both(LARGE)

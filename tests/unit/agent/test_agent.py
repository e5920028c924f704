"""The agent as a whole: pods start, are resized, end and go; seen on the machine and in the API."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from livesize.agent.allocation.checkpoint import SecuredEntry
from livesize.agent.observation import observe_pod
from livesize.agent.pods import worker
from livesize.agent.pods.pod_record import PodRecord
from livesize.agent.pods.worker import PodWorker
from livesize.api.conditions import find_condition, is_true
from livesize.api.kernel_units import KernelLimits
from livesize.api.objects import Object, lookup
from livesize.api.resize_state import resize_state
from livesize.runtime.fake import FAKE_IMAGE, Behaviour
from livesize.runtime.interface import ContainerGroup, PodGroup, RuntimeCallError
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time

MIB = 1024 * 1024


def status_of(world: World, name: str, index: int = 0) -> Object:
    found: Object = world.api.pod(name)["status"]["containerStatuses"][index]
    return found


async def test_a_pod_starts_and_its_status_says_what_was_read_back(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container("app"), container("side", cpu="100m"))
    uid = await world.running("db")
    pod = world.api.pod("db")
    assert is_true(pod, "Ready")
    assert is_true(pod, "ContainersReady")
    assert [status["name"] for status in pod["status"]["containerStatuses"]] == ["app", "side"]
    status = status_of(world, "db")
    assert status["resources"]["limits"] == {"cpu": "500m", "memory": "64Mi"}
    assert status["containerID"].startswith("fake://")
    assert status["restartCount"] == 0
    assert pod["status"]["observedGeneration"] == 1
    assert pod["status"]["podIP"] == "127.0.0.1"
    assert world.quota_us(uid) == 50_000
    assert world.pod_quota_us(uid) == 60_000
    await world.until(lambda: "Started" in world.api.event_reasons("db"), "events are told")


async def test_the_node_is_registered_with_what_it_has(world: World) -> None:
    await world.start()
    await world.until(lambda: ("nodes", "", "node-1") in world.api.objects, "registered")
    await world.until(lambda: is_true(world.api.node(), "Ready"), "ready")
    assert world.api.node()["status"]["allocatable"]["cpu"] == "4"
    lease = ("leases", "kube-node-lease", "node-1")
    await world.until(lambda: lease in world.api.objects, "the heartbeat began")


@pytest.mark.parametrize(("cpu", "memory"), [("1", "128Mi"), ("200m", "32Mi")])
async def test_a_resize_reaches_the_groups_and_back(world: World, cpu: str, memory: str) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    pid = world.pid(uid)
    await world.api.resize("db", "app", cpu=cpu, memory=memory)
    await world.phase("db", "Done")
    wanted = {"cpu": cpu, "memory": memory}
    assert status_of(world, "db")["resources"] == {"requests": wanted, "limits": wanted}
    assert world.pid(uid) == pid
    assert world.quota_us(uid) == world.pod_quota_us(uid)
    state = resize_state(world.api.pod("db"))
    assert state["allocated"][0]["requests"] == wanted
    assert [step["name"] for step in state["steps"]][:2] == ["checkpoint", "accept"]
    assert state["steps"][-1]["name"] == "actuated"
    assert world.api.pod("db")["status"]["observedGeneration"] == 2
    assert (await world.api.told("db")) == ["None", "Requested", "InProgress", "Done"]
    await world.until(
        lambda: {"ResizeStarted", "ResizeCompleted"} <= set(world.api.event_reasons("db")),
        "events are told",
    )


async def test_no_room_now_is_deferred_and_goes_on_when_a_pod_leaves(world: World) -> None:
    await world.start()
    await world.api.run_pod("big", container(cpu="3"))
    await world.api.run_pod("db", container())
    await world.running("big")
    uid = await world.running("db")
    await world.api.resize("db", "app", cpu="2")
    await world.phase("db", "Deferred")
    assert world.quota_us(uid) == 50_000
    pending = find_condition(world.api.served("db"), "PodResizePending")
    assert pending is not None
    assert pending["reason"] == "Deferred"
    assert "requested: 2000, used: 3000, capacity: 4000" in pending["message"]
    await world.api.mark_deleted("big")
    await world.phase("db", "Done")
    assert world.quota_us(uid) == 200_000
    assert not world.api.has("big")
    assert "ResizeDeferred" in world.api.event_reasons("db")


async def test_a_shrink_makes_room_for_a_deferred_resize(world: World) -> None:
    await world.start()
    await world.api.run_pod("big", container(cpu="3"))
    await world.api.run_pod("db", container())
    await world.running("big")
    await world.running("db")
    await world.api.resize("db", "app", cpu="2")
    await world.phase("db", "Deferred")
    await world.api.resize("big", "app", cpu="1")
    await world.phase("big", "Done")
    await world.phase("db", "Done")


async def test_more_than_the_node_has_is_infeasible_and_touches_nothing(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    await world.api.resize("db", "app", cpu="5")
    await world.phase("db", "Infeasible")
    assert world.quota_us(uid) == 50_000
    assert world.machine.writes == []
    await world.api.resize("db", "app", cpu="500m")
    await world.phase("db", "Done")


async def test_a_shrink_below_what_is_used_waits_and_goes_on_when_memory_is_freed(
    world: World,
) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    world.machine.use_memory(uid, "app", 48 * MIB)
    await world.api.resize("db", "app", memory="32Mi", cpu="1")
    await world.phase("db", "Error")
    message = resize_state(world.api.pod("db"))["message"]
    assert message.startswith("app holds 48Mi, 16Mi to free: ")
    assert f"memory limit ({32 * MIB}) below current usage ({48 * MIB})" in message
    assert f"{16 * MIB} bytes to go" in message
    assert world.quota_us(uid) == 100_000, "the other resource does not wait"
    limits = status_of(world, "db")["resources"]["limits"]
    assert limits == {"cpu": "1", "memory": "64Mi"}
    world.machine.use_memory(uid, "app", 8 * MIB)
    await world.phase("db", "Done")
    assert world.memory_bytes(uid) == 32 * MIB
    assert "ResizeError" in world.api.event_reasons("db")


async def test_going_back_from_a_shrink_that_cannot_finish_is_always_possible(
    world: World,
) -> None:
    await world.start()
    await world.api.run_pod("db", container(cpu="500m", memory="3Gi"))
    uid = await world.running("db")
    world.machine.use_memory(uid, "app", 2048 * MIB)
    await world.api.resize("db", "app", memory="1Gi")
    await world.phase("db", "Error")
    await world.api.run_pod("late", container(memory="2Gi"))
    await world.until(
        lambda: lookup(world.api.pod("late"), "status", "phase") == "Failed",
        "memory still held is not given away",
    )
    assert world.api.pod("late")["status"]["reason"] == "OutOfmemory"
    await world.api.resize("db", "app", memory="3Gi")
    await world.phase("db", "Done")
    assert world.memory_bytes(uid) == 3 * 1024 * MIB


async def test_a_new_request_does_not_wait_for_the_backoff_of_the_last(world: World) -> None:
    world.settings = msgspec.structs.replace(
        world.settings, resize_backoff_seconds=60.0, resize_backoff_maximum_seconds=60.0
    )
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    world.machine.use_memory(uid, "app", 48 * MIB)
    await world.api.resize("db", "app", memory="32Mi")
    await world.phase("db", "Error")
    await world.api.resize("db", "app", memory="128Mi")
    await world.phase("db", "Done")


async def test_what_the_watch_brings_late_does_not_undo_an_answer(world: World) -> None:
    await world.start()
    older = await world.api.run_pod("db", container())
    await world.running("db")
    agent = world.agent
    assert agent is not None
    entry = SecuredEntry(agent.checkpoint, None)
    record = PodRecord(agent._dependencies, world.api.served("db"), entry)
    assert not record.seen(older)
    assert lookup(record.pod, "status", "phase") == "Running"


async def test_only_the_newest_of_several_requests_counts(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    world.machine.hold_writes(PodGroup(uid))
    await world.api.resize("db", "app", cpu="1")
    await world.phase("db", "InProgress")
    await world.api.resize("db", "app", cpu="2")
    await world.api.resize("db", "app", cpu="1500m")
    await asyncio.sleep(0.02)
    world.machine.release_writes(PodGroup(uid))
    await world.until(lambda: world.api.phase("db") == "Done", "the newest is done")
    assert world.quota_us(uid) == 150_000
    assert resize_state(world.api.pod("db"))["generation"] == 4
    quotas = [
        change.quota_us
        for group, change in world.machine.writes
        if group == ContainerGroup(uid, "app")
    ]
    assert quotas == [100_000, 150_000]
    assert world.client.refused == [], "nothing was said about what nobody asks any more"


async def test_an_api_outage_does_not_stop_a_resize_already_seen(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    world.client.is_down = True
    await world.api.resize("db", "app", cpu="1")
    await world.until(lambda: world.quota_us(uid) == 100_000, "applied while the API is away")
    assert world.api.phase("db") == "Requested"
    world.client.is_down = False
    await world.phase("db", "Done")


async def test_a_failed_write_is_tried_again_from_what_the_machine_says(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container("app"), container("side"))
    uid = await world.running("db")
    world.machine.fail_next_write(ContainerGroup(uid, "side"), RuntimeCallError("disk on fire"))
    await world.api.resize("db", "side", cpu="1")
    await world.phase("db", "Done")
    errors = [post for post in world.client.posts if post["phase"] == "Error"]
    assert errors[0]["message"] == "disk on fire"
    groups = [group for group, _ in world.machine.writes]
    assert groups == [PodGroup(uid), ContainerGroup(uid, "side")]


async def test_drifted_limits_are_driven_back(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    group = ContainerGroup(uid, "app")
    before = world.machine.group(group).limits
    world.machine.set_limits(group, KernelLimits(512, 20_000, 16 * MIB))
    await world.until(lambda: world.machine.group(group).limits == before, "driven back")
    assert world.client.posts == []


async def test_restart_container_policy_restarts_that_container_only(world: World) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    await world.start()
    await world.api.run_pod("db", container("app", resizePolicy=policy), container("side"))
    uid = await world.running("db")
    side_pid, app_pid = world.pid(uid, "side"), world.pid(uid, "app")
    await world.api.resize("db", "app", cpu="1")
    await world.phase("db", "Done")
    assert world.pid(uid, "app") == app_pid, "cpu changes live"
    await world.api.resize("db", "app", memory="128Mi")
    await world.phase("db", "Done")
    assert world.attempt(uid, "app") == 1
    assert world.pid(uid, "side") == side_pid
    assert status_of(world, "db")["restartCount"] == 1
    assert world.memory_bytes(uid) == 128 * MIB
    assert world.quota_us(uid) == 100_000


async def test_restart_only_restarts_the_whole_pod_once(world: World) -> None:
    """IBM: "RestartOnly" restarts the pod to realize all."""
    await world.start()
    app = container("app")
    app["resources"] = {**app["resources"], "resizePolicy": {"memory": "RestartOnly"}}
    await world.api.run_pod("db", app, container("side"))
    uid = await world.running("db")
    await world.api.resize("db", "app", memory="128Mi")
    await world.phase("db", "Done")
    assert (world.attempt(uid, "app"), world.attempt(uid, "side")) == (1, 1)


async def test_writing_policy_or_allocated_restarts_nothing(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    pid = world.pid(uid)
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    await world.api.edit("db", ("spec", "containers", 0, "resizePolicy"), policy)
    await world.until(
        lambda: world.api.pod("db")["status"]["observedGeneration"] == 2, "the agent saw it"
    )
    assert world.pid(uid) == pid


async def test_a_changed_image_restarts_the_container(world: World) -> None:
    world.machine.image_names = (FAKE_IMAGE, "other:2")
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    await world.api.edit("db", ("spec", "containers", 0, "image"), "other:2")
    await world.until(lambda: world.attempt(uid) == 1, "started again")
    await world.until(lambda: status_of(world, "db")["restartCount"] == 1, "reported")


async def test_a_container_that_exits_is_restarted_with_backoff(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    for attempt in (1, 2, 3):
        world.machine.exit(uid, "app", 3)
        await world.until(lambda attempt=attempt: world.attempt(uid) == attempt, "restarted")
    await world.until(lambda: status_of(world, "db")["restartCount"] == 3, "reported")
    await world.until(
        lambda: lookup(status_of(world, "db"), "lastState", "terminated", "exitCode") == 3,
        "how it ended is kept",
    )


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
async def test_a_pod_that_is_never_restarted_ends_and_frees_its_room(
    world: World, code: int, phase: str
) -> None:
    world.machine.behaviours[("job",)] = Behaviour(exit_code=code)
    await world.start()
    await world.api.run_pod("job", container(cpu="4", command=["job"]), restartPolicy="Never")
    await world.until(
        lambda: lookup(world.api.pod("job"), "status", "phase") == phase, "it has ended"
    )
    assert lookup(status_of(world, "job"), "state", "terminated", "exitCode") == code
    await world.api.run_pod("next", container(cpu="4"))
    await world.running("next")


async def test_a_missing_image_is_said_and_tried_again(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", {**container(), "image": "nowhere:1"})
    await world.until(
        lambda: (
            lookup(
                world.api.pod("db"), "status", "containerStatuses", 0, "state", "waiting", "reason"
            )
            == "ErrImageNeverPull"
        ),
        "the reason is shown",
    )
    world.machine.image_names = ("nowhere:1",)
    await world.running("db")


async def test_a_new_pod_that_does_not_fit_is_rejected(world: World) -> None:
    """ARK: "Kubelet resolves it by rejecting that new Pod"."""
    await world.start()
    await world.api.run_pod("big", container(cpu="3"))
    await world.running("big")
    await world.api.run_pod("late", container(cpu="2"))
    await world.until(
        lambda: lookup(world.api.pod("late"), "status", "phase") == "Failed", "rejected"
    )
    assert world.api.pod("late")["status"]["reason"] == "OutOfcpu"


async def test_a_new_pod_waits_for_one_that_is_leaving_instead_of_being_rejected(
    world: World,
) -> None:
    world.machine.behaviours[("stubborn",)] = Behaviour(ignores_sigterm=True)
    await world.start()
    stubborn = container(cpu="3", command=["stubborn"])
    await world.api.run_pod("old", stubborn, terminationGracePeriodSeconds=1)
    old = await world.running("old")
    await world.api.vanish("old")
    await world.api.run_pod("new", container(cpu="3"))
    await world.running("new")
    assert old not in world.machine.pods


async def test_fields_this_node_would_leave_undone_are_refused(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(livenessProbe={"grpc": {"port": 1}}))
    await world.until(
        lambda: lookup(world.api.pod("db"), "status", "phase") == "Failed", "rejected"
    )
    assert "livenessProbe" in world.api.pod("db")["status"]["message"]


async def test_a_deleted_pod_leaves_the_machine_then_the_api(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    await world.api.mark_deleted("db")
    await world.until(lambda: not world.api.has("db"), "the object is gone")
    assert uid not in world.machine.pods


async def test_stop_workloads_empties_the_machine_and_keeps_the_objects(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container())
    await world.running("db")
    agent = world.agent
    assert agent is not None
    await world.stop()
    await agent.stop_workloads(asyncio.Event())
    assert world.machine.pods == {}
    assert world.api.has("db")


async def test_a_resize_that_is_applied_at_once_is_told_in_one_commit(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, accept_delay_seconds=5.0)
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    await world.api.resize("db", "app", cpu="1")
    await world.until(lambda: world.api.phase("db") == "Done", "the resize is done")
    assert world.quota_us(uid) == 100_000
    assert [post["request"]["requestStatus"] for post in world.client.posts] == ["Done"]
    told = [one["reason"] for one in world.client.posts[0]["events"]]
    assert told[-2:] == ["ResizeStarted", "ResizeCompleted"]
    assert (await world.api.told("db")) == ["None", "Requested", "InProgress", "Done"], "in order"


async def test_that_an_overtaken_resize_began_is_told_all_the_same(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, accept_delay_seconds=5.0)
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    held = ContainerGroup(uid, "app")
    world.machine.hold_writes(held)
    await world.api.resize("db", "app", cpu="1")
    await world.until(lambda: world.pod_quota_us(uid) == 100_000, "it has begun")
    await world.api.resize("db", "app", cpu="2")
    agent = world.agent
    assert agent is not None
    ledger = agent._admission.ledger
    await world.until(lambda: getattr(ledger.get(uid), "generation", 0) == 3, "overtaken")
    world.machine.release_writes(held)
    await world.phase("db", "Done")
    await world.until(
        lambda: world.api.event_reasons("db").count("ResizeStarted") == 2, "both have begun"
    )
    assert world.api.event_reasons("db").count("ResizeCompleted") == 1


async def test_an_agent_that_ends_in_the_middle_of_a_resize_leaves_nothing_to_come(
    world: World,
) -> None:
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
    world.settings = msgspec.structs.replace(world.settings, accept_delay_seconds=0.05)
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    world.machine.hold_writes(PodGroup(uid))
    await world.api.resize("db", "app", cpu="1")
    await asyncio.sleep(0.02)
    await world.stop()
    await asyncio.sleep(0.08)
    assert failures == []
    world.machine.release_writes(PodGroup(uid))


async def test_a_resize_that_takes_longer_is_told_while_it_lasts(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, accept_delay_seconds=0.005)
    await world.start()
    await world.api.run_pod("db", container())
    uid = await world.running("db")
    world.machine.hold_writes(PodGroup(uid))
    await world.api.resize("db", "app", cpu="1")
    await world.phase("db", "InProgress")
    world.machine.release_writes(PodGroup(uid))
    await world.phase("db", "Done")


async def test_a_pod_that_cannot_be_made_says_why_and_is_tried_again(world: World) -> None:
    world.machine.create_error = "NetworkNotReady: there is no CNI configuration"
    await world.start()
    await world.api.run_pod("db", container())
    told = "FailedCreatePodSandBox"
    await world.until(lambda: told in world.api.event_reasons("db"), "it is told")
    world.machine.create_error = ""
    await world.running("db")


async def test_an_idle_pod_is_read_and_nothing_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn of a pod costs; most pods are idle, and a recheck of theirs only reads the machine."""
    await world.start()
    await world.api.run_pod("db", container("app"))
    uid = await world.running("db")
    await world.clock.sleep(world.settings.recheck_seconds)
    turns, looks = [], []
    turn, look = PodWorker._turn, observe_pod
    monkeypatch.setattr(PodWorker, "_turn", lambda self: turns.append(1) or turn(self))
    monkeypatch.setattr(worker, "observe_pod", lambda *more: looks.append(1) or look(*more))
    await world.clock.sleep(5 * world.settings.recheck_seconds)
    assert (turns, len(looks) >= 3) == ([], True)
    world.machine.set_limits(PodGroup(uid), KernelLimits(2, 1000, 4096))
    await world.until(lambda: bool(turns), "what was changed by hand ends the rest")

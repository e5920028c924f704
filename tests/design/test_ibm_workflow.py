"""IBM's workflow through the real API server and the real agent, over TLS, on the fake machine.

Each test quotes the sentence of the document it checks. What the kernel does is checked in
test_ibm_commands.py, a scheduler that judges first in test_ibm_judge.py. What else the document
says of pods:

    "QoS class change by resize is not supported."
        test_ark_first_light.py::test_flow_control_step_2
    "Memory-resizing to decrease its limit may fail on the Kubelet in some circumstances. [...] With
    swap disabled, memory-resizing to decrease fails when there is not enough free memory that can
    be reclaimed."
        tests/machine/test_shrink_under_pressure.py: it waits, and says for how many bytes
    "a new additional hash is added [...] to detect a change on resource requirements"
        test_ibm_commands.py::test_two_hashes
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from design.one_process import NAMESPACE, OneProcess, one_process
from livesize.api.errors import StatusError
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, uid_of
from livesize.api.patch import PatchType
from livesize.api.roles import Role
from livesize.runtime.interface import ContainerGroup, RuntimeCallError


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[OneProcess]:
    async with one_process(tmp_path) as running:
        yield running


def both(**amounts: str) -> Object:
    return {"requests": amounts, "limits": amounts}


def request_status(pod: Object) -> str:
    return str(pod["spec"]["resizeRequest"]["requestStatus"])


def resized(pod: Object) -> Object:
    conditions: list[Object] = pod["status"].get("conditions", [])
    return next((one for one in conditions if one["type"] == "PodResized"), {})


async def walked(system: OneProcess, asked: Object, last: str) -> list[tuple[Any, Any, Any]]:
    """requestStatus, status and reason of PodResized, each change of them until ``last``."""
    seen: list[tuple[Any, Any, Any]] = []
    async for pod in system.states(asked):
        now = (request_status(pod), resized(pod).get("status"), resized(pod).get("reason"))
        if not seen or seen[-1] != now:
            seen.append(now)
        if now[0] == last:
            return seen
    raise AssertionError("the watch ended")


async def test_a_request_is_requested_accepted_done(system: OneProcess) -> None:
    """RequestStatus represents the status of a resource resizing request. [...] when the
    ResizeStatus is changed, the `Kubelet` updates the PodResized condition accordingly."""
    pod = await system.run_pod("db", system.container(cpu="1"))
    assert request_status(pod) == "None"
    asked = await system.resize("db", {"app": both(cpu="2")})
    new = asked["spec"]["resizeRequest"]["newResources"]
    assert [(one["name"], one["requests"]["cpu"]) for one in new] == [("app", "2")]
    seen = await walked(system, asked, "Done")
    statuses = [(request, condition) for request, condition, _ in seen]
    assert statuses == [(word, word) for word in ("Requested", "Accepted", "Done")]
    group = system.machine.group(ContainerGroup(uid_of(pod), "app"))
    assert group.limits.cpu_quota_us == 200_000
    await system.until_told("db", "ResizeCompleted")


async def test_every_request_is_shown_accepted_before_it_is_done(system: OneProcess) -> None:
    """The Kubelet updates the PodResized condition to "Accepted". [...] The Kubelet modifies the
    status of the PodResized condition to Done after every update [...] is done."""
    await system.run_pod("db", system.container(cpu="1"))
    for number in range(21):
        asked = await system.resize("db", {"app": both(cpu=f"{100 + number}m")})
        seen = [
            (request, condition) for request, condition, _ in await walked(system, asked, "Done")
        ]
        assert seen == [(word, word) for word in ("Requested", "Accepted", "Done")]


async def test_accepted_says_what_is_allocated_and_the_machine_as_it_was(
    system: OneProcess,
) -> None:
    """ARK: Pod's Spec.Containers[i].ResourcesAllocated values have changed and matches
    Spec.Containers[i].Resources.Requests, signifying that desired resize has been accepted, and
    Pod is being resized. The resize operation is complete when Pod's
    Status.ContainerStatuses[i].Resources and Spec.Containers[i].Resources match."""
    await system.run_pod("db", system.container(cpu="1"))
    asked = await system.resize("db", {"app": both(cpu="2")})
    accepted = await system.until(asked, lambda pod: request_status(pod) == "Accepted")
    assert accepted["spec"]["containers"][0]["resourcesAllocated"]["cpu"] == "2"
    [status] = accepted["status"]["containerStatuses"]
    assert status["allocatedResources"]["cpu"] == "2"
    assert status["resources"]["limits"]["cpu"] == "1"
    kinds = {one["type"]: one["status"] for one in accepted["status"]["conditions"]}
    assert kinds["PodResizeInProgress"] == "True"


async def test_a_request_that_cannot_be_is_rejected(system: OneProcess) -> None:
    """PodReasonUnresizable = "Unresizable" [...] ConditionRejected ConditionStatus = "Rejected\""""
    pod = await system.run_pod("db", system.container(cpu="1"))
    asked = await system.resize("db", {"app": both(cpu="64")})
    seen = await walked(system, asked, "Rejected")
    assert seen[-1] == ("Rejected", "Rejected", "Unresizable")
    group = system.machine.group(ContainerGroup(uid_of(pod), "app"))
    assert group.limits.cpu_quota_us == 100_000
    await system.until_told("db", "ResizeInfeasible")


async def test_a_machine_that_fails_is_said_and_tried_again(system: OneProcess) -> None:
    """PodReasonResizerFailed = "ResizerFailed" [...] The controller will continue to attempt the
    update to the spec while there is a difference between the current size and size in updated
    spec."""
    pod = await system.run_pod("db", system.container(cpu="1"))
    group = ContainerGroup(uid_of(pod), "app")
    system.machine.fail_next_write(group, RuntimeCallError("the disk is on fire"))
    asked = await system.resize("db", {"app": both(cpu="2")})
    seen = await walked(system, asked, "Done")
    assert ("Accepted", "Accepted", "ResizerFailed") in seen
    assert system.machine.group(group).limits.cpu_quota_us == 200_000
    await system.until_told("db", "ResizeError")


async def test_done_is_said_when_all_containers_are(system: OneProcess) -> None:
    """In case of ConditionDone, the `Kubelet` sets the PodResized of a Pod to it when all the
    containers that need to be resized complete to be resized."""
    pod = await system.run_pod("db", system.container(cpu="1"), system.container("side", cpu="1"))
    side = ContainerGroup(uid_of(pod), "side")
    system.machine.hold_writes(side)
    asked = await system.resize("db", {"app": both(cpu="500m"), "side": both(cpu="700m")})
    accepted = await system.until(asked, lambda pod: request_status(pod) == "Accepted")
    app = system.machine.group(ContainerGroup(uid_of(pod), "app"))
    async with asyncio.timeout(5):
        while app.limits.cpu_quota_us != 50_000:  # the first of them has its new size
            await asyncio.sleep(0.005)
    assert resized(await system.pod("db"))["status"] == "Accepted"
    system.machine.release_writes(side)
    done = await system.until(accepted, lambda pod: request_status(pod) == "Done")
    assert resized(done)["status"] == "Done"
    assert system.machine.group(side).limits.cpu_quota_us == 70_000


@pytest.mark.parametrize("memory", ["64Mi", "48Mi"], ids=["original", "feasible"])
async def test_what_was_done_in_part_can_be_rectified(system: OneProcess, memory: str) -> None:
    """If an update is partially successful, user can know this from the logs and attempt to rectify
    the situation by submitting new updates (that can restore original size(s) or go for a size
    feasible on all the nodes)."""
    containers = [system.container(name, cpu="1", memory="64Mi") for name in ("app", "side")]
    pod = await system.run_pod("db", *containers)
    system.machine.use_memory(uid_of(pod), "side", 40 << 20)
    small = both(cpu="500m", memory="16Mi")
    asked = await system.resize("db", {"app": small, "side": small})
    stuck = await system.until(asked, lambda pod: resized(pod).get("reason") == "ResizerFailed")
    actual = {
        one["name"]: one["resources"]["limits"] for one in stuck["status"]["containerStatuses"]
    }
    assert [one["cpu"] for one in actual.values()] == ["500m", "500m"]
    assert actual["side"]["memory"] == "64Mi"
    await system.until_told("db", "ResizeError")
    again = both(cpu="1", memory=memory)
    asked = await system.resize("db", {"app": again, "side": again})
    done = await system.until(asked, lambda pod: request_status(pod) == "Done")
    assert all(one["resources"] == again for one in done["status"]["containerStatuses"])
    assert all(one["restartCount"] == 0 for one in done["status"]["containerStatuses"])


async def test_resizing_is_an_operation_of_scheduler_and_node(system: OneProcess) -> None:
    """Once the 'Scheduler' determine whether a resource resizing on a pod is feasible, or not, it
    notifies to the API server via this Resizing API. [...] the Kubelet acknowledges [...] then
    notifies the API server of it via 'Resizing' API operation."""
    scheduler = system.as_role(Role.SCHEDULER)
    node = system.as_role(Role.NODE, "far-away")
    stranger = system.as_role(Role.NODE, "another")
    await node.create(NODES, {"metadata": {"name": "far-away"}})
    pod = {
        "metadata": {"name": "far"},
        "spec": {"nodeName": "far-away", "containers": [system.container(cpu="1")]},
    }
    await system.user.create(PODS, pod, NAMESPACE)
    await system.resize("far", {"app": both(cpu="2")})

    def resizing(status: str) -> Object:
        return {
            "kind": "Resizing",
            "apiVersion": "v1",
            "metadata": {"name": "far", "namespace": NAMESPACE},
            "request": {"requestStatus": status},
        }

    said = await scheduler.post(PODS, "far", NAMESPACE, "resizing", resizing("Accepted"))
    assert (request_status(said), resized(said)["status"]) == ("Accepted", "Accepted")
    assert said["spec"]["containers"][0]["resourcesAllocated"]["cpu"] == "1"
    for speaker in (scheduler, stranger):
        with pytest.raises(StatusError) as refused:
            await speaker.post(PODS, "far", NAMESPACE, "resizing", resizing("Done"))
        assert refused.value.code == 403
    await node.post(PODS, "far", NAMESPACE, "resizing", resizing("Accepted"))
    done = await node.post(PODS, "far", NAMESPACE, "resizing", resizing("Done"))
    assert (request_status(done), resized(done)["status"]) == ("Done", "Done")
    assert done["spec"]["containers"][0]["resourcesAllocated"]["cpu"] == "2"


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        pytest.param({"cpu": "2"}, {"app": 0, "side": 0}, id="LiveResizeable"),
        pytest.param({"memory": "64Mi"}, {"app": 1, "side": 1}, id="RestartOnly"),
        pytest.param({"cpu": "2", "memory": "64Mi"}, {"app": 1, "side": 1}, id="both"),
    ],
)
async def test_precedence(system: OneProcess, change: Object, restarts: Object) -> None:
    """if two resources have been resized in the update to the spec and one of them has a policy of
    RestartOnly then the pod would be restarted to realize both updates."""
    app = system.container("app", cpu="1")
    app["resources"]["resizePolicy"] = {"cpu": "LiveResizeable", "memory": "RestartOnly"}
    await system.run_pod("db", app, system.container("side"))
    assert await restarts_by(system, both(**change)) == restarts


async def test_container_restart_only(system: OneProcess) -> None:
    """ContainerRestartOnly dominating LiveResizeable"""
    app = system.container("app", cpu="1")
    app["resources"]["resizePolicy"] = {"cpu": "LiveResizeable", "memory": "ContainerRestartOnly"}
    await system.run_pod("db", app, system.container("side"))
    change = both(cpu="2", memory="64Mi")
    assert await restarts_by(system, change) == {"app": 1, "side": 0}


async def restarts_by(system: OneProcess, resources: Object) -> Object:
    asked = await system.resize("db", {"app": resources})
    done = await system.until(asked, lambda pod: request_status(pod) == "Done")
    assert uid_of(done) == uid_of(asked)
    actual = {one["name"]: one["resources"] for one in done["status"]["containerStatuses"]}
    wanted = {**asked["spec"]["containers"][0]["resources"]}
    assert actual["app"]["limits"] == wanted["limits"]
    return {one["name"]: one["restartCount"] for one in done["status"]["containerStatuses"]}


WISHES = [
    ("LiveResizeable", "Restart", {"app": 1, "side": 1}),
    ("LiveResizeable", "InPlaceResize", {"app": 0, "side": 0}),
    ("LiveResizeable", "InPlaceResizePreferred", {"app": 0, "side": 0}),
    ("LiveResizeable", "LiveResizePreferred", {"app": 0, "side": 0}),
    ("ContainerRestartOnly", "Restart", {"app": 1, "side": 1}),
    ("ContainerRestartOnly", "InPlaceResize", {"app": 1, "side": 0}),
    ("RestartOnly", "InPlaceResize", {"app": 1, "side": 1}),
]


@pytest.mark.parametrize(("policy", "wish", "restarts"), WISHES)
async def test_a_wish_at_the_time_of_the_resize(
    system: OneProcess, policy: str, wish: str, restarts: Object
) -> None:
    """Specifically, Restart for `resizeAction` would indicate that the pod could be restarted for
    the corresponding resizing of resource(s), InPlaceResize would indicate that the pod won't be
    restarted when the resize can be realized live or with container restart [...] If used, this
    would be included as part of the patch or appropriate update command"""
    app = system.container("app", cpu="1")
    app["resources"]["resizePolicy"] = {"cpu": policy, "memory": policy}
    await system.run_pod("db", app, system.container("side"))
    patch = {
        "metadata": {"annotations": {"resizeAction": wish}},
        "spec": {"containers": [{"name": "app", "resources": both(cpu="2")}]},
    }
    asked = await patched(system, patch)
    assert asked["status"]["resizeState"]["action"] == wish.replace("LiveR", "InPlaceR")
    done = await system.until(asked, lambda pod: request_status(pod) == "Done")
    assert uid_of(done) == uid_of(asked)
    assert done["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"] == "2"
    told = {one["name"]: one["restartCount"] for one in done["status"]["containerStatuses"]}
    assert told == restarts


async def test_a_wish_is_for_the_resizes_that_are_asked_while_it_stands(system: OneProcess) -> None:
    """It would indicate the preference of user at the time of resize."""
    await system.run_pod("db", system.container("app", cpu="1"), system.container("side"))
    await patched(system, {"metadata": {"annotations": {"resizeAction": "Restart"}}})
    assert await restarts_by(system, both(cpu="2")) == {"app": 1, "side": 1}
    await patched(system, {"metadata": {"annotations": {"resizeAction": None}}})
    assert await restarts_by(system, both(cpu="1")) == {"app": 1, "side": 1}, "no further one"


async def patched(system: OneProcess, patch: Object) -> Object:
    return await system.user.patch(
        PODS, "db", patch, namespace=NAMESPACE, patch_type=PatchType.STRATEGIC
    )


async def test_the_policy_is_changed_and_read_back_before_a_resize(system: OneProcess) -> None:
    """It is desirable to submit a change in policy, confirm its acceptance (by re-reading the
    changed pod spec) and then submit a change to a resource size impacted by that policy."""
    pod = await system.run_pod("db", system.container("app", cpu="1"), system.container("side"))
    pid = system.machine.pods[uid_of(pod)].containers["app"].pid
    policy = {"memory": "ContainerRestartOnly", "cpu": "LiveResizeable"}
    resources = {**pod["spec"]["containers"][0]["resources"], "resizePolicy": policy}
    asked = await system.resize("db", {"app": resources})
    again = await system.until(asked, has_observed(asked))
    assert (await system.pod("db"))["spec"]["containers"][0]["resources"]["resizePolicy"] == policy
    assert system.machine.pods[uid_of(pod)].containers["app"].pid == pid
    assert request_status(again) == "None"
    assert await restarts_by(system, both(memory="64Mi")) == {"app": 1, "side": 0}


def has_observed(asked: Object) -> Any:
    generation = asked["metadata"]["generation"]
    return lambda pod: pod["status"].get("observedGeneration") == generation

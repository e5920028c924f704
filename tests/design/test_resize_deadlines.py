"""A resize that takes too long goes back, restarts its container, or lets the pod go (B3).

The real API server, agent and controller; the machine is the fake one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from design.kubernetes_only import KubernetesOnly
from design.one_process import NAMESPACE, NODE, OneProcess, one_process
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, uid_of
from livesize.api.resize_deadline import DEADLINE, ON_DEADLINE
from livesize.api.roles import Role
from livesize.client.interface import Client
from livesize.controllers.resize_deadline.began import BEGAN, began_of
from livesize.main.wiring.controllers import OURS
from livesize.runtime.interface import ContainerGroup
from unit.controllers.at_work import at_work

MIB = 1 << 20


@pytest.fixture(params=["Livesize", "any Kubernetes"])
async def system(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OneProcess]:
    """Our controllers work the same where the API server has only Kubernetes' own fields."""
    async with one_process(tmp_path) as running, asyncio.TaskGroup() as tasks:
        client: Client = running.as_role(Role.CONTROLLER)
        if request.param == "any Kubernetes":
            client = KubernetesOnly(client)
        task = tasks.create_task(at_work(client, *OURS))
        yield running
        task.cancel()


def both(**amounts: str) -> Object:
    return {"requests": amounts, "limits": amounts}


async def run_pod(system: OneProcess, action: str, seconds: str = "0s") -> Object:
    annotations = {ON_DEADLINE: action, DEADLINE: seconds}
    spec = {
        "nodeName": NODE,
        "terminationGracePeriodSeconds": 0,
        "containers": [system.container(cpu="1", memory="256Mi")],
    }
    body = {"metadata": {"name": "db", "annotations": annotations}, "spec": spec}
    made = await system.user.create(PODS, body, NAMESPACE)
    return await system.until(made, lambda pod: pod.get("status", {}).get("phase") == "Running")


def phase(pod: Object) -> str:
    return str(pod["status"]["resizeState"]["phase"])


async def test_a_resize_without_room_goes_back(system: OneProcess) -> None:
    await system.run_pod("other", system.container(cpu="2"))
    await run_pod(system, "Revert")
    asked = await system.resize("db", {"app": both(cpu="3", memory="256Mi")})
    await system.until(asked, lambda pod: phase(pod) == "Deferred")
    back = await system.until(asked, lambda pod: pod["metadata"]["generation"] > 2)
    assert back["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1"
    await system.until(back, lambda pod: phase(pod) == "Done")
    await system.until_told("db", "ResizeReverted")


async def test_memory_that_is_held_is_given_up_by_a_restart(system: OneProcess) -> None:
    pod = await run_pod(system, "Restart", "1s")
    system.machine.use_memory(uid_of(pod), "app", 200 * MIB)
    asked = await system.resize("db", {"app": both(cpu="1", memory="64Mi")})
    await system.until(asked, lambda pod: phase(pod) == "Error")
    done = await system.until(asked, lambda pod: phase(pod) == "Done")
    assert done["status"]["containerStatuses"][0]["restartCount"] == 1
    group = system.machine.group(ContainerGroup(uid_of(pod), "app"))
    assert group.limits.memory_limit_bytes == 64 * MIB


async def test_a_pod_that_may_go_goes(system: OneProcess) -> None:
    await run_pod(system, "Evict")
    await system.resize("db", {"app": both(cpu="64", memory="256Mi")})
    async with asyncio.timeout(10):
        while (await system.user.list(PODS, Selection(NAMESPACE))).items:
            await asyncio.sleep(0.02)
    await system.until_told("db", "ResizeEvicted")


async def test_what_is_held_keeps_its_pod_waiting_where_nothing_is_said(system: OneProcess) -> None:
    pod = await run_pod(system, "Keep")
    system.machine.use_memory(uid_of(pod), "app", 200 * MIB)
    asked = await system.resize("db", {"app": both(cpu="1", memory="64Mi")})
    await system.until(asked, lambda pod: phase(pod) == "Error")
    await asyncio.sleep(1.5)
    assert phase(await system.pod("db")) == "Error"
    system.machine.use_memory(uid_of(pod), "app", 10 * MIB)
    done = await system.until(asked, lambda pod: phase(pod) == "Done")
    assert done["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_the_next_controller_knows_what_was_before(system: OneProcess) -> None:
    """What has to wait stands in the pod; it is gone when the resize is done."""
    pod = await run_pod(system, "Revert", "1h")
    system.machine.use_memory(uid_of(pod), "app", 200 * MIB)
    asked = await system.resize("db", {"app": both(cpu="2", memory="64Mi")})
    noted = await system.until(asked, lambda pod: BEGAN in pod["metadata"]["annotations"])
    began = began_of(noted)
    assert began is not None
    assert began.former == {"app": both(cpu="1", memory="256Mi")}
    assert began.generation == asked["metadata"]["generation"]
    system.machine.use_memory(uid_of(pod), "app", 10 * MIB)
    done = await system.until(
        noted, lambda pod: phase(pod) == "Done" and BEGAN not in pod["metadata"]["annotations"]
    )
    assert done["spec"]["containers"][0]["resources"] == both(cpu="2", memory="64Mi")

"""A resize that misses its deadline went back to the sizes before an older one, where the note of
that one was left in the pod; and nobody was told where going back is not possible."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from design.one_process import NAMESPACE, OneProcess, one_process
from design.test_resize_deadlines import MIB, both, phase, run_pod
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, uid_of
from livesize.api.patch import PatchType
from livesize.api.resize_deadline import DEADLINE, ON_DEADLINE
from livesize.api.roles import Role
from livesize.controllers.resize_deadline.began import BEGAN, ResizeBegan, format_began
from livesize.controllers.resize_deadline.reconcile import resize_deadline_controller
from unit.controllers.at_work import at_work


@asynccontextmanager
async def controlled(system: OneProcess) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        controller = at_work(system.as_role(Role.CONTROLLER), resize_deadline_controller)
        task = tasks.create_task(controller)
        yield
        task.cancel()


async def annotate(system: OneProcess, **annotations: str | None) -> Object:
    patch = {"metadata": {"annotations": annotations}}
    return await system.user.patch(PODS, "db", patch, namespace=NAMESPACE)


async def until_changed(system: OneProcess, asked: Object) -> Object:
    generation = asked["metadata"]["generation"]
    return await system.until(asked, lambda pod: pod["metadata"]["generation"] > generation)


async def test_the_note_goes_with_the_deadline(tmp_path: Path) -> None:
    async with one_process(tmp_path) as system, controlled(system):
        pod = await run_pod(system, "Revert", "1h")
        system.machine.use_memory(uid_of(pod), "app", 200 * MIB)
        asked = await system.resize("db", {"app": both(cpu="1", memory="64Mi")})
        await system.until(asked, lambda pod: BEGAN in pod["metadata"]["annotations"])
        kept = await annotate(system, **{ON_DEADLINE: "Keep"})
        await system.until(kept, lambda pod: BEGAN not in pod["metadata"]["annotations"])


async def test_what_came_true_while_no_controller_ran_is_where_it_goes_back_to(
    tmp_path: Path,
) -> None:
    async with one_process(tmp_path) as system:
        pod = await run_pod(system, "Revert", "0s")
        now = {"app": pod["spec"]["containers"][0]["resources"]}
        older = ResizeBegan(0, "2026-01-31T12:00:00Z", {"app": both(cpu="500m")}, now)
        await annotate(system, **{BEGAN: format_began(older)})
        asked = await system.resize("db", {"app": both(cpu="64", memory="256Mi")})
        await system.until(asked, lambda pod: phase(pod) == "Infeasible")
        async with controlled(system):
            back = await until_changed(system, asked)
        assert back["spec"]["containers"][0]["resources"] == now["app"]


async def test_what_the_controller_has_seen_goes_before_what_others_note(tmp_path: Path) -> None:
    async with one_process(tmp_path) as system, controlled(system):
        await run_pod(system, "Revert", "0s")
        older = ResizeBegan(0, "2026-01-31T12:00:00Z", {"app": both(cpu="500m")})
        larger = {"name": "app", "resources": both(cpu="64", memory="256Mi")}
        patch = {
            "metadata": {"annotations": {BEGAN: format_began(older)}},
            "spec": {"containers": [larger]},
        }
        asked = await system.user.patch(
            PODS, "db", patch, namespace=NAMESPACE, patch_type=PatchType.STRATEGIC
        )
        back = await until_changed(system, asked)
        assert back["spec"]["containers"][0]["resources"] == both(cpu="1", memory="256Mi")


async def test_it_is_told_where_it_cannot_go_back(tmp_path: Path) -> None:
    """A limit that was not there before cannot be removed, as in Kubernetes."""
    async with one_process(tmp_path) as system, controlled(system):
        requests = {"cpu": "50m", "memory": "32Mi"}
        resources = {"requests": requests, "limits": {"memory": "32Mi"}}
        await system.run_pod("db", {**system.container(), "resources": resources})
        await annotate(system, **{ON_DEADLINE: "Revert", DEADLINE: "0s"})
        sizes = {"requests": {"cpu": "63"}, "limits": {"cpu": "64"}}
        await system.resize("db", {"app": sizes})
        await system.until_told("db", "ResizeNotReverted")

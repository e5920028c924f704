"""A virtual machine whose resize takes too long goes back, through its container "vm"."""

from __future__ import annotations

import asyncio
from typing import Any

from livesize.apiserver.direct_client import DirectClient
from livesize.controllers.resize_deadline.reconcile import resize_deadline_controller
from unit.apiserver.conftest import IDENTITIES, Rig, rig
from unit.apiserver.test_vm_cells import asked as asked_cells
from unit.apiserver.test_vm_cells import two_cells
from unit.apiserver.test_vm_requests import LARGE, SMALL, VM1, sized, vm1
from unit.controllers.at_work import at_work

__all__ = ["rig", "two_cells", "vm1"]


async def test_a_vm_goes_back(rig: Rig, vm1: Any) -> None:
    wish = {"livesize.dev/on-deadline": "Revert", "livesize.dev/resize-deadline": "0s"}
    await rig.patch(VM1, {"metadata": {"annotations": wish}})
    client = DirectClient(rig.service, IDENTITIES["controller"])
    task = asyncio.create_task(at_work(client, resize_deadline_controller))
    await asyncio.sleep(0.1)
    asked = await rig.patch(f"{VM1}/resize", sized(LARGE), "strategic")
    assert asked.status == 200, asked.json
    generation = asked.json["metadata"]["generation"]
    verdict = {
        "kind": "Resizing",
        "apiVersion": "v1",
        "metadata": {"name": "vm1", "uid": asked.json["metadata"]["uid"]},
        "request": {"requestStatus": "Rejected"},
        "phase": "Deferred",
        "generation": generation,
    }
    said = await rig.request("POST", f"{VM1}/resizing", verdict, token="n1")
    assert said.status in (200, 201), said.json
    async with asyncio.timeout(5):
        while (pod := (await rig.get(VM1)).json)["metadata"]["generation"] == generation:
            await asyncio.sleep(0.02)
    resources = pod["spec"]["virtualMachine"]["resources"]
    assert (resources["requests"], resources["limits"]) == (SMALL, SMALL)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_its_cells_go_back_with_it(rig: Rig, two_cells: Any) -> None:
    wish = {"livesize.dev/on-deadline": "Revert", "livesize.dev/resize-deadline": "0s"}
    await rig.patch(VM1, {"metadata": {"annotations": wish}})
    client = DirectClient(rig.service, IDENTITIES["controller"])
    task = asyncio.create_task(at_work(client, resize_deadline_controller))
    await asyncio.sleep(0.1)
    asked = await rig.patch(f"{VM1}/resize", asked_cells("768Mi", (1, "512Mi")), "strategic")
    assert asked.status == 200, asked.json
    generation = asked.json["metadata"]["generation"]
    verdict = {
        "request": {"requestStatus": "Rejected"},
        "phase": "Deferred",
        "generation": generation,
    }
    said = await rig.request("POST", f"{VM1}/resizing", verdict, token="n1")
    assert said.status in (200, 201), said.json
    async with asyncio.timeout(5):
        while (pod := (await rig.get(VM1)).json)["metadata"]["generation"] == generation:
            await asyncio.sleep(0.02)
    cells = pod["spec"]["virtualMachine"]["numa"]["cells"]
    assert [cell["memory"] for cell in cells] == ["256Mi", "256Mi"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

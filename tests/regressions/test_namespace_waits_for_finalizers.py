"""A namespace that was deleted went although it had finalizers."""

from __future__ import annotations

import asyncio

from unit.apiserver.conftest import Rig

TEAM = "/api/v1/namespaces/team"


async def test_a_namespace_with_finalizers_stays_until_they_are_gone(rig: Rig) -> None:
    metadata = {"name": "team", "finalizers": ["example.com/hold"]}
    await rig.request("POST", "/api/v1/namespaces", {"metadata": metadata})
    await rig.request("DELETE", TEAM)
    for _ in range(50):
        await asyncio.sleep(0)
    left = await rig.get(TEAM)
    assert (left.status, left.json["status"]["phase"]) == (200, "Terminating")

    await rig.patch(TEAM, {"metadata": {"finalizers": None}})
    async with asyncio.timeout(5):
        while (await rig.get(TEAM)).status != 404:
            await asyncio.sleep(0)

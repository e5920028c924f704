"""What is there without anybody having made it, and comes again."""

from __future__ import annotations

import asyncio
from typing import Any

from livesize.apiserver.bootstrap_objects import BootstrapObjects
from livesize.apiserver.namespaces import ensure_lasting_namespaces

CORE = "/api/v1/namespaces"
THINGS = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")


async def is_there(rig: Any, path: str) -> Any:
    async with asyncio.timeout(5):
        while (answer := await rig.get(path)).status != 200:
            await asyncio.sleep(0)
    return answer.json


async def test_every_namespace_is_furnished_old_and_new(rig: Any) -> None:
    await rig.request("POST", CORE, {"metadata": {"name": "team"}})
    for namespace in ("default", "kube-system", "team"):
        for thing in THINGS:
            await is_there(rig, f"{CORE}/{namespace}/{thing}")


async def test_what_is_deleted_comes_again(rig: Any) -> None:
    for thing in THINGS:
        path = f"{CORE}/default/{thing}"
        uid = (await is_there(rig, path))["metadata"]["uid"]
        await rig.request("DELETE", path)
        assert (await is_there(rig, path))["metadata"]["uid"] != uid


async def test_a_watch_opened_before_sees_it_come(rig: Any) -> None:
    await rig.request("POST", CORE, {"metadata": {"name": "team"}})
    watch = await rig.watch(
        f"{CORE}/team/serviceaccounts",
        fieldSelector="metadata.name=default",
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )
    seen = [await watch.next() for _ in range(2)]
    assert sorted(event["type"] for event in seen) == ["ADDED", "BOOKMARK"]
    await watch.hang_up()


async def test_the_ca_is_brought_up_to_date_when_a_server_starts(rig: Any) -> None:
    path = f"{CORE}/default/configmaps/kube-root-ca.crt"
    await ensure_lasting_namespaces(rig.service, BootstrapObjects(ca="the certificate"))
    assert (await rig.get(path)).json["data"] == {"ca.crt": "the certificate"}


async def test_the_service_of_the_api_server(rig: Any) -> None:
    await ensure_lasting_namespaces(rig.service, BootstrapObjects("", "::", 7443))
    service = (await rig.get(f"{CORE}/default/services/kubernetes")).json
    assert service["spec"]["clusterIP"] == "::1"
    assert service["spec"]["ipFamilies"] == ["IPv6"]
    assert service["spec"]["ports"][0]["targetPort"] == 7443


async def test_a_namespace_goes_with_its_furniture(rig: Any) -> None:
    await rig.request("POST", CORE, {"metadata": {"name": "team"}})
    await is_there(rig, f"{CORE}/team/{THINGS[1]}")
    await rig.request("DELETE", f"{CORE}/team")
    async with asyncio.timeout(5):
        while (await rig.get(f"{CORE}/team")).status != 404:
            await asyncio.sleep(0)
    assert (await rig.get(f"{CORE}/team/serviceaccounts")).json["items"] == []

"""Pods of a headless service are told each other's addresses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from livesize.api.objects import Object, lookup, name_of
from livesize.api.peer_names import PEERS
from livesize.apiserver.direct_client import DirectClient
from livesize.controllers.headless_names.plan import plan_peers
from livesize.controllers.headless_names.reconcile import headless_names_controller
from livesize.controllers.kit.loop import run_controllers
from livesize.controllers.kit.metrics import KitMetrics
from unit.apiserver.conftest import IDENTITIES, Rig
from virtual_time import virtual_context, virtual_time

PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
BOTH = {"a": "10.0.0.1", "b": "10.0.0.2"}


def service(**spec: Any) -> Object:
    whole = {"clusterIP": "None", "selector": {"app": "db"}, **spec}
    return {"metadata": {"name": "db"}, "spec": whole}


def a_pod(name: str, address: str = "", phase: str = "Running", **labels: str) -> Object:
    metadata = {"name": name, "labels": labels or {"app": "db"}}
    status = {"phase": phase, **({"podIP": address} if address else {})}
    return {"metadata": metadata, "spec": {"subdomain": "db"}, "status": status}


def told(of: Object | None, *pods: Object) -> dict[str, Any]:
    return {name_of(pod): text and json.loads(text) for pod, text in plan_peers(of, pods)}


A, B = a_pod("a", "10.0.0.1"), a_pod("b", "10.0.0.2")


@pytest.mark.parametrize(("rule", "of", "pods", "expected"), [
    ("each is told all", service(), (A, B), {"a": BOTH, "b": BOTH}),
    ("one without an address is told, too", service(), (A, a_pod("c")),
     {"a": {"a": "10.0.0.1"}, "c": {"a": "10.0.0.1"}}),
    ("nobody has an address", service(), (a_pod("c"),), {}),
    ("one that has ended is not there", service(), (A, a_pod("c", "10.0.0.3", "Failed")),
     {"a": {"a": "10.0.0.1"}}),
    ("the selector counts", service(), (A, a_pod("c", "10.0.0.3", app="x")),
     {"a": {"a": "10.0.0.1"}}),
    ("no selector: nobody", service(selector={}), (A, B), {}),
    ("not headless: nobody", service(clusterIP="10.9.9.9"), (A, B), {}),
    ("no service: nobody", None, (A, B), {}),
])  # fmt: skip
def test_rules(rule: str, of: Any, pods: Any, expected: Any) -> None:
    assert told(of, *pods) == expected, rule


def test_who_knows_is_not_told_again_and_forgets() -> None:
    known = [
        {**pod, "metadata": {**pod["metadata"], "annotations": {PEERS: text}}}
        for pod, text in plan_peers(service(), [A, B])
    ]
    assert told(service(), *known) == {}
    assert told(None, *known) == {"a": "", "b": ""}


@asynccontextmanager
async def controlled() -> AsyncIterator[Rig]:
    rig = Rig()
    await rig.start()
    client, context = DirectClient(rig.service, IDENTITIES["controller"]), virtual_context()
    made = [headless_names_controller(context)]
    task = asyncio.create_task(run_controllers(made, client, context, KitMetrics()))
    yield rig
    task.cancel()
    await asyncio.wait([task])
    await rig.check_nothing_was_changed_in_place()
    await rig.stop()


async def run(rig: Rig, name: str, address: str) -> None:
    await rig.add_pod(name, node="n1", subdomain="db")
    label = {"metadata": {"labels": {"app": "db"}}}
    assert (await rig.patch(f"{PODS}/{name}", label)).status == 200
    status = {"status": {"podIP": address}}
    assert (await rig.patch(f"{PODS}/{name}/status", status, token="n1")).status == 200


async def until(rig: Rig, name: str, holds: Callable[[Any], bool]) -> None:
    async with asyncio.timeout(5):
        while True:
            pod = (await rig.get(f"{PODS}/{name}")).json
            text = lookup(pod, "metadata", "annotations", PEERS, default="null")
            if holds(json.loads(text)):
                return
            await asyncio.sleep(0.05)


@virtual_time
async def test_pods_come_and_go_and_so_does_their_service() -> None:
    async with controlled() as rig:
        await run(rig, "a", "10.0.0.1")
        assert (await rig.request("POST", SERVICES, service())).status == 201
        await until(rig, "a", lambda said: said == {"a": "10.0.0.1"})
        await run(rig, "b", "10.0.0.2")
        for name in BOTH:
            await until(rig, name, lambda said: said == BOTH)
        await rig.request("DELETE", f"{PODS}/b", {"gracePeriodSeconds": 0})
        await until(rig, "a", lambda said: said == {"a": "10.0.0.1"})
        await rig.request("DELETE", f"{SERVICES}/db")
        await until(rig, "a", lambda said: said is None)


@virtual_time
async def test_what_others_have_written_is_put_right() -> None:
    async with controlled() as rig:
        await run(rig, "a", "10.0.0.1")
        assert (await rig.request("POST", SERVICES, service())).status == 201
        await until(rig, "a", lambda said: said == {"a": "10.0.0.1"})
        wrong = {"metadata": {"annotations": {PEERS: '{"a": "10.6.6.6"}'}}}
        assert (await rig.patch(f"{PODS}/a", wrong)).status == 200
        await until(rig, "a", lambda said: said == {"a": "10.0.0.1"})

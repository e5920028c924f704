"""Several API servers on one real etcd: what one has answered, all of them know."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, NoReturn

import pytest

from etcd_servers import Member, cluster, find_etcd
from livesize.api.errors import StatusError
from livesize.api.kinds.lease import LEASES
from livesize.api.list_watch import Selection, WatchEventType
from livesize.api.objects import Object, evolve
from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.direct_client import DirectClient
from livesize.apiserver.server import ApiServer, ApiServerConfig
from livesize.client.interface import Client
from livesize.machinery import election
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import Context, system_context
from livesize.main.settings.table import Part
from livesize.main.wiring.leader import lead_in_server
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.etcd.store import EtcdStore

pytestmark = pytest.mark.apiserver

ADMIN = Identity("admin", Role.ADMIN)


def lease(name: str) -> Object:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"holderIdentity": "nobody"},
    }


@contextlib.asynccontextmanager
async def serving(member: Member, folder: Path) -> AsyncIterator[DirectClient]:
    settings = EtcdSettings((member.endpoint,))
    store = await EtcdStore.open(settings, epoch=1, clock=SystemClock())
    try:
        server = ApiServer(
            ApiServerConfig(folder / "tls", folder / "tokens", port=0),
            store,
            context=system_context(),
        )
        async with server.running():
            yield server.client(ADMIN)
    finally:
        await store.close()


@pytest.fixture
async def servers(
    tmp_path: Path, not_run: Callable[[str], NoReturn]
) -> AsyncIterator[list[DirectClient]]:
    if find_etcd() is None:
        not_run("needs etcd")
    with cluster(tmp_path / "etcd") as [member]:
        async with serving(member, tmp_path / "1") as one, serving(member, tmp_path / "2") as two:
            yield [one, two]


async def test_what_one_server_answered_the_other_lists_at_once(
    servers: list[DirectClient],
) -> None:
    for number in range(40):
        writer, reader = servers[number % 2], servers[1 - number % 2]
        await writer.create(LEASES, lease(f"l{number}"))
        listed = await reader.list(LEASES, Selection("default"))
        assert len(listed.items) == number + 1


async def test_of_two_servers_only_one_wins_a_version(servers: list[DirectClient]) -> None:
    made = await servers[0].create(LEASES, lease("leader"))
    won: list[str] = []

    async def claim(client: DirectClient, name: str) -> None:
        with contextlib.suppress(StatusError):
            await client.update(LEASES, evolve(made, ("spec", "holderIdentity"), name))
            won.append(name)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(claim(servers[number % 2], f"c{number}"))
    assert len(won) == 1
    now = await servers[1].get(LEASES, "leader", "default")
    assert now["spec"]["holderIdentity"] == won[0]


async def test_a_version_from_one_server_is_known_to_the_other(
    servers: list[DirectClient],
) -> None:
    """Turn by turn, each with the version the other one has just given out."""
    held = await servers[0].create(LEASES, lease("leader"))
    for number in range(40):
        changed = evolve(held, ("spec", "holderIdentity"), f"c{number}")
        held = await servers[(number + 1) % 2].update(LEASES, changed)
    await servers[0].delete(LEASES, "leader", "default", uid=held["metadata"]["uid"])


async def test_a_watch_of_one_server_sees_what_was_written_through_the_other(
    servers: list[DirectClient],
) -> None:
    listed = await servers[0].list(LEASES, Selection("default"))
    seen: list[str] = []

    async def follow() -> None:
        events = servers[0].watch(
            LEASES, Selection("default"), resource_version=listed.resource_version
        )
        async for event in events:
            if event.type is WatchEventType.ADDED:
                seen.append(event.object["metadata"]["name"])
            if len(seen) == 20:
                return

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(follow())
        for number in range(20):
            await servers[1].create(LEASES, lease(f"l{number}"))
    assert seen == [f"l{number}" for number in range(20)]


async def test_a_leader_in_the_server_leads_on_while_the_loop_is_held(
    tmp_path: Path, not_run: Callable[[str], NoReturn], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`livesize up`: work that holds the loop of the API server for longer than its lease lasts."""
    if find_etcd() is None:
        not_run("needs etcd")
    monkeypatch.setattr(election, "DURATION_SECONDS", 1)
    monkeypatch.setattr(election, "RENEW_SECONDS", 0.1)
    began: list[str] = []

    async def work(holder: str, _client: Client, _context: Context) -> None:
        began.append(holder)
        await asyncio.Event().wait()

    with cluster(tmp_path / "etcd") as [member]:

        def open_own_store() -> Awaitable[EtcdStore]:
            settings = EtcdSettings((member.endpoint,))
            return EtcdStore.open(settings, epoch=1, clock=SystemClock())

        def lead(holder: str, client: DirectClient) -> Coroutine[Any, Any, None]:
            mine = functools.partial(work, holder)
            part, context = Part.SCHEDULER, system_context()
            return lead_in_server(part, holder, mine, client, open_own_store, context)

        async with serving(member, tmp_path / "1") as one:
            first = asyncio.create_task(lead("first", one))
            async with asyncio.timeout(20):
                while not began:
                    await asyncio.sleep(0.01)

            def compete() -> None:
                with contextlib.suppress(TimeoutError):
                    asyncio.run(asyncio.wait_for(lead("second", one), 3))

            rival = threading.Thread(target=compete)
            rival.start()
            until = time.monotonic() + 2.5
            while time.monotonic() < until:
                sum(range(1000))  # Python that never gives the loop back
            assert began == ["first"]
            await asyncio.to_thread(rival.join)
            assert began == ["first"]
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            held = await one.get(LEASES, "livesize-scheduler", "kube-system")
            assert held["spec"]["holderIdentity"] == "", "released"

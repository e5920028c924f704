"""Several API servers on one real etcd: what one has answered, all of them know."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NoReturn

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
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context
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

"""The control plane: store, API server, scheduler and controllers; killed and started again.

The store survives, as a disk does. Everything else of a killed control plane is gone: its caches,
its watches and the requests it was working on. A store session fences it, so that nothing it still
does after the kill reaches the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias, TypeVar

from livesize.api.roles import Role
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.commit import Committer
from livesize.apiserver.expiry.expirer import EventExpirer
from livesize.apiserver.expiry.plan import EventTerms
from livesize.apiserver.namespaces import ensure_lasting_namespaces, run_namespaces
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.service import ApiService
from livesize.client.interface import Client
from livesize.machinery.context import Context
from livesize.sim.network import Network, SimClient
from livesize.sim.processes import Process
from livesize.store.interface import (
    Change,
    Check,
    Listing,
    Store,
    StoreClosedError,
    StoreEntry,
    Write,
)

COMPACT_SECONDS = 300.0
_RESTART_SECONDS = 3.0
"""Within that, a part that has died is started again."""

T = TypeVar("T")
SimulatedPart: TypeAlias = Callable[[Client, Context], Coroutine[Any, Any, None]]
"""The scheduler or the controllers, as main puts them together."""


class ControlPlane:
    """Satisfies livesize.sim.network.Server. ``parts``: by name, with the identity of each."""

    def __init__(
        self, store: Store, context: Context, parts: dict[str, tuple[SimulatedPart, Identity]]
    ) -> None:
        self._store = store
        self._context = context
        self._parts = parts
        self._session: StoreSession | None = None
        self._service: ApiService | None = None
        self._cache: ObjectsCache | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._clients: dict[str, SimClient] = {}
        self._requests: dict[asyncio.Task[Any], None] = {}
        self._processes: list[Process] = []
        self.starts = 0

    @property
    def is_up(self) -> bool:
        return self._service is not None

    def service(self) -> ApiService:
        if self._service is None:
            raise ConnectionError("no API server is running")
        return self._service

    async def serve(self, work: Awaitable[T]) -> T:
        assert self._tasks is not None
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        request = self._tasks.create_task(_answer(work, answer))
        self._requests[request] = None
        request.add_done_callback(self._requests.pop)
        return await answer

    async def start(self, network: Network, tasks: asyncio.TaskGroup) -> None:
        self.starts += 1
        self._tasks = tasks
        session = self._session = StoreSession(self._store)
        cache = self._cache = ObjectsCache(session)
        service, clock = ApiService(session, cache, self._context), self._context.clock
        self._processes = [Process(tasks, cache.run())]
        await cache.loaded.wait()
        await ensure_lasting_namespaces(service)
        events = EventExpirer(cache, Committer(session, cache), clock, EventTerms())
        self._processes += [
            Process(tasks, run_namespaces(service, clock=clock)),
            Process(tasks, events.run()),
            Process(tasks, self._compact(session, cache)),
        ]
        self._service = service
        for name in self._parts:
            self._processes.append(Process(tasks, self._run_part(name, network)))

    def client(self, name: str) -> SimClient | None:
        """The connection of a part, while it runs."""
        return self._clients.get(name)

    async def kill(self) -> None:
        """Also while it starts."""
        assert self._session is not None
        assert self._cache is not None
        self._session.fence()
        self._service = None
        for client in self._clients.values():
            client.kill()
        self._clients.clear()
        for request in tuple(self._requests):
            request.cancel()
        self._cache.close_watchers()
        for process in self._processes:
            await process.kill()
        self._processes = []

    def failures(self) -> list[BaseException]:
        """What ended though nothing killed it."""
        return [one.failure for one in self._processes if one.failure is not None]

    async def _run_part(self, name: str, network: Network) -> None:
        """Another one begins where its process has died at a write of its own."""
        part, identity = self._parts[name]
        while True:
            client = self._clients[name] = network.connect(name, identity)
            async with asyncio.TaskGroup() as tasks:
                work = tasks.create_task(part(client, self._context))
                dead = tasks.create_task(client.died.wait())
                await asyncio.wait([work, dead], return_when=asyncio.FIRST_COMPLETED)
                if not dead.done():
                    raise RuntimeError("it ended by itself")
                work.cancel()
            network.trace.add(name, "died")
            await self._context.clock.sleep(self._context.random.uniform(0, _RESTART_SECONDS))

    async def _compact(self, session: StoreSession, cache: ObjectsCache) -> None:
        """As livesize.apiserver.server does."""
        before = cache.revision
        while True:
            await self._context.clock.sleep(COMPACT_SECONDS)
            await session.compact(before)
            before = cache.revision


async def _answer(work: Awaitable[T], answer: asyncio.Future[T]) -> None:
    """Work for a client that may have gone; it hears nothing of a server that dies but that."""
    try:
        found = await work
    except asyncio.CancelledError:
        if not answer.done():
            answer.set_exception(ConnectionError("the API server died"))
        raise
    except Exception as failure:  # noqa: BLE001 - it is the client's
        if not answer.done():
            answer.set_exception(failure)
    else:
        if not answer.done():
            answer.set_result(found)


class StoreSession:
    """A Store that one control plane has open; fenced, it refuses everything."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_fenced = False
        self.epoch = store.epoch  # type: ignore[attr-defined]

    def fence(self) -> None:
        self._is_fenced = True

    async def revision(self) -> int:
        return await self._open().revision()

    async def get(self, key: str) -> StoreEntry | None:
        return await self._open().get(key)

    async def list(self, prefix: str, **more: Any) -> Listing:
        return await self._open().list(prefix, **more)

    async def commit(self, checks: Sequence[Check], writes: Sequence[Write]) -> int:
        return await self._open().commit(checks, writes)

    async def commit_in_turn(
        self, checks: Sequence[Check], first: Sequence[Write], second: Sequence[Write]
    ) -> int:
        return await self._open().commit_in_turn(checks, first, second)

    async def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[Sequence[Change]]:
        stream = self._open().watch(prefix, after_revision=after_revision)
        async with contextlib.aclosing(stream):  # type: ignore[type-var]  # it is a generator
            async for batch in stream:
                self._open()
                yield batch

    async def compact(self, revision: int) -> None:
        await self._open().compact(revision)

    async def close(self) -> None:
        self.fence()

    def _open(self) -> Store:
        if self._is_fenced:
            raise StoreClosedError("this control plane is dead")
        return self._store


SCHEDULER = Identity("system:kube-scheduler", Role.SCHEDULER)
CONTROLLERS = Identity("system:kube-controller-manager", Role.CONTROLLER)

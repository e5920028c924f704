"""What every client promises (client/interface.py), asked of each alike: direct, below HTTP, and
over TLS, against our real API server; and over TLS against Kubernetes' own.

Tests that ask for ``client`` hold for any Kubernetes; those that ask for ``own_client`` need what
only we have, or what Kubernetes has had since its 1.20 only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from livesize.api.errors import StatusError
from livesize.api.kinds.event import EVENTS
from livesize.api.kinds.lease import LEASES
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.list_watch import Selection, WatchEvent, WatchEventType, ends_initial_events
from livesize.api.objects import (
    Object,
    evolve,
    generation_of,
    name_of,
    namespace_of,
    uid_of,
    version_of,
)
from livesize.api.patch import PatchType
from livesize.api.roles import Role
from livesize.api.write_options import FieldValidation, WriteOptions
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.auth.tokens import issue_token, write_tokens
from livesize.apiserver.server import ApiServer, ApiServerConfig
from livesize.client.adapters import ClientLease, event_poster
from livesize.client.http import ConnectionConfig, HttpClient
from livesize.client.informer import Delta, Informer
from livesize.client.interface import Client
from livesize.client.pages import list_all
from livesize.machinery.clock import SystemClock
from livesize.machinery.context import system_context
from livesize.machinery.lease import LeaseTerms, new_lease, renewed_lease
from livesize.machinery.recorder import EventRecorder, EventSeverity, ReportingComponent
from livesize.store.memory import MemoryStore

NS = "default"

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Server:
    """The real API server on a memory store, with a token for its admin."""

    def __init__(self, folder: Path) -> None:
        self.token, entry = issue_token("contract", Role.ADMIN)
        write_tokens(folder / "tokens", [entry])
        config = ApiServerConfig(tls_dir=folder / "tls", tokens=folder / "tokens", port=0)
        self.store = MemoryStore()
        self.server = ApiServer(config, self.store, context=system_context())


async def open_direct(server: Server) -> Client:
    return server.server.client(Identity("contract", Role.ADMIN))


async def open_http(server: Server) -> Client:
    return await HttpClient.open(
        ConnectionConfig(
            server=server.server.url,
            ca_pem=server.server.ca_path.read_bytes(),
            token=server.token,
        ),
        SystemClock(),
    )


REAL_KUBERNETES = (pytest.mark.apiserver, pytest.mark.matrix)
"""In the matrix: building it takes minutes."""

CLIENTS: dict[str, Callable[[Server], Awaitable[Client]]] = {
    "direct": open_direct,
    "http": open_http,
}


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    made = Server(folder)
    stop, ready = asyncio.Event(), asyncio.Event()

    # In a task of its own: the server's context must be entered and left by one task.
    async def run() -> None:
        async with made.server.running():
            ready.set()
            await stop.wait()

    task = asyncio.create_task(run())
    started = asyncio.create_task(ready.wait())
    await asyncio.wait({task, started}, return_when="FIRST_COMPLETED")
    yield made
    stop.set()
    await task
    await made.store.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """One server for the whole file: starting one takes longer than most of the tests."""
    async with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest_asyncio.fixture(params=CLIENTS, loop_scope="module")
async def own_client(request: pytest.FixtureRequest, shared: Server) -> AsyncIterator[Client]:
    made = await CLIENTS[request.param](shared)
    yield made
    await _clear(made)
    await made.close()


@pytest_asyncio.fixture(
    params=[*CLIENTS, pytest.param("kubernetes", marks=REAL_KUBERNETES)], loop_scope="module"
)
async def client(request: pytest.FixtureRequest, shared: Server) -> AsyncIterator[Client]:
    if request.param == "kubernetes":
        server = request.getfixturevalue("kubernetes")
        config = ConnectionConfig(
            server=server.url, ca_pem=server.ca_path.read_bytes(), token=server.token
        )
        made: Client = await HttpClient.open(config, SystemClock())
    else:
        made = await CLIENTS[request.param](shared)
    yield made
    await _clear(made)
    await made.close()


async def _clear(client: Client) -> None:
    for resource in (PODS, NODES, EVENTS, LEASES):
        for obj in (await client.list(resource)).items:
            await client.delete(resource, name_of(obj), namespace_of(obj), grace_period_seconds=0)


def pod(name: str, cpu: str = "100m", **labels: str) -> Object:
    resources = {
        "requests": {"cpu": cpu, "memory": "32Mi"},
        "limits": {"cpu": cpu, "memory": "32Mi"},
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": NS, "labels": labels},
        "spec": {"containers": [{"name": "app", "image": "img:1", "resources": resources}]},
    }


class Watching:
    """A watch in the background; ``next`` waits for one event that is no bookmark, and not the
    mark that Kubernetes sets on a pod before it deletes it."""

    def __init__(self, client: Client, selection: Selection, version: str) -> None:
        self._stream = client.watch(PODS, selection, resource_version=version)

    async def next(self) -> tuple[str, str]:
        async with asyncio.timeout(5):
            while True:
                event: WatchEvent = await anext(self._stream)
                if event.type is not WatchEventType.BOOKMARK and not _is_marked(event):
                    return str(event.type), name_of(event.object)

    async def __aenter__(self) -> Watching:  # noqa: PYI034
        return self

    async def __aexit__(self, *_: object) -> None:
        await cast("Any", self._stream).aclose()


def _is_marked(event: WatchEvent) -> bool:
    marked = "deletionTimestamp" in event.object["metadata"]
    return marked and event.type is WatchEventType.MODIFIED


async def refusal(call: Awaitable[Any]) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await call
    return caught.value


async def test_what_is_created_is_got_and_listed_with_its_kind(client: Client) -> None:
    made = await client.create(PODS, pod("a"), NS)
    assert uid_of(made)
    assert await client.get(PODS, "a", NS) == made
    listing = await client.list(PODS, Selection(namespace=NS))
    assert listing.items == (made,)
    assert (made["kind"], made["apiVersion"]) == ("Pod", "v1")
    assert int(listing.resource_version) >= int(version_of(made))


async def test_a_namespace_in_the_object_is_enough_and_a_node_needs_none(client: Client) -> None:
    await client.create(PODS, pod("a"))
    assert name_of(await client.get(PODS, "a", NS)) == "a"
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}}
    await client.create(NODES, node)
    assert name_of(await client.get(NODES, "n1")) == "n1"


async def test_refusals_have_code_reason_and_message(client: Client) -> None:
    missing = await refusal(client.get(PODS, "a", NS))
    assert (missing.code, missing.reason) == (404, "NotFound")
    assert missing.message == 'pods "a" not found'
    await client.create(PODS, pod("a"), NS)
    twice = await refusal(client.create(PODS, pod("a"), NS))
    assert (twice.code, twice.reason) == (409, "AlreadyExists")
    nowhere = await refusal(client.create(PODS, evolve(pod("b"), ("metadata", "namespace"), "no")))
    assert nowhere.code == 404
    bad = await refusal(client.create(PODS, pod("c", cpu="-1"), NS))
    assert (bad.code, bad.reason) == (422, "Invalid")
    assert any("cpu" in cause.field for cause in bad.causes)


async def test_an_update_of_an_old_version_conflicts(client: Client) -> None:
    made = await client.create(PODS, pod("a"), NS)
    newer = await client.update(PODS, evolve(made, ("metadata", "labels"), {"tier": "one"}))
    assert newer["metadata"]["labels"] == {"tier": "one"}
    stale = await refusal(client.update(PODS, evolve(made, ("metadata", "labels"), {})))
    assert (stale.code, stale.reason) == (409, "Conflict")


@pytest.mark.parametrize(
    ("patch_type", "patch"),
    [
        (PatchType.MERGE, {"metadata": {"labels": {"a": "1", "b": None}}}),
        (PatchType.STRATEGIC, {"metadata": {"labels": {"a": "1", "b": None}}}),
        (
            PatchType.JSON,
            [
                {"op": "add", "path": "/metadata/labels/a", "value": "1"},
                {"op": "remove", "path": "/metadata/labels/b"},
            ],
        ),
    ],
    ids=["merge", "strategic", "json"],
)
async def test_patches(client: Client, patch_type: PatchType, patch: Any) -> None:
    await client.create(PODS, pod("a", b="2", c="3"), NS)
    patched = await client.patch(PODS, "a", patch, namespace=NS, patch_type=patch_type)
    assert patched["metadata"]["labels"] == {"a": "1", "c": "3"}


async def test_a_resize_goes_through_its_subresource_and_counts_a_generation(
    own_client: Client,
) -> None:
    made = await own_client.create(PODS, pod("a"), NS)
    resources = {"requests": {"cpu": "200m"}, "limits": {"cpu": "200m"}}
    resized = await own_client.patch(
        *(PODS, "a", {"spec": {"containers": [{"name": "app", "resources": resources}]}}),
        namespace=NS,
        patch_type=PatchType.STRATEGIC,
        subresource="resize",
    )
    assert generation_of(resized) == generation_of(made) + 1
    assert resized["spec"]["containers"][0]["resources"]["limits"] == {
        "cpu": "200m",
        "memory": "32Mi",
    }


async def test_a_binding_is_posted(client: Client) -> None:
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}}
    await client.create(NODES, node)
    await client.create(PODS, pod("a"), NS)
    binding = {
        "kind": "Binding",
        "apiVersion": "v1",
        "metadata": {"name": "a", "namespace": NS},
        "target": {"kind": "Node", "name": "n1"},
    }
    await client.post(PODS, "a", NS, "binding", binding)
    assert (await client.get(PODS, "a", NS))["spec"]["nodeName"] == "n1"


async def test_an_eviction_is_answered_with_a_status(own_client: Client) -> None:
    await own_client.create(PODS, pod("a"), NS)
    eviction = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "a"}}
    answer = await own_client.post(PODS, "a", NS, "eviction", eviction)
    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Success", 201)
    assert (await refusal(own_client.get(PODS, "a", NS))).code == 404  # no node runs it


async def test_delete_heeds_the_uid(client: Client) -> None:
    made = await client.create(PODS, pod("a"), NS)
    wrong = await refusal(client.delete(PODS, "a", NS, uid="another"))
    assert wrong.code == 409
    await client.delete(PODS, "a", NS, uid=uid_of(made), grace_period_seconds=0)
    assert (await refusal(client.get(PODS, "a", NS))).code == 404


async def test_selectors_select(client: Client) -> None:
    for name, tier in (("a", "front"), ("b", "back"), ("c", "front")):
        await client.create(PODS, pod(name, tier=tier), NS)

    async def names(**selection: str) -> list[str]:
        return [name_of(obj) for obj in (await client.list(PODS, Selection(**selection))).items]

    assert await names(labels="tier=front") == ["a", "c"]
    assert await names(fields="metadata.name=b") == ["b"]
    assert await names(namespace="kube-system") == []
    assert (await refusal(client.list(PODS, Selection(labels="=,!")))).code == 400


async def test_pages_show_one_moment_and_are_resumed_by_their_token(client: Client) -> None:
    for name in "abcde":
        await client.create(PODS, pod(name), NS)
    selection = Selection(namespace=NS)
    pages = [await client.list(PODS, selection, limit=2)]
    await client.delete(PODS, "d", NS, grace_period_seconds=0)
    await client.create(PODS, pod("f"), NS)
    while token := pages[-1].continue_token:
        pages.append(await client.list(PODS, selection, limit=2, continue_token=token))
    names = [[name_of(obj) for obj in page.items] for page in pages]
    assert names == [["a", "b"], ["c", "d"], ["e"]]
    assert len({page.resource_version for page in pages}) == 1
    assert all(obj["kind"] == "Pod" for page in pages for obj in page.items)
    async with Watching(client, selection, pages[-1].resource_version) as watching:
        assert await watching.next() == ("DELETED", "d")  # nothing between list and watch is lost
        assert await watching.next() == ("ADDED", "f")
    listing = await list_all(client, PODS, selection, page_objects=2)
    assert [name_of(obj) for obj in listing.items] == ["a", "b", "c", "e", "f"]
    assert listing == await client.list(PODS, selection)


async def test_a_dry_run_answers_what_would_be_and_stores_nothing(client: Client) -> None:
    dry = WriteOptions(dry_run=True)
    assert uid_of(await client.create(PODS, pod("a"), NS, options=dry))
    assert (await refusal(client.get(PODS, "a", NS))).code == 404
    made = await client.create(PODS, pod("a"), NS)
    patch = {"metadata": {"labels": {"tier": "one"}}}
    patched = await client.patch(PODS, "a", patch, namespace=NS, options=dry)
    assert patched["metadata"]["labels"] == {"tier": "one"}
    updated = await client.update(
        PODS, evolve(made, ("metadata", "labels"), {"tier": "two"}), options=dry
    )
    assert updated["metadata"]["labels"] == {"tier": "two"}
    await client.delete(PODS, "a", NS, grace_period_seconds=0, dry_run=True)
    assert await client.get(PODS, "a", NS) == made
    bad = await refusal(client.create(PODS, pod("c", cpu="-1"), NS, options=dry))
    assert bad.code == 422


async def test_unknown_fields_are_refused_where_the_write_is_strict(own_client: Client) -> None:
    odd = evolve(pod("a"), ("spec", "restartPolice"), "Always")
    strict = WriteOptions(field_validation=FieldValidation.STRICT)
    refused = await refusal(own_client.create(PODS, odd, NS, options=strict))
    assert refused.code == 400
    assert "restartPolice" in refused.message
    assert uid_of(await own_client.create(PODS, odd, NS))


async def test_applying_creates_then_owns_fields_and_conflicts_unless_forced(
    client: Client,
) -> None:
    def part(value: str) -> Object:
        applied = pod("a")
        applied["metadata"]["annotations"] = {"note": value}
        return applied

    async def apply(value: str, manager: str, *, force: bool = False) -> Object:
        return await client.patch(
            *(PODS, "a", part(value)),
            namespace=NS,
            patch_type=PatchType.APPLY,
            options=WriteOptions(manager=manager, force=force),
        )

    made = await apply("one", "first")
    assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["first"]
    assert (await refusal(apply("two", "second"))).code == 409
    forced = await apply("two", "second", force=True)
    assert forced["metadata"]["annotations"] == {"note": "two"}
    assert uid_of(forced) == uid_of(made)


async def test_whoever_applies_without_a_manager_is_livesize(client: Client) -> None:
    made = await client.patch(PODS, "a", pod("a"), namespace=NS, patch_type=PatchType.APPLY)
    assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["livesize"]


async def test_a_subresource_is_read(client: Client) -> None:
    made = await client.create(PODS, pod("a"), NS)
    assert await client.get(PODS, "a", NS, subresource="status") == made


async def test_a_watch_tells_every_change_after_the_version(client: Client) -> None:
    first = await client.create(PODS, pod("before"), NS)
    version = (await client.list(PODS)).resource_version
    assert int(version) >= int(version_of(first))
    async with Watching(client, Selection(), version) as watching:
        await client.create(PODS, pod("a"), NS)
        assert await watching.next() == ("ADDED", "a")
        await client.patch(PODS, "a", {"metadata": {"labels": {"x": "y"}}}, namespace=NS)
        assert await watching.next() == ("MODIFIED", "a")
        await client.delete(PODS, "a", NS, grace_period_seconds=0)
        assert await watching.next() == ("DELETED", "a")


async def test_a_watch_begins_with_the_present_state_where_that_is_wanted(
    own_client: Client,
) -> None:
    for name in "ab":
        await own_client.create(PODS, pod(name), NS)
    stream = own_client.watch(
        PODS, Selection(namespace=NS), resource_version="", initial_events=True
    )
    async with asyncio.timeout(5), aclosing(cast("Any", stream)):
        first = [await anext(stream) for _ in range(3)]
        assert [event.type for event in first[:2]] == [WatchEventType.ADDED] * 2
        assert {name_of(event.object) for event in first[:2]} == {"a", "b"}
        assert ends_initial_events(first[2])
        assert not ends_initial_events(first[0])
        await own_client.create(PODS, pod("c"), NS)
        assert name_of((await anext(stream)).object) == "c"
    async with Watching(own_client, Selection(), version_of(first[2].object)) as watching:
        assert await watching.next() == ("ADDED", "c")


async def test_a_watch_resumes_without_gaps_or_repeats(client: Client) -> None:
    versions = [version_of(await client.create(PODS, pod(name), NS)) for name in "abcd"]
    async with Watching(client, Selection(), versions[1]) as watching:
        assert [await watching.next() for _ in range(2)] == [("ADDED", "c"), ("ADDED", "d")]


async def test_an_object_that_enters_or_leaves_a_selection_is_added_or_deleted(
    client: Client,
) -> None:
    version = version_of(await client.create(PODS, pod("a"), NS))
    async with Watching(client, Selection(labels="tier=front"), version) as watching:
        for value, expected in (("front", "ADDED"), ("back", "DELETED")):
            patch = {"metadata": {"labels": {"tier": value}}}
            await client.patch(PODS, "a", patch, namespace=NS)
            assert await watching.next() == (expected, "a")


async def test_an_informer_follows_over_either_wire(client: Client) -> None:
    await client.create(PODS, pod("before"), NS)
    deltas: asyncio.Queue[Delta] = asyncio.Queue()
    informer = Informer(client, PODS, context=system_context(), on_change=deltas.put_nowait)
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(5):
            await informer.synced.wait()
            assert name_of((await deltas.get()).object) == "before"
            made = await client.create(PODS, pod("a"), NS)
            assert (await deltas.get()).new == made == informer.get(NS, "a")
            await client.delete(PODS, "a", NS, grace_period_seconds=0)
            last = made
            while (gone := await deltas.get()).new is not None:
                last = gone.new
                assert "deletionTimestamp" in last["metadata"]
            assert gone == Delta(last, None)
            assert informer.get(NS, "a") is None
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_events_are_written_and_counted(client: Client) -> None:
    about = await client.create(PODS, pod("a"), NS)
    recorder = EventRecorder(
        event_poster(client), context=system_context(), source=ReportingComponent("contract")
    )
    task = asyncio.create_task(recorder.run())
    try:
        async with asyncio.timeout(5):
            for count in (1, 2):
                recorder.record(about, EventSeverity.NORMAL, "Tried", "once more")
                while True:
                    events = (await client.list(EVENTS, Selection(namespace=NS))).items
                    if events and events[0]["count"] == count:
                        break
                    await asyncio.sleep(0.002)
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert len(events) == 1
    assert recorder.dropped == 0


async def test_a_lease_is_made_and_renewed(client: Client) -> None:
    terms = LeaseTerms("n1", "n1")
    record = ClientLease(client, terms.namespace, terms.name)
    assert await record.load() is None
    held = await record.create(new_lease(terms, 100.0))
    renewed = await record.update(renewed_lease(held, terms, 160.0))
    assert renewed["spec"]["renewTime"] == "1970-01-01T00:02:40.000000Z"
    assert await record.load() == renewed
    assert (await refusal(record.update(renewed_lease(held, terms, 200.0)))).code == 409
    assert [name_of(obj) for obj in (await client.list(LEASES)).items] == ["n1"]


@pytest.mark.parametrize("open_client", CLIENTS.values(), ids=CLIENTS)
async def test_a_server_that_stops_ends_its_watches_and_a_closed_client_cannot_be_used(
    open_client: Callable[[Server], Awaitable[Client]], tmp_path: Path
) -> None:
    async with serving(tmp_path) as server:
        client = await open_client(server)
        version = (await client.list(NAMESPACES)).resource_version
        watching = asyncio.create_task(_drain(client.watch(PODS, resource_version=version)))
        await asyncio.sleep(0.02)
    async with asyncio.timeout(5):
        await watching
    with pytest.raises(ConnectionError):
        await client.list(PODS)
    await client.close()
    with pytest.raises(ConnectionError):
        await client.get(PODS, "a", NS)


async def _drain(stream: AsyncIterator[WatchEvent]) -> None:
    with contextlib.suppress(ConnectionError):
        async for _ in stream:
            pass

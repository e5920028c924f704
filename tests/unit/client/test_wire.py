"""Our own connections against a server that says, cuts and withholds exactly what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.apiserver.tls import ensure_tls
from livesize.client import connections as connections_module
from livesize.client.connections import (
    ConnectionIdentity,
    Connections,
    NotConnectedError,
    ServerConnections,
    parse_server,
)
from livesize.client.wire import (
    MAX_HEAD_BYTES,
    MAX_UNREAD_BYTES,
    ClosedError,
    HttpConnection,
    LostError,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ONE_READ_BYTES = 256 * 1024


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> bytes:
        """Of the next request; b"" when there is none, because the client has gone."""
        try:
            return await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return b""

    async def say(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def until_gone(self) -> bytes:
        """What the client still said before it went."""
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := await self.reader.read(65536):
                said += piece
        return said


Talk = Callable[[Peer], Awaitable[None]]


class ServerTls(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="session")
def certified(tmp_path_factory: pytest.TempPathFactory) -> ServerTls:
    files = ensure_tls(tmp_path_factory.mktemp("tls"), ("127.0.0.1",), time.time())
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(files.cert, files.key)
    return ServerTls(server, ssl.create_default_context(cafile=files.ca_cert))


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, certified: ServerTls) -> ServerTls | None:
    return certified if request.param == "tls" else None


class Server:
    """The first connection is for the first talk, and so on; the last talk serves the rest."""

    def __init__(self, *talks: Talk) -> None:
        self.talks = talks
        self.connections = 0
        self.ended = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = self.talks[min(self.connections, len(self.talks) - 1)]
        self.connections += 1
        try:
            await talk(Peer(reader, writer))
        except ConnectionError:
            pass
        finally:
            self.ended += 1
            writer.close()


@contextlib.asynccontextmanager
async def serving(
    *talks: Talk, tls: ServerTls | None = None
) -> AsyncIterator[tuple[Server, ServerConnections]]:
    made = Server(*talks)
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls and tls.server)
    scheme = "http" if tls is None else "https"
    made.url = f"{scheme}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    headers = {"Accept": "application/json"}
    identity = ConnectionIdentity(headers=headers, tls=tls and tls.client, connect_seconds=3.0)
    connections = Connections(identity)
    try:
        async with asyncio.timeout(20):
            yield made, connections.to(made.url)
            connections.close("the test is over")
            while made.ended < made.connections:
                await asyncio.sleep(0.001)
    finally:
        connections.close("the test is over")
        listening.close()


def answering(*answers: bytes) -> Talk:
    """One of them for each request; then it waits until the client goes."""

    async def talk(peer: Peer) -> None:
        for answer in answers:
            if not await peer.head():
                return
            await peer.say(answer)
        await peer.until_gone()

    return talk


def hanging_up_after(*answers: bytes) -> Talk:
    """Takes one more request than it answers, and closes."""

    async def talk(peer: Peer) -> None:
        for answer in answers:
            await peer.head()
            await peer.say(answer)
        await peer.head()

    return talk


async def until(fact: Callable[[], Any]) -> None:
    while not fact():
        await asyncio.sleep(0.001)


# One answer.


class Deaf(asyncio.Transport):
    """A transport that nobody hears."""

    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def write(self, data: Any) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


ANSWERS = {
    "length": (b"HTTP/1.1 201 Created\r\ncontent-length: 5\r\nx: y\r\n\r\nhello", (201, b"hello")),
    "chunked": (CHUNKED + b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n", (200, b"hello")),
    "trailers": (CHUNKED + b"5\r\nhello\r\n0\r\nDigest: abc\r\n\r\n", (200, b"hello")),
    "empty": (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
    "hints": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK,
        (200, b"ok"),
    ),
}


@given(case=st.sampled_from(sorted(ANSWERS)), cuts=st.sets(st.integers(1, 120)))
def test_an_answer_is_the_same_however_it_was_cut(case: str, cuts: set[int]) -> None:
    said, expected = ANSWERS[case]

    async def run() -> None:
        connection = HttpConnection(lambda _: None)
        connection.connection_made(Deaf())
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):  # the second time it begins in the same parser
                asked = tasks.create_task(connection.ask(b"GET"))
                await asyncio.sleep(0)
                at = 0
                for cut in [*sorted(cut for cut in cuts if cut < len(said)), len(said)]:
                    assert not asked.done()
                    connection.data_received(said[at:cut])
                    at = cut
                assert await asked == expected
                assert connection.is_free

    asyncio.run(run())


@pytest.mark.parametrize("answer", [answer for answer, _ in ANSWERS.values()], ids=list(ANSWERS))
async def test_one_connection_serves_one_request_after_the_other(answer: bytes) -> None:
    async with serving(answering(*[answer] * 3)) as (server, connections):
        first = await connections.ask("GET", "/x")
        assert [await connections.ask("POST", "/x", b"{}", "a/b") for _ in range(2)] == [first] * 2
        assert server.connections == 1


async def test_what_is_sent_is_http() -> None:
    heads: list[bytes] = []
    bodies: list[bytes] = []

    async def talk(peer: Peer) -> None:
        for length in (0, 4):
            heads.append(await peer.head())
            bodies.append(await peer.reader.readexactly(length))
            await peer.say(OK)

    async with serving(talk) as (server, connections):
        await connections.ask("GET", "/api/v1/pods?limit=5")
        await connections.ask("PATCH", "/api/v1/pods/a b\r\nX: y", b"body", "text/plain")
    host = server.url.removeprefix("http://").encode()
    constant = b"Host: %b\r\nAccept: application/json\r\n" % host
    assert heads == [
        b"GET /api/v1/pods?limit=5 HTTP/1.1\r\n%b\r\n" % constant,
        b"PATCH /api/v1/pods/a%%20b%%0D%%0AX:%%20y HTTP/1.1\r\n%bContent-Type: text/plain\r\n"
        b"Content-Length: 4\r\n\r\n" % constant,
    ]
    assert bodies == [b"", b"body"]


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "ä", "a\0"])
async def test_a_header_that_would_break_the_framing_is_never_sent(value: str) -> None:
    identity = ConnectionIdentity(headers={"Authorization": value}, connect_seconds=1.0)
    with pytest.raises(NotConnectedError, match="Authorization") as caught:
        Connections(identity).to("http://127.0.0.1:1")
    assert value not in str(caught.value), "it may be a secret"


async def test_without_a_length_the_end_of_the_connection_is_the_end_of_the_answer(
    tls: ServerTls | None,
) -> None:
    talk = hanging_up_at_once(b"HTTP/1.1 200 OK\r\n\r\nto the end")
    async with serving(talk, tls=tls) as (server, connections):
        assert await connections.ask("GET", "/") == (200, b"to the end")
        assert await connections.ask("POST", "/", b"{}", "a/b") == (200, b"to the end")
        assert server.connections == 2


def hanging_up_at_once(answer: bytes) -> Talk:
    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.say(answer)

    return talk


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhalf",
        CHUNKED + b"9\r\nhalf",
        CHUNKED + b"4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nContent-",
    ],
)
async def test_half_an_answer_is_none_and_nothing_is_asked_again(answer: bytes) -> None:
    async with serving(hanging_up_at_once(answer)) as (server, connections):
        with pytest.raises(LostError, match="in the middle of an answer"):
            await connections.ask("GET", "/")
        assert server.connections == 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "switched"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * (MAX_HEAD_BYTES + ONE_READ_BYTES), "too long"),
        (b"HTTP/1.1 103 Hints\r\nX: y\r\n\r\n" * 20_000, "too long"),
    ],
    ids=["another protocol", "bad length", "switched", "long head", "hints without end"],
)
async def test_what_is_no_answer_ends_the_connection(answer: bytes, why: str) -> None:
    gone = asyncio.Event()

    async def talk(peer: Peer) -> None:
        await peer.head()
        try:
            await peer.say(answer)
            await peer.until_gone()
        finally:
            gone.set()

    async with serving(talk) as (_, connections):
        with pytest.raises(LostError, match=why):
            await connections.ask("GET", "/")
        await gone.wait()


# Which connection is used again.


async def test_a_server_that_says_close_is_believed() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    async with serving(answering(closing, closing)) as (server, connections):
        for _ in range(2):
            assert await connections.ask("POST", "/", b"{}", "a/b") == (200, b"ok")
        assert server.connections == 2


@pytest.mark.parametrize("more", [b"HTTP/1.1 500 Oops\r\n\r\n", b"garbage"])
async def test_what_follows_an_answer_is_not_the_answer_to_the_next(more: bytes) -> None:
    async with serving(answering(OK + more), answering(OK)) as (server, connections):
        assert await connections.ask("GET", "/") == (200, b"ok")
        assert await connections.ask("GET", "/") == (200, b"ok")
        assert server.connections == 2


async def test_who_speaks_without_being_asked_is_left() -> None:
    speak = asyncio.Event()

    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.say(OK)
        await speak.wait()
        await peer.say(OK)
        await peer.until_gone()

    async with serving(talk, answering(OK)) as (server, connections):
        await connections.ask("GET", "/")
        speak.set()
        await until(lambda: server.ended)
        assert await connections.ask("POST", "/", b"{}", "a/b") == (200, b"ok")
        assert server.connections == 2


async def test_an_idle_connection_that_the_server_closes_is_dropped_at_once(
    tls: ServerTls | None,
) -> None:
    close = asyncio.Event()

    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.say(OK)
        await close.wait()

    async with serving(talk, answering(OK), tls=tls) as (server, connections):
        await connections.ask("GET", "/")
        assert len(connections._idle) == 1
        close.set()
        await until(lambda: not connections._open)
        assert not connections._idle
        assert await connections.ask("POST", "/", b"{}", "a/b") == (200, b"ok")
        assert server.connections == 2


async def test_a_connection_is_idle_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "KEEP_ALIVE_SECONDS", 0.02)
    async with serving(answering(OK, OK)) as (server, connections):
        await connections.ask("GET", "/")
        await connections.ask("GET", "/")
        assert (server.connections, server.ended) == (1, 0)
        await until(lambda: server.ended)
        assert not connections._idle


async def test_a_get_that_an_idle_connection_lost_is_asked_once_more(tls: ServerTls | None) -> None:
    async with serving(hanging_up_after(OK), answering(OK), tls=tls) as (server, connections):
        await connections.ask("GET", "/")
        assert await connections.ask("GET", "/") == (200, b"ok")
        assert server.connections == 2


async def test_a_get_is_not_asked_a_third_time() -> None:
    async with serving(hanging_up_after(OK), hanging_up_after()) as (server, connections):
        await connections.ask("GET", "/")
        with pytest.raises(LostError, match="before it answered"):
            await connections.ask("GET", "/")
        assert server.connections == 2
        with pytest.raises(LostError):
            await connections.ask("GET", "/")
        assert server.connections == 3, "a fresh connection that is lost is no accident"


async def test_a_stream_that_an_idle_connection_lost_is_begun_once_more() -> None:
    async with serving(hanging_up_after(OK), answering(OK)) as (server, connections):
        await connections.ask("GET", "/")
        connection = await connections.begin("/")
        assert (connection.status, await connection.rest()) == (200, b"ok")
        connections.give_back(connection)
        assert server.connections == 2


async def test_a_get_is_not_asked_again_when_an_answer_had_begun() -> None:
    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.say(OK)
        await peer.head()
        await peer.say(b"H")

    async with serving(talk) as (server, connections):
        await connections.ask("GET", "/")
        with pytest.raises(LostError):
            await connections.ask("GET", "/")
        assert server.connections == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_what_may_have_happened_is_not_asked_again(method: str) -> None:
    async with serving(hanging_up_after(OK)) as (server, connections):
        await connections.ask("GET", "/")
        with pytest.raises(LostError):
            await connections.ask(method, "/", b"{}", "a/b")
        assert server.connections == 1


# Giving up.


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_a_request_that_is_cancelled_ends_its_connection(
    begun: bytes, tls: ServerTls | None
) -> None:
    asked = asyncio.Event()

    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.say(begun)
        asked.set()
        await peer.until_gone()

    async with serving(talk, answering(OK), tls=tls) as (server, connections):
        request = asyncio.create_task(connections.ask("GET", "/"))
        await asked.wait()
        request.cancel()
        await asyncio.wait([request])
        assert request.cancelled()
        await until(lambda: server.ended)
        assert await connections.ask("GET", "/") == (200, b"ok")
        assert server.connections == 2


async def test_a_request_that_waits_too_long_ends_its_connection() -> None:
    async def talk(peer: Peer) -> None:
        await peer.until_gone()

    async with serving(talk) as (server, connections):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await connections.ask("GET", "/")
        await until(lambda: server.ended)
        assert not connections._idle


async def test_who_waits_when_all_is_closed_is_told_why() -> None:
    async def talk(peer: Peer) -> None:
        await peer.until_gone()

    async with serving(talk) as (server, connections):
        request = asyncio.create_task(connections.ask("GET", "/"))
        await until(lambda: server.connections)
        connections.close("enough")
        with pytest.raises(ClosedError, match="enough"):
            await request
        with pytest.raises(ClosedError, match="enough"):
            await connections.ask("GET", "/")


async def test_nobody_there_is_not_connected() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        connections = Connections(ConnectionIdentity(headers={}, connect_seconds=3.0))
        for host in ("127.0.0.1", "localhost"):  # the latter has two addresses on most machines
            with pytest.raises(NotConnectedError) as caught:
                await connections.to(f"http://{host}:{port}").ask("GET", "/")
            assert isinstance(caught.value.failure, ConnectionRefusedError)


async def test_who_does_not_take_the_connection_in_time_is_not_connected() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with contextlib.ExitStack() as waiting:
            for _ in range(3):
                one = waiting.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(address)
            connections = Connections(ConnectionIdentity(headers={}, connect_seconds=0.05))
            with pytest.raises(NotConnectedError) as caught:
                await connections.to(f"http://127.0.0.1:{address[1]}").ask("GET", "/")
            assert isinstance(caught.value.failure, TimeoutError)


@pytest.mark.parametrize("server", ["", "host:6443", "ftp://host", "https://", "http://h:port"])
def test_what_is_no_server(server: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any sentence
        parse_server(server)


def test_parts_of_a_server() -> None:
    plain = parse_server("https://user@[::1]:6443/")
    assert (plain.host, plain.port, plain.is_tls) == ("::1", 6443, True)
    assert (plain.host_header, plain.prefix) == ("[::1]:6443", "")
    behind = parse_server("http://rancher/k8s/c 1/")
    assert (behind.host, behind.port, behind.prefix) == ("rancher", 80, "/k8s/c%201")
    assert parse_server("unix:///run/a.sock").socket_path == "/run/a.sock"


# Answers that are read as they come.


async def test_a_stream_is_read_as_it_comes() -> None:
    go_on = asyncio.Semaphore(0)

    async def talk(peer: Peer) -> None:
        await peer.head()
        for piece in (CHUNKED, b"2\r\nab\r\n", b"2\r\ncd\r\n", b"0\r\n\r\n"):
            await peer.say(piece)
            await go_on.acquire()
        await answering(OK)(peer)

    async with serving(talk) as (server, connections):
        connection = await connections.begin("/")
        assert connection.status == 200
        for expected in (b"ab", b"cd", b"", b""):
            go_on.release()
            assert await connection.read() == expected
        connections.give_back(connection)
        assert await connections.ask("GET", "/") == (200, b"ok")
        assert server.connections == 1


async def test_a_stream_that_is_left_in_the_middle_ends_its_connection(
    tls: ServerTls | None,
) -> None:
    async with serving(answering(CHUNKED + b"2\r\nab\r\n"), answering(OK), tls=tls) as (
        server,
        connections,
    ):
        connection = await connections.begin("/")
        assert await connection.read() == b"ab"
        connections.give_back(connection)
        await until(lambda: server.ended)
        assert await connections.ask("GET", "/") == (200, b"ok")
        assert server.connections == 2


async def test_a_stream_that_is_lost_says_so_after_all_that_came() -> None:
    async with serving(hanging_up_at_once(CHUNKED + b"2\r\nab\r\n")) as (_, connections):
        connection = await connections.begin("/")
        await until(lambda: not connections._open)
        assert await connection.read() == b"ab"
        with pytest.raises(LostError, match="in the middle"):
            await connection.read()


async def test_a_stream_that_is_cut_from_elsewhere_wakes_its_reader() -> None:
    async with serving(answering(CHUNKED)) as (server, connections):
        connection = await connections.begin("/")
        reading = asyncio.create_task(connection.read())
        await asyncio.sleep(0)
        connection.abort()
        with pytest.raises(LostError, match="given up"):
            await reading
        await until(lambda: server.ended)


async def test_who_does_not_read_makes_the_server_wait(tls: ServerTls | None) -> None:
    """Memory stays bounded, and nothing is lost."""
    total = 64 * 1024 * 1024
    peers: list[Peer] = []

    async def talk(peer: Peer) -> None:
        peers.append(peer)
        await peer.head()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        for _ in range(total // 65536):
            await peer.say(bytes(65536))
        await peer.until_gone()

    async with serving(talk, tls=tls) as (_, connections):
        connection = await connections.begin("/")
        # The kernel takes no more from the server: it waits.
        transport = peers[0].writer.transport
        await until(lambda: connection._is_paused and transport.get_write_buffer_size() > 65536)
        assert sum(map(len, connection._pieces)) <= MAX_UNREAD_BYTES + ONE_READ_BYTES
        read, most = 0, 0
        while piece := await connection.read():
            read += len(piece)
            most = max(most, len(piece))
        assert read == total
        assert most <= MAX_UNREAD_BYTES + ONE_READ_BYTES

"""Who has not said who they are can neither stall the API server nor keep others out of it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from livesize.apiserver import pending_connections
from livesize.apiserver.http import heads
from livesize.apiserver.pending_connections import PendingLimits
from system.api_server import ServerThread

pytestmark = pytest.mark.security

FEW = PendingLimits(per_address=8, in_all=16)
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with ServerThread(tmp_path_factory.mktemp("server"), pending_limits=FEW).running() as opened:
        yield opened


def answer_to(server: ServerThread, begin: bytes, piece: bytes, total: int) -> tuple[bytes, int]:
    """The first line of the answer, and how much could be sent until the connection was closed."""
    with server.tls() as connection:
        sent = 0
        try:
            connection.sendall(begin)
            while sent < total:
                connection.sendall(piece)
                sent += len(piece)
        except OSError:
            pass
        return first_line(connection), sent


def first_line(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536).split(b"\r\n")[0]
    except OSError:
        return b""


GET = b"GET /version HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    ("begin", "piece", "refused"),
    [
        (GET + b"X-Long: ", b"a" * MIB, b"HTTP/1.1 431 "),
        (GET, b"a: b\r\n" * 100_000, b"HTTP/1.1 431 "),
        (b"GET /version?a=", b"a" * MIB, b"HTTP/1.1 414 "),
        (b"GET /version?a=", b"a=b&" * 100_000, b"HTTP/1.1 414 "),
    ],
    ids=["one header of 70 MiB", "millions of headers", "a URL of 70 MiB", "a million parameters"],
)
def test_a_head_that_is_too_large_is_refused(
    server: ServerThread, begin: bytes, piece: bytes, refused: bytes
) -> None:
    line, sent = answer_to(server, begin, piece, 70 * MIB)
    # A client that goes on sending may be cut off before it reads the answer.
    assert line.startswith(refused) or (not line and sent < 70 * MIB)
    assert server.ask("", "GET", "/version")[0] == 200


@pytest.mark.parametrize(
    ("head", "refused"),
    [
        (b"GET /" + b"a" * heads.MAX_PATH_BYTES + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"414"),
        (GET + b"X-Long: " + b"a" * heads.MAX_HEADERS_BYTES + b"\r\n\r\n", b"431"),
        (GET + b"a: b\r\n" * heads.MAX_HEADERS + b"\r\n", b"431"),
        (b"GET /version?" + b"a" * heads.MAX_URL_BYTES + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"414"),
        (b"GET /version?" + b"&a" * 10_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"414"),
    ],
)
def test_the_answer_says_which_limit_it_was(
    server: ServerThread, head: bytes, refused: bytes
) -> None:
    with server.tls() as connection:
        connection.sendall(head)
        answer = connection.recv(65536)
    assert answer.split(b" ")[1] == refused
    assert b'"kind":"Status"' in answer
    assert b"send" in answer


def test_a_long_command_of_exec_fits_into_the_url(server: ServerThread) -> None:
    path = f"/api/v1/namespaces/default/pods/x/exec?command={'a' * 200_000}"
    code, status = server.ask("admin", "GET", path)
    assert (code, status["reason"]) == (404, "NotFound")  # no such pod: the URL was read


def test_requests_that_do_not_wait_for_answers_are_cut_off(server: ServerThread) -> None:
    with server.tls() as connection:
        connection.sendall((GET + b"\r\n") * 5000)
        received = b""
        while piece := _read(connection):
            received += piece
    assert received.count(b"HTTP/1.1 200") <= heads.MAX_WAITING_REQUESTS + 1


def test_half_sent_requests_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEAD_SECONDS", 0.3)
    with ServerThread(tmp_path).running() as server:
        half = [server.tls() for _ in range(100)]
        for connection in half:
            connection.sendall(GET + b"X-More: ")
        assert [_read(connection) for connection in half] == [b""] * 100
        for connection in half:
            connection.close()


def test_tls_that_never_begins_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_connections, "HANDSHAKE_SECONDS", 0.3)
    with ServerThread(tmp_path).running() as server:
        silent = [server.tcp() for _ in range(20)]
        assert [_read(connection) for connection in silent] == [b""] * 20
        for connection in silent:
            connection.close()


def test_silent_connections_keep_nobody_out(server: ServerThread) -> None:
    silent = [server.tcp() for _ in range(50)]
    assert server.ask("viewer", "GET", "/api/v1/namespaces")[0] == 200
    open_still = 0
    for connection in silent:
        connection.settimeout(0.01)
        try:
            connection.recv(1)
        except TimeoutError:
            open_still += 1
        except OSError:
            pass
    assert open_still <= FEW.per_address
    for connection in silent:
        connection.close()


def test_whoever_is_known_is_not_closed_for_others(server: ServerThread) -> None:
    token = server.tokens["viewer"].encode()
    known = b"GET /api/v1/namespaces/team HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n"
    with server.tls() as connection:
        connection.sendall(known % token)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        silent = [server.tcp() for _ in range(50)]
        connection.sendall(known % token)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    for one in silent:
        one.close()


def test_a_body_that_nobody_asked_for_ends_the_connection(server: ServerThread) -> None:
    head = b"POST /api/v1/namespaces HTTP/1.1\r\nHost: a\r\nContent-Length: 900000000\r\n\r\n"
    line, sent = answer_to(server, head, b" " * MIB, 800 * MIB)
    assert sent < 800 * MIB
    assert line.startswith(b"HTTP/1.1 401") or not line


def test_headers_after_a_body_have_an_end(server: ServerThread) -> None:
    token = server.tokens["editor"].encode()
    head = (
        b"POST /api/v1/namespaces HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        b"Authorization: Bearer %s\r\n\r\n1\r\n{\r\n0\r\nX-After: " % token
    )
    _, sent = answer_to(server, head, b"a" * MIB, 70 * MIB)
    assert sent < 70 * MIB


@pytest.mark.parametrize(
    "smuggled",
    [
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 0x5\r\n",
        b" folded: header\r\n",
        b"X: a\rGET /b HTTP/1.1\r\n",
    ],
)
def test_two_ways_to_read_one_request_are_no_way(server: ServerThread, smuggled: bytes) -> None:
    body = b"0\r\n\r\nGET /api/v1/secrets HTTP/1.1\r\nHost: a\r\n\r\n"
    with server.tls() as connection:
        connection.sendall(b"POST /version HTTP/1.1\r\nHost: a\r\n" + smuggled + b"\r\n" + body)
        received = b""
        while piece := _read(connection):
            received += piece
    assert received.startswith(b"HTTP/1.1 400")
    assert received.count(b"HTTP/1.1 ") == 1


def _read(connection: socket.socket) -> bytes:
    """Empty at the end, however it came."""
    try:
        return connection.recv(65536)
    except (ConnectionError, ssl.SSLError):
        return b""

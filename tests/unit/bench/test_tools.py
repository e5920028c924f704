"""The tools of the benchmarks: the small client, the watch of files, the count of memory."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from bench.group_watch import watching
from bench.pods import manifest, node_manifest, resize_patch, running_status
from bench.process_memory import parse_rollup, read_memory
from bench.wire import RefusedError, Wire, request_bytes, whole_length

from livesize.api.defaults import default_object
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.validation.objects import validate_create

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: 4\r\n\r\nbody"


@pytest.mark.parametrize(
    ("begun", "length"),
    [
        (b"", 0),
        (ANSWER[:20], 0),
        (ANSWER[:-4], len(ANSWER)),
        (ANSWER, len(ANSWER)),
        (b"HTTP/1.1 200 OK\r\n\r\n", 19),
    ],
    ids=["nothing", "half a head", "head only", "whole", "no body"],
)
def test_the_length_of_an_answer_is_known_once_its_head_is_there(begun: bytes, length: int) -> None:
    assert whole_length(begun) == length


def _connected() -> tuple[Wire, Mock]:
    wire, transport = Wire(), Mock(spec=asyncio.Transport)
    transport.is_closing.return_value = False
    wire.connection_made(transport)
    return wire, transport


async def _asked(*pieces: bytes) -> bytes:
    wire, transport = _connected()
    asking = asyncio.ensure_future(wire.ask(b"request"))
    await asyncio.sleep(0)
    transport.write.assert_called_once_with(b"request")
    for piece in pieces:
        assert not asking.done()
        wire.data_received(piece)
    return await asking


@pytest.mark.parametrize("cut", range(1, len(ANSWER)))
async def test_an_answer_may_come_in_pieces(cut: int) -> None:
    assert await _asked(ANSWER[:cut], ANSWER[cut:]) == b"body"


async def test_a_refusal_is_not_counted_as_an_answer() -> None:
    with pytest.raises(RefusedError, match="409"):
        await _asked(ANSWER.replace(b"200 OK", b"409 Conflict"))


async def test_a_lost_connection_ends_the_waiting() -> None:
    wire, _ = _connected()
    asking = asyncio.ensure_future(wire.ask(b"request"))
    await asyncio.sleep(0)
    wire.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await asking


async def test_nothing_is_asked_of_a_server_that_hung_up() -> None:
    wire, transport = _connected()
    transport.is_closing.return_value = True
    with pytest.raises(ConnectionResetError):
        await wire.ask(b"request")


def test_a_request_says_how_long_its_body_is() -> None:
    request = request_bytes("PATCH", "/x", "secret", {"a": 1}, "application/merge-patch+json")
    head, _, body = request.partition(b"\r\n\r\n")
    assert body == b'{"a":1}'
    assert b"Content-Length: 7" in head
    assert b"Authorization: Bearer secret" in head
    assert b"Content-Length" not in request_bytes("GET", "/x", "secret")


async def test_files_are_seen_when_all_of_them_hold_what_they_should(tmp_path: Path) -> None:
    cpu, memory = tmp_path / "cpu", tmp_path / "memory"
    cpu.write_text("1\n")
    memory.write_text("1\n")
    with watching(cpu, memory) as watch:
        seen = watch.expect({cpu: "2", memory: "3"})
        began = time.perf_counter()
        cpu.write_text("2\n")
        await asyncio.sleep(0.01)
        assert not seen.done()
        memory.write_text("3\n")
        async with asyncio.timeout(5):
            assert began < await seen <= time.perf_counter()


async def test_watching_a_file_that_is_not_there_fails_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="inotify"), watching(tmp_path / "none"):
        pass


def test_memory_is_read_in_bytes() -> None:
    text = (
        "55d-7ff ---p 00000000 00:00 0   [rollup]\nRss:    2048 kB\nPss:    1024 kB\nLocked: 0 kB\n"
    )
    memory = parse_rollup(text)
    assert (memory.rss_bytes, memory.pss_bytes) == (2 << 20, 1 << 20)


def test_memory_of_a_process_that_lives_can_be_read() -> None:
    memory = read_memory(os.getpid())
    assert memory.rss_bytes >= memory.pss_bytes > 0


def test_what_is_measured_are_valid_objects() -> None:
    pod = manifest("bench-0", image="localhost/bench:1", node="bench")
    pod["status"] = running_status()
    assert validate_create(PODS, default_object(PODS, pod)) == []
    assert validate_create(NODES, default_object(NODES, node_manifest("bench"))) == []
    assert resize_patch({"cpu": "1"})["spec"]["containers"][0]["name"] == "app"

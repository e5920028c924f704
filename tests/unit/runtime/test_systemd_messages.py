"""Messages to systemd: written as the D-Bus specification says, and answers read."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jeepney import HeaderFields
from jeepney.low_level import Message, Parser

from livesize.api.kernel_units import KernelLimits
from livesize.machinery.clock import SystemClock
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.systemd.bus import Systemd
from livesize.runtime.systemd.messages import BusReply, read_reply
from livesize.runtime.systemd.properties import (
    INFINITY,
    cpu_list_properties,
    cpu_properties,
    limit_properties,
    memory_properties,
    stored_quota_us,
)
from livesize.runtime.systemd.slices import slice_name, slice_path

NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"


def answer_message(kind: int, serial: int, error: str = "", words: str = "") -> bytes:
    """As systemd writes one, put together by hand."""
    fields = b"\5\1u\0" + struct.pack("<I", serial)
    if error:
        fields += b"\4\1s\0" + struct.pack("<I", len(error)) + error.encode() + b"\0"
        fields += b"\0" * (-len(fields) % 8) + b"\x08\1g\0\1s\0"
    body = struct.pack("<I", len(words)) + words.encode() + b"\0" if words else b""
    head = struct.pack("<BBBBIII", ord("l"), kind, 1, 1, len(body), 7, len(fields)) + fields
    return head + b"\0" * (-len(head) % 8) + body


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (answer_message(2, 3), BusReply(3)),
        (answer_message(3, 1, NO_SUCH_UNIT, "not loaded"), BusReply(1, NO_SUCH_UNIT, "not loaded")),
        (answer_message(4, 0), BusReply(0)),
    ],
)
def test_an_answer_is_read(message: bytes, answer: BusReply) -> None:
    (read,) = Parser().feed(message)
    assert read_reply(read) == answer


@pytest.mark.parametrize(
    ("quota_us", "kept_us"),
    [(100_000, 100_000), (25_500, 26_000), (25_000, 25_000), (1, 1_000), (1_001, 2_000)],
)
def test_systemd_keeps_whole_percents(quota_us: int, kept_us: int) -> None:
    assert stored_quota_us(quota_us) == kept_us
    assert cpu_properties(None, quota_us) == [("CPUQuotaPerSecUSec", ("t", kept_us * 10))]


@settings(max_examples=30)
@given(st.integers(1, 10**9))
def test_what_systemd_keeps_is_never_less_and_hardly_more(quota_us: int) -> None:
    assert 0 <= stored_quota_us(quota_us) - quota_us < 1_000


def test_no_limit_is_infinity() -> None:
    assert limit_properties(KernelLimits(7, None, None)) == [
        ("CPUQuotaPerSecUSec", ("t", INFINITY)),
        ("CPUWeight", ("t", 7)),
        ("MemoryMax", ("t", INFINITY)),
    ]
    assert memory_properties(4096) == [("MemoryMax", ("t", 4096))]


def test_cpus_are_bits() -> None:
    assert cpu_list_properties((0, 3, 9)) == [("AllowedCPUs", ("ay", b"\x09\x02"))]


def test_a_slice_stands_in_those_its_name_begins_with() -> None:
    name = slice_name("livesize", "node-1.lab", "pod0-1")
    assert name == "livesize-node_1.lab-pod0_1.slice"
    assert slice_path(name) == (
        "livesize.slice/livesize-node_1.lab.slice/livesize-node_1.lab-pod0_1.slice"
    )


@contextlib.asynccontextmanager
async def stand_in(path: Path, answers: Callable[[int], bytes]) -> AsyncIterator[list[Message]]:
    """Something that speaks like systemd; ``answers`` gets the number of the call, from 0. An
    empty answer hangs up."""
    calls: list[Message] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"BEGIN\r\n")
        writer.write(b"OK 00\r\n")
        parser = Parser()
        while not (found := parser.feed(await reader.read(4096))):
            pass
        calls.extend(found)
        writer.write(answers(len(calls) - 1))
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        yield calls


async def test_a_call_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    socket = tmp_path / "private"
    signal = answer_message(4, 0)

    def answers(call: int) -> bytes:
        return b"" if call < 2 else signal + answer_message(2, 1)

    async with stand_in(socket, answers) as calls:
        assert await Systemd(SystemClock(), socket).stop("a.slice")
        assert [call.header.fields[HeaderFields.member] for call in calls] == ["StopUnit"] * 3
        assert calls[0].body == ("a.slice", "replace")


async def test_a_refusal_is_told_in_systemds_words(tmp_path: Path) -> None:
    socket = tmp_path / "private"
    refusal = answer_message(3, 1, "x.Bad", "no such property")
    async with stand_in(socket, lambda _: refusal) as calls:
        with pytest.raises(RuntimeCallError, match=r"MemoryMax of a\.slice: no such"):
            await Systemd(SystemClock(), socket).set_properties("a.slice", memory_properties(1))
        assert calls[0].body == ("a.slice", True, [("MemoryMax", ("t", 1))])
    async with stand_in(socket, lambda _: answer_message(3, 1, NO_SUCH_UNIT, "not loaded")):
        assert not await Systemd(SystemClock(), socket).stop("a.slice")

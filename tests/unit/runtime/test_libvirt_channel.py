"""The line on which a guest speaks: answers, unasked reports, silence, and nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from livesize.guest_images.cpio import CpioFile
from livesize.guest_images.vm_guest import guest_recipe
from livesize.runtime.guest_channels import AGENT_CHANNEL, CHANNEL
from livesize.runtime.libvirt.guest_bounds import (
    GuestLimits,
    GuestReport,
    ImplausibleReportError,
    memory_by_node,
)
from livesize.runtime.libvirt.guest_channel import GuestChannel
from livesize.runtime.oci import find_static_busybox

LIMITS = GuestLimits(max_vcpus=6, max_memory_bytes=2 << 30)


def line(number: int, **changes: object) -> bytes:
    report = {
        "id": number,
        "online": "0-1",
        "memTotal": 413216,
        "available": 378612,
        "nodes": {"0": 413216},
        "uptime": 5.12,
        "bootId": "b",
        **changes,
    }
    return json.dumps(report).encode() + b"\n"


class Guest:
    """QEMU's end of the line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reports: list[GuestReport] = []
        self.closed = asyncio.Event()
        self.connected = asyncio.Event()
        self.dropped: list[str] = []
        self.channel = GuestChannel(
            LIMITS, self.reports.append, self.closed.set, self.dropped.append
        )

    async def open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.server = await asyncio.start_unix_server(self._serve, path="x")
        self.channel.open(self.path)
        await self.connected.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.connected.set()

    async def close(self) -> None:
        self.channel.close()
        self.writer.close()
        with contextlib.suppress(OSError):  # it may be in the middle of a word
            await self.writer.wait_closed()
        self.server.close()


@pytest.fixture
async def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Guest]:
    folder = tmp_path / ("long-" * 20)  # a socket's own path would be too long for the kernel
    folder.mkdir()
    monkeypatch.chdir(folder)
    opened = Guest(folder / "x")
    await opened.open()
    yield opened
    await opened.close()


async def test_a_question_is_answered(guest: Guest) -> None:
    asking = asyncio.get_running_loop().create_task(guest.channel.ask(5))
    assert await guest.reader.readline() == b"report 1\n"
    guest.writer.write(line(1))
    report = await asking
    assert report is not None
    assert (report.online, report.mem_total, report.boot_id) == ("0-1", 413216, "b")
    assert not guest.channel.is_silent


async def test_an_unasked_report_is_handed_on_and_answers_nobody(guest: Guest) -> None:
    asking = asyncio.get_running_loop().create_task(guest.channel.ask(0.05))
    guest.writer.write(line(0, online="0"))
    assert await asking is None
    assert [report.online for report in guest.reports] == ["0"]


async def test_a_guest_that_does_not_answer_is_silent_until_it_speaks(guest: Guest) -> None:
    assert await guest.channel.ask(0.02) is None
    assert guest.channel.is_silent
    guest.writer.write(line(0))
    async with asyncio.timeout(5):
        while guest.channel.is_silent:
            await asyncio.sleep(0.001)


async def test_nonsense_is_dropped_and_what_follows_is_heard(guest: Guest) -> None:
    for words in (b"\xff\xfe\n", b"{}\n", b'{"id":"x"}\n', b"x" * 200_000, b"\n"):
        guest.writer.write(words)
    guest.writer.write(line(0))
    async with asyncio.timeout(5):
        while not guest.reports:
            await asyncio.sleep(0.001)
    assert len(guest.reports) == 1


async def test_a_report_in_pieces_is_put_together(guest: Guest) -> None:
    whole = line(0)
    for piece in (whole[:7], whole[7:50], whole[50:]):
        guest.writer.write(piece)
        await guest.writer.drain()
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        while not guest.reports:
            await asyncio.sleep(0.001)


async def test_the_end_of_qemu_ends_a_question(guest: Guest) -> None:
    asking = asyncio.get_running_loop().create_task(guest.channel.ask(30))
    await guest.reader.readline()
    guest.writer.close()
    assert await asking is None
    assert guest.closed.is_set()
    assert not guest.channel.is_open


async def test_nobody_there_is_an_error(tmp_path: Path) -> None:
    channel = GuestChannel(LIMITS, lambda _: None, lambda: None, lambda _: None)
    with pytest.raises(OSError, match="No such file"):
        channel.open(tmp_path / "nobody")
    assert await channel.ask(1) is None


def test_memory_is_that_of_each_node_of_the_domain() -> None:
    two = msgspec.structs.replace(LIMITS, cells=2)
    assert memory_by_node({"1": 3, "0": 2}, two) == (2048, 3072)
    assert memory_by_node({"1": 3}, two) == (0, 3072)
    assert memory_by_node({}, two) == (), "a guest without NUMA does not say"
    with pytest.raises(ImplausibleReportError, match="have"):
        memory_by_node({"0": 1 << 20, "1": (1 << 20) + 1}, two)


def test_what_the_guests_own_script_says_is_understood(tmp_path: Path) -> None:
    """The script of the guest, run by the same shell, on this machine's own files."""
    entry = guest_recipe({}).entries["usr/lib/livesize/report"]
    assert isinstance(entry, CpioFile)
    script = tmp_path / "report"
    script.write_bytes(entry.content)
    said = subprocess.run(
        [str(find_static_busybox()), "sh", "-c", f". {script}; report 7"],
        capture_output=True,
        check=True,
    ).stdout
    report = msgspec.json.decode(said, type=GuestReport)
    assert report.id == 7
    assert report.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert 0 < report.available <= report.mem_total


def test_the_guest_has_every_script_it_calls() -> None:
    recipe = guest_recipe({"usr/sbin/qemu-ga": CpioFile(b"agent", 0o755)})
    assert recipe.entries["usr/sbin/qemu-ga"] == CpioFile(b"agent", 0o755)
    text = b"".join(
        entry.content for entry in recipe.entries.values() if isinstance(entry, CpioFile)
    )
    called = set(re.findall(r"/(usr/lib/livesize/\w+)", text.decode()))
    assert called
    assert called <= set(recipe.entries)
    assert b"@CHANNEL@" not in text
    assert {CHANNEL.encode(), AGENT_CHANNEL.encode()} <= set(re.findall(rb"[\w.]+\.0", text))


async def dropped(guest: Guest) -> str:
    async with asyncio.timeout(5):
        while not guest.dropped:
            await asyncio.sleep(0.001)
    return guest.dropped[-1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"online": "0-9999999"}, "'0-9999999', and its domain can have 6", id="CPUs"),
        pytest.param({"online": "0-5," * 4000}, "names the CPUs", id="the same over and over"),
        pytest.param({"online": "6"}, "names the CPUs '6'", id="one that it cannot have"),
        pytest.param({"online": "zero"}, "names the CPUs 'zero'", id="no CPUs"),
        pytest.param({"memTotal": 1 << 40}, "bytes of memory, and its domain can", id="memory"),
        pytest.param({"memTotal": 10**4298}, "'{", id="more digits than Python shows"),
        pytest.param({"nodes": {"0": 10**4299}}, "'{", id="a node of so many digits"),
        pytest.param({"memTotal": -5}, "bytes of memory, and its domain can", id="less than none"),
        pytest.param({"memTotal": 0}, "bytes of memory, and its domain can", id="no memory"),
        pytest.param({"available": 413217}, "bytes are available", id="more than it has"),
        pytest.param({"available": -1}, "bytes are available", id="less than nothing"),
        pytest.param({"uptime": 1e300}, "up for", id="time"),
        pytest.param({"uptime": -1}, "up for", id="before it began"),
        pytest.param({"bootId": "b" * 65}, "its boot id is", id="a long name"),
        pytest.param({"bootId": "\u001b[2J"}, r"its boot id is '\x1b[2J'", id="escapes"),
        pytest.param({"bootId": ""}, "its boot id is ''", id="no boot"),
        pytest.param(
            {"nodes": {str(number): 1 for number in range(65)}}, "names 65 NUMA nodes", id="nodes"
        ),
        pytest.param({"nodes": {"1": 5}}, "the NUMA node '1', and its domain has 1", id="a node"),
        pytest.param({"nodes": {"-1": 5}}, "names the NUMA node '-1'", id="a node below none"),
        pytest.param({"nodes": {"9" * 5000: 5}}, "names the NUMA node '999", id="a long node"),
        pytest.param({"nodes": {"0": -1}}, "its NUMA nodes have", id="a node of less than none"),
        pytest.param({"nodes": {"0": 1 << 40}}, "its NUMA nodes have", id="a large node"),
        pytest.param({"nodes": [[]] * 4000}, "it says '{", id="another shape"),
    ],
)
async def test_what_the_domain_cannot_have_is_dropped_and_said(
    guest: Guest, changes: dict[str, object], words: str
) -> None:
    guest.writer.write(line(0, **changes))
    assert words in await dropped(guest)
    assert len(guest.dropped[-1]) < 200
    guest.writer.write(line(0))
    async with asyncio.timeout(5):
        while not guest.reports:
            await asyncio.sleep(0.001)
    assert [report.online for report in guest.reports] == ["0-1"], "what follows is heard"


async def test_an_answer_that_does_not_fit_is_no_answer_and_not_waited_for(guest: Guest) -> None:
    asking = asyncio.get_running_loop().create_task(guest.channel.ask(30))
    await guest.reader.readline()
    guest.writer.write(line(1, online="0-9999999"))
    async with asyncio.timeout(5):
        assert await asking is None
    assert guest.channel.last is None


async def test_deep_nesting_is_dropped(guest: Guest) -> None:
    guest.writer.write(b'{"nodes":' + b"[" * 8000 + b"\n")
    assert "it says '{" in await dropped(guest)


async def test_a_guest_that_talks_without_end_is_not_listened_to(guest: Guest) -> None:
    """The kernel holds it up instead, and others on the loop go on."""
    flood = line(0) * 2000
    guest.writer.write(flood)
    words = await dropped(guest)
    assert "more than it can have to say" in words
    heard = len(guest.reports)
    assert heard < 1000
    await asyncio.sleep(0.05)
    assert len(guest.reports) == heard
    guest.writer.transport.abort()


async def test_a_line_without_end_is_dropped(guest: Guest) -> None:
    guest.writer.write(b"x" * 100_000)
    assert "bytes in one line" in await dropped(guest)

"""The line on which a guest speaks: answers, unasked reports, silence, and nonsense."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from livesize.runtime.guest.cpio import File
from livesize.runtime.guest.vm_guest import AGENT_CHANNEL, CHANNEL, guest_recipe
from livesize.runtime.libvirt.guest_channel import GuestChannel, GuestReport
from livesize.runtime.oci import find_static_busybox


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
        self.channel = GuestChannel(self.reports.append, self.closed.set)

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
    channel = GuestChannel(lambda _: None, lambda: None)
    with pytest.raises(OSError, match="No such file"):
        channel.open(tmp_path / "nobody")
    assert await channel.ask(1) is None


def test_what_the_guests_own_script_says_is_understood(tmp_path: Path) -> None:
    """The script of the guest, run by the same shell, on this machine's own files."""
    entry = guest_recipe({}).entries["usr/lib/livesize/report"]
    assert isinstance(entry, File)
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
    recipe = guest_recipe({"usr/sbin/qemu-ga": File(b"agent", 0o755)})
    assert recipe.entries["usr/sbin/qemu-ga"] == File(b"agent", 0o755)
    text = b"".join(entry.content for entry in recipe.entries.values() if isinstance(entry, File))
    called = set(re.findall(r"/(usr/lib/livesize/\w+)", text.decode()))
    assert called
    assert called <= set(recipe.entries)
    assert b"@CHANNEL@" not in text
    assert {CHANNEL.encode(), AGENT_CHANNEL.encode()} <= set(re.findall(rb"[\w.]+\.0", text))

"""kubectl threw away the first words of a command: it reads from a new session before it has made
its streams, and ours were there with the answer itself."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from livesize.agent.endpoint.server import LISTENING_SECONDS
from livesize.api.channels import parse_end
from livesize.machinery.clock import SystemClock
from unit.agent.test_endpoint import serve


class HeldClock(SystemClock):
    """The moment in which a client makes its streams lasts until ``go_on``."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds == LISTENING_SECONDS:
            await self.go_on.wait()
        else:
            await super().sleep(seconds)


@pytest.mark.parametrize(
    ("command", "words", "end"),
    [
        pytest.param("fails", b"\x01said\n", (3, ""), id="what it says"),
        pytest.param("missing", b"", (1, "the image has no program 'missing'"), id="why it cannot"),
    ],
)
async def test_nothing_is_said_before_the_client_listens(
    tmp_path: Path, command: str, words: bytes, end: tuple[int, str]
) -> None:
    clock = HeldClock()
    async for node in serve(tmp_path / "s", {os.geteuid()}, clock):
        async with node.switched(f"/exec/u-1/app?command={command}&stdout=1&stderr=1") as session:
            first = asyncio.ensure_future(session.receive_bytes())
            done, _ = await asyncio.wait([first], timeout=0.1)
            assert not done
            clock.go_on.set()
            heard = [await first, *[message.data async for message in session]]
    assert not words or words in heard
    code, why = parse_end(heard[-1][1:])
    assert code == end[0]
    assert end[1] in why

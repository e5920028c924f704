"""Asks systemd by its private socket, which is there wherever it is the first process.

No message bus is needed. Each call has a connection of its own: systemd drops them when it is
started anew (daemon-reexec), and is away for a moment when it reads its units again. Every call
here may be made twice, so one that was cut off is made again.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, TypeAlias

from jeepney.low_level import Parser

from livesize.machinery.clock import Clock
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.systemd.messages import BusReply, Variant, encode_call, read_reply

Property: TypeAlias = tuple[str, Variant]

PRIVATE_SOCKET = Path("/run/systemd/private")
_SERIAL = 1
_PART_BYTES = 64 * 1024
_SECONDS = 30.0
_AGAIN_SECONDS = (0.02, 0.1, 0.5, 2.0)
_NAME = "org.freedesktop.systemd1"
_EXISTS, _UNKNOWN = f"{_NAME}.UnitExists", f"{_NAME}.NoSuchUnit"


class Systemd:
    def __init__(self, clock: Clock, socket: Path = PRIVATE_SOCKET) -> None:
        self._clock = clock
        self._socket = socket

    async def start_transient(self, unit: str, properties: list[Property]) -> bool:
        """False: there is such a unit already, and it was left as it is."""
        others: list[Any] = []
        body = (unit, "replace", properties, others)
        answer = await self._ask("StartTransientUnit", "ssa(sv)a(sa(sv))", *body)
        return _check(f"start {unit}", answer, _EXISTS)

    async def set_properties(self, unit: str, properties: list[Property]) -> None:
        """Until the machine is started anew."""
        answer = await self._ask("SetUnitProperties", "sba(sv)", unit, True, properties)
        _check(f"set {', '.join(name for name, _ in properties)} of {unit}", answer)

    async def stop(self, unit: str) -> bool:
        """False: there is no such unit."""
        answer = await self._ask("StopUnit", "ss", unit, "replace")
        return _check(f"stop {unit}", answer, _UNKNOWN)

    async def _ask(self, member: str, signature: str, *body: Any) -> BusReply:
        call = encode_call(member, signature, body, _SERIAL)
        problem = ""
        for pause_seconds in _AGAIN_SECONDS:
            try:
                return await self._ask_once(call)
            except TimeoutError:
                problem = f"{member} was not done in {_SECONDS:.0f} s"
                break
            except (OSError, EOFError) as failure:
                problem = str(failure) or "it hung up"
                await self._clock.sleep(pause_seconds)
        raise RuntimeCallError(f"systemd does not answer at {self._socket}: {problem}")

    async def _ask_once(self, call: bytes) -> BusReply:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_unix_connection(self._socket)
            try:
                await _introduce(reader, writer)
                writer.write(call)
                await writer.drain()
                return await _answer(reader)
            finally:
                writer.close()


async def _introduce(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Who we are, the kernel says; we only name it. All at once, and nothing more before the
    answer: a call that arrives together with BEGIN may lie there until something else comes."""
    user = str(os.geteuid()).encode().hex()
    writer.write(f"\0AUTH EXTERNAL {user}\r\nBEGIN\r\n".encode())
    await writer.drain()
    line = await reader.readline()
    if not line.startswith(b"OK"):
        raise ConnectionError(f"systemd does not let us in: {line.decode(errors='replace')}")


async def _answer(reader: asyncio.StreamReader) -> BusReply:
    parser = Parser()
    while True:
        while (message := parser.get_next_message()) is not None:
            answer = read_reply(message)
            if answer.serial == _SERIAL:
                return answer
        part = await reader.read(_PART_BYTES)
        if not part:
            raise EOFError
        parser.add_data(part)


def _check(what: str, answer: BusReply, *expected: str) -> bool:
    """Whether it was done; an error that is not ``expected`` is raised."""
    if not answer.error:
        return True
    if answer.error in expected:
        return False
    raise RuntimeCallError(f"systemd did not {what}: {answer.words or answer.error}")

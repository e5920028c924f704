"""Reading from and writing to pipes and terminals without blocking the event loop.

Nothing is buffered here: who does not read lets the pipe fill, and the writer waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

PIECE_BYTES = 32 * 1024


def read_piece(descriptor: int) -> bytes | None:
    """What is there; None where nothing is yet, empty at the end."""
    try:
        return os.read(descriptor, PIECE_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""  # EIO: nobody has the other side of a terminal any more


async def wait_readable(descriptors: Iterable[int], ended: asyncio.Event) -> None:
    """Until one of them has something, or ``ended`` is set."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not readable.done():
            readable.set_result(None)

    watched = list(descriptors)
    for descriptor in watched:
        loop.add_reader(descriptor, tell)
    try:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(ended.wait())
            waiting.add_done_callback(lambda _: tell())
            await readable
            waiting.cancel()
    finally:
        for descriptor in watched:
            loop.remove_reader(descriptor)


async def write_all(descriptor: int, data: bytes) -> bool:
    """False: nobody reads it any more."""
    loop = asyncio.get_running_loop()
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            writable = asyncio.Event()
            loop.add_writer(descriptor, writable.set)
            try:
                await writable.wait()
            finally:
                loop.remove_writer(descriptor)
        except OSError:
            return False
    return True

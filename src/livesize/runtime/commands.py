"""Short commands in containers: run to their end, within a time, and what they said."""

from __future__ import annotations

import asyncio

from livesize.runtime.interface import CommandResult, CommandTimeoutError
from livesize.runtime.streams import STDERR, STDOUT, Session

_MOST_BYTES = 64 * 1024


def with_variables(command: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """CRI knows no variables for a command: the image's own ``env`` sets them."""
    return ("env", *(f"{name}={value}" for name, value in env), *command) if env else command


async def run_to_end(
    session: Session, command: tuple[str, ...], timeout_seconds: float
) -> CommandResult:
    """``session`` is closed in any case. Of what it says the end is kept: one that never stops
    talking fills no memory."""
    said = {STDOUT: b"", STDERR: b""}
    try:
        async with asyncio.timeout(timeout_seconds):
            async for piece in session.output():
                said[piece.stream] = (said[piece.stream] + piece.data)[-_MOST_BYTES:]
            exit_code = await session.exit_code()
    except TimeoutError as failure:
        raise CommandTimeoutError(
            f"{command[0]} did not end within {timeout_seconds:g} s"
        ) from failure
    finally:
        await session.close()
    return CommandResult(exit_code, (said[STDOUT] + said[STDERR]).decode(errors="replace"))

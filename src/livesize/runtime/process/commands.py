"""Runs short commands in containers of the process runtime, and collects what they say."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from livesize.runtime.interface import (
    CommandResult,
    CommandTimeoutError,
    GoneError,
    RuntimeCallError,
)
from livesize.runtime.process.container import Container

_KEPT_BYTES = 64 * 1024
_CANNOT_RUN = "livesize: cannot run: "


async def run_command(
    program: Path,
    container: Container,
    command: tuple[str, ...],
    env: tuple[tuple[str, str], ...],
    timeout_seconds: float,
) -> CommandResult:
    """``program``: the compiled beside.py."""
    workload = container.attempt.workload()
    if workload is None or not container.is_running:
        raise GoneError(f"container {container.record.config.name} does not run")
    variables = [f"{name}={value}" for name, value in env]
    where = (str(container.attempt.launch), str(workload.pid), str(workload.start_ticks))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(program), *where),
        *(str(len(variables)), *variables, *command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(timeout_seconds):
            output = await _tail(process.stdout)
            exit_code = await process.wait()
    except TimeoutError as failure:
        raise CommandTimeoutError(
            f"{command[0]} did not end within {timeout_seconds:g} s"
        ) from failure
    finally:
        if process.returncode is None:
            process.kill()  # and what it has started goes with it
            await process.wait()
    text = output.decode(errors="replace")
    if text.startswith(_CANNOT_RUN):
        raise RuntimeCallError(f"cannot run {command[0]}: {text.removeprefix(_CANNOT_RUN).strip()}")
    return CommandResult(exit_code, text)


async def _tail(stream: asyncio.StreamReader) -> bytes:
    """The end of it; a command that never stops talking fills no memory."""
    kept = b""
    while piece := await stream.read(_KEPT_BYTES):
        kept = (kept + piece)[-_KEPT_BYTES:]
    return kept

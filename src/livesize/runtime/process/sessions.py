"""Processes beside a container's first, and the first one itself, as a session (streams.py)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import struct
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from livesize.runtime.descriptors import read_piece, wait_readable, write_all
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.logs.raw import read_raw
from livesize.runtime.logs.rotation import LogRotation
from livesize.runtime.process.container import ProcessContainer
from livesize.runtime.process.interpreter import Interpreter
from livesize.runtime.process.records import WorkloadPid
from livesize.runtime.process.shim import parse_report
from livesize.runtime.streams import STDERR, STDOUT, ExecRequest, LogQuery, NotRunningError, Output

START_SECONDS = 30.0
END_SECONDS = 5.0
"""What a session leaves behind has so long to end after SIGTERM."""
_MOST_TOLD = 4096


class _Ends(msgspec.Struct, frozen=True):
    """Our ends of what a process is connected to; -1: there is none."""

    stdin: int
    outputs: dict[int, int]  # descriptor to stream
    terminal: int = -1


class ProcessExecSession:
    def __init__(self, pid: int, ends: _Ends) -> None:
        self._pid = pid
        self._ends = ends
        self._stdin = ends.stdin
        self._ended = asyncio.Event()
        self._exit_code = 0
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    async def output(self) -> AsyncIterator[Output]:
        """What a process that has ended left to others does not keep the session open."""
        sources = dict(self._ends.outputs)
        while sources:
            has_ended, silent = self._ended.is_set(), True
            for descriptor, stream in list(sources.items()):
                piece = read_piece(descriptor)
                if piece is None:
                    continue
                silent = False
                if piece:
                    yield Output(stream, piece)
                else:
                    del sources[descriptor]
            if silent:
                if has_ended:
                    return
                await wait_readable(sources, self._ended)

    async def write(self, data: bytes) -> None:
        if self._stdin >= 0 and not await write_all(self._stdin, data):
            await self.end_input()

    async def end_input(self) -> None:
        """A terminal's end of input is a character that its user types."""
        if self._stdin >= 0 and self._stdin != self._ends.terminal:
            os.close(self._stdin)
        self._stdin = -1

    def resize(self, width: int, height: int) -> None:
        if self._ends.terminal >= 0:
            size = struct.pack("HHHH", height, width, 0, 0)
            fcntl.ioctl(self._ends.terminal, termios.TIOCSWINSZ, size)

    async def exit_code(self) -> int:
        await self._ended.wait()
        return self._exit_code

    async def close(self) -> None:
        await self.end_input()
        for descriptor in {*self._ends.outputs, self._ends.terminal} - {-1}:
            os.close(descriptor)
        self._ends = _Ends(-1, {})
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._ended.is_set():
                return
            os.kill(self._pid, number)  # it is our child, and not reaped yet
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self._ended.wait()

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._exit_code = 128 - code if code < 0 else code
        self._ended.set()


class AttachSession:
    """What the container writes from now on, and its stdin where it has one (shim.py). That has no
    end: it waits for whoever is attached next."""

    def __init__(self, container: ProcessContainer, rotation: LogRotation, *, stdin: bool) -> None:
        self._container = container
        self._rotation = rotation
        self._stdin = _open_stdin(container) if stdin else -1

    async def output(self) -> AsyncIterator[Output]:
        container = self._container
        config, log = container.record.config, container.attempt.log
        growth = self._rotation.following(log, lambda: container.is_running)
        query = LogQuery(config.pod_uid, config.name, tail_lines=0)
        async with contextlib.aclosing(read_raw(log, query, growth)) as pieces:
            async for lines in pieces:
                if lines:
                    yield Output(STDOUT, b"".join(line.data for line in lines))

    async def write(self, data: bytes) -> None:
        if self._stdin >= 0:
            await write_all(self._stdin, data)

    async def end_input(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def resize(self, width: int, height: int) -> None:
        """It has no terminal."""

    async def exit_code(self) -> int:
        await self._container.ended.wait()
        return self._container.view().exit_code or 0

    async def close(self) -> None:
        """The container goes on."""
        await self.end_input()


def _open_stdin(container: ProcessContainer) -> int:
    try:
        return os.open(container.attempt.stdin, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        name = container.record.config.name
        raise RuntimeCallError(f"container {name} was started without stdin: true") from None


async def start_exec(
    container: ProcessContainer, request: ExecRequest, entrance: Path, interpreter: Interpreter
) -> ProcessExecSession:
    """``entrance``: enter.py, compiled (shim.py)."""
    workload = container.attempt.workload()
    if workload is None or not container.is_running:
        raise NotRunningError(f"container {request.container} does not run")
    python = interpreter.command(interpreter.descriptor, entrance)
    spawned = _Spawned(request)
    try:
        arguments = (*python, *_enter_arguments(container, request, workload))
        spawned.spawn(arguments, interpreter.environment)
        async with asyncio.timeout(START_SECONDS):
            terminal = await spawned.report()
    except TimeoutError:
        spawned.give_up()
        raise RuntimeCallError(
            f"{request.command[0]} did not start within {START_SECONDS:.0f} s"
        ) from None
    except OSError as failure:
        spawned.give_up()
        raise RuntimeCallError(f"cannot run the command: {failure.strerror}") from failure
    except BaseException:
        spawned.give_up()
        raise
    return spawned.session(terminal)


def _enter_arguments(
    container: ProcessContainer, request: ExecRequest, workload: WorkloadPid
) -> tuple[str, ...]:
    first = (str(workload.pid), str(workload.start_ticks))
    tty = "1" if request.tty else "0"
    return (str(container.attempt.launch), *first, "3", tty, *request.command)


class _Spawned:
    """One start of the entrance: the ends of its pipes, ours and its own."""

    def __init__(self, request: ExecRequest) -> None:
        self._tty = request.tty
        self._ours: list[int] = []
        self._theirs: list[int] = []
        self._channel, self._their_channel = socket.socketpair()
        self._channel.setblocking(False)
        self._pid = 0
        wants_pipe = not request.tty
        self._stdin = self._pipe(0) if request.stdin and wants_pipe else -1
        self._stdout = self._pipe(1) if wants_pipe else -1
        self._stderr = self._pipe(1) if wants_pipe else -1

    def spawn(self, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._theirs.append(null)
        pipes = iter(self._theirs)
        sources = [
            next(pipes) if ours >= 0 else null for ours in (self._stdin, self._stdout, self._stderr)
        ]
        channel = self._their_channel.fileno()
        # Above what they become: one must not be overwritten before it is copied.
        high = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in (*sources, channel)]
        self._theirs += high
        self._pid = os.posix_spawn(
            arguments[0],
            arguments,
            {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", **environment},
            file_actions=[(os.POSIX_SPAWN_DUP2, one, place) for place, one in enumerate(high)],
            setsid=True,
        )
        for descriptor in self._theirs:
            os.close(descriptor)
        self._theirs = []
        self._their_channel.close()

    async def report(self) -> int:
        """The terminal, or -1; raises what kept it from starting."""
        received, terminal = b"", -1
        while len(received) < _MOST_TOLD:
            piece, descriptors, _, _ = await self._receive()
            for terminal in descriptors:
                self._ours.append(terminal)
            if not piece:
                break
            received += piece
        report = parse_report(received)
        if not report.started:
            raise RuntimeCallError(report.error or "it ended before it began, without a word")
        return terminal

    def session(self, terminal: int) -> ProcessExecSession:
        self._channel.close()
        for descriptor in self._ours:
            os.set_blocking(descriptor, False)
        if self._tty:
            return ProcessExecSession(self._pid, _Ends(terminal, {terminal: STDOUT}, terminal))
        outputs = {self._stdout: STDOUT, self._stderr: STDERR}
        return ProcessExecSession(self._pid, _Ends(self._stdin, outputs))

    def give_up(self) -> None:
        self._channel.close()
        self._their_channel.close()
        for descriptor in (*self._ours, *self._theirs):
            os.close(descriptor)
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    async def _receive(self) -> tuple[bytes, list[int], int, object]:
        while True:
            try:
                return socket.recv_fds(self._channel, _MOST_TOLD, 1, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                await wait_readable([self._channel.fileno()], asyncio.Event())

    def _pipe(self, ours: int) -> int:
        """A pipe of which we keep the end ``ours``: 0 to write, 1 to read."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        kept, given = (writing, reading) if ours == 0 else (reading, writing)
        self._ours.append(kept)
        self._theirs.append(given)
        return kept

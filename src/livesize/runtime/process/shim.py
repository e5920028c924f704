"""Starts a container below a small shell that outlives the agent and notes how it ended.

agent → shim (sh, a session of its own, whose children get a new pid namespace) → launcher, which
becomes the workload. The shim stays outside the container's groups, so it is neither charged nor
killed with it. ``unshare --fork`` is not used: it cannot tell SIGKILL from exit status 1
(util-linux 2.38), and would be one process more for each container.
"""

from __future__ import annotations

import asyncio
import os
import py_compile
from pathlib import Path

import msgspec

from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.process.interpreter import Interpreter
from livesize.runtime.process.records import ContainerAttempt

# The shell's first child is the first process of the new pid namespace, and the shell cannot fork
# again after that one has ended: what follows uses builtins only. The status counts when its line
# is whole. A fifo that is open for both directions has no end: what is attached to it may go and
# another come. The shell's own remarks ("Killed") do not belong into the workload's log.
_SCRIPT = """
folder=$1; shift
cd /
trap : HUP INT TERM
printf '%s\\n' "$$" > "$folder/shim" || exit 125
if [ -p "$folder/stdin" ]; then exec 0<>"$folder/stdin"; fi
exec 3>&2 2>/dev/null
"$@" 2>&3 3>&-
printf '%s\\n' "$?" > "$folder/exit"
"""
_INTERPRETER = 9  # as the shell's children know it; a shell uses those above for itself
_SCRIPTS = ("launch.py", "container_users.py", "enter.py")
ENTRANCE = "enter.pyc"
"""Where compile_launcher puts it."""


class LaunchReport(msgspec.Struct, frozen=True):
    """What the launcher said before it became the workload, or could not."""

    started: bool = False
    notes: tuple[str, ...] = ()
    error: str = ""


class ReadyChannel:
    """The reading end of the launcher's fifo. It is the launcher alone that opens the other end,
    and it closes by itself when the command is executed."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path, 0o600)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._received = b""
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[LaunchReport] = self._loop.create_future()
        self._loop.add_reader(self._descriptor, self._readable)

    async def report(self) -> LaunchReport:
        return await self._done

    def shim_ended(self) -> None:
        """Nobody will speak any more; what was said counts."""
        self._readable()
        self._finish()

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _readable(self) -> None:
        while self._descriptor >= 0:
            try:
                chunk = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return
            if not chunk:
                self._finish()
                return
            self._received += chunk

    def _finish(self) -> None:
        self.close()
        if not self._done.done():
            self._done.set_result(parse_report(self._received))


def parse_report(received: bytes) -> LaunchReport:
    """Lines of a word and a sentence (launch.py); an error outweighs an earlier start."""
    started, notes, error = False, [], ""
    for line in received.decode(errors="replace").splitlines():
        word, _, sentence = line.partition(" ")
        if word == "started":
            started = True
        elif word == "note":
            notes.append(sentence)
        elif word == "error":
            error = sentence
    return LaunchReport(started and not error, tuple(notes), error)


def compile_launcher(folder: Path) -> Path:
    """Python compiles a script each time it is run, which takes longer than the rest of it."""
    for script in (Path(__file__).with_name(name) for name in _SCRIPTS):
        py_compile.compile(str(script), cfile=str(folder / f"{script.stem}.pyc"), doraise=True)
    return folder / "launch.pyc"


def spawn_shim(attempt: ContainerAttempt, launcher: Path, interpreter: Interpreter) -> int:
    """Start the shim; returns its pid. The agent itself is not forked (posix_spawn)."""
    shell = ("/bin/sh", "-c", _SCRIPT, "livesize-shim", str(attempt.folder))
    launch = (*interpreter.command(_INTERPRETER, launcher), str(attempt.launch))
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    path = os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    try:
        return os.posix_spawnp(
            "unshare",
            ("unshare", "--pid", "--", *shell, *launch),
            {"PATH": path, "LC_ALL": "C.UTF-8", **interpreter.environment},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, interpreter.descriptor, _INTERPRETER),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(attempt.log), append, 0o640),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
    except OSError as failure:
        raise RuntimeCallError(
            f"cannot run unshare, of the package util-linux: {failure.strerror}"
        ) from failure

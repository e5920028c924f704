"""Has mmdebstrap install a Debian into a folder, for a bounded time, and says how far it is.

mmdebstrap leaves all of it to apt, which checks every signature. Where this machine does not have
it, its package is downloaded and unpacked below the cache, as the guest's kernel is, and not
installed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from livesize.guest_images.apt_mirrors import Suite
from livesize.guest_images.debian import ARCHITECTURE, Distribution
from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.kernel import Package, show_package, unpack_into
from livesize.guest_images.tools import lacks, run_tool, tool_environment

BOOTSTRAP_SECONDS = 1800
_END_SECONDS = 10
_TOOL = "mmdebstrap"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_KEPT_LINES = 12
_PROXIES = "apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy"

Report: TypeAlias = Callable[[str], None]
"""Called with a sentence whenever there is something new."""


def find_mmdebstrap(cache_dir: Path) -> list[str]:
    """The command to begin with."""
    installed = shutil.which(_TOOL, path=tool_environment()["PATH"])
    if installed:
        return [installed]
    fields = show_package(_TOOL)
    if fields is None:
        raise GuestImageError(
            f"Debian guests need {_TOOL}, and apt does not know it; as root, run apt-get update"
        )
    folder = cache_dir / "tools" / f"{_TOOL}-{fields['SHA256'][:24]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        package = Package(_TOOL, fields["Version"], fields["SHA256"])
        unpack_into(folder, (package,), _checked_tool)
    return ["perl", str(_checked_tool(folder))]


def bootstrap(
    tool: list[str],
    distribution: Distribution,
    suites: tuple[Suite, ...],
    tree: Path,
    report: Report,
    lock: int,
) -> None:
    """``tree`` is made. ``lock``: a descriptor that stays open as long as anything runs here, even
    where this process is killed."""
    if not _KEYRING.exists():
        raise GuestImageError(
            f"{_KEYRING} is not here: Debian's packages cannot be checked without it; as root,"
            " apt-get install debian-archive-keyring"
        )
    command = [
        *(*tool, "--verbose", "--mode=root", "--format=directory", "--variant=minbase"),
        *(f"--architectures={ARCHITECTURE}", '--aptopt=Acquire::Languages "none"'),
        *(f"--include={','.join(distribution.packages)}", distribution.codename, str(tree), "-"),
    ]
    sources = "".join(f"{suite.line}\n" for suite in suites)
    with _running(command, tree.parent, lock) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # its output says why
            process.stdin.write(sources)
            process.stdin.close()
        progress = BootstrapProgress()
        last: deque[str] = deque(maxlen=_KEPT_LINES)
        for line in process.stdout:
            last.append(line.rstrip())
            if progress.heard(line):
                report(progress.sentence)
        code = process.wait()
    if code != 0:
        raise GuestImageError(f"{_TOOL} ended with {code}: {_why(last)}")


class BootstrapProgress:
    """Counts packages in what apt and dpkg print. They come in two parts, the essential ones first;
    how many the second has is known when it begins."""

    def __init__(self) -> None:
        self.sentence = ""
        self._total = self._fetched = self._set_up = 0

    def heard(self, line: str) -> bool:
        """Whether there is something new to say."""
        before = self.sentence
        if found := _INSTALLED.search(line):
            self._total += int(found[1])
        elif self._total and line.startswith("Get:"):
            self._fetched += 1
        elif line.startswith("Setting up "):
            self._set_up += 1
        if self._total:
            self.sentence = (
                f"{self._fetched} packages fetched and {self._set_up} set up, of"
                f" {self._total} known by now"
            )
        elif line.startswith("Get:"):
            self.sentence = "apt fetches the lists of packages"
        if line.startswith("update-initramfs: Generating"):
            self.sentence += "; its first file system is made"
        return self.sentence != before


_INSTALLED = re.compile(r"^\d+ upgraded, (\d+) newly installed")


@contextlib.contextmanager
def _running(command: list[str], folder: Path, lock: int) -> Iterator[subprocess.Popen[str]]:
    """All that it starts ends with it, and when its time is up."""
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**tool_environment(), **_proxies()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=(lock,),
        )
    except FileNotFoundError as failure:
        raise GuestImageError(lacks(command[0])) from failure
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        _end(process)

    timer = threading.Timer(BOOTSTRAP_SECONDS, stop)
    timer.start()
    try:
        yield process
    except GuestImageError as failure:
        raise failure if not is_late.is_set() else _late() from failure
    finally:
        timer.cancel()
        _end(process)
    if is_late.is_set():
        raise _late()


def _late() -> GuestImageError:
    return GuestImageError(f"{_TOOL} took longer than {BOOTSTRAP_SECONDS} s")


def _end(process: subprocess.Popen[str]) -> None:
    """It puts its mounts away itself where it is given the time."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)


def _proxies() -> dict[str, str]:
    """Those that this machine's apt goes through, as everything else takes them; a folder's own
    apt does not know them."""
    lines = run_tool(_PROXIES.split(), Path("/")).splitlines()
    pairs = (line.partition("=") for line in lines)
    return {name: value.strip("'") for name, _, value in pairs if name and value}


def _checked_tool(folder: Path) -> Path:
    program = folder / "usr/bin" / _TOOL
    if not program.is_file():
        raise GuestImageError(f"{folder} holds no {_TOOL}; remove it and try again")
    return program


def _why(lines: deque[str]) -> str:
    """The errors it named, or the last it said."""
    errors = [line for line in lines if line.startswith(("E:", "dpkg: error"))]
    return " | ".join(errors or list(lines)[-3:]) or "it said nothing"

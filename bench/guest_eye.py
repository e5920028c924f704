"""What a guest sees, told by the guest itself on its console, whoever runs it.

An eye in the guest looks every 10 ms at its CPUs and its memory, and says so on its console when
they have changed. The host is woken by the write into the console's file. Nothing of it goes
through Livesize or libvirt, so that the product and the yardstick are watched alike.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from livesize.api.cpu_list import parse_cpu_list
from livesize.guest_images.cpio import CpioFile, Entry
from livesize.guest_images.guest_agent import agent_entries, fetch_agent
from livesize.guest_images.image import GuestRecipe, build_image
from livesize.guest_images.kernel import default_cache_dir, fetch_kernel
from livesize.guest_images.vm_guest import KERNEL_NAME, guest_recipe

INITRD_NAME = "bench.initrd"
_WORD = "sees"
_IN_MODIFY = 0x2
_EVENTS_BYTES = 65536

# Only what the shell can do by itself; reading from a pipe nobody writes to is its way to sleep.
_EYE = f"""\
#!/bin/sh
mkfifo /run/never
exec 4<>/run/never
while :; do
  read -r online </sys/devices/system/cpu/online
  read -r key total rest </proc/meminfo
  [ "$online $total" = "$before" ] || echo "{_WORD} $online $total" >/dev/ttyS0
  before="$online $total"
  read -r -t 0.01 rest <&4
done
""".encode()

_libc = ctypes.CDLL(None, use_errno=True)


class Seen(msgspec.Struct, frozen=True):
    vcpus: int
    memory_kib: int


def install_seeing_guest(images_dir: Path) -> None:
    """The product's own guest with an eye in it, where pods find it by name."""
    cache_dir = default_cache_dir()
    kernel = fetch_kernel(cache_dir)
    initrd = build_image(seeing_recipe(agent_entries(fetch_agent(cache_dir))), kernel, cache_dir)
    images_dir.mkdir(parents=True, exist_ok=True)
    for source, name in ((kernel.image, KERNEL_NAME), (initrd, INITRD_NAME)):
        (images_dir / name).write_bytes(source.read_bytes())
        (images_dir / name).chmod(0o644)


def seeing_recipe(agent: dict[str, Entry]) -> GuestRecipe:
    own = guest_recipe(agent)
    table = own.entries["etc/inittab"]
    assert isinstance(table, CpioFile)
    entries = {
        **own.entries,
        "etc/inittab": CpioFile(table.content + b"::respawn:/usr/lib/bench/eye\n", table.mode),
        "usr/lib/bench/eye": CpioFile(_EYE, 0o755),
    }
    return GuestRecipe("bench", own.commands, own.modules, entries)


def parse_seen(line: str) -> Seen | None:
    """None: the line is somebody else's."""
    words = line.split()
    if len(words) != 3 or words[0] != _WORD:
        return None
    try:
        return Seen(len(parse_cpu_list(words[1])), int(words[2]))
    except ValueError:
        return None


class Console:
    """Reads a console's file as it grows; ``seen`` is what the guest said last."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.seen: Seen | None = None
        self._file = path.open("rb")
        self._descriptor = descriptor
        self._rest = b""
        self._holds: Callable[[Seen], bool] = lambda _: True
        self._reached: asyncio.Future[float] | None = None

    def expect(self, holds: Callable[[Seen], bool]) -> asyncio.Future[float]:
        """A future of the moment (``time.perf_counter``) at which the guest says what holds."""
        self._holds = holds
        self._reached = asyncio.get_running_loop().create_future()
        if self.seen is not None:
            self._settle(time.perf_counter())
        return self._reached

    def look(self) -> None:
        now = time.perf_counter()
        os.read(self._descriptor, _EVENTS_BYTES)
        self.read(now)

    def read(self, now: float) -> None:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            seen = parse_seen(line.decode(errors="replace"))
            if seen is not None:
                self.seen = seen
                self._settle(now)

    def close(self) -> None:
        self._file.close()

    def _settle(self, now: float) -> None:
        waits = self._reached is not None and not self._reached.done()
        if waits and self.seen is not None and self._holds(self.seen):
            assert self._reached is not None
            self._reached.set_result(now)


@contextmanager
def watching_console(path: Path) -> Iterator[Console]:
    descriptor = _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    loop = asyncio.get_running_loop()
    try:
        _checked(_libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY))
        console = Console(path, descriptor)
        loop.add_reader(descriptor, console.look)
        try:
            console.read(time.perf_counter())
            yield console
        finally:
            loop.remove_reader(descriptor)
            console.close()
    finally:
        os.close(descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"inotify: {os.strerror(number)}")
    return result

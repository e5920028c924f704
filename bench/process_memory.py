"""How much memory a process takes, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path

import msgspec


class ProcessMemory(msgspec.Struct, frozen=True):
    """Resident, and resident with shared pages divided among those who share them."""

    rss_bytes: int
    pss_bytes: int


def read_memory(pid: int) -> ProcessMemory:
    return parse_rollup(Path(f"/proc/{pid}/smaps_rollup").read_text())


def parse_rollup(text: str) -> ProcessMemory:
    """Lines are ``Name:   NUMBER kB``; the first names the range."""
    sizes: dict[str, int] = {}
    for line in text.splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0]) * 1024
    return ProcessMemory(sizes["Rss"], sizes["Pss"])

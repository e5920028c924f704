"""A user for each VM: its QEMU, its files and its sockets are nobody else's.

One uid would make every QEMU of the node able to read the others' disks, and to trace and signal
them. Uids come from a range that systemd leaves unused (1879048192 to 2147352575), of which each
data directory has a part; which VM has which stands beside the pod's record, from before its first
start until everything of it is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Set as AbstractSet
from itertools import chain
from pathlib import Path

import msgspec

from livesize.runtime.interface import RuntimeCallError

FIRST_UID = 1_900_000_000
RANGE = 65_536
_RANGES = 3_000


class VmOwner(msgspec.Struct, frozen=True):
    """``gid`` is the VM's own too, unless it has to be the one that may use /dev/kvm; nothing of a
    VM is open to its group but folders."""

    uid: int
    gid: int


def first_uid_of(state_dir: Path) -> int:
    """Of the part that belongs to a data directory: two nodes on one machine rarely share one, and
    where they do, ``live_uids`` keeps them apart."""
    digest = hashlib.sha256(str(state_dir.absolute()).encode()).digest()
    return FIRST_UID + int.from_bytes(digest[:8], "big") % _RANGES * RANGE


def choose_uid(first: int, taken: AbstractSet[int]) -> int:
    """One that nobody has. After the newest, as long as there is one: what a VM may have left
    behind somewhere is not the next VM's."""
    own = {uid for uid in taken if first <= uid < first + RANGE}
    after = max(own, default=first - 1) + 1
    uids = chain(range(after, first + RANGE), range(first, after))
    chosen = next((uid for uid in uids if uid not in taken), None)
    if chosen is not None:
        return chosen
    raise RuntimeCallError(f"all {RANGE} uids for virtual machines of this node are in use")


def kvm_group(device: Path = Path("/dev/kvm")) -> int | None:
    """Who may use it; None: everybody, or there is none."""
    try:
        told = device.stat()
    except OSError:
        return None
    return None if told.st_mode & 0o006 == 0o006 else told.st_gid


def live_uids(proc: Path = Path("/proc")) -> set[int]:
    """Of every process of the machine."""
    found: set[int] = set()
    for folder in proc.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                found.update(parse_uids((folder / "status").read_text(errors="replace")))
    return found


def parse_uids(status: str) -> set[int]:
    """Real, effective, saved and of the file system."""
    line = next((line for line in status.splitlines() if line.startswith("Uid:")), "Uid:")
    return {int(word) for word in line.split()[1:]}


def give(path: Path, owner: VmOwner, mode: int) -> None:
    """Nobody else's, and no link to what is."""
    os.chown(path, owner.uid, owner.gid, follow_symlinks=False)
    path.chmod(mode)

"""Keeps the file a guest's console is written to from growing without end.

QEMU has the file open for appending and nobody rotates it (libvirt's own log daemon is not used),
so that it cannot be renamed: what it holds is copied aside, and it begins again from nothing. One
old copy is kept for each VM. What the guest writes between copying and cutting is lost; a guest
may also write more than ``LIMIT_BYTES`` before it is looked at again.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

LIMIT_BYTES = 8 * 1024 * 1024
OLD_NAME = "previous.log"


def is_too_long(log: str, limit_bytes: int = LIMIT_BYTES) -> bool:
    try:
        return Path(log).stat().st_size > limit_bytes
    except OSError:
        return False  # it has none yet, or goes with its pod at this moment


def cut(log: str, limit_bytes: int = LIMIT_BYTES) -> None:
    """Blocks. The last ``limit_bytes`` of it are kept aside; raises OSError."""
    path = Path(log)
    old, fresh = path.with_name(OLD_NAME), path.with_name(f"{OLD_NAME}.new")
    with path.open("r+b") as whole, fresh.open("wb") as kept:
        os.fchmod(kept.fileno(), 0o640)
        whole.seek(max(0, whole.seek(0, os.SEEK_END) - limit_bytes))
        shutil.copyfileobj(whole, kept)
        whole.truncate(0)
    fresh.rename(old)

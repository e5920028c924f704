"""The trace: one line for each event, with virtual time, who, what and the resourceVersion.

Only its digest is kept, unless a file is given: a virtual day has millions of lines.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TextIO


class Trace:
    def __init__(self, file: TextIO | None = None) -> None:
        self.lines = 0
        self._file = file
        self._digest = hashlib.sha256()

    def add(self, who: str, what: str, version: str = "") -> None:
        """``version``: the resourceVersion of the object that was written."""
        seconds = asyncio.get_running_loop().time()
        line = f"{seconds:.6f} {who} {what} {version or '-'}\n"
        self.lines += 1
        self._digest.update(line.encode())
        if self._file is not None:
            self._file.write(line)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

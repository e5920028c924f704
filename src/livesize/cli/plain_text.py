"""Makes text from objects harmless for a terminal: control characters are written out. Pure.

Whoever may write an object, or a program whose words end up in a status, could otherwise move the
cursor, change colours and titles, or make one line look like another, on the screen of an admin who
looks at it. Characters that change the direction of writing are written out for the same reason.
"""

from __future__ import annotations

import re

_UNPRINTED = "\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_IN_A_LINE = re.compile(f"[\x00-\x1f{_UNPRINTED}]")
_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f{_UNPRINTED}]")
_IN_JSON = re.compile(f"[{_UNPRINTED}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def plain(text: str) -> str:
    """For one line, a cell of a table for instance: line ends are written out too."""
    return _IN_A_LINE.sub(_written_out, text)


def plain_lines(text: str) -> str:
    """For what may have several lines."""
    return _IN_LINES.sub(_written_out, text)


def plain_json(text: str) -> str:
    """JSON that means the same: it has escapes of its own, and need not use them for all these."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _written_out(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

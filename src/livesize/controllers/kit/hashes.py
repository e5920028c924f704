"""Short names for contents, as Kubernetes gives them to revisions of templates. Pure."""

from __future__ import annotations

import msgspec

from livesize.api.objects import Object

_FNV_OFFSET, _FNV_PRIME, _BITS = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, so that no hash is a word."""


def short_hash(contents: Object, collisions: int) -> str:
    """At most 10 letters and digits: the same for equal contents and as many ``collisions``."""
    value = _FNV_OFFSET
    for byte in msgspec.json.encode([contents, collisions], order="sorted"):
        value = ((value ^ byte) * _FNV_PRIME) & _BITS
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(value))

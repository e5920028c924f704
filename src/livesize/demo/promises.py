"""What the demo promises, and how it says that a promise was not kept."""

from __future__ import annotations


class BrokenPromiseError(Exception):
    """Something the demo shows did not happen."""


def promise(holds: bool, otherwise: str) -> None:
    """Go on, or end the demo with a sentence."""
    if not holds:
        raise BrokenPromiseError(otherwise)

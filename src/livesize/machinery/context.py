"""What a component takes from the world besides its data: time, chance and new identifiers.

``main/`` makes one ``system_context()`` for a process and hands it to every component. The
simulator hands out one of its own, drawn from a seed, and the same code repeats itself exactly.
No component below ``main/`` makes a clock or a source of random numbers for itself.

Secrets do not come from here. Tokens and keys are made by the ``secrets`` module where they are
needed: nothing that can be repeated may protect a cluster.
"""

from __future__ import annotations

import os
from random import Random, SystemRandom
from typing import Protocol

import msgspec

from livesize.machinery.clock import Clock, SystemClock

# Kubernetes' letters: no vowels, so that no words appear.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Ids(Protocol):
    def uid(self) -> str: ...

    def suffix(self) -> str:
        """Five characters to end a generated name with."""
        ...


class Context(msgspec.Struct, frozen=True):
    clock: Clock
    random: Random
    ids: Ids


def system_context() -> Context:
    """The machine's own clock and entropy."""
    source = SystemRandom()
    return Context(SystemClock(), source, RandomIds(source, os.urandom))


def seeded_context(seed: int, clock: Clock) -> Context:
    """Chance and identifiers that repeat themselves; the clock is the caller's."""
    source = Random(seed)  # noqa: S311  # to repeat it is what it is for
    return Context(clock, source, RandomIds(source))


class RandomBytes(Protocol):
    def __call__(self, count: int, /) -> bytes: ...


class RandomIds:
    """``random_bytes`` is ``source.randbytes``, or a faster way to the same."""

    def __init__(self, source: Random, random_bytes: RandomBytes | None = None) -> None:
        self._source = source
        self._random_bytes = random_bytes or source.randbytes

    def uid(self) -> str:
        """As uuid.uuid4 makes them, in less than half the time."""
        drawn = bytearray(self._random_bytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40  # version 4: random
        drawn[8] = drawn[8] & 0x3F | 0x80  # of RFC 9562's variant
        text = drawn.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def suffix(self) -> str:
        return "".join(self._source.choice(_LETTERS) for _ in range(5))

"""Keeps what was read of short texts that come again and again: paths, quantities, names of labels.

Texts come from clients, who must not be able to fill the memory with them: only so many are kept,
and none that is longer than any of use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def bounded_cache(
    count: int, *, longest: int
) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """For a function of one text, whose answer depends on nothing else."""

    def keeping(function: Callable[[str], T]) -> Callable[[str], T]:
        known = functools.lru_cache(count)(function)

        @functools.wraps(function)
        def read(text: str) -> T:
            return known(text) if len(text) <= longest else function(text)

        return read

    return keeping

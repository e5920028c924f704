"""Caches what was parsed of short texts that come again and again: paths, quantities, label names.

Texts come from clients, who must not be able to fill the memory with them: a cache holds only so
many, and none that is longer than any of use.
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

    def decorate(function: Callable[[str], T]) -> Callable[[str], T]:
        cached = functools.lru_cache(count)(function)

        @functools.wraps(function)
        def read(text: str) -> T:
            return cached(text) if len(text) <= longest else function(text)

        return read

    return decorate

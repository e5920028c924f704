"""Writes in batches that grow: a refusal that meets all of them is met once, not 500 times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeVar

from livesize.api.errors import StatusError

Item = TypeVar("Item")


async def slow_start(items: Iterable[Item], write: Callable[[Item], Awaitable[object]]) -> None:
    """Write one item, then 2 at once, 4, 8 …; nothing more is begun after a batch in which a write
    failed. Raises the first failure, when its batch has ended."""
    waiting, size = iter(items), 1
    while batch := list(islice(waiting, size)):
        await at_once(batch, write)
        size *= 2


async def at_once(items: Iterable[Item], write: Callable[[Item], Awaitable[object]]) -> None:
    """Write them all; one that fails keeps none of the others from being written."""
    failures: list[StatusError | ConnectionError] = []

    async def attempt(item: Item) -> None:
        try:
            await write(item)
        except (StatusError, ConnectionError) as failure:
            failures.append(failure)

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(attempt(item))
    if failures:
        raise failures[0]

"""``await in_own_task(work)``: in a task that is not cancelled with the caller's.

What is tidied up because a task was cancelled runs within that task. There, asyncio.timeout of
Python before 3.11.4 takes the end of its time for the cancellation, and the rest is not done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def in_own_task(work: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(work)

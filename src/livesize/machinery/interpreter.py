"""Settings of the interpreter for a process that serves: it tidies up when nobody waits, and
threads take turns.

A full collection of garbage walks every object that might be some. Modules, schemas and tables are
none, but walking them takes over ten milliseconds, and whoever asked just then has to wait. What
comes and goes with a request goes by itself, because nothing of it refers to itself; but what
stays, an event for instance, counts as new until it was looked at, and looking at five thousand
takes one to five milliseconds. So that is done in a pause; in the middle of the work only where
there was no pause for long.

One thread at a time runs Python. The event loop works, and others only begin what takes the disk or
the machine long: the sooner one of them gets its turn, the sooner it is out of the way. The store's
writer takes several turns for a commit: with Python's 5 ms beside a busy loop p99 of a commit was
1.4 s, with 0.1 ms 9 ms.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

from livesize.machinery.clock import Clock

# Of objects made and not gone; how often the younger are looked at before the older.
THRESHOLDS = (20_000, 10, 10)
LOOK_SECONDS = 1.0
YOUNG_OBJECTS = 2_000
"""So many are looked at in the next pause."""
OLD_OBJECTS = 100_000
"""So many have to become old, or a quarter of those that are, before all are looked at."""
PAUSE_SECONDS = 0.004
BUSY_SHARE = 0.1
"""Of the time: who works less has a pause."""
PAUSES_LOOKED_FOR = 250
TURN_SECONDS = 0.0002
"""So long a thread waits for its turn where nobody gives way."""


def settle_interpreter() -> None:
    """Call it once, when everything is loaded and the work begins."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    sys.setswitchinterval(TURN_SECONDS)


async def collect_in_pauses(clock: Clock, worked: Callable[[], float] = time.thread_time) -> None:
    """Until cancelled. ``worked``: for how many seconds this thread has been at work."""
    old = added = 0
    while True:
        await clock.sleep(LOOK_SECONDS)
        young = gc.get_count()[0]
        if young < YOUNG_OBJECTS:
            continue
        await _pause(clock, worked)
        gc.collect(1)
        added += young
        if added > max(OLD_OBJECTS, old // 4):
            await _pause(clock, worked)
            gc.collect()
            old, added = len(gc.get_objects(generation=2)), 0


async def _pause(clock: Clock, worked: Callable[[], float]) -> None:
    """Return in a pause, or when there was none for long."""
    for _ in range(PAUSES_LOOKED_FOR):
        before = worked()
        await clock.sleep(PAUSE_SECONDS)
        if worked() - before < PAUSE_SECONDS * BUSY_SHARE:
            return

"""Settings of the interpreter for a process that serves: few collections, and threads by turns.

A full collection of garbage walks every object that might be some. Modules, schemas and tables are
none, but walking them takes over ten milliseconds, and whoever asked just then has to wait. What
comes and goes with a request goes by itself, because nothing of it refers to itself: looking for
circles after every few requests was a tenth of all the work.

One thread at a time runs Python. The event loop works, and others only begin what takes the disk or
the machine long: the sooner one of them gets its turn, the sooner it is out of the way.
"""

from __future__ import annotations

import gc
import sys

# Of objects made and not gone; how often the younger are looked at before the older.
THRESHOLDS = (5_000, 10, 10)
TURN_SECONDS = 0.0002
"""So long a thread waits for its turn where nobody gives way."""


def settle_interpreter() -> None:
    """Call it once, when everything is loaded and the work begins."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    sys.setswitchinterval(TURN_SECONDS)

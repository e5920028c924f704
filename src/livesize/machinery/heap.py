"""Tells the garbage collector that what a process has loaded by now will stay, and to come rarely.

A full collection walks every object that might be garbage. Modules, schemas and tables never are,
but walking them takes more than ten milliseconds, and whoever asked just then has to wait. What
comes and goes with a request goes by itself, because nothing of it refers to itself: looking for
circles after every few requests was a tenth of all the work.
"""

from __future__ import annotations

import gc

# Of objects made and not gone; how often the younger are looked at before the older.
THRESHOLDS = (5_000, 10, 10)


def settle_heap() -> None:
    """Call it once, when everything is loaded and the work begins."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)

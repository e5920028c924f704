"""Tells the garbage collector that what a process has loaded by now will stay.

A full collection walks every object that might be garbage. Modules, schemas and tables never are,
but walking them takes more than ten milliseconds, and whoever asked just then has to wait.
"""

from __future__ import annotations

import gc


def settle_heap() -> None:
    """Call it once, when everything is loaded and the work begins."""
    gc.collect()
    gc.freeze()

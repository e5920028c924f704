"""The names of slices, and where their groups stand. Pure.

A dash in the name of a slice stands for a level: a-b.slice stands in a.slice. Dashes of our own
names become underscores, which names of nodes and pods do not have.
"""

from __future__ import annotations

SLICE = ".slice"


def slice_name(*parts: str) -> str:
    """Of the slice at the end of this path of names."""
    return "-".join(part.replace("-", "_") for part in parts) + SLICE


def slice_path(name: str) -> str:
    """The group of a slice, below the hierarchy."""
    parts = name.removesuffix(SLICE).split("-")
    levels = ["-".join(parts[: count + 1]) for count in range(len(parts))]
    return "/".join(f"{level}{SLICE}" for level in levels)

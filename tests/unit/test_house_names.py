"""One class name means one thing in the whole tree (house style, Names)."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "livesize"

SIBLINGS = {"ExecSession"}
"""The same part of two drivers behind one interface."""

EXCEPTIONS: set[str] = {
    "Answer", "Attempt", "Column", "Connection", "Container", "Daemon", "DiskBoot", "Entry",
    "Failure", "Identity", "Joining", "KernelBoot", "Kind", "Leftovers", "Link", "Listener",
    "Owner", "Place", "PodView", "Records", "Refused", "RefusedError", "Remove", "Request",
    "Service", "Snapshot", "Target", "UnreachableError", "VmSize", "Watcher",
}  # fmt: skip
"""Old ones. Whoever gives one of them its subject takes it off; no name is ever added."""


def test_one_class_name_means_one_thing() -> None:
    """A name with an underscore belongs to its file alone."""
    places = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    several = {name: where for name, where in places.items() if len(where) > 1}
    unknown = {name: several[name] for name in several.keys() - SIBLINGS - EXCEPTIONS}
    assert not unknown, "give each its subject: ResizeRefusal, not another Refusal"

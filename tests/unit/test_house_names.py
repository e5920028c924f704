"""One class name means one thing in the whole tree (house style, Names)."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "livesize"

SIBLINGS = {"ExecSession"}
"""The same part of two drivers behind one interface."""

EXCEPTIONS = {
    *("Attempt", "Daemon", "Leftovers", "Link", "Outcome", "Records", "Size", "VmSize", "Watcher"),
}
"""Old ones. Whoever gives one of them its subject takes it off; no name is ever added."""

WIRE_TYPES = ("api/schema/", "api/kinds/")
"""Classes here declare types of the wire, which Kubernetes has named."""


def test_one_class_name_means_one_thing() -> None:
    """A name with an underscore belongs to its file alone."""
    places = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        if path.relative_to(SOURCE).as_posix().startswith(WIRE_TYPES):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(SOURCE).as_posix())
    several = {name: where for name, where in places.items() if len(where) > 1}
    unknown = {name: several[name] for name in several.keys() - SIBLINGS - EXCEPTIONS}
    assert not unknown, "give each its subject: ResizeRefusal, not another Refusal"

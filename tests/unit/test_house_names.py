"""One class name means one thing in the whole tree (house style, Names)."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "livesize"


def test_one_class_name_means_one_thing() -> None:
    """A name with an underscore belongs to its file alone. A type of the wire keeps the name that
    Kubernetes gave it."""
    files = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(path.relative_to(SOURCE).as_posix())
    several = {name: where for name, where in files.items() if len(where) > 1}
    assert several == {}, "give each its subject: ResizeRefusal, not another Refusal"

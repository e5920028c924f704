"""One name of a class means one thing in the whole tree (house style, Names)."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "livesize"


def named(tree: ast.Module) -> Iterator[str]:
    """Classes, and at the top of a file what stands for a type (``Verdict: TypeAlias = ...``)."""
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                yield name


def several(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    files = defaultdict(list)
    for file, tree in trees.items():
        for name in named(tree):
            if not name.startswith("_"):
                files[name].append(file)
    return {name: where for name, where in files.items() if len(where) > 1}


def test_one_class_name_means_one_thing() -> None:
    """A name with an underscore belongs to its file alone. A type of the wire keeps the name that
    Kubernetes gave it."""
    paths = sorted(SOURCE.rglob("*.py"))
    trees = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in paths}
    assert several(trees) == {}, "give each its subject: ResizeRefusal, not another Refusal"


def test_a_class_and_an_alias_of_one_name_are_seen() -> None:
    one, other = ast.parse("class Volume: ..."), ast.parse("Volume: TypeAlias = int | str")
    assert several({"a.py": one, "b.py": other}) == {"Volume": ["a.py", "b.py"]}
    assert several({"a.py": one, "b.py": ast.parse("def f():\n    Volume = 1")}) == {}

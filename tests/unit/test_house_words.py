"""Names in the code are those of Kubernetes and Linux, or stand in docs/glossary.md, each once.

Pictures that only we understood are retired: a module, class, function, argument, attribute or
constant does not have one of them in its name. Words of Kubernetes itself stay.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "livesize"
RETIRED = {
    *("ground", "beside", "around", "outside", "onlooker", "onlookers", "hands", "furniture"),
    *("books", "keeper", "wish", "wishes", "telling", "asked", "bound", "kept", "apart", "door"),
    *("asker", "employ", "hasten", "hire", "hurry", "lane", "meet", "mend", "pulse", "shelf"),
    *("shelves", "sight", "sights", "stranger", "talk", "untold", "urge"),
}
OF_KUBERNETES = {
    *("BOUND", "BOUND_BY_CONTROLLER", "bound_to", "is_bound", "is_bound_to"),
    *("wait_until_bound", "_until_bound"),
}
"""Claims, volumes and pods are bound there."""
PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
ENTRY = re.compile(r"^\| ([^|]+?) \|", re.MULTILINE)


def test_no_name_has_a_retired_word() -> None:
    found = [
        f"{file}: {name}"
        for file, name in names()
        if RETIRED & words(name) and name not in OF_KUBERNETES
    ]
    assert found == []


def test_the_glossary_has_each_word_once_and_none_that_is_retired() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    entries = [one for one in ENTRY.findall(text) if one not in ("word", "---")]
    assert [word for word, count in Counter(entries).items() if count > 1] == []
    assert (RETIRED - {"bound"}) & set(entries) == set()


def words(name: str) -> set[str]:
    return {part.lower() for part in PARTS.findall(name)}


def names() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        file = str(path.relative_to(PACKAGE))
        yield file, path.stem
        for name in defined(ast.parse(path.read_text()), inside=False):
            yield file, name


def defined(tree: ast.AST, *, inside: bool) -> Iterator[str]:
    """What others see. ``inside`` a function, plain variables are its own."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
                yield from (one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg))
                yield from defined(node, inside=True)
            case ast.ClassDef(name=name):
                yield name
                yield from defined(node, inside=False)
            case ast.Name(id=name, ctx=ast.Store()) if not inside:
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
                yield from defined(node, inside=inside)
            case ast.comprehension() | ast.Lambda():
                yield from defined(node, inside=True)
            case _:
                yield from defined(node, inside=inside)

"""Every task has an owner that awaits it: it is made by a TaskGroup, or by OwnedTasks.

ruff bans ``asyncio.create_task``; this finds the same call on an event loop, which ruff cannot see.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "livesize"
OWNED = PACKAGE / "machinery" / "tasks.py"
GROUP = "asyncio.TaskGroup"


def orphans(source: str) -> list[int]:
    """Lines of calls of ``create_task`` on anything that is not known to be a TaskGroup, of
    ``create_task`` that is passed on without being called, and of ``Task`` that is."""
    tree = ast.parse(source)
    groups = set(_groups(tree))
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (
            (node.attr == "Task" and id(node) in called)
            or (
                node.attr in ("create_task", "ensure_future")
                and not (id(node) in called and ast.unparse(node.value) in groups)
            )
        )
    ]


def _groups(tree: ast.Module) -> Iterator[str]:
    """What is bound to a TaskGroup: entered, annotated as one, or given one that is."""
    known: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.withitem(context_expr=ast.Call(func=made), optional_vars=name) if name:
                if ast.unparse(made) == GROUP:
                    known.add(ast.unparse(name))
            case ast.arg(annotation=kind) if kind and GROUP in ast.unparse(kind):
                known.add(node.arg)
            case ast.AnnAssign(target=target) if GROUP in ast.unparse(node.annotation):
                known.add(ast.unparse(target))
    yield from known
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.value) in known:
            yield from map(ast.unparse, node.targets)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("async with asyncio.TaskGroup() as group:\n    group.create_task(x())", []),
        ("def f(tasks: asyncio.TaskGroup):\n    tasks.create_task(x())", []),
        ("class A:\n    t: asyncio.TaskGroup | None = None\nt.create_task(x())", []),
        ("async with asyncio.TaskGroup() as g:\n    self._g = g\n    self._g.create_task(x())", []),
        ("asyncio.create_task(x())", [1]),
        ("asyncio.get_running_loop().create_task(x())", [1]),
        ("loop = asyncio.get_running_loop()\nloop.create_task(x())", [2]),
        ("self._loop.create_task(x())", [1]),
        ("group = asyncio.get_running_loop()\ngroup.create_task(x())", [2]),
        ("make = loop.create_task\nmake(x())", [1]),
        ("asyncio.ensure_future(x())", [1]),
        ("asyncio.Task(x())", [1]),
        ("def f(task: asyncio.Task[None]) -> None: ...", []),
    ],
)
def test_the_rule_sees_every_way_of_making_a_task(source: str, found: list[int]) -> None:
    assert orphans(source) == found


def test_no_task_is_made_without_an_owner() -> None:
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != OWNED and (lines := orphans(path.read_text()))
    }
    assert found == {}

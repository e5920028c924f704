"""The clock comes in where a process or a command begins; everything else is given it (ADR 0091).

So whatever runs in the simulator, or in a test on virtual time, runs there whole.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "livesize"
BEGINNINGS = (
    *("main/", "demo/", "machinery/context.py"),
    *("cli/connection.py", "cli/resize/workload.py"),  # of a command; the second has chance, too
)


def makes_a_clock(source: str) -> bool:
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func).split(".")[-1] in ("SystemClock", "system_context")
        for node in ast.walk(ast.parse(source))
    )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("clock = clock or SystemClock()", True),
        ("clock.SystemClock().now()", True),
        ("def f(context=system_context()): ...", True),
        ("def f(clock: SystemClock) -> None: ...", False),
    ],
)
def test_the_rule_sees_a_clock_being_made(source: str, found: bool) -> None:
    assert makes_a_clock(source) is found


def test_only_where_a_program_begins_a_clock_is_made() -> None:
    found = [
        file
        for path in sorted(PACKAGE.rglob("*.py"))
        if not (file := str(path.relative_to(PACKAGE))).startswith(BEGINNINGS)
        and makes_a_clock(path.read_text())
    ]
    assert found == []

"""docs/features.md is true: ids complete, named modules and tests exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
IDS = [*(f"F{number}" for number in range(1, 101)), *(f"B{number}" for number in range(1, 18))]
PLANNED = "planned"
PARTLY = "partly:"


class Row(NamedTuple):
    id: str
    feature: str
    source: str
    modules: list[str]
    tests: list[str]
    missing: str | None = None  # what a partly built feature lacks


def parse_rows(text: str) -> list[Row]:
    rows: list[Row] = []
    for line in text.splitlines():
        if not re.match(r"\| *[FB]\d", line):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        assert len(cells) == 5, f"not five columns: {line}"
        feature, source = cells[1:3]
        tests, partly, missing = cells[4].partition(PARTLY)
        rows.append(
            Row(
                id=cells[0],
                feature=feature,
                source=source,
                modules=_names(cells[3]),
                tests=_names(tests),
                missing=missing.strip() if partly else None,
            )
        )
    return rows


def _names(cell: str) -> list[str]:
    return [name.strip().strip("`") for name in cell.split(",") if name.strip()]


def complaints(row: Row, root: Path) -> list[str]:
    """What is wrong with a row, one sentence each."""
    wrong: list[str] = []
    if not row.feature or not row.source:
        wrong.append(f"{row.id}: feature and source must be filled")
    if not row.modules or not row.tests:
        wrong.append(f"{row.id}: needs a module and a test, or the word {PLANNED}")
    if row.missing == "":
        wrong.append(f"{row.id}: {PARTLY} names what is missing")
    if PLANNED in row.modules + row.tests:
        return wrong + _wrongly_planned(row)
    no_module = [module for module in row.modules if not module_exists(module, root)]
    no_test = [test for test in row.tests if not names_a_test(test, root)]
    wrong += [f"{row.id}: there is no module livesize.{module}" for module in no_module]
    wrong += [f"{row.id}: there is no test {test}" for test in no_test]
    return wrong


def _wrongly_planned(row: Row) -> list[str]:
    alone = row.modules == row.tests == [PLANNED] and row.missing is None
    return [] if alone else [f"{row.id}: {PLANNED} stands alone in both columns, or {PARTLY}"]


def module_exists(name: str, root: Path) -> bool:
    path = root / "src" / "livesize" / Path(*name.removeprefix("livesize.").split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@functools.cache
def _statements(file: Path) -> list[ast.stmt]:
    return ast.parse(file.read_text()).body


def names_a_test(name: str, root: Path) -> bool:
    """``tests/path.py::test_name`` or ``tests/path.py::TestClass::test_name``."""
    path, *names = name.split("::")
    file = root / path
    if not (path.startswith("tests/") and file.is_file() and names):
        return False
    body = _statements(file)
    for wanted in names:
        found = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == wanted
        ]
        if not found:
            return False
        body = found[0].body
    return names[-1].startswith("test_")


def table() -> list[Row]:
    return parse_rows((ROOT / "docs" / "features.md").read_text())


def test_every_id_is_there_once() -> None:
    assert sorted(row.id for row in table()) == sorted(IDS)


def test_every_named_module_and_test_exists() -> None:
    assert [wrong for row in table() for wrong in complaints(row, ROOT)] == []


@pytest.mark.parametrize(
    ("modules", "tests", "count"),
    [
        pytest.param("planned", "planned", 0, id="planned"),
        pytest.param("`agent.sync`", "`tests/test_x.py::test_a`", 0, id="built"),
        pytest.param(
            "livesize.agent", "tests/test_x.py::TestB::test_c, partly: VMs, or so", 0, id="partly"
        ),
        pytest.param("agent", "tests/test_x.py::test_a, partly:", 1, id="partly without what"),
        pytest.param("agent", "partly: all of it", 1, id="partly without a test"),
        pytest.param("agent", "tests/test_x.py::test_a, planned", 1, id="planned and built"),
        pytest.param("agent.sync", "planned", 1, id="a module and no test"),
        pytest.param("agent.gone", "tests/test_x.py::test_a", 1, id="no such module"),
        pytest.param("agent.sync", "tests/test_x.py::test_gone", 1, id="no such test"),
        pytest.param("agent.sync", "tests/gone.py::test_a", 1, id="no such file"),
        pytest.param("agent.sync", "tests/test_x.py::test_c", 1, id="not at that place"),
        pytest.param("agent.sync", "tests/test_x.py", 1, id="a file is not a test"),
        pytest.param("agent.sync", "", 1, id="neither a test nor planned"),
        pytest.param("", "tests/test_x.py::test_a", 1, id="no module"),
    ],
)
def test_the_check_itself(tmp_path: Path, modules: str, tests: str, count: int) -> None:
    package = tmp_path / "src" / "livesize" / "agent"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "sync.py").touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(
        "async def test_a(): pass\nclass TestB:\n    def test_c(self): pass\n"
    )
    (row,) = parse_rows(f"| F1 | a feature | ARK | {modules} | {tests} |")
    assert len(complaints(row, tmp_path)) == count

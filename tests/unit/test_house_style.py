"""The rules of the house that no other tool checks."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "livesize"
SOURCES = sorted(PACKAGE.rglob("*.py"))
CODE = sorted([*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")])
FORBIDDEN = {"util", "utils", "helper", "helpers", "common", "manager", "base", "misc"}
LONGEST_FILE, LONGEST_TEST = 600, 700
OPENING = re.compile(r'r?"""\S.{9}')  # the first line begins the sentence
# Paths of one machine, and hosts that serve packages or images, do not belong into the project.
# /proc/PID/root/ is a path of every machine.
PRIVATE = re.compile(
    rf"{re.escape(str(ROOT))}/|(?<![\w}}])/root/|/home/\w|registry\.[a-z]|/simple(?:/|\b)"
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def layers() -> set[str]:
    """The folders the import contract has placed."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one.get("containers") == ["livesize"])
    return {word for layer in contract["layers"] for word in re.findall(r"\w+", layer)}


def folders() -> list[str]:
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def test_every_file_says_first_what_it_is_for() -> None:
    silent = [name(path) for path in CODE if not OPENING.match(path.read_text())]
    assert silent == []


def test_no_file_is_too_long() -> None:
    long = [name(path) for path in CODE if path.read_text().count("\n") > _most_lines(path)]
    assert long == []


def _most_lines(path: Path) -> int:
    return LONGEST_TEST if name(path).startswith("tests/") else LONGEST_FILE


def test_names_say_what_is_inside() -> None:
    vague = [name(path) for path in SOURCES if FORBIDDEN & set(path.relative_to(PACKAGE).parts)]
    vague += [name(path) for path in SOURCES if FORBIDDEN & set(path.stem.split("_"))]
    assert vague == []


def test_the_architecture_names_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    packages = [path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("__init__.py")]
    unnamed = [str(path) for path in packages if path.parts and f"{path}/" not in text]
    assert unnamed == []


def test_every_folder_has_its_layer(layers: set[str]) -> None:
    assert set(folders()) <= layers


def test_every_folder_with_modules_is_a_package() -> None:
    without = {name(path.parent) for path in SOURCES if not (path.parent / "__init__.py").exists()}
    assert without == set()


def test_a_resource_version_is_opaque_to_clients() -> None:
    """Only equality means something. The agent speaks to our own API server, which numbers them."""
    number = re.compile(r"\bint\([^()]*(?:version_of\(|resource_?[vV]ersion)")
    rooms = ("client", "cli", "controllers", "scheduler", "machinery")
    sources = (path for room in rooms for path in sorted((PACKAGE / room).rglob("*.py")))
    found = [name(path) for path in sources if number.search(path.read_text())]
    assert found == []


def test_nothing_unfinished_is_checked_in() -> None:
    words = re.compile(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b")
    others = (path for path in CODE if path != Path(__file__))
    unfinished = [name(path) for path in others if words.search(path.read_text())]
    assert unfinished == []


def test_no_path_of_one_machine_and_no_registry_is_named() -> None:
    files = [*SOURCES, ROOT / "Makefile", ROOT / "README.md", ROOT / "ARCHITECTURE.md"]
    files += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"]
    found = {name(path): match[0] for path in files if (match := PRIVATE.search(path.read_text()))}
    assert found == {}


def test_adrs_are_numbered_without_gaps_and_have_the_four_parts() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    numbers = [int(path.name[:4]) for path in records]
    assert numbers == list(range(1, len(records) + 1))
    parts = ("## Context", "## Decision", "## Consequences", "## Rejected")
    for path in records:
        text = path.read_text()
        assert [part for part in parts if part not in text] == [], path.name


def test_every_document_that_is_linked_exists() -> None:
    broken: list[str] = []
    documents = (ROOT / "docs").rglob("*.md"), (ROOT / "examples").glob("*.md")
    for path in (*ROOT.glob("*.md"), *itertools.chain(*documents)):
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
        missing = [target for target in targets if not (path.parent / target).exists()]
        broken += [f"{name(path)}: {target}" for target in missing]
    assert broken == []

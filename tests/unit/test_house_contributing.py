"""CONTRIBUTING.md names files and names that are there, and tells how to add each kind of thing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PLACES = (ROOT, ROOT / "src" / "livesize")
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:md|py|toml))`")
ROW = re.compile(r"^\| `([\w/.]+)` \| ((?:`\w+`(?:, )?)+) \|", re.MULTILINE)
SECTIONS = ("a setting", "a controller", "a step", "a runtime")


def found(path: str) -> Path | None:
    return next((place / path for place in PLACES if (place / path).exists()), None)


def test_every_path_exists() -> None:
    paths = PATH.findall(TEXT)
    assert len(paths) > 40
    assert [path for path in paths if found(path) is None] == []


@pytest.mark.parametrize("row", ROW.findall(TEXT), ids="-".join)
def test_every_name_of_a_row_is_in_its_file(row: tuple[str, str]) -> None:
    path = found(row[0])
    assert path is not None
    text = path.read_text()
    for name in re.findall(r"\w+", row[1]):
        made = rf"^\s*(?:(?:async )?def|class) {name}\b|^{name}(?::|\b =)"
        assert re.search(made, text, re.MULTILINE), f"{row[0]} has no {name}"


@pytest.mark.parametrize("thing", SECTIONS)
def test_it_tells_how_to_add(thing: str) -> None:
    section = TEXT.partition(f"\n## Add {thing}\n")[2].partition("\n## ")[0]
    assert "| file | names | what to do |" in section
    assert "Worked example" in section

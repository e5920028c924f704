"""The index of decisions, docs/adr/README.md: each record once, with title and status."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

RECORDS = Path(__file__).parents[2] / "docs" / "adr"
PATHS = {path.name[:4]: path for path in sorted(RECORDS.glob("[0-9]*.md"))}
ROW = re.compile(r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \| ([^|]+) \|$", re.MULTILINE)
LATER = re.compile(r"^(Superseded|Amended) by \[(\d{4})\]\(([^)]+)\)", re.MULTILINE)


class Row(NamedTuple):
    """One line of the index."""

    number: str
    file: str
    title: str
    status: str


def index() -> list[Row]:
    return [Row(*match) for match in ROW.findall((RECORDS / "README.md").read_text())]


def head(number: str) -> str:
    """Title and status of a record: all above its first section."""
    return PATHS[number].read_text().partition("\n## ")[0]


def status_of(number: str) -> str:
    """As the record itself has it."""
    later = LATER.findall(head(number))
    superseding = [other for word, other, _ in later if word == "Superseded"]
    if superseding:
        return f"superseded by {', '.join(superseding)}"
    amending = [other for _, other, _ in later]
    return "in force" + (f", amended by {', '.join(amending)}" if amending else "")


def test_every_record_is_in_the_index_once() -> None:
    assert sorted(row.number for row in index()) == sorted(PATHS)


@pytest.mark.parametrize("row", index(), ids=lambda row: row.number)
def test_the_index_says_what_the_record_says(row: Row) -> None:
    path = PATHS[row.number]
    title = path.read_text().partition("\n")[0]
    assert (row.file, f"# {row.number}: {row.title}") == (path.name, title)
    assert row.status == status_of(row.number)


@pytest.mark.parametrize("number", PATHS)
def test_a_record_that_was_overtaken_names_a_later_one(number: str) -> None:
    for word, other, file in LATER.findall(head(number)):
        assert PATHS[other].name == file
        assert other > number
        if word == "Superseded":
            assert f"Supersedes [{number}]" in head(other), "the successor says so too"
    told = LATER.sub("", head(number))
    assert "supersed" not in told.lower() or "Supersedes [" in told, "as the index expects it"

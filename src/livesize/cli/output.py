"""Prints objects: tables for people, JSON, YAML and names for programs."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from livesize.api.objects import Object, without
from livesize.cli.plain_text import plain, plain_json


class Format(enum.StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Table(msgspec.Struct, frozen=True):
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


_GAP = 3
_WARM = frozenset({"Pending", "Deferred", "InProgress", "Requested", "Accepted", "Terminating"})
_BAD = frozenset({"Failed", "Infeasible", "Error", "NotReady", "CrashLoopBackOff", "OOMKilled"})
_GOOD = frozenset({"Running", "Ready", "Succeeded", "Completed", "Active"})


def print_value(value: Any, form: Format) -> None:
    """JSON or YAML of an object or a list, without who owns which field, as kubectl has it."""
    value = _without_owners(value)
    if form is Format.YAML:
        import yaml

        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        click.echo(yaml.dump(value, Dumper=dumper, sort_keys=False), nl=False)
    else:
        click.echo(plain_json(json.dumps(value, indent=2, ensure_ascii=False)))


def _without_owners(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("items"), list):
        return {**value, "items": [_without_owners(item) for item in value["items"]]}
    return without(value, ("metadata", "managedFields"))


def list_object(items: Sequence[Object]) -> Object:
    return {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": list(items)}


def print_table(table: Table) -> None:
    """Columns as wide as they need to be, never cut; click takes the colours out off a terminal."""
    widths = column_widths([table.header, *table.rows])
    click.secho(format_row(table.header, widths), bold=True)
    for row in table.rows:
        click.echo(format_row(row, widths))


def column_widths(rows: Sequence[Sequence[str]]) -> tuple[int, ...]:
    return tuple(max(len(plain(cell)) for cell in column) for column in zip(*rows, strict=True))


def format_row(row: Sequence[str], widths: Sequence[int]) -> str:
    """Cells padded to their columns, control characters written out; words that mean something
    good or bad are coloured."""
    last = len(row) - 1
    cells = []
    for index, (cell, width) in enumerate(zip(map(plain, row), widths, strict=True)):
        padding = "" if index == last else " " * (width - len(cell) + _GAP)
        cells.append(_coloured(cell) + padding)
    return "".join(cells)


def _coloured(cell: str) -> str:
    for words, colour in ((_BAD, "red"), (_WARM, "yellow"), (_GOOD, "green")):
        if cell in words:
            return click.style(cell, fg=colour)
    return cell

"""How the commands about identities print: for people, or for programs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from livesize.api.objects import Object
from livesize.cli.output import Format, Table, print_table, print_value


def show_made(made: Object, output: str, plain: str) -> None:
    """``plain`` is what a person needs, and a script can take as it is."""
    if output == Format.TABLE:
        click.echo(plain)
    elif output == Format.NAME:
        click.echo(made["name"])
    else:
        print_value(made, Format(output))


def show_all(objects: Sequence[Object], output: str, wide: Sequence[str] = ()) -> None:
    if output == Format.NAME:
        for one in objects:
            click.echo(one["name"])
    elif output == Format.TABLE:
        header = ("NAME", "ROLE", "NAMESPACES", "EXPIRES", *(word.upper() for word in wide))
        print_table(Table(header, tuple(_row(one, wide) for one in objects)))
    else:
        print_value(list(objects), Format(output))


def _row(one: Object, wide: Sequence[str]) -> tuple[str, ...]:
    role = f"{one['role']}:{one['node']}" if one.get("node") else str(one["role"])
    where = ",".join(one.get("namespaces", ())) or "-"
    return (one["name"], role, where, one["expires"] or "never", *(_cell(one[w]) for w in wide))


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "-"
    return str(value)

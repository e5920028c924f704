"""`livesize units`: prints and installs the systemd units of the parts."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from livesize.main.settings_table import Part

_part = click.argument("part", type=click.Choice([part.value for part in Part]))
_program = click.option(
    "--program",
    default="",
    metavar="FILE",
    help="Where livesize is.  [default: the one that runs now]",
)


@click.group()
def units() -> None:
    """Print or install systemd units, one for each part."""


@units.command("print")
@_part
@_program
def print_unit(part: str, program: str) -> None:
    """Print the unit of a part.

    \b
    Example:
      livesize units print agent
    """
    from livesize.main.units import unit_text

    click.echo(unit_text(Part(part), program or _running()), nl=False)


@units.command()
@_part
@_program
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default="/etc/systemd/system",
    show_default=True,
)
def install(part: str, program: str, directory: Path) -> None:
    """Write the unit of a part to where systemd finds it, and say what to do next.

    \b
    Example:
      livesize units install agent
    """
    from livesize.main.units import CONFIG_DIRECTORY, unit_name, unit_text

    path = directory / unit_name(Part(part))
    config = Path(CONFIG_DIRECTORY) / f"{part}.yaml"
    try:
        path.write_text(unit_text(Part(part), program or _running()))
    except OSError as failure:
        raise click.ClickException(f"{path} cannot be written: {failure.strerror}") from failure
    click.echo(
        f"{path} written\n"
        f"  settings: {config} (docs/settings.md); it must be there, and may be empty\n"
        f"  systemctl daemon-reload && systemctl enable --now {path.name}"
    )


def _running() -> str:
    return str(Path(sys.argv[0]).absolute())

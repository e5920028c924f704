"""`livesize units`: prints and installs the systemd units of the parts."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from livesize.main.settings.table import Part

_part = click.argument("part", type=click.Choice([part.value for part in Part]))
_program = click.option(
    "--program",
    default="",
    metavar="FILE",
    help="Where livesize is.  [default: the one that runs now]",
)


_user = click.option(
    "--user", is_flag=True, help="For your own service manager: up and agent without root."
)
USER_DIRECTORY = ".config/systemd/user"
SYSTEM_DIRECTORY = "/etc/systemd/system"


@click.group()
def units() -> None:
    """Print or install systemd units, one for each part."""


@units.command("print")
@_part
@_program
@_user
def print_unit(part: str, program: str, user: bool) -> None:
    """Print the unit of a part.

    \b
    Example:
      livesize units print agent
    """
    from livesize.main.commands.unit_files import unit_text

    click.echo(unit_text(Part(part), program or _running(), user=user), nl=False)


@units.command()
@_part
@_program
@_user
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help=f"Where to write it.  [default: {SYSTEM_DIRECTORY}; with --user ~/{USER_DIRECTORY}]",
)
def install(part: str, program: str, user: bool, directory: Path | None) -> None:
    """Write the unit of a part to where systemd finds it, and say what to do next.

    \b
    Example:
      livesize units install agent
    """
    from livesize.main.commands.unit_files import unit_name, unit_text

    folder = directory or (Path.home() / USER_DIRECTORY if user else Path(SYSTEM_DIRECTORY))
    path = folder / unit_name(Part(part))
    try:
        if user:
            folder.mkdir(parents=True, exist_ok=True)
        path.write_text(unit_text(Part(part), program or _running(), user=user))
    except OSError as failure:
        raise click.ClickException(f"{path} cannot be written: {failure.strerror}") from failure
    click.echo(f"{path} written\n{_next_steps(part, path.name, user=user)}")


def _next_steps(part: str, unit: str, *, user: bool) -> str:
    from livesize.main.commands.unit_files import CONFIG_DIRECTORY

    folder = Path.home() / ".config/livesize" if user else Path(CONFIG_DIRECTORY)
    manager = "systemctl --user" if user else "systemctl"
    lines = [
        f"  settings: {folder / part}.yaml (docs/settings.md); it must be there, and may be empty",
        f"  {manager} daemon-reload && {manager} enable --now {unit}",
    ]
    if user:
        lines.append("  loginctl enable-linger    (or it ends when you log out)")
    return "\n".join(lines)


def _running() -> str:
    return str(Path(sys.argv[0]).absolute())

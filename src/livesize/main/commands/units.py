"""`livesize units`: prints and installs the systemd unit of each part.

A unit is for the machine's service manager, or for a user's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from livesize.main.settings.table import Part

CONFIG_DIRECTORY = "/etc/livesize"
USER_CONFIG_DIRECTORY = "%E/livesize"  # ~/.config/livesize, as systemd writes it
_MEANINGS = {
    Part.UP: "Livesize on one machine",
    Part.APISERVER: "Livesize API server",
    Part.SCHEDULER: "Livesize scheduler",
    Part.CONTROLLERS: "Livesize controllers",
    Part.AGENT: "Livesize node agent",
}
# Containers and virtual machines outlive who started them; their processes are in the service's
# group until they are moved to their own.
_RUNS_PODS = ("KillMode=process", "Delegate=yes", "LimitNOFILE=1048576", "TasksMax=infinity")
_USERS_PODS = ("KillMode=process", "TasksMax=infinity")
# They give up root's rights by themselves, after what needs them.
_ONLY_SPEAKS = ("ProtectHome=read-only", "PrivateTmp=yes", "LimitNOFILE=1048576")
# A restart of the service, for a newer version above all, is no reason to end what it runs; the
# agent keeps pods by itself.
_ARGUMENTS = {Part.UP: " --keep"}
_AFTER_NETWORK = "After=network-online.target\nWants=network-online.target\n"
_TEMPLATE = """\
[Unit]
Description={meaning}
{after}StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={program} {part}{arguments}
Environment=LIVESIZE_CONFIG={folder}/{part}.yaml
Restart=always
RestartSec=1
TimeoutStartSec=60
TimeoutStopSec=60
WatchdogSec=30
{more}

[Install]
WantedBy={target}
"""
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


def unit_name(part: Part) -> str:
    return f"livesize-{part}.service"


def unit_text(part: Part, program: str, *, user: bool = False) -> str:
    """``program`` is the absolute path of livesize. Settings come from /etc/livesize/PART.yaml, of
    a ``user`` from ~/.config/livesize."""
    runs_pods = part in (Part.UP, Part.AGENT)
    more: tuple[str, ...] = _RUNS_PODS if runs_pods else _ONLY_SPEAKS
    if user:
        more = _USERS_PODS if runs_pods else ()
    return _TEMPLATE.format(
        meaning=_MEANINGS[part],
        part=part,
        program=program,
        arguments=_ARGUMENTS.get(part, ""),
        after="" if user else _AFTER_NETWORK,
        folder=USER_CONFIG_DIRECTORY if user else CONFIG_DIRECTORY,
        more="\n".join(more),
        target="default.target" if user else "multi-user.target",
    )

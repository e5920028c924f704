"""`livesize clean`: removes what a dead data directory left on this machine."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False, readable=False),
    default=None,
    help="The data directory whose pods are meant; it may be gone already.",
)
@click.option("--node-name", default="", metavar="NAME", help="The node whose pods are meant.")
@click.option("--yes", is_flag=True, help="Remove it. Without, it is only shown.")
def clean(data_dir: Path | None, node_name: str, yes: bool) -> None:
    """Show, or remove with --yes, what a data directory that no longer runs left on this machine.

    That is: control groups, the processes in them, a private containerd or libvirtd, sandboxes in
    a containerd that others use, and mounts. Files in the data directory stay. Refused while the
    node runs.

    \b
    Examples:
      livesize clean --node-name node-1
      livesize clean --node-name node-1 --yes
      livesize clean --data-dir /tmp/first --yes
    """
    if (data_dir is None) == (not node_name):
        raise click.UsageError("say whose: either --data-dir DIR or --node-name NAME")
    from livesize.main.commands.cleanup import clean as look_and_remove
    from livesize.main.wiring.startup_errors import reported_startup_errors

    with reported_startup_errors():
        click.echo(look_and_remove(data_dir, node_name, remove=yes))

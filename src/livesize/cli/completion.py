"""`livesize completion`: what makes TAB work, pod names included."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    Examples:
      source <(livesize completion bash)
      livesize completion zsh > "${fpath[1]}/_livesize"
      livesize completion fish > ~/.config/fish/completions/livesize.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    root = context.find_root()
    click.echo(made(root.command, {}, "livesize", "_LIVESIZE_COMPLETE").source())

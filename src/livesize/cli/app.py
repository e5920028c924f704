"""The `livesize` command group. Commands are imported when they are used, so that it starts fast.

main/ adds the commands that start parts of the system with ``cli.command()``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

_COMMANDS: Mapping[str, tuple[str, str]] = {
    "apply": ("livesize.cli.apply:apply", "Create objects from files, or change them."),
    "completion": ("livesize.cli.completion:completion", "Print a shell completion script."),
    "delete": ("livesize.cli.delete:delete", "Delete objects."),
    "describe": ("livesize.cli.describe:describe", "Show all about sizes and resizes."),
    "doctor": ("livesize.cli.doctor.command:doctor", "Check what this machine needs, and how."),
    "exec": ("livesize.cli.exec:exec_command", "Run a command in a container."),
    "get": ("livesize.cli.get:get", "Show objects."),
    "logs": ("livesize.cli.logs:logs", "Show what a container has written."),
    "resize": ("livesize.cli.resize.command:resize", "Change CPU and memory of what runs."),
    "version": ("livesize.cli.version:version", "Print the version."),
}


class LazyGroup(click.Group):
    """Knows its commands by name and one line; a command's module is imported when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in --help, without importing what it lists."""
        rows = []
        for name in self.list_commands(ctx):
            if name in _COMMANDS:
                rows.append((name, _COMMANDS[name][1]))
            elif (command := super().get_command(ctx, name)) is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(70)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Livesize changes the CPU and memory of running containers, in place, and proves it.

    \b
    Examples:
      livesize up                                     start it on this machine
      livesize apply -f pod.yaml                      run something
      livesize resize pod/db --cpu 2 --memory 4Gi --wait
      livesize get pods                               desired, allocated and actual sizes
      livesize doctor                                 what is missing on this machine
    """

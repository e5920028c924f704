"""The `livesize` command group. Commands are imported when they are used, so that it starts fast.

main/ adds the commands that work on this machine (``cli.defer``).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

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

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._deferred = dict(_COMMANDS)

    def defer(self, commands: Mapping[str, tuple[str, str]]) -> None:
        """``commands``: by name the module and attribute, and the line in the list of commands."""
        self._deferred |= commands

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        return sorted(self._deferred)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - as click calls it
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in self._deferred:
            return None
        module, _, attribute = self._deferred[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in --help, without importing what it lists."""
        with formatter.section("Commands"):
            names = self.list_commands(ctx)
            formatter.write_dl([(name, self._deferred[name][1]) for name in names])


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

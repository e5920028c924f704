"""Makes the options of a command from the table of settings; --config reads them from a file.

What is given on the command line counts first, then a variable, then the file, then the default.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from livesize.main.settings.shared_options import chosen_data_dir
from livesize.main.settings.table import Kind, Part, Setting, setting_named, settings_of

Command = TypeVar("Command", bound=Callable[..., Any])
CONFIG_VARIABLE = "LIVESIZE_CONFIG"


def part_options(part: Part) -> Callable[[Command], Command]:
    """Every option of the command that runs ``part``, and --config."""

    def add(command: Command) -> Command:
        for setting in reversed(settings_of(part)):
            command = option_of(setting)(command)
        return _config_option(part)(command)

    return add


def named_option(name: str) -> Callable[[Command], Command]:
    """One of them, for another command."""
    return option_of(setting_named(name))


def option_of(setting: Setting) -> Callable[[Command], Command]:
    more: dict[str, Any] = {}
    if setting.kind is Kind.FLAG:
        more = {"is_flag": True}
    elif setting.default:
        more = {"default": setting.default, "show_default": True}
    else:
        more = {"default": ""}
    if setting.kind is Kind.FOLDER:
        more["callback"] = chosen_data_dir
    otherwise = f"[default: {setting.otherwise}]" if setting.otherwise else ""
    return click.option(
        f"--{setting.name}",
        type=_type_of(setting),
        metavar=setting.metavar or None,
        envvar=setting.variable,
        help="  ".join(filter(None, (setting.meaning, otherwise))),
        **more,
    )


def _type_of(setting: Setting) -> click.ParamType[Any] | None:
    match setting.kind:
        case Kind.CHOICE:
            return click.Choice(setting.choices)
        case Kind.SECONDS:
            return click.FloatRange(min=0)
        case Kind.FILE:
            return click.Path(dir_okay=False)
        case Kind.FOLDER:
            return click.Path(path_type=Path, file_okay=False, readable=False)
        case Kind.FLAG:
            return None
        case Kind.TEXT | Kind.LIST | Kind.PAIRS:
            return click.STRING


def _config_option(part: Part) -> Callable[[Command], Command]:
    def read(context: click.Context, _option: click.Parameter, value: Path | None) -> None:
        if value is None:
            return
        from livesize.main.settings.config_file import ConfigError, read_config

        try:
            context.default_map = read_config(value, part)
        except ConfigError as refusal:
            raise click.UsageError(str(refusal), context) from refusal

    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        is_eager=True,
        expose_value=False,
        callback=read,
        envvar=CONFIG_VARIABLE,
        metavar="FILE",
        help="Read settings from this YAML file; options and variables count before it.",
    )

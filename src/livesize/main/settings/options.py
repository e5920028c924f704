"""The options of the commands: those of the table of settings, and those that commands share.

``--config`` reads the settings of a process from a file. The command line counts first, then a
variable, then the file, then the default.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from livesize.machinery.data_directory import DEFAULT_DATA_DIR, user_data_dir
from livesize.main.settings.table import Part, Setting, SettingKind, setting_named, settings_of

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
    if setting.kind is SettingKind.FLAG:
        more = {"is_flag": True}
    elif setting.default:
        more = {"default": setting.default, "show_default": True}
    else:
        more = {"default": ""}
    if setting.kind is SettingKind.FOLDER:
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
        case SettingKind.CHOICE:
            return click.Choice(setting.choices)
        case SettingKind.SECONDS:
            return click.FloatRange(min=0)
        case SettingKind.FILE:
            return click.Path(dir_okay=False)
        case SettingKind.FOLDER:
            return click.Path(path_type=Path, file_okay=False, readable=False)
        case SettingKind.FLAG:
            return None
        case SettingKind.TEXT | SettingKind.LIST | SettingKind.PAIRS:
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


# ---- options that several commands share


def data_dir(meaning: str) -> Callable[[Command], Command]:
    """--data-dir, with what the command does there in its help."""
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False, readable=False),
        default=DEFAULT_DATA_DIR,
        show_default=True,
        envvar="LIVESIZE_DATA_DIR",
        callback=chosen_data_dir,
        help=meaning,
    )


def chosen_data_dir(_context: click.Context, _option: click.Parameter, value: Path) -> Path:
    """The default is root's; an ordinary user has another."""
    if os.geteuid() == 0 or str(value) != DEFAULT_DATA_DIR:
        return value
    return user_data_dir(os.environ, Path.home())


data_dir_option = data_dir("The data directory of the server, or of this node.")


def namespaces_option(command: Command) -> Command:
    return click.option(
        "--namespaces",
        default="",
        metavar="A,B",
        help="Only there; for editors and viewers.  [default: everywhere]",
    )(command)


def expires_option(default: str) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        return click.option(
            "--expires", default="", metavar="TIME", help=f"After 30d, 12h, 90m, …  {default}"
        )(command)

    return add


def server_option(command: Command) -> Command:
    return click.option(
        "--server",
        default="",
        metavar="URL",
        help="Where the server is reached.  [default: as the admin's kubeconfig says]",
    )(command)


def output_option(command: Command) -> Command:
    return click.option(
        *("-o", "--output", "output"),
        type=click.Choice(["table", "json", "yaml", "name"]),
        default="table",
        show_default=True,
    )(command)


store_option = named_option("store")
_ETCD_OPTIONS = tuple(
    named_option(name) for name in ("etcd-endpoints", "etcd-ca", "etcd-cert", "etcd-key")
)


def etcd_options(command: Command) -> Command:
    for option in reversed(_ETCD_OPTIONS):
        command = option(command)
    return command

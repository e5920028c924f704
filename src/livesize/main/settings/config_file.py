"""Reads a config file: YAML, one field for each setting, by the names of the table of settings.

    listen: 0.0.0.0:7443
    store: etcd
    etcd-endpoints: [https://10.0.0.1:2379, https://10.0.0.2:2379]

Everything that is wrong is refused with a sentence that names the file and the field.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import yaml

from livesize.main.settings.table import Part, Setting, SettingKind, settings_of


class ConfigError(Exception):
    """The file cannot be used; the sentence says which field, and why."""


class _WrongValueError(Exception):
    """Why a field cannot have this value."""


def read_config(path: Path, part: Part) -> dict[str, Any]:
    """What the file says, by the names of the command's parameters."""
    known = {setting.name: setting for setting in settings_of(part)}
    found: dict[str, Any] = {}
    for field, value in _load(path).items():
        setting = known.get(field)
        if setting is None:
            raise ConfigError(f"{path}: {field}: {_unknown(str(field), part, sorted(known))}")
        try:
            found[setting.name.replace("-", "_")] = _value(setting, value)
        except _WrongValueError as refusal:
            raise ConfigError(f"{path}: {field}: {refusal}") from None
    return found


def _load(path: Path) -> dict[Any, Any]:
    try:
        loaded = yaml.safe_load(path.read_text())
    except OSError as failure:
        raise ConfigError(f"{path} cannot be read: {failure.strerror}") from failure
    except (yaml.YAMLError, UnicodeDecodeError) as failure:
        raise ConfigError(f"{path} is not YAML: {failure}") from failure
    if loaded is None:
        return {}  # only comments
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path} must be a mapping of settings, for instance `log-level: info`")
    return loaded


def _unknown(field: str, part: Part, known: list[str]) -> str:
    near = difflib.get_close_matches(field.replace("_", "-").lower(), known, n=1)
    instead = f"do you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
    return f"`livesize {part}` has no such setting; {instead}"


def _value(setting: Setting, value: Any) -> Any:
    """As the option takes it."""
    match setting.kind:
        case SettingKind.FLAG:
            return _flag(value)
        case SettingKind.SECONDS:
            return _seconds(value)
        case SettingKind.LIST if isinstance(value, list):
            return ",".join(_text(one) for one in value)
        case SettingKind.PAIRS if isinstance(value, dict):
            return ",".join(f"{_text(key)}={_text(one)}" for key, one in value.items())
        case SettingKind.CHOICE if value not in setting.choices:
            raise _WrongValueError(f"{value!r} is not one of {', '.join(setting.choices)}")
        case _:
            return _text(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _WrongValueError(f"{value!r} is neither true nor false")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise _WrongValueError(f"{value!r} is not a number of seconds")
    return float(value)


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _WrongValueError(f"{value!r} is not a text")
    return str(value)

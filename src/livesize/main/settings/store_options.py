"""The options that say which store, the same for every command that opens one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from livesize.main.settings.options import named_option

_Command = TypeVar("_Command", bound=Callable[..., Any])

store_option = named_option("store")
_ETCD_OPTIONS = tuple(
    named_option(name) for name in ("etcd-endpoints", "etcd-ca", "etcd-cert", "etcd-key")
)


def etcd_options(command: _Command) -> _Command:
    for option in reversed(_ETCD_OPTIONS):
        command = option(command)
    return command

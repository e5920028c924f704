"""The messages of exec and attach: the first byte says what the rest is. Pure.

Kubernetes' v5.channel.k8s.io and v4.channel.k8s.io; the first has a message more, which ends a
channel, and with it stdin.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
import orjson

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_LARGEST_TERMINAL = 65535
_PREFIX = "Internal error occurred: "


class InputMessage(msgspec.Struct, frozen=True, tag=True):
    data: bytes


class EndOfInput(msgspec.Struct, frozen=True, tag=True):
    pass


class TerminalSize(msgspec.Struct, frozen=True, tag=True):
    width: int
    height: int


class EmptyMessage(msgspec.Struct, frozen=True, tag=True):
    """A message that asks for nothing, or that we do not know."""


ClientMessage: TypeAlias = InputMessage | EndOfInput | TerminalSize | EmptyMessage


def parse_message(message: bytes) -> ClientMessage:
    match message[0] if message else -1:
        case 0 if len(message) > 1:
            return InputMessage(message[1:])
        case 4:
            return _parse_size(message[1:])
        case 255 if message[1:2] == bytes([STDIN]):
            return EndOfInput()
        case _:
            return EmptyMessage()


def format_output(stream: int, data: bytes) -> bytes:
    return bytes([stream]) + data


def format_end(exit_code: int) -> bytes:
    """How it ended, as the last message."""
    if exit_code == 0:
        return _status({"metadata": {}, "status": "Success"})
    cause = {"reason": "ExitCode", "message": str(exit_code)}
    return _status(
        {
            "metadata": {},
            "status": "Failure",
            "message": f"command terminated with non-zero exit code: exit status {exit_code}",
            "reason": "NonZeroExitCode",
            "details": {"causes": [cause]},
        }
    )


def format_failure(why: str) -> bytes:
    """Why it did not even begin, or could not go on, as the last message."""
    return _status(
        {
            "metadata": {},
            "status": "Failure",
            "message": f"{_PREFIX}{why.removeprefix(_PREFIX)}",
            "reason": "InternalError",
            "details": {"causes": [{"message": why}]},
            "code": 500,
        }
    )


def format_input(data: bytes) -> bytes:
    return bytes([STDIN]) + data


def format_end_of_input() -> bytes:
    return bytes([CLOSE, STDIN])


def format_size(width: int, height: int) -> bytes:
    return bytes([RESIZE]) + orjson.dumps({"Width": width, "Height": height}) + b"\n"


def parse_end(status: bytes) -> tuple[int, str]:
    """The exit code, and what else went wrong, of the last message without its first byte."""
    try:
        told = orjson.loads(status)
    except ValueError:
        return 1, status.decode(errors="replace")
    if told.get("status") == "Success":
        return 0, ""
    for cause in (told.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdigit():
            return int(cause["message"]), ""
    return 1, str(told.get("message") or "it ended for no reason that was given")


def _status(status: dict[str, Any]) -> bytes:
    return bytes([STATUS]) + orjson.dumps(status)


def _parse_size(text: bytes) -> ClientMessage:
    try:
        size = orjson.loads(text)
        width, height = int(size["Width"]), int(size["Height"])
    except (ValueError, TypeError, KeyError):
        return EmptyMessage()
    if 0 < width <= _LARGEST_TERMINAL and 0 < height <= _LARGEST_TERMINAL:
        return TerminalSize(width, height)
    return EmptyMessage()

"""Structured logs: a constant message and key=value fields, one line each: logfmt, or JSON.

    log = get_logger("agent")
    log.info("pod admitted", pod="default/db", generation=3)

    time=2026-01-31T12:00:00.123Z level=info from=agent msg="pod admitted" pod=default/db …
    {"time":"2026-01-31T12:00:00.123Z","level":"info","from":"agent","msg":"pod admitted", …}

Lines of libraries that log the ordinary way come out in the same shape. Nothing is written before
``set_up_logging`` but warnings, which Python itself sends to stderr.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
FORMATS = ("text", "json")
_ROOT = "livesize"
_FIELDS = "livesize_fields"


class Log:
    """Speaks for one part of the system; ``bind`` gives one that adds fields to every line."""

    def __init__(self, logger: logging.Logger, fields: Mapping[str, object]) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: object) -> Log:
        return Log(self._logger, {**self._fields, **fields})

    def debug(self, message: str, /, **fields: object) -> None:
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, /, **fields: object) -> None:
        self._write(logging.INFO, message, fields)

    def warning(self, message: str, /, **fields: object) -> None:
        self._write(logging.WARNING, message, fields)

    def error(self, message: str, /, **fields: object) -> None:
        self._write(logging.ERROR, message, fields)

    def exception(self, message: str, /, **fields: object) -> None:
        """An error, with the traceback of the exception being handled below the line."""
        self._write(logging.ERROR, message, fields, with_traceback=True)

    def _write(
        self,
        level: int,
        message: str,
        fields: Mapping[str, object],
        *,
        with_traceback: bool = False,
    ) -> None:
        if self._logger.isEnabledFor(level):
            extra = {_FIELDS: {**self._fields, **fields}}
            self._logger.log(level, message, extra=extra, exc_info=with_traceback)


def get_logger(name: str) -> Log:
    return Log(logging.getLogger(f"{_ROOT}.{name}"), {})


def set_up_logging(level: str = "info", path: Path | None = None, form: str = "text") -> None:
    """Write everything from ``level`` up to ``path``, or to stderr. Called once, by main."""
    handler = logging.StreamHandler(sys.stderr) if path is None else logging.FileHandler(path)
    attach(handler, level, form)


def attach(
    handler: logging.StreamHandler[TextIO] | logging.FileHandler, level: str, form: str = "text"
) -> None:
    """Make ``handler`` the only one, in one of our formats."""
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    if form not in FORMATS:
        raise ValueError(f"log format {form!r} is not one of {', '.join(FORMATS)}")
    handler.setFormatter(JsonFormatter() if form == "json" else LogfmtFormatter())
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    # Libraries speak only when something is wrong; their info is our debug.
    root.setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    logging.getLogger(_ROOT).setLevel(LEVELS[level])


def _fields(record: logging.LogRecord) -> dict[str, object]:
    moment = dt.datetime.fromtimestamp(record.created, tz=dt.UTC)
    return {
        "time": moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z",
        "level": record.levelname.lower(),
        "from": record.name.removeprefix(_ROOT + "."),
        "msg": record.getMessage(),
        **getattr(record, _FIELDS, {}),
    }


class JsonFormatter(logging.Formatter):
    """One object to a line; what JSON does not know is written as text."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False, separators=(",", ":"))


class LogfmtFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = " ".join(f"{key}={format_value(value)}" for key, value in _fields(record).items())
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    {part}" for part in trace.splitlines())
        return line


def format_value(value: object) -> str:
    """Bare where a reader cannot misread it, else quoted on one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    if text and text != "-" and text.isprintable() and not set(text) & set(' "=\\'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in escaped
    )
    return f'"{shown}"'

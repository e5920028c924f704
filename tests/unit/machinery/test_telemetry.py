"""One event, one line: constant message, then key=value that can be read back."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.machinery.telemetry import attach, format_value, get_logger, set_up_logging


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = tuple(root.handlers), root.level
    for handler in handlers:
        root.removeHandler(handler)
    stream = io.StringIO()
    attach(logging.StreamHandler(stream), "info")
    yield stream
    for handler in tuple(root.handlers):
        root.removeHandler(handler)
        handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)


def test_a_line_has_time_level_source_message_and_fields(lines: io.StringIO) -> None:
    get_logger("agent").info("pod admitted", pod="default/db", generation=3, reason=None)
    assert re.fullmatch(
        r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=info from=agent"
        r' msg="pod admitted" pod=default/db generation=3 reason=-\n',
        lines.getvalue(),
    )


def test_bound_fields_come_with_every_line_and_newer_ones_win(lines: io.StringIO) -> None:
    log = get_logger("agent").bind(pod="a", node="n")
    log.warning("resize deferred", pod="b")
    assert lines.getvalue().endswith('msg="resize deferred" pod=b node=n\n')


def test_below_the_level_nothing_is_written(lines: io.StringIO) -> None:
    get_logger("agent").debug("noise")
    logging.getLogger("some.library").info("noise")
    assert lines.getvalue() == ""


def test_lines_of_libraries_get_the_same_shape(lines: io.StringIO) -> None:
    logging.getLogger("some.library").warning("lost %s", "it")
    assert lines.getvalue().endswith(' level=warning from=some.library msg="lost it"\n')


def test_an_exception_follows_indented(lines: io.StringIO) -> None:
    try:
        int("no")
    except ValueError:
        get_logger("agent").exception("bug", pod="a")
    first, *rest = lines.getvalue().splitlines()
    assert first.endswith("level=error from=agent msg=bug pod=a")
    assert all(line.startswith("    ") for line in rest)
    assert rest[-1].startswith("    ValueError: invalid literal")


def test_logs_can_go_to_a_file(lines: io.StringIO, tmp_path: Path) -> None:
    set_up_logging("debug", tmp_path / "log")
    get_logger("agent").debug("detail")
    assert "msg=detail" in (tmp_path / "log").read_text()
    assert lines.getvalue() == ""


def test_an_unknown_level_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="debug, info, warning, error"):
        set_up_logging("loud")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ('say "x"', '"say \\"x\\""'),
        ("a=b", '"a=b"'),
        ("line\nbreak", '"line\\nbreak"'),
        (True, "true"),
        (0.1234567891, "0.123457"),
        (None, "-"),
        ("-", '"-"'),
    ],
)
def test_values(value: object, text: str) -> None:
    assert format_value(value) == text


@given(st.text())
def test_a_value_stays_on_one_line_and_can_be_told_from_the_next(text: str) -> None:
    shown = format_value(text)
    assert shown.isprintable()
    assert re.fullmatch(r'[^ "=\\]+|"(?:[^"\\]|\\.)*"', shown)


def test_as_json_every_line_is_an_object(lines: io.StringIO) -> None:
    attach(logging.StreamHandler(lines), "info", "json")
    log = get_logger("agent")
    log.info("pod admitted", pod='de"fault/db\n', generation=3, ratio=0.5, path=Path("/x"), no=None)
    try:
        _ = 1 // 0
    except ZeroDivisionError:
        log.exception("it failed")
    first, second = map(json.loads, lines.getvalue().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "level": "info",
        "from": "agent",
        "msg": "pod admitted",
        "pod": 'de"fault/db\n',
        "generation": 3,
        "ratio": 0.5,
        "path": "/x",
        "no": None,
    }
    assert "ZeroDivisionError" in second["traceback"]


def test_a_format_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="one of text, json"):
        attach(logging.StreamHandler(io.StringIO()), "info", "xml")

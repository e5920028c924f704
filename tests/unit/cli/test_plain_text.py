"""Text from objects does nothing to a terminal."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.cli.output import column_widths, format_row
from livesize.cli.plain_text import plain, plain_json, plain_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größe 漢字 ✓", "größe 漢字 ✓"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("\x9b31m", "\\x9b31m"),
        ("one\ntwo\r\tthree", "one\\ntwo\\r\\tthree"),
        ("user\u202egnp.exe", "user\\u202egnp.exe"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_lines_stay_lines() -> None:
    assert plain_lines("one\n\ttwo\x1b[H\r") == "one\n\ttwo\\x1b[H\\r"


@given(st.text())
def test_nothing_is_left_of_them(text: str) -> None:
    assert not any(ord(one) < 0x20 or 0x7F <= ord(one) < 0xA0 for one in plain(text))
    assert json.loads(plain_json(json.dumps(text, ensure_ascii=False))) == text
    shown = plain_json(json.dumps(text, ensure_ascii=False))
    assert not any(ord(one) < 0x20 or 0x7F <= ord(one) < 0xA0 for one in shown)


def test_a_table_keeps_its_columns() -> None:
    rows = [("A", "B"), ("x\x1b[1m", "y")]
    assert format_row(rows[1], column_widths(rows)) == "x\\x1b[1m   y"

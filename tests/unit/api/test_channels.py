"""The messages of exec and attach, from both sides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.channels import (
    ClientMessage,
    EmptyMessage,
    EndOfInput,
    InputMessage,
    TerminalSize,
    format_end,
    format_end_of_input,
    format_failure,
    format_input,
    format_size,
    parse_end,
    parse_message,
)


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        (format_input(b"typed"), InputMessage(b"typed")),
        (b"\x00", EmptyMessage()),
        (format_end_of_input(), EndOfInput()),
        (b"\xff\x01", EmptyMessage()),
        (format_size(99, 33), TerminalSize(99, 33)),
        (b'\x04{"Width":0,"Height":0}\n', EmptyMessage()),
        (b'\x04{"Width":"wide"}', EmptyMessage()),
        (b"\x04[]", EmptyMessage()),
        (b"\x07what", EmptyMessage()),
        (b"", EmptyMessage()),
    ],
)
def test_what_a_message_asks(message: bytes, asked: ClientMessage) -> None:
    assert parse_message(message) == asked


@given(st.binary(max_size=50))
def test_no_message_is_an_error(message: bytes) -> None:
    parse_message(message)


@pytest.mark.parametrize("code", [0, 1, 7, 137, 255])
def test_the_exit_code_arrives(code: int) -> None:
    assert format_end(code)[0] == 3
    assert parse_end(format_end(code)[1:]) == (code, "")


def test_why_it_did_not_run_arrives_once() -> None:
    sentence = "Internal error occurred: no such program"
    assert parse_end(format_failure("no such program")[1:]) == (1, sentence)
    assert parse_end(format_failure(sentence)[1:]) == (1, sentence)
    assert parse_end(b"plain words") == (1, "plain words")

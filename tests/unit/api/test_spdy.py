"""SPDY/3.1 frames: what one side writes the other reads, however it is cut."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api import spdy
from livesize.api.spdy import (
    DataFrame,
    Frame,
    FrameParser,
    Framer,
    GoAwayFrame,
    OpenFrame,
    PingFrame,
    ReplyFrame,
    ResetFrame,
    SpdyError,
)

NAMES = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=10)
STREAMS = st.integers(1, 2**31 - 1)
GO_AWAY = bytes.fromhex("80030007 00000008 00000001 00000000")
"""As clients send it: control frame 7 of version 3, eight bytes, last stream 1, no error."""
FRAMES = st.one_of(
    st.builds(
        OpenFrame,
        STREAMS,
        st.dictionaries(NAMES, st.text(st.characters(max_codepoint=126), max_size=20)),
        st.booleans(),
    ),
    st.builds(ReplyFrame, STREAMS),
    st.builds(DataFrame, STREAMS, st.binary(max_size=100), st.booleans()),
    st.builds(ResetFrame, STREAMS),
    st.builds(PingFrame, st.integers(0, 2**32 - 1)),
    st.just(GoAwayFrame()),
)


def written(framer: Framer, frame: Frame) -> bytes:
    match frame:
        case OpenFrame(stream=stream, headers=headers, last=last):
            return framer.open(stream, headers, last=last)
        case ReplyFrame(stream=stream):
            return framer.accept(stream)
        case DataFrame(stream=stream, data=data, last=last):
            return framer.data(stream, data, last=last)
        case ResetFrame(stream=stream):
            return framer.reset(stream)
        case PingFrame(number=number):
            return framer.ping(number)
        case GoAwayFrame():
            return GO_AWAY


@given(st.lists(FRAMES, max_size=8), st.integers(1, 40))
def test_what_is_written_is_read_however_it_is_cut(frames: list[Frame], size: int) -> None:
    framer, parser = Framer(), FrameParser()
    wire = b"".join(written(framer, frame) for frame in frames)
    read = [
        frame
        for start in range(0, len(wire), size)
        for frame in parser.feed(wire[start : start + size])
    ]
    assert read == frames


@given(st.binary(max_size=200))
def test_what_is_no_spdy_is_refused_and_nothing_else_happens(garbage: bytes) -> None:
    parser = FrameParser()
    try:
        list(parser.feed(garbage))
    except SpdyError:
        return


def test_the_dictionary_is_the_one_that_others_have() -> None:
    """zlib compares this number; RFC 1950 calls it DICTID."""
    assert len(spdy._DICTIONARY) == 1423
    assert zlib.adler32(spdy._DICTIONARY) == 0xE3C6A7C2


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (struct.pack(">II", 0x80020001, 0), "version 2"),
        (struct.pack(">II", 1, 0xFFFFFF), "too long"),
        (struct.pack(">II", 0x80030003, 2) + b"ab", "too short"),
        (struct.pack(">II", 0x80030001, 14) + bytes(14), "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(wire: bytes, why: str) -> None:
    with pytest.raises(SpdyError, match=why):
        list(FrameParser().feed(wire))


def test_headers_that_unpack_to_very_much_are_refused() -> None:
    framer: Any = Framer()
    wire = framer.open(1, {"a": "b" * 1_000_000})
    with pytest.raises(SpdyError, match="too long"):
        list(FrameParser().feed(wire))

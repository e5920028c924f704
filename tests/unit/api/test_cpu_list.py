"""CPUs as the kernel writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.cpu_list import format_cpu_list, parse_cpu_list


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", ()),
        ("\n", ()),
        ("0", (0,)),
        ("0-2,5", (0, 1, 2, 5)),
        (" 7 , 5-6,6", (5, 6, 7)),
    ],
)
def test_parse(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["a", "-1", "1-", "3-2", "0-99999999", "1:2", "²"])
def test_what_is_no_list_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="CPU"):
        parse_cpu_list(text)


@given(st.sets(st.integers(0, 8191), max_size=40))
def test_what_is_written_is_read_again(cpus: set[int]) -> None:
    assert parse_cpu_list(format_cpu_list(cpus)) == tuple(sorted(cpus))


@pytest.mark.parametrize("text", ["0-9999999", "4", "0-3," * 100, "0" * 1000, "0-3,0-3,0-3"])
def test_a_list_is_no_longer_than_whoever_reads_it_can_have(text: str) -> None:
    with pytest.raises(ValueError, match="CPU"):
        parse_cpu_list(text, 4)

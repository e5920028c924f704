"""Quantities: what Kubernetes reads and writes, and exactness against fractions.Fraction."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.quantity import (
    NANO,
    QuantityError,
    QuantityStyle,
    canonical,
    cpu_milli,
    format_cpu,
    format_memory,
    format_quantity,
    memory_bytes,
    parse_quantity,
    style_of,
)

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{suffix: Fraction(1000 ** (i + 1)) for i, suffix in enumerate("kMGTPE")},
    **{f"{suffix}i": Fraction(1024 ** (i + 1)) for i, suffix in enumerate("KMGTPE")},
}
FORMAT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
SUFFIX = "unable to parse quantity's suffix"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1"),
        ("1.5", "1500m"),
        ("0.8", "800m"),
        ("1024Mi", "1Gi"),
        ("0.5Gi", "512Mi"),
        ("1.5Gi", "1536Mi"),
        ("1023Mi", "1023Mi"),
        ("0.1Gi", "107374182400m"),
        ("0.5Ki", "512"),
        ("1Ki", "1Ki"),
        ("-1Ki", "-1Ki"),
        ("0.0001Ki", "102400u"),
        ("1024", "1024"),
        ("1000", "1k"),
        ("128974848", "128974848"),
        ("129M", "129M"),
        ("129e6", "129e6"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1e+3", "1e3"),
        ("12e5", "1200e3"),
        ("5e-1", "500e-3"),
        ("100e-2", "1"),
        ("1E", "1E"),
        ("1000E", "1000E"),
        ("0", "0"),
        ("0Gi", "0"),
        ("-0", "0"),
        ("000.000", "0"),
        ("+1", "1"),
        ("-1", "-1"),
        ("-1.5Gi", "-1536Mi"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1e-30", "1e-9"),
        ("1.0000000001", "1000000001n"),
        ("100000Ei", "9223372036854775807"),
        (" 1 ", "1"),
        (2, "2"),
        (0.5, "500m"),
        (1e-7, "100e-9"),
    ],
)
def test_canonical_form_is_the_one_of_kubernetes(text: str | float, expected: str) -> None:
    assert canonical(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *[
            (text, FORMAT)
            for text in (
                "", ".", "-", "+", "abc", "Mi", "1x", "1 Gi", "--1", "1.1.M", "1+1.0M", "0.1am",
                "1,5", "٣", "1_000", "1\x00", True, None, [], math.nan, math.inf,
            )
        ],
        *[(text, SUFFIX) for text in ("1i", ".5i", "0.1mi", "1kk", "1K", "1e", "1e-", "1m3", "1+")],
        ("1" * 65, "a quantity must have at most 64 characters"),
        (10**80, "a quantity must have at most 64 characters"),
        (10**4_000, "a quantity must have at most 64 characters"),
        ("1e100", "the exponent of a quantity must be between -99 and 99"),
        ("1e-999999999", "the exponent of a quantity must be between -99 and 99"),
    ],
)  # fmt: skip
def test_what_is_no_quantity_is_refused_with_a_sentence(text: object, message: str) -> None:
    with pytest.raises(QuantityError) as refused:
        parse_quantity(text)  # type: ignore[arg-type]
    assert str(refused.value) == message


def test_a_number_and_true_are_not_mixed_up_by_the_cache() -> None:
    assert parse_quantity(1) == parse_quantity("1") == NANO
    with pytest.raises(QuantityError):
        parse_quantity(True)


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("1", QuantityStyle.DECIMAL_SI),
        ("1Gi", QuantityStyle.BINARY_SI),
        ("1e3", QuantityStyle.DECIMAL_EXPONENT),
    ],
)
def test_style(text: str, style: QuantityStyle) -> None:
    assert style_of(text) is style


@pytest.mark.parametrize(
    ("text", "milli"), [("1", 1000), ("250m", 250), ("0.1m", 1), ("1.0001", 1001), ("-1n", -1)]
)
def test_cpu_is_rounded_up_to_thousandths(text: str, milli: int) -> None:
    assert cpu_milli(text) == milli


@pytest.mark.parametrize(
    ("text", "bytes_"), [("1Gi", 2**30), ("1500m", 2), ("0.1Gi", 107374183), ("1M", 10**6)]
)
def test_memory_is_rounded_up_to_bytes(text: str, bytes_: int) -> None:
    assert memory_bytes(text) == bytes_


def test_cpu_and_memory_are_written_as_people_write_them() -> None:
    assert [format_cpu(milli) for milli in (0, 1, 500, 1000, 2500)] == [
        "0", "1m", "500m", "1", "2500m",
    ]  # fmt: skip
    sizes = (0, 1, 4096, 2**20, 3 * 2**29, 2**30, 2**41)
    assert [format_memory(size) for size in sizes] == [
        "0", "1", "4096", "1Mi", "1536Mi", "1Gi", "2Ti",
    ]  # fmt: skip


numbers = st.builds(
    lambda whole, fraction: f"{whole}.{fraction}" if fraction else str(whole),
    st.integers(0, 10**15),
    st.text("0123456789", max_size=12),
)
signs = st.sampled_from(["", "+", "-"])


def _exact_nano(value: Fraction, *, binary: bool) -> int:
    """Nano-units rounded away from zero, capped where Kubernetes caps."""
    nano = math.ceil(abs(value) * NANO)
    if binary:
        nano = min(nano, (2**63 - 1) * NANO)
    return nano if value >= 0 else -nano


@given(signs, numbers, st.sampled_from(sorted(SUFFIXES)))
def test_every_suffix_is_exact(sign: str, number: str, suffix: str) -> None:
    value = Fraction(number.rstrip(".")) * SUFFIXES[suffix] * (-1 if sign == "-" else 1)
    expected = _exact_nano(value, binary=suffix.endswith("i"))
    assert parse_quantity(f"{sign}{number}{suffix}") == expected


@given(signs, numbers, st.integers(-40, 40))
def test_every_exponent_is_exact(sign: str, number: str, exponent: int) -> None:
    value = Fraction(number) * Fraction(10) ** exponent * (-1 if sign == "-" else 1)
    assert parse_quantity(f"{sign}{number}e{exponent}") == _exact_nano(value, binary=False)


@given(st.integers(-(10**40), 10**40), st.sampled_from(QuantityStyle))
def test_formatting_loses_nothing_and_is_a_fixed_point(nano: int, style: QuantityStyle) -> None:
    text = format_quantity(nano, style)
    binary = text.endswith("i")
    if not binary or abs(nano) <= (2**63 - 1) * NANO:
        assert parse_quantity(text) == nano
        assert canonical(text) == text
    assert "." not in text
    assert style is QuantityStyle.BINARY_SI or not binary


@given(st.integers(0, 2**50))
def test_cpu_and_memory_survive_the_way_there_and_back(amount: int) -> None:
    assert cpu_milli(format_cpu(amount)) == amount
    assert memory_bytes(format_memory(amount)) == amount


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        nano = parse_quantity(text)
    except QuantityError:
        return
    assert parse_quantity(canonical(text)) == nano

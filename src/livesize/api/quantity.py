"""Kubernetes quantities ("250m", "1.5Gi", "1e3") as exact integers, and back in canonical form.

Everything is an integer number of nano-units, the smallest amount the format can say; what is
finer is rounded away from zero, so that who asks for something gets something. The canonical text
is the one of Kubernetes: "1000m" is "1", "0.5Gi" is "512Mi", "1e3" stays "1e3". (Kubernetes skips
this for a few spellings, such as "1.125", and drops the suffix above "E"; we do neither.)
"""

from __future__ import annotations

import enum
import functools
import math
import re
from typing import Any, TypeAlias

from livesize.api.kept import kept

NANO = 10**9
MAXIMUM_CHARACTERS = 64
MAXIMUM_EXPONENT = 99

_WRONG_FORMAT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_WRONG_SUFFIX = "unable to parse quantity's suffix"
_SHAPE = re.compile(
    r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII
)
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]+)", re.ASCII)

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ("", *_BINARY)
_LARGEST_BINARY = (2**63 - 1) * NANO

Quantity: TypeAlias = str | int | float


class QuantityStyle(enum.StrEnum):
    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


class QuantityError(ValueError):
    """The text is not a quantity; the message is the one Kubernetes gives."""


def parse_quantity(text: Quantity) -> int:
    """Read a quantity as nano-units. Raises QuantityError."""
    return _parse(text if isinstance(text, str) else _as_text(text))[0]


def style_of(text: Quantity) -> QuantityStyle:
    """The family of suffixes the text is written in. Raises QuantityError."""
    return _parse(text if isinstance(text, str) else _as_text(text))[1]


def canonical(text: Quantity) -> str:
    """The same amount as Kubernetes writes it. Raises QuantityError."""
    return _canonical(text if isinstance(text, str) else _as_text(text))


def cpu_milli(text: Quantity) -> int:
    """Thousandths of a CPU, rounded up."""
    return _cpu_milli(text if isinstance(text, str) else _as_text(text))


def memory_bytes(text: Quantity) -> int:
    """Bytes, rounded up."""
    return _memory_bytes(text if isinstance(text, str) else _as_text(text))


def format_cpu(milli: int) -> str:
    return format_quantity(milli * (NANO // 1000), QuantityStyle.DECIMAL_SI)


def format_memory(bytes_: int) -> str:
    """Mi, Gi and so on where it is whole; plain bytes otherwise."""
    if bytes_ % 2**20:
        return str(bytes_)
    return format_quantity(bytes_ * NANO, QuantityStyle.BINARY_SI)


def format_whole_mi(bytes_: int) -> str:
    """Rounded up, for people: nobody reads eleven digits."""
    return f"{-(-bytes_ // 2**20)}Mi"


def format_quantity(nano: int, style: QuantityStyle) -> str:
    """Write nano-units in canonical form: no fraction, and the largest suffix that allows it.

    A binary amount that is small or not whole is written in decimal, so that nothing is lost.
    """
    if nano == 0:
        return "0"
    match style:
        case QuantityStyle.BINARY_SI if abs(nano) >= 1024 * NANO and nano % NANO == 0:
            return _format_binary(nano // NANO)
        case QuantityStyle.BINARY_SI | QuantityStyle.DECIMAL_SI:
            number, exponent = _thousands(nano, largest=18)
            return f"{number}{_DECIMAL_SUFFIX[exponent]}"
        case QuantityStyle.DECIMAL_EXPONENT:
            number, exponent = _thousands(nano, largest=None)
            return f"{number}e{exponent}" if exponent else str(number)


def _as_text(number: Quantity) -> str:
    # JSON may carry a quantity as a number. bool is an int to Python, but not to JSON.
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise QuantityError(_WRONG_FORMAT)
    if isinstance(number, int):
        # Checked before it is written out, because writing out a huge integer is slow.
        if number.bit_length() > 4 * MAXIMUM_CHARACTERS:
            raise QuantityError(_too_long())
        return str(number)
    if not math.isfinite(number):
        raise QuantityError(_WRONG_FORMAT)
    return repr(number)


@functools.lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    return format_quantity(*_parse(text))


@functools.lru_cache(maxsize=4096)
def _cpu_milli(text: str) -> int:
    return _divide_away_from_zero(_parse(text)[0], NANO // 1000)


@functools.lru_cache(maxsize=4096)
def _memory_bytes(text: str) -> int:
    return _divide_away_from_zero(_parse(text)[0], NANO)


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[int, QuantityStyle]:
    if len(text) > MAXIMUM_CHARACTERS:
        raise QuantityError(_too_long())
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        raise QuantityError(_WRONG_FORMAT)
    sign, whole, fraction, suffix = found.groups(default="")
    base, exponent, style = _interpret(suffix)
    digits = int(whole + fraction)
    nano = _scale(digits, len(fraction), base, exponent)
    if style is QuantityStyle.BINARY_SI:
        nano = min(nano, _LARGEST_BINARY)
    return (-nano if sign == "-" else nano), style


def _interpret(suffix: str) -> tuple[int, int, QuantityStyle]:
    if suffix in _DECIMAL:
        return 10, _DECIMAL[suffix], QuantityStyle.DECIMAL_SI
    if suffix in _BINARY:
        return 2, _BINARY[suffix], QuantityStyle.BINARY_SI
    found = _EXPONENT.fullmatch(suffix)
    if found is None:
        raise QuantityError(_WRONG_SUFFIX)
    exponent = int(found[1])
    if abs(exponent) > MAXIMUM_EXPONENT:
        message = f"the exponent of a quantity must be between -{MAXIMUM_EXPONENT} and "
        raise QuantityError(f"{message}{MAXIMUM_EXPONENT}")
    return 10, exponent, QuantityStyle.DECIMAL_EXPONENT


def _scale(digits: int, decimals: int, base: int, exponent: int) -> int:
    """Return digits / 10**decimals * base**exponent in nano-units, rounded up."""
    if base == 2:
        return _divide_away_from_zero((digits << exponent) * NANO, 10**decimals)
    power = exponent + 9 - decimals
    return _divide_away_from_zero(digits * 10 ** max(power, 0), 10 ** max(-power, 0))


def _thousands(nano: int, *, largest: int | None) -> tuple[int, int]:
    """Split into a whole number and the largest exponent of ten that is a multiple of three."""
    number, exponent = nano, -9
    while number % 1000 == 0 and exponent != largest:
        number //= 1000
        exponent += 3
    return number, exponent


def _format_binary(units: int) -> str:
    steps = 0
    while units % 1024 == 0 and steps < len(_BINARY):
        units //= 1024
        steps += 1
    return f"{units}{_BINARY_SUFFIX[steps]}"


def _divide_away_from_zero(amount: int, divisor: int) -> int:
    quotient = -(-abs(amount) // divisor)
    return -quotient if amount < 0 else quotient


def _too_long() -> str:
    return f"a quantity must have at most {MAXIMUM_CHARACTERS} characters"


def canonical_quantities(quantities: Any) -> Any:
    if not isinstance(quantities, dict):
        return quantities
    return {
        name: _canonical_text(item) if isinstance(item, str) else canonical_quantity(item)
        for name, item in quantities.items()
    }


@kept(4096, longest=MAXIMUM_CHARACTERS)
def _canonical_text(text: str) -> Any:
    return canonical_quantity(text)


def canonical_quantity(quantity: Any) -> Any:
    if not isinstance(quantity, str | int | float) or isinstance(quantity, bool):
        return quantity
    try:
        return canonical(quantity)
    except QuantityError:
        return quantity

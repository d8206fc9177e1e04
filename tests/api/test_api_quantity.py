"""Quantities are exact, rounded up only when an integer is asked for, and refused when they are none."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.quantity import (
    INT64_MAX,
    Quantity,
    QuantityError,
    format_bytes,
    format_milli,
    int_value,
    milli_value,
    parse_quantity,
)

POWERS = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
    "Ei": Fraction(2**60), "e3": Fraction(1000), "E-2": Fraction(1, 100), "e+06": Fraction(10**6), "e0": Fraction(1),
}  # fmt: skip

VALUES: list[tuple[str | int | float, int, int]] = [
    # text, value, milli
    ("0", 0, 0), ("1", 1, 1000), ("100m", 1, 100), ("1500u", 1, 2), ("1500m", 2, 1500), ("0.5", 1, 500), (".5", 1, 500),
    ("5.", 5, 5000), ("1.5Gi", 1610612736, 1610612736000), ("1k", 1000, 10**6), ("2e3", 2000, 2 * 10**6), ("1E3", 1000, 10**6),
    ("1E", 10**18, INT64_MAX), ("-1", -1, -1000), ("-1500u", -1, -2), ("-0.5", -1, -500), ("+3", 3, 3000), ("1n", 1, 1),
    ("0.0000000001", 1, 1), ("1e-12", 1, 1), ("9223372036854775807", INT64_MAX, INT64_MAX), ("9223372036854775808", INT64_MAX, INT64_MAX),
    ("100E", INT64_MAX, INT64_MAX), ("-100E", -INT64_MAX, -INT64_MAX), (2, 2, 2000), (0.5, 1, 500), (1.5, 2, 1500), ("007", 7, 7000),
    ("200Mi", 209715200, 209715200000), ("1e999", INT64_MAX, INT64_MAX),
    ("9" * 5000, INT64_MAX, INT64_MAX), ("-" + "9" * 5000 + "e-999", -INT64_MAX, -INT64_MAX), ("0" * 5000 + "7m", 1, 7),
    ("0." + "0" * 5000 + "1", 1, 1), ("1." + "0" * 5000, 1, 1000), ("0." + "0" * 4000 + "1e999", 1, 1), ("0." + "0" * 990 + "5e999", 5 * 10**8, 5 * 10**11),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "milli"), VALUES)
def test_value(text: str | int | float, value: int, milli: int) -> None:
    quantity = Quantity.parse(text)
    assert (quantity.value(), quantity.milli()) == (value, milli)
    assert (int_value(text), milli_value(text)) == (value, milli)
    assert parse_quantity(text) == quantity


NONE: list[object] = [
    "", " ", "1 ", " 1", "1\n", ".", "+", "-", "--1", "1..2", "1.2.3", "m", "Ki", "1kk", "1K", "1KI", "1ki", "1Mib", "1e", "1e+",
    "1e1000", "0x10", "1_000", "\u0661", "1e3Ki", "NaN", "inf", "1,5", None, True, False, [], {}
]  # fmt: skip


@pytest.mark.parametrize("text", NONE, ids=repr)
def test_no_quantity(text: object) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text, "spec.cpu")  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"spec.cpu: {text!r} is not a quantity; write a number")
    assert caught.value.path == "spec.cpu"


def test_floats_that_are_no_numbers_are_no_quantities() -> None:
    for number in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(QuantityError):
            parse_quantity(number)


numbers = st.builds(
    lambda sign, whole, frac, suffix: (sign, whole, frac, suffix),
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**12),
    st.text("0123456789", max_size=12),
    st.sampled_from(sorted(POWERS)),
)


def limited(amount: Fraction) -> Fraction:
    return max(Fraction(-INT64_MAX), min(Fraction(INT64_MAX), amount))


def away(amount: Fraction) -> int:
    return math.ceil(amount) if amount >= 0 else math.floor(amount)


@given(numbers)
def test_parsing_is_exact_down_to_a_nano(parts: tuple[str, int, str, str]) -> None:
    sign, whole, frac, suffix = parts
    exact = Fraction(f"{whole}.{frac or '0'}") * POWERS[suffix] * (-1 if sign == "-" else 1)
    quantity = Quantity.parse(f"{sign}{whole}{'.' if frac else ''}{frac}{suffix}")
    assert quantity.nanos == away(limited(exact) * 10**9)
    assert quantity.value() == away(limited(exact))
    # Milli-units round what is left after rounding to nanos: away from zero both times, so once in all.
    assert quantity.milli() == max(-INT64_MAX, min(INT64_MAX, away(limited(exact) * 1000)))


@given(st.integers(-(10**30), 10**30))
def test_what_is_written_reads_the_same(nanos: int) -> None:
    quantity = Quantity(nanos)
    assert Quantity.parse(str(quantity)) == quantity
    assert repr(quantity) == f"Quantity('{quantity}')"


@given(st.integers(-(10**20), 10**20), st.integers(-(10**20), 10**20))
def test_arithmetic_and_order_are_those_of_the_amounts(first: int, second: int) -> None:
    one, other = Quantity(first), Quantity(second)
    assert (one + other).nanos == first + second
    assert (one - other).nanos == first - second
    assert (one < other, one <= other, one == other) == (first < second, first <= second, first == second)
    assert one != other or hash(one) == hash(other)


def test_a_quantity_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="Quantity is immutable: cannot set nanos"):
        Quantity(1).nanos = 2
    assert Quantity(1) != 1


@pytest.mark.parametrize(
    ("nanos", "text"),
    [(0, "0"), (10**9, "1"), (15 * 10**8, "1500m"), (10**12, "1k"), (1, "1n"), (-(10**6), "-1m"), (10**27, "1E"), (10**28, "9223372036854775807")],
)  # fmt: skip
def test_canonical_form(nanos: int, text: str) -> None:
    assert str(Quantity(nanos)) == text


def test_numbers_for_people() -> None:
    assert [format_milli(milli) for milli in (0, 500, 2000, 1500)] == ["0", "500m", "2", "1500m"]
    sizes = [0, 1, 1023, 1024, 1536, 1610612736, 1 << 40, 3 << 60]
    assert [format_bytes(size) for size in sizes] == ["0", "1", "1023", "1Ki", "1.5Ki", "1.5Gi", "1Ti", "3072Pi"]

"""Values drawn for generated pods: a constant, or a distribution by name. Caller: :mod:`.streams`.

10m                                   always the same
{exponential: 10m}                    by its mean
{lognormal: {median: 10m, sigma: 1}}
{uniform: [1m, 1h]}
{choice: {1: 0.7, 4: 0.3}}            values and weights, or a list
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from kubesched.base.times import parse_duration

__all__ = ["DrawError", "Draws", "draws", "number_of"]

#: Function that draws so many values as texts of cells.
Draws = Callable[[np.random.Generator, int], list[str]]

_NAMES: Final = ("exponential", "lognormal", "uniform", "choice")
_RIGHT: Final = f"a value, or a mapping with one of {', '.join(_NAMES)}"


class DrawError(ValueError):
    """Description of a value that cannot be used: its path, and what is right."""

    def __init__(self, path: str, value: Any, right: str) -> None:
        super().__init__(f"{path}: {value!r}: expected {right}")


def number_of(value: Any, path: str, *, positive: bool = False) -> float:
    """Return a number, or the seconds of a duration such as ``10m``.

    Raises:
        DrawError: when it is neither, is negative, or is 0 although it must be ``positive``.
    """
    right = f"a number or a duration such as 90s, {'above 0' if positive else '0 or more'}"
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        number = _seconds(value) if isinstance(value, str) else float(value)
    except ValueError:
        raise DrawError(path, value, right) from None
    if not 0 <= number < float("inf") or (positive and not number):
        raise DrawError(path, value, right)
    return number


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return parse_duration(text)


def draws(given: Any, path: str, *, whole: bool = False) -> Draws:
    """Return the function that draws what is described. ``whole`` rounds numbers up to whole ones, 1 or more.

    Raises:
        DrawError: when the description cannot be used.
    """
    if not isinstance(given, Mapping):
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise DrawError(path, given, _RIGHT)
        return lambda rng, count: [str(given)] * count
    if len(given) != 1 or next(iter(given)) not in _NAMES:
        raise DrawError(path, dict(given), _RIGHT)
    name, value = next(iter(given.items()))
    path = f"{path}.{name}"
    if name == "choice":
        return _choice(value, path)
    numbers = _numbers(name, value, path)

    def drawn(rng: np.random.Generator, count: int) -> list[str]:
        found = numbers(rng, count)
        if whole:
            found = np.maximum(np.ceil(found), 1)
        return [f"{one:.6f}".rstrip("0").rstrip(".") for one in found.tolist()]

    return drawn


def _numbers(name: str, value: Any, path: str) -> Callable[[np.random.Generator, int], Any]:
    if name == "exponential":
        mean = number_of(value, path, positive=True)
        return lambda rng, count: rng.exponential(mean, count)
    if name == "lognormal":
        if not isinstance(value, Mapping) or set(value) != {"median", "sigma"}:
            raise DrawError(path, value, "a mapping such as {median: 10m, sigma: 1}")
        median = number_of(value["median"], f"{path}.median", positive=True)
        sigma = number_of(value["sigma"], f"{path}.sigma")
        return lambda rng, count: median * np.exp(sigma * rng.standard_normal(count))
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise DrawError(path, value, "a list of the least and the greatest value, such as [1m, 1h]")
    least, most = (number_of(one, f"{path}[{index}]") for index, one in enumerate(value))
    if least > most:
        raise DrawError(path, list(value), "the least value first")
    return lambda rng, count: rng.uniform(least, most, count)


def _choice(value: Any, path: str) -> Draws:
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = dict.fromkeys(value, 1)
    if not isinstance(value, Mapping) or not value:
        raise DrawError(path, value, "a list of values, or a mapping of values to weights")
    weights = np.array([number_of(one, f"{path}.{key}") for key, one in value.items()], np.float64)
    if not weights.sum():
        raise DrawError(path, dict(value), "a weight above 0")
    texts, shares = [str(one) for one in value], weights / weights.sum()
    return lambda rng, count: [texts[index] for index in rng.choice(len(texts), count, p=shares).tolist()]

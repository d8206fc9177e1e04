"""Plan of a sweep: its runs, made from a grid of parameters, a list of runs, or both.

A run has the arguments of its function. The table and the results file show a name for each argument: its label, or
the value itself, which must be short. Two runs with equal names are refused, because they would be the same run.
Callers: :mod:`.running` and :mod:`.sweep_file`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

__all__ = ["Run", "Scalar", "SweepError", "make_runs", "parse_seeds"]

#: Value of a table's cell.
Scalar = str | int | float | bool | None

#: Most characters of a parameter without a label.
_LONGEST_NAME: Final = 200
_MOST_RUNS: Final = 1_000_000
_SEEDS: Final = re.compile(r"\s*(-?\d+)\s*(?:-\s*(\d+)\s*)?")


class SweepError(ValueError):
    """Sweep that cannot be run as given. The text names a correct form."""


class Run(msgspec.Struct, frozen=True):
    """Run of a sweep.

    ``names`` are its parameters as the table shows them; ``arguments`` are the arguments of the function call.
    """

    names: dict[str, Scalar]
    arguments: dict[str, Any]

    @property
    def key(self) -> str:
        """Key of the run in a results file."""
        return msgspec.json.encode(self.names, order="sorted").decode()


def make_runs(
    grid: Mapping[str, Any] | None = None,
    runs: Iterable[Mapping[str, Any]] = (),
    arguments: Mapping[str, Any] | None = None,
) -> list[Run]:
    """Return every combination of the grid's values, the last parameter changing fastest, then the runs of the list.

    A parameter of the grid is a list of values, or a mapping of labels to values; a single value is a list of one. For
    the parameter ``seed``, the text ``0-9`` stands for a range. ``arguments`` are the same for all runs, and not shown.

    Raises:
        SweepError: when there is no run, when two have equal names, or when a value has no place in a table.
    """
    fixed = dict(arguments or {})
    axes = {name: _axis(name, values) for name, values in (grid or {}).items()}
    found: list[Run] = []
    total = math.prod(len(axis) for axis in axes.values())
    if total > _MOST_RUNS:
        raise SweepError(f"grid: makes {total:,} runs; expected at most {_MOST_RUNS:,}")
    if axes:
        for choice in itertools.product(*axes.values()):
            names = {name: label for name, (label, _) in zip(axes, choice, strict=True)}
            values = {name: value for name, (_, value) in zip(axes, choice, strict=True)}
            found.append(Run(names, {**fixed, **values}))
    for index, single in enumerate(runs):
        if not isinstance(single, Mapping):
            raise SweepError(f"runs[{index}]: {single!r}; expected the parameters of one run by name")
        where = f"runs[{index}]"
        names = {_name(where, name): _label(f"{where}.{name}", value) for name, value in single.items()}
        found.append(Run(names, {**fixed, **single}))
    if not found:
        raise SweepError("the sweep has no runs; expected a grid of parameters, or a list of runs")
    keys: set[str] = set()
    for run in found:
        clash = sorted(run.names.keys() & fixed.keys())
        if clash:
            raise SweepError(f"parameter {clash[0]} is given for all runs and for single ones; expected one of the two")
        if run.key in keys:
            raise SweepError(f"two runs are named {run.key}; expected different parameters, or labels")
        keys.add(run.key)
    return found


def parse_seeds(text: str) -> list[int]:
    """Return seeds from a text such as ``7``, ``0-9`` or ``1,2,40-49``.

    Raises:
        SweepError: when it is none of these.
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = _SEEDS.fullmatch(part)
        if match is None:
            raise SweepError(f"seeds {text!r}; expected numbers and ranges such as 0-9 or 1,2,40-49")
        first = int(match[1])
        last = int(match[2]) if match[2] is not None else first
        if last < first or last - first >= _MOST_RUNS:
            raise SweepError(f"seeds {text!r}; expected a range that ends where it begins or later, such as 0-9")
        seeds.extend(range(first, last + 1))
    return seeds


def _axis(name: str, values: Any) -> list[tuple[Scalar, Any]]:
    """Return labels and values of one parameter of a grid."""
    where = f"grid.{_name('grid', name)}"
    if name == "seed" and isinstance(values, str):
        values = parse_seeds(values)
    if isinstance(values, Mapping):
        axis: list[tuple[Scalar, Any]] = [(_short(where, str(label)), value) for label, value in values.items()]
    elif isinstance(values, Iterable) and not isinstance(values, str | bytes):
        axis = [(_label(f"{where}[{index}]", value), value) for index, value in enumerate(values)]
    else:
        axis = [(_label(where, values), values)]
    if not axis:
        raise SweepError(f"{where}: is empty; expected at least one value")
    return axis


def _name(where: str, name: Any) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise SweepError(f"{where}: {name!r}; expected the name of a parameter: letters, digits and underscores")
    return name


def _label(where: str, value: Any) -> Scalar:
    """Return a value in the form of a table's cell."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SweepError(f"{where}: {value}; expected a finite number")
        return value
    if isinstance(value, str):
        return _short(where, value)
    try:
        return _short(where, msgspec.json.encode(value, enc_hook=_plain).decode())
    except TypeError as error:
        raise SweepError(f"{where}: {error}; expected plain data, or a label for it: {{label: value}}") from error


def _short(where: str, text: str) -> str:
    if len(text) > _LONGEST_NAME:
        raise SweepError(f"{where}: a value of {len(text)} characters needs a label: {{label: value}}")
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a {type(value).__name__} is no plain data")

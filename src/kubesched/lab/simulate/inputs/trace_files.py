"""Pods that arrive over time, from any form: CSV, JSON lines, Parquet, a data frame, columns, or generated arrivals.

All forms have the columns of :mod:`.workload_table`; generated arrivals are described in :mod:`.streams`. Callers:
``kubesched simulate --trace``, ``kubesched.simulate(trace=...)`` and sweeps.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

from kubesched.api.documents import TextError
from kubesched.api.yamltext import parse_json, read_single
from kubesched.base.extras import how_to_install
from kubesched.cluster.files import Manifest, ManifestError, read_text

from ..results.frames import frame_of
from .streams import ArrivalPlan, is_plan, read_plan
from .workload_table import Row, check_header, pods_of_rows, read_table

__all__ = ["ArrivalTable", "TraceInput", "arrivals", "rows_of_file", "trace_pods"]

#: Pods over time: a path, a data frame, columns by name, a document of kind ``Arrivals``, or several of these.
TraceInput: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | ArrivalPlan | Sequence[Any] | Any

_LINES: Final = (".jsonl", ".ndjson")
_PLANS: Final = (".yaml", ".yml")
_PARQUET: Final = ".parquet"
_PAIRS: Final = ("labels", "nodeSelector")


def trace_pods(given: TraceInput, seed: int, name: str = "trace") -> list[Manifest]:
    """Return the pods of a trace in any form; ``name`` is the name of the argument in messages.

    ``seed`` decides generated arrivals whose document has no seed of its own.

    Raises:
        ManifestError: with every value that cannot be used, by file or argument, row and column.
    """
    if isinstance(given, str | os.PathLike):
        return _pods_of_file(os.fspath(given), seed)
    if isinstance(given, ArrivalPlan):
        return given.pods(seed)
    if is_plan(given):
        return read_plan(given, name, rows_of_file).pods(seed)
    columns = _columns(given)
    if columns is not None:
        return pods_of_rows(_rows_of_columns(columns, name))
    if isinstance(given, Iterable):
        return [pod for index, one in enumerate(given) for pod in trace_pods(one, seed, f"{name}[{index}]")]
    expected = "expected a path, a data frame, a dict of columns, or generated arrivals"
    raise ManifestError(f"{name}: {type(given).__name__}: {expected}")


class ArrivalTable(dict[str, list[Any]]):
    """Generated arrivals as columns of texts: a table of pods for ``kubesched.simulate(trace=...)``."""

    def to_frame(self, library: str | None = None) -> Any:
        """Return a data frame of ``pandas`` or ``polars``; by default of the one that is installed.

        Raises:
            ValueError: for another library.
            ImportError: when it is not installed.
        """
        return frame_of(self, library)


def arrivals(
    streams: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, until: str | float | None = None, seed: int = 0
) -> ArrivalTable:
    """Generate pods that arrive over time, as a table.

    Args:
        streams: a list of streams, such as ``[{"name": "web", "poisson": {"rate": "30/h"}, "duration": "10m"}]``, or a
            whole document of kind ``Arrivals``; see ``docs/arrivals.md``. Templates are not part of the table.
        until: the end of the arrivals, unless a stream has its own.
        seed: decides what is drawn. Equal seeds give equal tables.

    Raises:
        ManifestError: with every field that cannot be used, by path, value and what would be right.
    """
    document: Mapping[str, Any] = streams if is_plan(streams) else {"streams": streams}  # type: ignore[assignment]
    if until is not None:
        document = {**document, "until": until}
    rows = [row.cells for row in read_plan(document, "arrivals", rows_of_file).rows(seed)]
    columns = dict.fromkeys(column for row in rows for column in row)
    return ArrivalTable({column: [row.get(column, "") for row in rows] for column in columns})


def rows_of_file(path: str) -> list[dict[str, str]]:
    """Return the cells of a table's rows, by column, from a file of any form of table.

    Raises:
        ManifestError: see :func:`trace_pods`.
    """
    return [row.cells for row in _rows_of_file(path)]


def _kind(path: str) -> str:
    return Path(path.removesuffix(".gz")).suffix


def _pods_of_file(path: str, seed: int) -> list[Manifest]:
    if _kind(path) in _PLANS:
        try:
            document = read_single(read_text(Path(path)), path)
        except TextError as error:
            raise ManifestError(str(error)) from None
        folder = Path(path).parent  # tables of a document are found from its place
        return read_plan(document, path, lambda table: rows_of_file(str(folder / table))).pods(seed)
    if _kind(path) not in (*_LINES, _PARQUET):
        return read_table(path)
    return pods_of_rows(_rows_of_file(path))


def _rows_of_file(path: str) -> list[Row]:
    if _kind(path) in _LINES:
        return _rows_of_lines(read_text(Path(path)), path)
    if _kind(path) == _PARQUET:
        return _rows_of_columns(_parquet(path), path)
    found: list[Row] = []
    read_table(path, keep=found)
    return found


def _rows_of_lines(text: str, name: str) -> list[Row]:
    """Return the rows of JSON lines: an object for each, whose members are columns."""
    rows, problems = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            data = parse_json(line.encode()).data
        except TextError as error:
            problems.append(f"{where}: is no JSON: {error}")
            continue
        if not isinstance(data, Mapping):
            problems.append(f'{where}: {line.strip()[:60]!r}: expected an object such as {{"arrival": 60, "cpu": 1}}')
            continue
        try:
            check_header(list(data), where)
            rows.append(Row({key: _text(key, value) for key, value in data.items()}, where, number))
        except ManifestError as error:
            problems += error.problems
    if problems:
        raise ManifestError(*problems)
    if not rows:
        raise ManifestError(f'{name}: holds no line; each line is an object such as {{"arrival": 60, "cpu": 1}}')
    return rows


def _parquet(path: str) -> Mapping[str, Sequence[Any]]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        how = how_to_install("parquet")
        raise ManifestError(f"{path}: Parquet needs pyarrow, which is not installed: {how}; or write .csv") from None
    try:
        columns: Mapping[str, Sequence[Any]] = parquet.read_table(path).to_pydict()
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise ManifestError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
    return columns


def _columns(given: Any) -> Mapping[str, Sequence[Any]] | None:
    """Return the columns of a data frame of pandas or polars, or of a dict of columns; None for anything else."""
    if isinstance(given, Mapping):
        return {
            str(name): list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
            for name, values in given.items()
        }
    to_dict = getattr(given, "to_dict", None)
    if not hasattr(given, "columns") or not callable(to_dict):
        return None
    data = to_dict("list") if type(given).__module__.startswith("pandas") else to_dict(as_series=False)
    return {str(name): values for name, values in data.items()}


def _rows_of_columns(columns: Mapping[str, Sequence[Any]], name: str) -> list[Row]:
    check_header(list(columns), name)
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise ManifestError(
            f"{name}: its columns have {', '.join(map(str, sorted(lengths)))} values; expected equal numbers"
        )
    texts = {key: [_text(key, value) for value in values] for key, values in columns.items()}
    if not texts or not lengths or 0 in lengths:
        raise ManifestError(f"{name}: has no rows")
    return [
        Row(dict(zip(texts, cells, strict=True)), f"{name}:{number}", number)
        for number, cells in enumerate(zip(*texts.values(), strict=True), 1)
    ]


def _text(column: str, value: Any) -> str:
    """Return a value as the text of a cell. Whatever is missing is empty; a length of time is in seconds."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or str(value) in ("NaT", "<NA>"):
        return ""
    if isinstance(value, timedelta):  # pandas' too
        return f"{value.total_seconds():.9f}".rstrip("0").rstrip(".")
    if isinstance(value, Mapping) and column in _PAIRS:
        return " ".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, float) or hasattr(value, "dtype"):
        number = float(value)
        return str(int(number)) if number.is_integer() else f"{number:.9f}".rstrip("0").rstrip(".")
    return str(value).strip()

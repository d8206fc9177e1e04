"""Generated arrivals: streams of pods with a process of arrivals, and distributions of durations, sizes and requests.

    apiVersion: kubesched.io/v1alpha1
    kind: Arrivals
    until: 24h
    streams:
    - {name: web, diurnal: {rate: 30/h, peak: "14:00", swing: 0.6}, duration: {exponential: 20m}, cpu: 500m}

Every other field of a stream is a column of :mod:`.workload_table`. Caller: :mod:`.trace_files`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from kubesched.cluster.files import Manifest, ManifestError

from ...traces.generators import DAYS, HOURS, Times, burst_times, daily_shape, fitted_shape, shaped_times
from .draws import DrawError, Draws, draws, number_of
from .workload_table import Row, check_header, pods_of_rows

__all__ = ["ArrivalPlan", "is_plan", "read_plan"]

#: Names of the processes, each with its fields.
PROCESSES: Final[dict[str, tuple[str, ...]]] = {
    "poisson": ("rate",),
    "diurnal": ("rate", "peak", "swing", "weekend", "hours", "days"),
    "bursts": ("every", "size", "within", "regular"),
    "fitted": ("table", "scale"),
}
_API: Final = "kubesched.io/v1alpha1"
_WHOLE: Final = ("apiVersion", "kind", "seed", "until", "streams")
_STREAM: Final = ("name", "from", "until", "template")
_RATE: Final = re.compile(r"([0-9.]+) ?/ ?(s|m|h|d)")
_PER: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_CLOCK: Final = re.compile(r"([01]?[0-9]|2[0-4])(?::([0-5][0-9]))?")
#: Most arrivals of a plan; more are taken for a mistake.
_MOST: Final = 1_000_000

#: Function that reads the rows of a table in a file.
Tables = Callable[[str], list[dict[str, str]]]
#: Function that draws times of arrival.
_Process = Callable[[np.random.Generator, float, float], Times]


class _Stream:
    """Stream of pods: its process, and what is drawn for each pod."""

    def __init__(self, given: Mapping[str, Any], where: str, until: Any, tables: Tables) -> None:
        self.where = where
        named = [name for name in PROCESSES if name in given]
        if len(named) != 1:
            raise DrawError(where, sorted(map(str, given)), f"one of {', '.join(PROCESSES)}")
        self.name = given.get("name", named[0])
        if not isinstance(self.name, str):
            raise DrawError(f"{where}.name", self.name, "a text")
        self._begin = number_of(given.get("from", 0), f"{where}.from")
        self._end = number_of(given.get("until", until), f"{where}.until", positive=True)
        template = given.get("template")
        if template is not None and not isinstance(template, Mapping):
            raise DrawError(f"{where}.template", template, "a pod template with metadata and spec")
        self._template = template
        self._rows: list[dict[str, str]] = []
        self._process = self._read(named[0], given[named[0]], f"{where}.{named[0]}", tables)
        columns = {key: value for key, value in given.items() if key not in (*_STREAM, *PROCESSES)}
        check_header([str(key) for key in columns], where)
        self._draws: dict[str, Draws] = {
            key: draws(value, f"{where}.{key}", whole=key == "count") for key, value in columns.items()
        }

    def _read(self, name: str, given: Any, where: str, tables: Tables) -> _Process:
        if not isinstance(given, Mapping) or any(key not in PROCESSES[name] for key in given):
            raise DrawError(where, given, f"a mapping with {', '.join(PROCESSES[name])}")
        if name == "fitted":
            return self._fitted(given, where, tables)
        if name == "bursts":
            return self._bursts(given, where)
        rate = _rate(given.get("rate"), f"{where}.rate")
        hours, days = _shape(given, where) if name == "diurnal" else ([], [])
        return self._shaped(rate, hours, days)

    def _shaped(self, rate: float, hours: Sequence[float], days: Sequence[float]) -> _Process:
        self._bound(rate * (self._end - self._begin))
        return lambda rng, begin, end: shaped_times(rng, rate, begin, end, hours, days)

    def _bound(self, expected: float) -> None:
        if self._end < self._begin:
            raise DrawError(f"{self.where}.until", self._end, f"a time after from, {self._begin:g} s")
        if expected > _MOST:
            raise DrawError(self.where, round(expected), f"at most {_MOST:,} arrivals; lower the rate, or until")

    def _bursts(self, given: Mapping[str, Any], where: str) -> _Process:
        every = number_of(given.get("every"), f"{where}.every", positive=True)
        within = number_of(given.get("within", 0), f"{where}.within")
        regular = given.get("regular", False)
        if not isinstance(regular, bool):
            raise DrawError(f"{where}.regular", regular, "true or false")
        size = draws(given.get("size"), f"{where}.size", whole=True)
        number_of(size(np.random.default_rng(0), 1)[0], f"{where}.size", positive=True)
        self._bound((self._end - self._begin) / every)

        def process(rng: np.random.Generator, begin: float, end: float) -> Times:
            def sizes(count: int) -> Any:
                drawn = np.array([float(one) for one in size(rng, count)], np.float64)
                return np.minimum(drawn, 2.0 * _MOST).astype(np.int64)

            try:
                return burst_times(rng, every, begin, end, sizes, within, regular=regular, most=_MOST)
            except ValueError as error:
                raise ManifestError(f"{where}: {error}; lower size, or until") from None

        return process

    def _fitted(self, given: Mapping[str, Any], where: str, tables: Tables) -> _Process:
        path = given.get("table")
        if not isinstance(path, str):
            raise DrawError(f"{where}.table", path, "the path of a table of pods, such as pods.csv")
        scale = number_of(given.get("scale", 1), f"{where}.scale", positive=True)
        self._rows = tables(path)
        arrivals = []
        for row in self._rows:
            try:
                arrivals.append(number_of(row.get("arrival") or 0, "arrival"))
            except DrawError as error:
                raise DrawError(f"{where}.table", path, f"a table without bad values; {error}") from None
        rate, hours, days = fitted_shape(arrivals)
        return self._shaped(scale * rate, hours, days)

    def rows(self, rng: np.random.Generator) -> Iterator[Row]:
        """Draw the arrivals of the stream, as rows of a table."""
        times = self._process(rng, self._begin, self._end)
        count = len(times)
        if count > _MOST:
            raise ManifestError(f"{self.where}: {count:,} arrivals were drawn; expected at most {_MOST:,}")
        drawn = {column: draw(rng, count) for column, draw in self._draws.items()}
        models = rng.integers(len(self._rows), size=count).tolist() if self._rows else []
        for index, time in enumerate(times.tolist()):
            cells = dict(self._rows[models[index]]) if models else {}
            cells |= {column: values[index] for column, values in drawn.items()}
            cells |= {"arrival": f"{time:.6f}", "name": f"{self.name}-{index}"}
            cells["workload"] = cells.get("workload") or self.name
            yield Row(cells, f"{self.where}:{index}", index, self._template)


class ArrivalPlan:
    """Plan of generated arrivals. Equal seeds give equal pods."""

    def __init__(self, streams: Sequence[_Stream], seed: int | None) -> None:
        self._streams = streams
        self._seed = seed

    def rows(self, seed: int = 0) -> list[Row]:
        """Return the arrivals as rows of a table, by stream. ``seed`` counts if the plan has none of its own."""
        roots = np.random.SeedSequence(self._seed if self._seed is not None else abs(seed)).spawn(len(self._streams))
        return [
            row
            for stream, root in zip(self._streams, roots, strict=True)
            for row in stream.rows(np.random.default_rng(root))
        ]

    def pods(self, seed: int = 0) -> list[Manifest]:
        """Return the pods that arrive.

        Raises:
            ManifestError: with every drawn value that cannot be used.
        """
        return pods_of_rows(self.rows(seed))


def is_plan(given: Any) -> bool:
    """True for a document of kind ``Arrivals``."""
    return isinstance(given, Mapping) and (given.get("kind") == "Arrivals" or "streams" in given)


def read_plan(document: Any, name: str, tables: Tables) -> ArrivalPlan:
    """Return the plan of a document. ``tables`` reads the tables that streams are fitted to.

    Raises:
        ManifestError: with every field that cannot be used, by path, value and what would be right.
    """
    if not isinstance(document, Mapping):
        raise ManifestError(f"{name}: expected a document of kind Arrivals, found {type(document).__name__}")
    problems = [
        f"{name}: {key}: {document[key]!r}; expected {right}"
        for key, right in (("apiVersion", _API), ("kind", "Arrivals"))
        if document.get(key, right) != right
    ]
    problems += [f"{name}: {key}: is not known; there are {', '.join(_WHOLE)}" for key in document if key not in _WHOLE]
    seed, given = document.get("seed"), document.get("streams")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        problems.append(f"{name}: seed: {seed!r}: expected a whole number, 0 or more")
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        problems.append(f"{name}: streams: {given!r}: expected a list of streams")
        given = []
    streams = []
    for index, one in enumerate(given):
        where = f"{name}: streams[{index}]"
        try:
            if not isinstance(one, Mapping):
                raise DrawError(where, one, f"a stream: a mapping with name and one of {', '.join(PROCESSES)}")
            streams.append(_Stream(one, where, document.get("until"), tables))
        except DrawError as error:
            problems.append(str(error))
        except ManifestError as error:
            problems += error.problems
    if problems:
        raise ManifestError(*problems)
    return ArrivalPlan(streams, seed)


def _rate(given: Any, path: str) -> float:
    """Return arrivals per second, from a text such as ``30/h``, or a number per second."""
    found = _RATE.fullmatch(given) if isinstance(given, str) else None
    if found is not None:
        return number_of(found[1], path, positive=True) / _PER[found[2]]
    if isinstance(given, str):
        raise DrawError(path, given, "a rate such as 30/h, 2/m or 0.5/s")
    return number_of(given, path, positive=True)


def _shape(given: Mapping[str, Any], where: str) -> tuple[list[float], list[float]]:
    """Return the weights of the hours, and of the days from Monday, of a daily and weekly shape."""
    hours, days = _weights(given, "hours", HOURS, where), _weights(given, "days", DAYS, where)
    if not hours:
        clock = _CLOCK.fullmatch(str(given.get("peak", "14:00")))
        if clock is None:
            raise DrawError(f"{where}.peak", given["peak"], 'a time of day such as "14:00"')
        swing = number_of(given.get("swing", 0.5), f"{where}.swing")
        if swing > 1:
            raise DrawError(f"{where}.swing", given["swing"], "a number from 0 to 1")
        hours = daily_shape(int(clock[1]) + int(clock[2] or 0) / 60, swing)
    if not days and "weekend" in given:
        weekend = number_of(given["weekend"], f"{where}.weekend")
        days = [1.0] * 5 + [weekend] * 2
    return hours, days


def _weights(given: Mapping[str, Any], name: str, count: int, where: str) -> list[float]:
    weights = given.get(name)
    if weights is None:
        return []
    if not isinstance(weights, Sequence) or isinstance(weights, str) or len(weights) != count:
        raise DrawError(f"{where}.{name}", weights, f"a list of {count} weights")
    found = [number_of(one, f"{where}.{name}[{index}]") for index, one in enumerate(weights)]
    if not sum(found):
        raise DrawError(f"{where}.{name}", weights, "a weight above 0")
    return found

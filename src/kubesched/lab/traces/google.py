"""Instance events of Google's cluster-usage traces of 2019 (version 3): JSON lines, or CSV, plain or gzipped.

Each line is an event of one instance of a collection (a job). Format: ``clusterdata_trace_format_v3.proto`` in
``google/cluster-data``; 64-bit numbers are texts in JSON.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from .table import UNREADABLE, TraceError, cannot_be_read, not_text, open_text
from .tasks import Trace, TraceTask

__all__ = ["read_google_2019"]

_TYPES: Final = (
    "SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST", "UPDATE_PENDING", "UPDATE_RUNNING",
)  # fmt: skip
_ENDS: Final = frozenset({"EVICT", "FAIL", "FINISH", "KILL", "LOST"})
#: Microsecond at which the trace begins. An event at 0 happened before the trace, an event at the largest number after
#: it.
_BEGIN: Final = 600_000_000
_AFTER: Final = (1 << 63) - 1
_ALLOC_SET: Final = 1
_NEEDED: Final = ("time", "type", "collection_id", "instance_index")
_CPUS: Final = "resource_request.cpus"
_MEMORY: Final = "resource_request.memory"


@dataclass(slots=True)
class _Instance:
    """State of an instance from its events so far; times in microseconds."""

    submitted: int | None = None
    scheduled: int | None = None
    ended: int | None = None
    end: str = ""
    cpus: float = 0.0
    memory: float = 0.0


def read_google_2019(
    paths: str | Path | Iterable[str | Path],
    *,
    cpu_milli: int = 64_000,
    memory_mib: int = 262_144,
    limit: int | None = None,
) -> Trace:
    """Read files of ``instance_events``, in order. ``limit`` reads the first events only.

    An instance becomes one task: it arrives when it was first submitted, and runs from its last scheduling to its end.
    CPU and memory are shares of the largest machine; ``cpu_milli`` and ``memory_mib`` are the assumed sizes
    of that machine. In CSV the columns are as in JSON, ``resource_request.cpus`` and ``resource_request.memory`` among
    them.

    Instances of alloc sets, and instances that were never scheduled, are left out.

    Raises:
        TraceError: with every value that cannot be used, by file, line and field.
    """
    problems: list[str] = []
    instances: dict[tuple[int, int], _Instance] = {}
    alloc_sets: set[tuple[int, int]] = set()
    count = 0
    for path in [paths] if isinstance(paths, str | Path) else paths:
        for where, event in _events(Path(path), problems):
            if limit is not None and count >= limit:
                break
            count += 1
            _apply(_Event(where, event, problems), instances, alloc_sets)
    if problems:
        raise TraceError(problems)
    if not count:
        raise TraceError([f"{paths}: holds no event"])
    left_out: Counter[str] = Counter({"alloc set": len(alloc_sets)} if alloc_sets else {})
    tasks = []
    for (collection, index), known in instances.items():
        if known.scheduled is None:
            left_out["never scheduled"] += 1
            continue
        arrival = known.scheduled if known.submitted is None else known.submitted
        tasks.append(
            TraceTask(
                name=f"{collection}-{index}",
                arrival=max(0, arrival - _BEGIN) / 1e6,
                duration=None if known.ended is None else (known.ended - max(known.scheduled, _BEGIN)) / 1e6,
                cpu_milli=math.ceil(known.cpus * cpu_milli),
                memory_mib=math.ceil(known.memory * memory_mib),
                failed=known.end == "FAIL",
            )
        )
    return Trace.of(tasks, left_out)


def _apply(event: _Event, instances: dict[tuple[int, int], _Instance], alloc_sets: set[tuple[int, int]]) -> None:
    time, kind = event.whole("time"), event.kind()
    key = event.whole("collection_id"), event.whole("instance_index")
    cpus, memory = event.share(_CPUS), event.share(_MEMORY)
    if event.bad or time == _AFTER:
        return
    if event.value("collection_type") in (_ALLOC_SET, str(_ALLOC_SET), "ALLOC_SET"):
        alloc_sets.add(key)
        return
    known = instances.setdefault(key, _Instance())
    if cpus is not None:
        known.cpus = cpus
    if memory is not None:
        known.memory = memory
    if kind == "SUBMIT" and known.submitted is None:
        known.submitted = time
    elif kind == "SCHEDULE":
        known.scheduled, known.ended, known.end = time, None, ""
    elif kind in _ENDS and known.scheduled is not None:
        if time < known.scheduled:
            event.problem("time", time, f"a time that is not before that of SCHEDULE, {known.scheduled}")
        known.ended, known.end = max(time, _BEGIN), kind


class _Event:
    """Event of an instance; problems are collected."""

    def __init__(self, where: str, values: Mapping[str, Any], problems: list[str]) -> None:
        self._where = where
        self._values = values
        self._problems = problems
        self.bad = False

    def problem(self, field: str, value: Any, right: str) -> None:
        self.bad = True
        self._problems.append(f"{self._where}: field {field}: {value!r}; expected {right}")

    def value(self, field: str) -> Any:
        """Return a field, or a field of a field; None where it is missing or empty."""
        found: Any = self._values.get(field)
        if found is None and "." in field:
            outer, _, inner = field.partition(".")
            within = self._values.get(outer)
            found = within.get(inner) if isinstance(within, Mapping) else None
        return None if found == "" else found

    def whole(self, field: str) -> int:
        value = self.value(field)
        text = str(value)
        if (
            isinstance(value, bool)
            or not text.isascii()
            or not text.isdecimal()
            or len(text) > 20
            or int(text) > _AFTER
        ):
            self.problem(field, value, "a whole number of 0 or more")
            return 0
        return int(text)

    def kind(self) -> str:
        """Return the type as a name. The file has a name or a number."""
        value = self.value("type")
        text = str(value)
        if text in _TYPES:
            return text
        if (
            not isinstance(value, bool)
            and text.isascii()
            and text.isdecimal()
            and len(text) < 3
            and int(text) < len(_TYPES)
        ):
            return _TYPES[int(text)]
        self.problem("type", value, f"one of {', '.join(_TYPES)}, or their numbers from 0")
        return ""

    def share(self, field: str) -> float | None:
        """Return a share of the largest machine's resource; None where it is not given."""
        value = self.value(field)
        if value is None:
            return None
        try:
            share = float(value) if not isinstance(value, bool) else math.nan
        except (TypeError, ValueError):
            share = math.nan
        if not 0 <= share < math.inf:
            self.problem(field, value, "a number of 0 or more")
            return None
        return share


def _events(path: Path, problems: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the events of a file with their places."""
    try:
        with open_text(path) as file:
            first = file.readline()
            decode = _json_lines if first.lstrip().startswith("{") else _csv_lines
            yield from decode(path, first, file, problems)
    except UNREADABLE as error:
        raise cannot_be_read(path, error) from error
    except UnicodeDecodeError as error:
        raise not_text(path, error) from error
    except csv.Error as error:
        raise TraceError([f"{path}: is neither JSON lines nor a table in CSV: {error}"]) from error


def _json_lines(
    path: Path, first: str, rest: Iterable[str], problems: list[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    for number, line in enumerate(_chained(first, rest), 1):
        if line.strip():
            try:
                yield f"{path}:{number}", decoder.decode(line)
            except (msgspec.MsgspecError, RecursionError) as error:
                problems.append(f"{path}:{number}: is no JSON object: {error}")


def _chained(first: str, rest: Iterable[str]) -> Iterator[str]:
    yield first
    yield from rest


def _csv_lines(
    path: Path, first: str, rest: Iterable[str], problems: list[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    reader = csv.reader(_chained(first, rest))
    header = [name.strip() for name in next(reader, [])]
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        raise TraceError([f"{path}:1: the header lacks {', '.join(missing)}; it has {', '.join(header) or 'nothing'}"])
    for values in reader:
        if len(values) != len(header):
            if values:
                problems.append(
                    f"{path}:{reader.line_num}: has {len(values)} values, where the header has {len(header)}"
                )
            continue
        yield f"{path}:{reader.line_num}", dict(zip(header, values, strict=True))

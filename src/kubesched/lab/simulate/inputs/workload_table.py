"""Table of pods that arrive over time, as CSV, with one line per pod or per group of equal pods.

    arrival,name,count,duration,cpu,memory,nvidia.com/gpu
    0,warm-up,1,10m,1,2Gi,0
    1h30m,training,8,6h,4,16Gi,2

Callers: ``kubesched simulate --trace``, and programs, which pass what :func:`read_table` returns to ``simulate``.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kubesched.api.kinds import POD_GROUPS, PODS
from kubesched.api.quantity import Quantity, QuantityError, parse_quantity
from kubesched.api.selectors import is_object_name, is_qualified_name
from kubesched.base.times import parse_duration
from kubesched.cluster.files import Manifest, ManifestError, read_text
from kubesched.cluster.kubelets import DURATION
from kubesched.explain.workloads import WORKLOAD

from ...traces.table import shown
from .arrivals import ARRIVAL

__all__ = ["COLUMNS", "parse_table", "read_table"]

#: Columns other than the columns of resources, with their contents.
COLUMNS: Final = {
    "arrival": "when the pods are created: seconds, or a duration such as 1h30m, after the start; 0 when empty",
    "name": "the pod's name; pods of a group get -0, -1, … added; pod-<line> when empty",
    "namespace": "the namespace; default when empty",
    "count": "how many such pods there are; 1 when empty",
    "duration": "how long they run, as arrival; without end when empty",
    "workload": "the workload to count the pods under; the name of a group, else of the table, when empty",
    "exit": "Succeeded or Failed; Succeeded when empty",
    "priorityClassName": "a PriorityClass",
    "schedulerName": "a profile of the scheduler",
    "nodeSelector": "labels a node must have: key=value, separated by blanks",
    "labels": "labels of the pods: key=value, separated by blanks",
    "gang": "name of a PodGroup: the pods of all lines with this name are a gang; none when empty",
}
_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_EXIT: Final = "kubesched.io/exit"
#: Most pods in one line; more are taken for a mistake.
_MOST: Final = 250_000


def read_table(path: str | Path) -> list[Manifest]:
    """Return the pods of a table, each with its arrival and duration as annotations.

    The file may be gzipped, or in UTF-16.

    Raises:
        ManifestError: when the file cannot be read, or with every value that cannot be used, by line and column.
    """
    return parse_table(read_text(Path(path)), str(path))


def parse_table(text: str, name: str) -> list[Manifest]:
    """Return the pods of a table as text; ``name`` is the name of the table in messages.

    Raises:
        ManifestError: see :func:`read_table`.
    """
    lines = csv.reader(io.StringIO(text), strict=True)
    problems: list[str] = []
    pods: list[Manifest] = []
    gangs: dict[tuple[str, str], Manifest] = {}
    header: list[str] = []
    try:
        for values in lines:
            if not any(value.strip() for value in values) or values[0].lstrip().startswith("#"):
                continue
            cells = [value.strip() for value in values]
            where = f"{name}:{lines.line_num}"
            if not header:
                header = cells
                _check_header(header, where)
            elif len(cells) != len(header):
                problems.append(f"{where}: has {len(cells)} values, where the header has {len(header)}")
            else:
                made = _Row(dict(zip(header, cells, strict=True)), where, lines.line_num, problems).pods()
                _join(gangs, made)
                pods += made
    except csv.Error as error:
        problems.append(f"{name}:{lines.line_num}: is no table in CSV: {error}")
    if not header:
        problems.append(
            f"{name}: has no header; its first line names the columns, such as arrival,name,duration,cpu,memory"
        )
    elif not pods and not problems:
        problems.append(f"{name}: holds no line below the header")
    if problems:
        raise ManifestError(*problems)
    return [*gangs.values(), *pods]


def _join(gangs: dict[tuple[str, str], Manifest], pods: list[Manifest]) -> None:
    """Count the pods of one line as members of their gang, and make it if it is new."""
    group = pods[0].data["spec"].get("schedulingGroup") if pods else None
    if group is None:
        return
    name, metadata = group["podGroupName"], pods[0].data["metadata"]
    gang = gangs.get((metadata["namespace"], name))
    if gang is None:
        arrival = {key: text for key, text in metadata["annotations"].items() if key == ARRIVAL}
        data = {
            "apiVersion": POD_GROUPS.api_version,
            "kind": POD_GROUPS.kind,
            "metadata": {"name": name, "namespace": metadata["namespace"], "annotations": arrival},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 0}}},
        }
        gang = gangs[metadata["namespace"], name] = Manifest(POD_GROUPS, data, pods[0].source)
    gang.data["spec"]["schedulingPolicy"]["gang"]["minCount"] += len(pods)


def _is_resource(name: str) -> bool:
    return name in _RESOURCES or ("/" in name and is_qualified_name(name))


def _check_header(header: list[str], where: str) -> None:
    problems = [
        f"{where}: column {name} occurs twice" for name in sorted({one for one in header if header.count(one) > 1})
    ]
    problems += [
        f"{where}: column {name!r} is not known; there are {', '.join(COLUMNS)}, and resources such as cpu, memory or "
        "nvidia.com/gpu"
        for name in header
        if name not in COLUMNS and not _is_resource(name)
    ]
    if problems:
        raise ManifestError(*problems)


class _Row:
    """Line of a table; problems are collected."""

    def __init__(self, cells: Mapping[str, str], where: str, line: int, problems: list[str]) -> None:
        self._cells = cells
        self._where = where
        self._line = line
        self._problems = problems

    def _bad(self, column: str, problem: str) -> None:
        self._problems.append(f"{self._where}: column {column}: {shown(self._cells[column])}: {problem}")

    def _seconds(self, column: str) -> float | None:
        """Return a number of seconds from a number or a duration; None when empty or bad."""
        text = self._cells.get(column, "")
        if not text:
            return None
        try:
            seconds = float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else parse_duration(text)
        except ValueError:
            self._bad(column, "expected a number of seconds, or a duration such as 90s, 1h30m")
            return None
        if not 0 <= seconds < math.inf:
            self._bad(column, "must not be negative, and must have an end")
            return None
        return seconds

    def _pairs(self, column: str) -> dict[str, str]:
        found = {}
        for part in self._cells.get(column, "").split():
            key, equals, value = part.partition("=")
            if not equals or not key:
                self._bad(column, "expected key=value, separated by blanks")
                break
            found[key] = value
        return found

    def _count(self) -> int:
        text = self._cells.get("count", "")
        if not text:
            return 1
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and 0 < int(text) <= _MOST):
            self._bad("count", f"expected a whole number from 1 to {_MOST}")
            return 0
        return int(text)

    def _requests(self) -> dict[str, str]:
        found = {}
        for column, text in self._cells.items():
            if column in COLUMNS or text in ("", "0"):
                continue
            try:
                amount = parse_quantity(text)
            except QuantityError:
                self._bad(column, "expected an amount such as 500m, 2 or 1.5Gi")
                continue
            if amount < Quantity(0):
                self._bad(column, "must not be negative")
            elif column not in _RESOURCES and amount.milli() % 1000:
                self._bad(column, "must be a whole number")
            found[column] = text
        return found

    def pods(self) -> list[Manifest]:
        """Return the pods of the line."""
        before = len(self._problems)
        cells, count = self._cells, self._count()
        annotations = {}
        for column, annotation in (("arrival", ARRIVAL), ("duration", DURATION)):
            seconds = self._seconds(column)
            if seconds is not None:
                annotations[annotation] = f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
        if cells.get("exit"):
            if cells["exit"] not in ("Succeeded", "Failed"):
                self._bad("exit", "expected Succeeded or Failed")
            annotations[_EXIT] = cells["exit"]
        for column in ("name", "namespace", "gang"):
            if cells.get(column) and not is_object_name(cells[column]):
                self._bad(column, "expected lower case letters, digits and -")
        requests, labels, selector = self._requests(), self._pairs("labels"), self._pairs("nodeSelector")
        if len(self._problems) > before:
            return []
        container: dict[str, Any] = {"name": "main", "image": "trace"}
        if requests:
            extended = {name: amount for name, amount in requests.items() if name not in _RESOURCES}
            container["resources"] = {"requests": requests, **({"limits": extended} if extended else {})}
        spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
        for field in ("priorityClassName", "schedulerName"):
            if cells.get(field):
                spec[field] = cells[field]
        if selector:
            spec["nodeSelector"] = selector
        if cells.get("gang"):
            spec["schedulingGroup"] = {"podGroupName": cells["gang"]}
        name = cells.get("name") or f"pod-{self._line}"
        group = name if count > 1 else Path(self._where.rpartition(":")[0]).name.partition(".")[0]
        annotations[WORKLOAD] = f"Trace/{cells.get('workload') or group}"
        namespace = cells.get("namespace") or "default"
        is_group = count > 1
        found = []
        for number in range(count):
            metadata = {
                "name": f"{name}-{number}" if is_group else name,
                "namespace": namespace,
                "annotations": annotations,
            }
            if labels:
                metadata["labels"] = labels
            data = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            found.append(Manifest(PODS, data, self._where))
        return found

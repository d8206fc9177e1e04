"""Table of pods that arrive over time, with one row per pod or per group of equal pods. Here it is read as CSV.

    arrival,name,count,duration,cpu,memory,nvidia.com/gpu
    0,warm-up,1,10m,1,2Gi,0
    1h30m,training,8,6h,4,16Gi,2

Callers: :mod:`.trace_files`, which reads other forms of tables too, and programs.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
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

__all__ = ["COLUMNS", "Row", "check_header", "parse_table", "pods_of_rows", "read_table"]

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
#: Most problems that are named.
_MOST_PROBLEMS: Final = 100
#: Most pods in one line; more are taken for a mistake.
_MOST: Final = 250_000


def read_table(path: str | Path, keep: list[Row] | None = None) -> list[Manifest]:
    """Return the pods of a table, each with its arrival and duration as annotations.

    The file may be gzipped, or in UTF-16. ``keep`` receives its rows.

    Raises:
        ManifestError: when the file cannot be read, or with every value that cannot be used, by line and column.
    """
    return parse_table(read_text(Path(path)), str(path), keep)


def parse_table(text: str, name: str, keep: list[Row] | None = None) -> list[Manifest]:
    """Return the pods of a table as text; ``name`` is the name of the table in messages. ``keep`` receives its rows.

    Raises:
        ManifestError: see :func:`read_table`.
    """
    lines = csv.reader(io.StringIO(text), strict=True)
    problems: list[str] = []
    rows: list[Row] = []
    header: list[str] = []
    try:
        for values in lines:
            if not any(value.strip() for value in values) or values[0].lstrip().startswith("#"):
                continue
            cells = [value.strip() for value in values]
            where = f"{name}:{lines.line_num}"
            if not header:
                header = cells
                check_header(header, where)
            elif len(cells) != len(header):
                problems.append(f"{where}: has {len(cells)} values, where the header has {len(header)}")
            else:
                rows.append(Row(dict(zip(header, cells, strict=True)), where, lines.line_num))
    except csv.Error as error:
        problems.append(f"{name}:{lines.line_num}: is no table in CSV: {error}")
    if not header:
        problems.append(
            f"{name}: has no header; its first line names the columns, such as arrival,name,duration,cpu,memory"
        )
    elif not rows and not problems:
        problems.append(f"{name}: holds no line below the header")
    if keep is not None:
        keep += rows
    return pods_of_rows(rows, problems)


def pods_of_rows(rows: Iterable[Row], problems: Sequence[str] = ()) -> list[Manifest]:
    """Return the pods of rows in their order, after the pod groups of their gangs. ``problems`` were met before.

    Raises:
        ManifestError: with every value that cannot be used, at most a hundred.
    """
    found: list[str] = list(problems)
    pods: list[Manifest] = []
    gangs: dict[tuple[str, str], Manifest] = {}
    for row in rows:
        made = row.pods(found)
        if made and row.cells.get("gang"):
            _join(gangs, made)
        pods += made
        if len(found) > _MOST_PROBLEMS:
            raise ManifestError(*found[:_MOST_PROBLEMS], "there are more problems; rows after these were not looked at")
    if found:
        raise ManifestError(*found)
    return [*gangs.values(), *pods]


def _join(gangs: dict[tuple[str, str], Manifest], pods: list[Manifest]) -> None:
    """Count the pods of one line as members of their gang, and make it if it is new."""
    name, metadata = pods[0].data["spec"]["schedulingGroup"]["podGroupName"], pods[0].data["metadata"]
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


def check_header(header: Sequence[str], where: str) -> None:
    """Check the names of columns.

    Raises:
        ManifestError: for names that are not known or occur twice.
    """
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


class Row:
    """Row of a table: texts by column, its place in messages, and its number.

    ``template`` is a pod template in plain data to which the row's requests and labels are added.
    """

    def __init__(
        self, cells: Mapping[str, str], where: str, line: int, template: Mapping[str, Any] | None = None
    ) -> None:
        self.cells = dict(cells)
        self._where = where
        self._line = line
        self._template = template or {}
        self._problems: list[str] = []

    def _bad(self, column: str, problem: str) -> None:
        self._problems.append(f"{self._where}: column {column}: {shown(self.cells[column])}: {problem}")

    def _seconds(self, column: str) -> float | None:
        """Return a number of seconds from a number or a duration; None when empty or bad."""
        text = self.cells.get(column, "")
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
        for part in self.cells.get(column, "").split():
            key, equals, value = part.partition("=")
            if not equals or not key:
                self._bad(column, "expected key=value, separated by blanks")
                break
            found[key] = value
        return found

    def _count(self) -> int:
        text = self.cells.get("count", "")
        if not text:
            return 1
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and 0 < int(text) <= _MOST):
            self._bad("count", f"expected a whole number from 1 to {_MOST}")
            return 0
        return int(text)

    def _requests(self) -> dict[str, str]:
        found = {}
        for column, text in self.cells.items():
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

    def _annotations(self) -> dict[str, str]:
        cells, annotations = self.cells, {}
        for column, annotation in (("arrival", ARRIVAL), ("duration", DURATION)):
            seconds = self._seconds(column)
            if seconds is not None:
                annotations[annotation] = f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
        if cells.get("exit"):
            if cells["exit"] not in ("Succeeded", "Failed"):
                self._bad("exit", "expected Succeeded or Failed")
            annotations[_EXIT] = cells["exit"]
        return annotations

    def _spec(self, requests: Mapping[str, str], selector: Mapping[str, str]) -> dict[str, Any]:
        """Return the pod's spec: the template's, or that of one container, with the row's requests."""
        given = self._template.get("spec") or {}
        first, *others = given.get("containers") or [{"name": "main", "image": "trace"}]
        if requests:
            extended = {name: amount for name, amount in requests.items() if name not in _RESOURCES}
            resources = first.get("resources") or {}
            limits = {**(resources.get("limits") or {}), **extended}
            asked = {**(resources.get("requests") or {}), **requests}
            first = {**first, "resources": {"requests": asked, **({"limits": limits} if limits else {})}}
        spec: dict[str, Any] = {"restartPolicy": "Never", **given, "containers": [first, *others]}
        for field in ("priorityClassName", "schedulerName"):
            if self.cells.get(field):
                spec[field] = self.cells[field]
        if self.cells.get("gang"):
            spec["schedulingGroup"] = {"podGroupName": self.cells["gang"]}
        if selector:
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **selector}
        return spec

    def pods(self, problems: list[str]) -> list[Manifest]:
        """Return the pods of the row; none if it has values that cannot be used, which are added to ``problems``."""
        self._problems = []
        cells, count, annotations = self.cells, self._count(), self._annotations()
        for column in ("name", "namespace", "gang"):
            if cells.get(column) and not is_object_name(cells[column]):
                self._bad(column, "expected lower case letters, digits and -")
        requests, labels, selector = self._requests(), self._pairs("labels"), self._pairs("nodeSelector")
        problems += self._problems
        if self._problems:
            return []
        name = cells.get("name") or f"pod-{self._line}"
        group = name if count > 1 else Path(self._where.rpartition(":")[0]).name.partition(".")[0]
        annotations[WORKLOAD] = f"Trace/{cells.get('workload') or group}"
        given = self._template.get("metadata") or {}
        labels = {**(given.get("labels") or {}), **labels}
        spec = self._spec(requests, selector)
        common = {
            "namespace": cells.get("namespace") or given.get("namespace") or "default",
            "annotations": {**(given.get("annotations") or {}), **annotations},
            **({"labels": labels} if labels else {}),
        }
        names = [f"{name}-{number}" for number in range(count)] if count > 1 else [name]
        return [
            Manifest(
                PODS,
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": one, **common}, "spec": spec},
                self._where,
            )
            for one in names
        ]

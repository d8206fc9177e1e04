"""Catalogue of instances: a table with the price and the size of each kind of machine, as CSV or YAML.

    name,price,spotPrice,cpu,memory,zones,labels
    m5.large,0.096,0.035,2,8Gi,eu-1a eu-1b,

YAML is a list of mappings with the same names. Callers: the readers of autoscalers' settings.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, Final

import msgspec

from kubesched.api.documents import TextError
from kubesched.api.selectors import is_label_value
from kubesched.api.yamltext import read_single
from kubesched.cluster.files import ManifestError, read_text

from .fields import Fields, amount_problem

__all__ = ["COLUMNS", "Catalogue", "Offer", "read_catalogue"]

#: Most rows of a catalogue.
_MOST: Final = 10_000
#: Columns besides resources, with their contents.
COLUMNS: Final = {
    "name": "the instance type, or the name of a node group",
    "price": "price per hour",
    "spotPrice": "price per hour of a spot instance; empty if there is none",
    "instanceType": "the row whose size this one has",
    "like": "an existing node, or group of nodes, whose size this one has",
    "arch": "amd64 when empty",
    "zones": "zones, separated by blanks",
    "labels": "key=value, separated by blanks",
    "taints": "key=value:Effect, separated by blanks",
    "readyAfter": "seconds or a duration until a node is ready",
    "spotFailureRate": "expected interruptions per hour of a spot instance",
}
_NUMBERS: Final = ("price", "spotPrice", "spotFailureRate")


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Row of a catalogue. Prices are per hour; ``spot_price`` is None where there are no spot instances."""

    name: str
    price: float = 0.0
    spot_price: float | None = None
    resources: dict[str, str] = {}
    instance_type: str = ""
    like: str = ""
    arch: str = "amd64"
    zones: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()
    ready_after: float = 0.0
    spot_failure_rate: float = 0.0
    source: str = ""


#: Rows of a catalogue by name.
Catalogue = dict[str, Offer]


def read_catalogue(path: str | Path) -> Catalogue:
    """Return the rows of a table: CSV, or YAML and JSON by the ending of the name.

    Raises:
        ManifestError: when the file cannot be read, or with every value that cannot be used, by line or place.
    """
    name = str(path)
    text = read_text(Path(path))
    problems: list[str] = []
    plain = name.removesuffix(".gz").endswith((".yaml", ".yml", ".json"))
    rows = _yaml_rows(text, name, problems) if plain else _csv_rows(text, name, problems)
    found: Catalogue = {}
    for where, row in rows:
        offer = _offer(row, where, problems)
        if offer.name in found:
            problems.append(
                f"{where}: name: {offer.name!r}: was in {found[offer.name].source} already; one row for each"
            )
        found.setdefault(offer.name, offer)
    problems += [
        f"{offer.source}: instanceType: {offer.instance_type!r}: is no row of the table with a size"
        for offer in found.values()
        if offer.instance_type and not (found.get(offer.instance_type) or offer).resources
    ]
    if not found and not problems:
        problems.append(f"{name}: holds no row; its columns are {', '.join(COLUMNS)}, and resources such as cpu")
    if problems:
        raise ManifestError(*problems)
    return found


def _csv_rows(text: str, name: str, problems: list[str]) -> list[tuple[str, dict[str, Any]]]:
    lines = csv.reader(io.StringIO(text), strict=True)
    header: list[str] = []
    rows: list[tuple[str, dict[str, Any]]] = []
    try:
        for values in lines:
            cells = [value.strip() for value in values]
            if not any(cells) or cells[0].startswith("#"):
                continue
            where = f"{name}:{lines.line_num}"
            if not header:
                header = cells
                problems += [f"{where}: column {one} occurs twice" for one in {*cells} if cells.count(one) > 1]
            elif len(cells) != len(header):
                problems.append(f"{where}: has {len(cells)} values, where the header has {len(header)}")
            elif len(rows) < _MOST:
                rows.append((where, _cells(dict(zip(header, cells, strict=True)), where, problems)))
            else:
                problems.append(f"{where}: has more than {_MOST:,} rows, which is the most")
                break
    except csv.Error as error:
        problems.append(f"{name}:{lines.line_num}: is no table in CSV: {error}")
    return rows


def _cells(cells: dict[str, str], where: str, problems: list[str]) -> dict[str, Any]:
    """Return the cells of a line as the members of a mapping in YAML would be."""
    row: dict[str, Any] = {}
    for column, text in cells.items():
        if not text:
            continue
        row[column] = text
        if column in _NUMBERS:
            try:
                row[column] = float(text)
            except ValueError:
                problems.append(f"{where}: {column}: {text!r}: expected a number such as 0.192")
                del row[column]
        elif column in ("zones", "taints"):
            row[column] = text.split()
        elif column == "labels":
            pairs = [part.partition("=") for part in text.split()]
            if not all(key and equals for key, equals, _ in pairs):
                problems.append(f"{where}: labels: {text!r}: expected key=value, separated by blanks")
            row[column] = {key: value for key, _, value in pairs if key}
        elif column == "readyAfter" and text.replace(".", "", 1).isdecimal():
            row[column] = float(text)
    return row


def _yaml_rows(text: str, name: str, problems: list[str]) -> list[tuple[str, dict[str, Any]]]:
    try:
        data = read_single(text, name)
    except TextError as error:
        problems.append(error.in_file(name))
        return []
    if not isinstance(data, list):
        problems.append(
            f"{name}: expected a list of rows, such as `- {{name: m5.large, price: 0.096, cpu: 2, memory: 8Gi}}`"
        )
        return []
    if len(data) > _MOST:
        problems.append(f"{name}: has {len(data):,} rows; the most are {_MOST:,}")
    return [(f"{name}: [{index}]", one) for index, one in enumerate(data[:_MOST])]


def _offer(row: Any, where: str, problems: list[str]) -> Offer:
    known = len(problems)
    fields = Fields(row, where, "", problems)
    if len(problems) > known:
        return Offer(name="")
    for name in COLUMNS:
        fields.raw(name)
    name = fields.text("name")
    if not is_label_value(name) or not name:
        fields.bad("name", fields.raw("name"), "expected a name of letters, digits, -, _ and ., at most 63")
    resources = {}
    for column, amount in row.items():
        if column in COLUMNS or amount is None:
            continue
        problem = amount_problem(str(column), amount)
        if problem:
            problems.append(f"{where}: {column}: {problem}")
        resources[str(column)] = str(amount)
    return Offer(
        name=name,
        price=fields.number("price", 0.0),
        spot_price=fields.number("spotPrice", 0.0) if fields.has("spotPrice") else None,
        resources=resources,
        instance_type=fields.text("instanceType"),
        like=fields.text("like"),
        arch=fields.text("arch", "amd64"),
        zones=fields.texts("zones"),
        labels=fields.labels("labels"),
        taints=tuple(fields.taints("taints")),
        ready_after=fields.seconds("readyAfter", 0.0),
        spot_failure_rate=fields.number("spotFailureRate", 0.0),
        source=where,
    )

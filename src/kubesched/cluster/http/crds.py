"""CustomResourceDefinitions: what they define, and the conditions that say they are served.

Their schemas are applied by :mod:`..admission.custom`. Caller: :mod:`.catalog`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...api.kinds import Kind
from ...api.wire import MERGE_PATCH
from ..schema import Stored

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["Column", "Defined", "Scale", "defined_resources", "establish", "was_established"]


@dataclass(frozen=True, slots=True)
class Column:
    """An additional printer column."""

    name: str
    type: str
    path: str
    priority: int = 0
    description: str = ""
    format: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a custom resource keeps its replica counts; dotted paths."""

    spec_replicas: str
    status_replicas: str
    label_selector: str


@dataclass(frozen=True)
class Defined:
    """One served version of a definition. ``schema`` is its OpenAPI v3 schema, as written, ``stored`` the stored version's."""

    group: str
    version: str
    storage_version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    has_status: bool
    scale: Scale | None
    columns: tuple[Column, ...]
    schema: Mapping[str, Any]
    stored: Mapping[str, Any]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in _list(value) if isinstance(item, str))


def _text(value: Any, default: str = "") -> str:
    return value if isinstance(value, str) and value else default


def defined_resources(data: Mapping[str, Any]) -> Iterator[Defined]:
    """The served versions of a definition; nothing for one that lacks what every resource needs."""
    spec = _dict(data.get("spec"))
    names = _dict(spec.get("names"))
    group, plural, kind = _text(spec.get("group")), _text(names.get("plural")), _text(names.get("kind"))
    if not (group and plural and kind):
        return
    versions = [item for item in _list(spec.get("versions")) if isinstance(item, dict) and _text(item.get("name"))]
    storage = next((item["name"] for item in versions if item.get("storage")), versions[0]["name"] if versions else "")
    for version in versions:
        if not version.get("served", True):
            continue
        subresources = _dict(version.get("subresources"))
        scale = _dict(subresources.get("scale"))
        yield Defined(
            group,
            version["name"],
            storage,
            kind,
            plural,
            _text(names.get("singular"), kind.lower()),
            spec.get("scope", "Namespaced") == "Namespaced",
            _texts(names.get("shortNames")),
            _texts(names.get("categories")),
            "status" in subresources,
            Scale(
                _text(scale.get("specReplicasPath"), ".spec.replicas"),
                _text(scale.get("statusReplicasPath"), ".status.replicas"),
                _text(scale.get("labelSelectorPath")),
            )
            if scale
            else None,
            tuple(_columns(version)),
            _schema(version),
            next((_schema(one) for one in versions if one["name"] == storage), {}),
        )


def _schema(version: Mapping[str, Any]) -> dict[str, Any]:
    return _dict(_dict(version.get("schema")).get("openAPIV3Schema"))


def _columns(version: Mapping[str, Any]) -> Iterator[Column]:
    for item in _list(version.get("additionalPrinterColumns")):
        column = _dict(item)
        if _text(column.get("name")) and _text(column.get("jsonPath")):
            priority = column.get("priority")
            yield Column(
                column["name"],
                _text(column.get("type"), "string"),
                column["jsonPath"],
                priority if isinstance(priority, int) else 0,
                _text(column.get("description")),
                _text(column.get("format")),
            )


def was_established(item: Stored) -> bool:
    """Whether a definition bears the conditions already."""
    return b'"Established"' in item.raw


def establish(store: Store, kind: Kind, item: Stored) -> None:
    """Write the status a definition gets once its names are accepted and it is served."""
    spec = _dict(item.section("spec"))
    versions = [_dict(version) for version in _list(spec.get("versions"))]
    now = store.now()
    conditions = [
        {
            "type": name,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        }
        for name, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    status = {
        "acceptedNames": spec.get("names") or {},
        "storedVersions": [version.get("name") for version in versions if version.get("storage")],
        "conditions": conditions,
    }
    store.patch(
        kind,
        "",
        item.name,
        {"status": status},
        patch_type=MERGE_PATCH,
        subresource="status",
    )

"""CustomResourceDefinitions: what they define, and the conditions that say they are served.

Objects of a definition are stored as they come: pruning, defaulting and CEL rules are not carried out; unknown
fields are reported as far as the schema describes them. Caller: :mod:`.catalog`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...api.kinds import Kind
from ...api.wire import MERGE_PATCH, ApiError
from ..schema import Stored

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["Column", "Defined", "Scale", "check_definition", "defined_resources", "establish", "was_established"]


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
    """One served version of a definition. ``schema`` is its OpenAPI v3 schema, as written."""

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
            _dict(_dict(version.get("schema")).get("openAPIV3Schema")),
        )


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


def check_definition(data: Mapping[str, Any]) -> None:
    """What a definition must have to be served.

    Raises:
        ApiError: 422, naming the fields.
    """
    spec, names = _dict(data.get("spec")), _dict(_dict(data.get("spec")).get("names"))
    name = _text(_dict(data.get("metadata")).get("name"))
    causes = []
    for path, value in (
        ("spec.group", spec.get("group")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
    ):
        if not _text(value):
            causes.append((path, "FieldValueRequired", "Required value"))
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        causes.append(("spec.scope", "FieldValueNotSupported", 'supported values: "Cluster", "Namespaced"'))
    versions = [_dict(item) for item in _list(spec.get("versions"))]
    if sum(1 for item in versions if item.get("storage") is True) != 1:
        why = "Invalid value: must have exactly one version marked as storage version"
        causes.append(("spec.versions", "FieldValueInvalid", why))
    if any(not _text(item.get("name")) for item in versions):
        causes.append(("spec.versions", "FieldValueRequired", "Required value: every version needs a name"))
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if not causes and name and name != wanted:
        why = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        causes.append(("metadata.name", "FieldValueInvalid", why))
    if causes:
        kind = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)
        raise ApiError.invalid(kind, name, causes)

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


def defined_resources(data: Mapping[str, Any]) -> Iterator[Defined]:
    """The served versions of a definition, whose form has been checked; nothing for one without names."""
    spec: dict[str, Any] = data.get("spec") or {}
    names, group = spec.get("names") or {}, spec.get("group")
    plural, kind = names.get("plural"), names.get("kind")
    if not (group and plural and kind):
        return
    versions = [version for version in spec.get("versions") or () if version.get("name")]
    stored = next((version for version in versions if version.get("storage")), versions[0] if versions else {})
    for version in versions:
        if not version.get("served", True):
            continue
        subresources = version.get("subresources") or {}
        scale = subresources.get("scale")
        yield Defined(
            group,
            version["name"],
            stored["name"],
            kind,
            plural,
            names.get("singular") or kind.lower(),
            spec.get("scope", "Namespaced") == "Namespaced",
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
            "status" in subresources,
            Scale(
                scale.get("specReplicasPath") or ".spec.replicas",
                scale.get("statusReplicasPath") or ".status.replicas",
                scale.get("labelSelectorPath") or "",
            )
            if scale
            else None,
            tuple(_columns(version)),
            _schema(version),
            _schema(stored),
        )


def _schema(version: Mapping[str, Any]) -> dict[str, Any]:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _columns(version: Mapping[str, Any]) -> Iterator[Column]:
    for item in version.get("additionalPrinterColumns") or ():
        if item.get("name") and item.get("jsonPath"):
            texts = (item.get("type") or "string", item["jsonPath"], item.get("priority") or 0)
            yield Column(item["name"], *texts, item.get("description") or "", item.get("format") or "")


def was_established(item: Stored) -> bool:
    """Whether a definition bears the conditions already."""
    return b'"Established"' in item.raw


def establish(store: Store, kind: Kind, item: Stored) -> None:
    """Write the status a definition gets once its names are accepted and it is served."""
    spec = item.section("spec") or {}
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
        "storedVersions": [version["name"] for version in spec.get("versions") or () if version.get("storage")],
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

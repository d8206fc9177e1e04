"""CustomResourceDefinitions: what they define, and the conditions that say they are served.

Their schemas are applied by :mod:`..admission.custom`. Caller: :mod:`.catalog`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ...api.kinds import Kind
from ...api.wire import MERGE_PATCH
from ..schema import Stored

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["Column", "Defined", "Scale", "defined_resources", "establish", "was_established"]


_T = TypeVar("_T")


class Column(msgspec.Struct, frozen=True, rename={"path": "jsonPath"}):
    """An additional printer column."""

    name: str = ""
    path: str = ""
    type: str = "string"
    priority: int = 0


class Scale(msgspec.Struct, frozen=True):
    """Where a custom resource keeps its replica counts; dotted paths."""

    spec_replicas: str = msgspec.field(default=".spec.replicas", name="specReplicasPath")
    status_replicas: str = msgspec.field(default=".status.replicas", name="statusReplicasPath")
    label_selector: str = msgspec.field(default="", name="labelSelectorPath")


@dataclass(frozen=True)
class Defined:
    """One served version of a definition. ``schema`` is its OpenAPI v3 schema, as written, ``stored`` the stored version's."""

    kind: Kind
    version: str
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
    namespaced, singular = spec.get("scope", "Namespaced") == "Namespaced", names.get("singular") or kind.lower()
    for version in versions:
        if not version.get("served", True):
            continue
        subresources = version.get("subresources") or {}
        scale = subresources.get("scale")
        yield Defined(
            Kind(group, stored["name"], kind, plural, namespaced, singular, custom=True),
            version["name"],
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
            "status" in subresources,
            _converted(scale, Scale) if scale else None,
            tuple(filter(None, (_converted(one, Column) for one in version.get("additionalPrinterColumns") or ()))),
            _schema(version),
            _schema(stored),
        )


def _schema(version: Mapping[str, Any]) -> dict[str, Any]:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _converted(given: Any, type_: type[_T]) -> _T | None:
    """A member as its type, empty texts left out; None for one of another form, as saved clusters may hold."""
    try:
        return msgspec.convert({key: value for key, value in given.items() if value not in ("", None)}, type_)
    except (msgspec.ValidationError, AttributeError):
        return None


def was_established(item: Stored) -> bool:
    """Whether a definition bears the conditions already."""
    return b'"Established"' in item.raw


def establish(store: Store, kind: Kind, item: Stored) -> None:
    """Write the status a definition gets once its names are accepted and it is served."""
    spec = item.section("spec") or {}
    now = store.now()
    accepted = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    conditions = [
        {"type": name, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        for name, reason, message in accepted
    ]
    status = {
        "acceptedNames": spec.get("names") or {},
        "storedVersions": [version["name"] for version in spec.get("versions") or () if version.get("storage")],
        "conditions": conditions,
    }
    store.patch(kind, "", item.name, {"status": status}, patch_type=MERGE_PATCH, subresource="status")

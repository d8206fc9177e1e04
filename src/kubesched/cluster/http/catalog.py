"""Catalog of the resources that are served, by group and version, with their subresources.

Built from the table of kinds and the stored CustomResourceDefinitions, whose schemas are applied by
:mod:`..admission.custom`. Callers: routing, discovery and OpenAPI.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from kubesched.api.kinds import DEFINITIONS, KINDS, NAMESPACES, Kind, kind_by_plural
from kubesched.api.wire import MERGE_PATCH, ApiError

from ..admission import CustomSchema, usable_schema
from ..schema import Stored, encode, has_other_shape, served_form, stored_form, table_lines
from ..store import Store

__all__ = ["REVIEWS", "Catalog", "Column", "Defined", "Resource", "Scale", "Subresource", "Tree"]

_T = TypeVar("_T")
_ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
#: Namespaces can only be deleted one by one.
_SINGLE_VERBS: Final = tuple(verb for verb in _ALL_VERBS if verb != "deletecollection")
_WRITE_VERBS: Final = ("get", "patch", "update")


# -- what is served ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subresource:
    """Subresource: its name, the kind of its objects, and its verbs.

    Group and version are empty if the resource has the same.
    """

    name: str
    kind: str
    verbs: tuple[str, ...] = _WRITE_VERBS
    group: str = ""
    version: str = ""


class Column(msgspec.Struct, frozen=True, rename={"path": "jsonPath"}):
    """An additional printer column."""

    name: str = ""
    path: str = ""
    type: str = "string"
    priority: int = 0


class Scale(msgspec.Struct, frozen=True):
    """Paths of a custom resource's replica counts, dotted."""

    spec_replicas: str = msgspec.field(default=".spec.replicas", name="specReplicasPath")
    status_replicas: str = msgspec.field(default=".status.replicas", name="statusReplicasPath")
    label_selector: str = msgspec.field(default="", name="labelSelectorPath")


@dataclass(frozen=True)
class Defined:
    """Served version of a definition.

    ``schema`` is its OpenAPI v3 schema, as written; ``stored`` is the schema of the version that is stored.
    """

    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    scale: Scale | None
    columns: tuple[Column, ...]
    schema: Mapping[str, Any]
    stored: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """Resource as served in one version. ``kind`` is the kind in the store, perhaps of another version."""

    kind: Kind
    version: str
    subresources: tuple[Subresource, ...] = ()
    defined: Defined | None = None
    verbs: tuple[str, ...] = _ALL_VERBS

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Short names and categories, if there are any. An update of a definition may change them."""
        source = self.defined or self.kind
        names = {"shortNames": source.short_names, "categories": source.categories}
        return {key: value for key, value in names.items() if value}

    @property
    def api_version(self) -> str:
        return f"{self.kind.group}/{self.version}" if self.kind.group else self.version

    @property
    def gvk(self) -> dict[str, str]:
        """Group, version and kind of the objects."""
        return {"group": self.kind.group, "version": self.version, "kind": self.kind.kind}

    def subresource(self, name: str) -> Subresource | None:
        return next((item for item in self.subresources if item.name == name), None)

    def outward(self, raw: bytes) -> bytes:
        """Return stored bytes in the served version. All versions of a custom resource have one schema here."""
        if self.version == self.kind.version:
            return raw
        if has_other_shape(self.kind, self.version):
            return encode(served_form(self.kind, msgspec.json.decode(raw), self.version))
        old, new = f'"apiVersion":"{self.kind.api_version}"', f'"apiVersion":"{self.api_version}"'
        return raw.replace(old.encode(), new.encode(), 1)

    def inward(self, data: Any) -> Any:
        """Return a client's object, or its merge patch, in the version that is stored."""
        return stored_form(self.kind, data, self.version) if isinstance(data, dict) else data


#: Resources by group, version and plural, in the order of discovery.
Tree = dict[str, dict[str, dict[str, Resource]]]


def _read_table() -> tuple[dict[str, tuple[Subresource, ...]], Tree]:
    """Read ``subresources.txt``: subresources by group resource, and reviews."""
    subresources: dict[str, tuple[Subresource, ...]] = {}
    reviews: Tree = {}
    for line in table_lines("subresources.txt", __package__):
        place, kind, verbs, *rest = line.split()
        owner, _, name = place.rpartition("/")
        group, _, version = rest[0].rpartition("/") if rest else ("", "", "")
        if owner:
            one = Subresource(name, kind, tuple(verbs.split(",")), group, version)
            subresources[owner] = (*subresources.get(owner, ()), one)
        else:
            stored = Kind(group, version, kind, name, rest[1:] == ["namespaced"], kind.lower())
            versions = reviews.setdefault(group, {})
            versions.setdefault(version, {})[name] = Resource(stored, version, verbs=tuple(verbs.split(",")))
    return subresources, reviews


#: Subresources of built-in kinds besides status. Reviews and bindings are among them; they are answered, not stored.
_SUBRESOURCES, REVIEWS = _read_table()


class Catalog:
    """Resources of one store. The catalog reads the CustomResourceDefinitions again when they have changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._definitions_table = store.table(DEFINITIONS)
        self._seen = -1
        self._custom: dict[tuple[str, str], Kind] = {}
        #: Resources by group. Replaced by another object when the resources change.
        self.groups: Tree = {}

    def refresh(self) -> None:
        """Adopt changes of the definitions. Costs one integer comparison when there are none."""
        if self._seen == self._definitions_table.end:
            return
        tree: Tree = {}

        def add(resource: Resource) -> None:
            versions = tree.setdefault(resource.kind.group, {})
            versions.setdefault(resource.version, {}).setdefault(resource.kind.plural, resource)

        for kind in KINDS:
            if self._is_off(kind):
                continue
            subresources = _SUBRESOURCES.get(kind.group_resource, ())
            if kind.group_resource in self._store.status_kinds:
                subresources = (*subresources, Subresource("status", kind.kind))
            verbs = _SINGLE_VERBS if kind == NAMESPACES else _ALL_VERBS
            for version in (kind.version, *kind.also_served):
                add(Resource(kind, version, subresources, verbs=verbs))
        for group, versions in REVIEWS.items():
            for version in versions:
                tree.setdefault(group, {}).setdefault(version, {})
        present: set[tuple[str, str]] = set()
        for item in self._definitions_table.items():
            if b'"deletionTimestamp"' in item.raw and "deletionTimestamp" in item.section("metadata"):
                continue
            served = list(_served(item.data()))
            has_status = any(resource.subresource("status") for resource in served)
            for resource in served:
                key = (resource.kind.group, resource.kind.plural)
                built_in = kind_by_plural(*key)
                if built_in is not None and not (built_in.custom and self._is_off(built_in)):
                    continue  # a definition cannot replace a built-in resource
                present.add(key)
                add(self._registered(resource, has_status=has_status))
            if b'"Established"' not in item.raw:
                _establish(self._store, item)
        for key in self._custom.keys() - present:
            self._drop(self._custom.pop(key))
        self.groups = tree
        self._seen = self._definitions_table.end

    def _is_off(self, kind: Kind) -> bool:
        return bool(kind.gate) and kind.gate not in self._store.admission.features

    def _registered(self, resource: Resource, *, has_status: bool) -> Resource:
        """Register a custom resource with the store, which checks its objects from now on.

        Returns the resource with the kind by which the store knows it.
        """
        wanted, defined = resource.kind, resource.defined
        kind = self._custom.get((wanted.group, wanted.plural))
        if kind is None or (kind.kind, kind.namespaced) != (wanted.kind, wanted.namespaced):
            kind = self._custom[wanted.group, wanted.plural] = wanted
            self._store.register(kind)
        name = kind.group_resource
        schema = usable_schema(name, defined.stored) if defined is not None and defined.stored else None
        before = self._store.admission.custom.pop(name, None)
        if schema is not None:
            self._store.admission.custom[name] = schema
            if before not in (None, schema):
                self._store.defer(self._filled_again(kind, schema))
                self._store.settle_later()
        change = self._store.status_kinds.add if has_status else self._store.status_kinds.discard
        change(name)
        return replace(resource, kind=kind)

    def _filled_again(self, kind: Kind, schema: CustomSchema) -> Iterator[None]:
        """Prune and default objects by a changed schema, as a real server does on reading. Their versions stay."""
        objects = self._store.table(kind).objects
        for key in list(objects):
            data = objects[key].data() if key in objects else {}
            with suppress(ApiError):  # too much work: it stays as it is until it is written
                schema.fill(data)
                if data:
                    objects[key] = Stored(kind, encode(data), data["metadata"], objects[key].resource_version)
            yield

    def _drop(self, kind: Kind) -> None:
        """Delete the objects of a deleted definition."""
        self._store.admission.custom.pop(kind.group_resource, None)
        for item in self._store.table(kind).items():
            if b'"finalizers"' in item.raw and item.section("metadata").get("finalizers"):
                free = {"metadata": {"finalizers": None}}
                self._store.patch(kind, item.namespace, item.name, free, patch_type=MERGE_PATCH)
            if (item.namespace, item.name) in self._store.table(kind).objects:
                self._store.delete(kind, item.namespace, item.name, grace_period_seconds=0)

    # -- looking -----------------------------------------------------------------------------------------

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self.groups.get(group, {}).get(version, {}).get(plural)

    def other_versions(self, group: str, plural: str) -> str:
        """Return the group versions that have a resource, such as ``autoscaling/v2``; empty when there is none."""
        versions = self.groups.get(group, {})
        return ", ".join(f"{group}/{version}".lstrip("/") for version, found in versions.items() if plural in found)


# -- definitions -------------------------------------------------------------------------------------------


def _served(data: Mapping[str, Any]) -> Iterator[Resource]:
    """Yield the served versions of a definition. Its form has been checked; a definition without names has none."""
    spec: dict[str, Any] = data.get("spec") or {}
    names, group = spec.get("names") or {}, spec.get("group")
    plural, kind = names.get("plural"), names.get("kind")
    versions = [version for version in spec.get("versions") or () if version.get("name")]
    if not (group and plural and kind and versions):
        return
    stored = next((version for version in versions if version.get("storage")), versions[0])
    namespaced, singular = spec.get("scope", "Namespaced") == "Namespaced", names.get("singular") or kind.lower()
    for version in versions:
        if not version.get("served", True):
            continue
        given = version.get("subresources") or {}
        scale = _converted(given["scale"], Scale) if given.get("scale") else None
        subresources = (
            *((Subresource("status", kind),) if "status" in given else ()),
            *((Subresource("scale", "Scale", group="autoscaling", version="v1"),) if scale is not None else ()),
        )
        defined = Defined(
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
            scale,
            tuple(filter(None, (_converted(one, Column) for one in version.get("additionalPrinterColumns") or ()))),
            _schema(version),
            _schema(stored),
        )
        row = Kind(group, stored["name"], kind, plural, namespaced, singular, custom=True)
        yield Resource(row, version["name"], subresources, defined)


def _schema(version: Mapping[str, Any]) -> dict[str, Any]:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _converted(given: Any, type_: type[_T]) -> _T | None:
    """Return a member as its type, without empty texts.

    Returns None if its form is wrong, which saved clusters may contain.
    """
    try:
        return msgspec.convert({key: value for key, value in given.items() if value not in ("", None)}, type_)
    except (msgspec.ValidationError, AttributeError):
        return None


def _establish(store: Store, item: Stored) -> None:
    """Write the status of a definition whose names are accepted and that is served."""
    spec = item.section("spec") or {}
    now = store.now()
    accepted = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    status = {
        "acceptedNames": spec.get("names") or {},
        "storedVersions": [version["name"] for version in spec.get("versions") or () if version.get("storage")],
        "conditions": [
            {"type": name, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
            for name, reason, message in accepted
        ],
    }
    store.patch(DEFINITIONS, "", item.name, {"status": status}, patch_type=MERGE_PATCH, subresource="status")

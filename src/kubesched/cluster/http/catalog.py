"""Which resources are served, under which group and version, with which subresources.

Built from the table of kinds and the stored CustomResourceDefinitions; see :mod:`.crds`. Callers: routing,
discovery and OpenAPI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import msgspec

from ...api.kinds import DEFINITIONS, KINDS, NAMESPACES, Kind, kind_by_plural
from ...api.wire import MERGE_PATCH
from ..admission import usable_schema
from ..schema import encode, has_other_shape, served_form, stored_form
from ..store import Store
from .crds import Defined, defined_resources, establish, was_established

__all__ = ["REVIEWS", "Catalog", "Resource", "Subresource"]

_ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
#: Namespaces are deleted one by one.
_SINGLE_VERBS: Final = tuple(verb for verb in _ALL_VERBS if verb != "deletecollection")
_WRITE_VERBS: Final = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """One subresource: the kind of its objects, and its verbs."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


_SCALE: Final = Subresource("scale", "Scale", _WRITE_VERBS, "autoscaling", "v1")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as served in one version. ``kind`` is the row it is stored under, perhaps in another version."""

    kind: Kind
    version: str
    subresources: tuple[Subresource, ...] = ()
    defined: Defined | None = None
    verbs: tuple[str, ...] = _ALL_VERBS

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Short names and categories, if it has any; those of a definition may change."""
        source = self.defined or self.kind
        names = {"shortNames": source.short_names, "categories": source.categories}
        return {key: value for key, value in names.items() if value}

    @property
    def api_version(self) -> str:
        return f"{self.kind.group}/{self.version}" if self.kind.group else self.version

    @property
    def is_converted(self) -> bool:
        """Whether it is stored in another version than the one served."""
        return self.version != self.kind.version

    def subresource(self, name: str) -> Subresource | None:
        return next((item for item in self.subresources if item.name == name), None)

    def outward(self, raw: bytes) -> bytes:
        """Stored bytes in the version served; every version of a custom resource has the same schema here."""
        if not self.is_converted:
            return raw
        if has_other_shape(self.kind, self.version):
            return encode(served_form(self.kind, msgspec.json.decode(raw), self.version))
        old, new = f'"apiVersion":"{self.kind.api_version}"', f'"apiVersion":"{self.api_version}"'
        return raw.replace(old.encode(), new.encode(), 1)

    def inward(self, data: Any) -> Any:
        """A client's object, or its merge patch, in the version it is stored in."""
        if self.is_converted and isinstance(data, dict):
            return stored_form(self.kind, data, self.version)
        return data


def _read_table() -> tuple[dict[str, tuple[Subresource, ...]], dict[tuple[str, str], tuple[Resource, ...]]]:
    """``subresources.txt``: subresources by group resource, and reviews by group and version."""
    subresources: dict[str, tuple[Subresource, ...]] = {}
    reviews: dict[tuple[str, str], tuple[Resource, ...]] = {}
    for line in files(__package__).joinpath("subresources.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            place, kind, verbs, *rest = line.split()
            owner, _, name = place.rpartition("/")
            group, _, version = rest[0].rpartition("/") if rest else ("", "", "")
            if owner:
                one = Subresource(name, kind, tuple(verbs.split(",")), group, version)
                subresources[owner] = (*subresources.get(owner, ()), one)
            else:
                stored = Kind(group, version, kind, name, rest[1:] == ["namespaced"], kind.lower())
                review = Resource(stored, version, verbs=tuple(verbs.split(",")))
                reviews[group, version] = (*reviews.get((group, version), ()), review)
    return subresources, reviews


#: Subresources of built-in kinds besides status; reviews and bindings, which are only ever posted and answered.
_SUBRESOURCES, REVIEWS = _read_table()


#: Resources by group, version and plural, in the order of discovery.
Tree = dict[str, dict[str, dict[str, Resource]]]


class Catalog:
    """The resources of one store. Follows the CustomResourceDefinitions by itself, at the next look."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._definitions_table = store.table(DEFINITIONS)
        self._seen = -1
        self._custom: dict[tuple[str, str], Kind] = {}
        self._tree: Tree = {}
        self._kept: dict[str, bytes] = {}

    def refresh(self) -> None:
        """Follow what has happened to the definitions. One integer comparison when nothing has."""
        if self._seen == self._definitions_table.end:
            return
        tree: Tree = {}

        def add(resource: Resource) -> None:
            versions = tree.setdefault(resource.kind.group, {})
            versions.setdefault(resource.version, {}).setdefault(resource.kind.plural, resource)

        for kind in KINDS:
            for version in (kind.version, *kind.also_served):
                add(_built_in(self._store, kind, version))
        for group, version in REVIEWS:
            tree.setdefault(group, {}).setdefault(version, {})
        present: set[tuple[str, str]] = set()
        for item in self._definitions_table.items():
            if b'"deletionTimestamp"' in item.raw and "deletionTimestamp" in item.section("metadata"):
                continue
            versions = list(defined_resources(item.data()))
            has_status = any(defined.has_status for defined in versions)
            for defined in versions:
                key = (defined.kind.group, defined.kind.plural)
                if kind_by_plural(*key) is not None:
                    continue  # a definition cannot take the place of a built-in resource
                present.add(key)
                add(self._custom_resource(defined, has_status=has_status))
            if not was_established(item):
                establish(self._store, DEFINITIONS, item)
        for key in self._custom.keys() - present:
            self._drop(self._custom.pop(key))
        self._tree = tree
        self._seen = self._definitions_table.end
        self._kept.clear()

    def kept(self, key: str, make: Callable[[], bytes]) -> bytes:
        """What ``make`` gives, kept until the resources change."""
        raw = self._kept.get(key)
        if raw is None:
            raw = self._kept[key] = make()
        return raw

    def _custom_resource(self, defined: Defined, *, has_status: bool) -> Resource:
        key = (defined.kind.group, defined.kind.plural)
        kind = self._custom.get(key)
        if kind is None or (kind.kind, kind.namespaced) != (defined.kind.kind, defined.kind.namespaced):
            kind = self._custom[key] = defined.kind
            self._store.register(kind)
        schema = usable_schema(kind.group_resource, defined.stored) if defined.stored else None
        if schema is not None:
            self._store.admission.custom[kind.group_resource] = schema
        else:
            self._store.admission.custom.pop(kind.group_resource, None)
        if has_status:
            self._store.status_kinds.add(kind.group_resource)
        else:
            self._store.status_kinds.discard(kind.group_resource)
        status = Subresource("status", kind.kind, _WRITE_VERBS) if defined.has_status else None
        scale = _SCALE if defined.scale is not None else None
        return Resource(kind, defined.version, tuple(filter(None, (status, scale))), defined)

    def _drop(self, kind: Kind) -> None:
        """The objects of a deleted definition are deleted, too."""
        self._store.admission.custom.pop(kind.group_resource, None)
        for item in self._store.table(kind).items():
            if b'"finalizers"' in item.raw and item.section("metadata").get("finalizers"):
                free = {"metadata": {"finalizers": None}}
                self._store.patch(kind, item.namespace, item.name, free, patch_type=MERGE_PATCH)
            if (item.namespace, item.name) in self._store.table(kind).objects:
                self._store.delete(kind, item.namespace, item.name, grace_period_seconds=0)

    # -- looking -----------------------------------------------------------------------------------------

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        versions = self._tree.get(group)
        return versions.get(version, {}).get(plural) if versions else None

    def other_versions(self, group: str, plural: str) -> str:
        """The group versions that have a resource, such as ``autoscaling/v2``; empty when there is none."""
        versions = self._tree.get(group, {})
        return ", ".join(f"{group}/{version}".lstrip("/") for version, found in versions.items() if plural in found)

    def groups(self) -> dict[str, dict[str, dict[str, Resource]]]:
        """Resources by group, version and plural."""
        return self._tree

    def resources(self) -> Iterator[Resource]:
        for versions in self._tree.values():
            for resources in versions.values():
                yield from resources.values()


def _built_in(store: Store, kind: Kind, version: str) -> Resource:
    subresources = list(_SUBRESOURCES.get(kind.group_resource, ()))
    if kind.group_resource in store.status_kinds:
        subresources.append(Subresource("status", kind.kind, _WRITE_VERBS))
    verbs = _SINGLE_VERBS if kind == NAMESPACES else _ALL_VERBS
    return Resource(kind, version, tuple(subresources), verbs=verbs)

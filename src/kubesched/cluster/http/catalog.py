"""Which resources are served, under which group and version, with which subresources.

Built from the table of kinds and the stored CustomResourceDefinitions; see :mod:`.crds`. Callers: routing,
discovery and OpenAPI.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from ...api.kinds import DEFINITIONS, KINDS, NAMESPACES, SERVICE_ACCOUNTS, Kind, kind_by_plural
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


def _scale(kind: str = "Scale") -> Subresource:
    return Subresource("scale", kind, _WRITE_VERBS, "autoscaling", "v1")


_POD_SUBRESOURCES: Final = (
    Subresource("attach", "PodAttachOptions", ("create", "get")),
    Subresource("binding", "Binding", ("create",)),
    Subresource("ephemeralcontainers", "Pod", _WRITE_VERBS),
    Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
    Subresource("exec", "PodExecOptions", ("create", "get")),
    Subresource("log", "Pod", ("get",)),
    Subresource("portforward", "PodPortForwardOptions", ("create", "get")),
    Subresource("resize", "Pod", _WRITE_VERBS),
)
_SCALED: Final = frozenset({"deployments.apps", "replicasets.apps", "statefulsets.apps", "replicationcontrollers"})


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as served in one version. ``kind`` is the row it is stored under, perhaps in another version."""

    kind: Kind
    version: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    defined: Defined | None = None

    @property
    def api_version(self) -> str:
        return f"{self.kind.group}/{self.version}" if self.kind.group else self.version

    @property
    def is_converted(self) -> bool:
        """Whether it is stored in another version than the one served."""
        return self.version != self.kind.version

    @property
    def verbs(self) -> tuple[str, ...]:
        return _SINGLE_VERBS if self.kind == NAMESPACES else _ALL_VERBS

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


@dataclass(frozen=True, slots=True)
class Review:
    """A resource that is only ever posted and answered: an access or token review."""

    plural: str
    kind: str
    namespaced: bool = False


#: Reviews by (group, version).
REVIEWS: Final[dict[tuple[str, str], tuple[Review, ...]]] = {
    ("authorization.k8s.io", "v1"): (
        Review("localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True),
        Review("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        Review("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        Review("subjectaccessreviews", "SubjectAccessReview"),
    ),
    ("authentication.k8s.io", "v1"): (
        Review("selfsubjectreviews", "SelfSubjectReview"),
        Review("tokenreviews", "TokenReview"),
    ),
    ("", "v1"): (Review("bindings", "Binding", namespaced=True),),
}


@dataclass(slots=True)
class _Tree:
    """Resources by group, version and plural, in the order of discovery."""

    groups: dict[str, dict[str, dict[str, Resource]]] = field(default_factory=dict)

    def add(self, resource: Resource) -> None:
        versions = self.groups.setdefault(resource.kind.group, {})
        versions.setdefault(resource.version, {}).setdefault(resource.kind.plural, resource)


class Catalog:
    """The resources of one store. Follows the CustomResourceDefinitions by itself, at the next look."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._definitions_table = store.table(DEFINITIONS)
        self._seen = -1
        self._custom: dict[tuple[str, str], Kind] = {}
        self._tree = _Tree()
        self.generation = 0

    def refresh(self) -> None:
        """Follow what has happened to the definitions. One integer comparison when nothing has."""
        if self._seen == self._definitions_table.end:
            return
        tree = _Tree()
        for kind in KINDS:
            for version in (kind.version, *kind.also_served):
                tree.add(_built_in(self._store, kind, version))
        for group, version in REVIEWS:
            tree.groups.setdefault(group, {}).setdefault(version, {})
        present: set[tuple[str, str]] = set()
        for item in self._definitions_table.items():
            if b'"deletionTimestamp"' in item.raw and "deletionTimestamp" in item.section("metadata"):
                continue
            versions = list(defined_resources(item.data()))
            has_status = any(defined.has_status for defined in versions)
            for defined in versions:
                key = (defined.group, defined.plural)
                if kind_by_plural(*key) is not None:
                    continue  # a definition cannot take the place of a built-in resource
                present.add(key)
                tree.add(self._custom_resource(defined, has_status=has_status))
            if not was_established(item):
                establish(self._store, DEFINITIONS, item)
        for key in self._custom.keys() - present:
            self._drop(self._custom.pop(key))
        self._tree = tree
        self._seen = self._definitions_table.end
        self.generation += 1

    def _custom_resource(self, defined: Defined, *, has_status: bool) -> Resource:
        key = (defined.group, defined.plural)
        kind = self._custom.get(key)
        if kind is None or (kind.kind, kind.namespaced) != (defined.kind, defined.namespaced):
            kind = Kind(
                defined.group,
                defined.storage_version,
                defined.kind,
                defined.plural,
                defined.namespaced,
                defined.singular,
                custom=True,
            )
            self._custom[key] = kind
            self._store.register(kind)
        subresources = []
        if defined.has_status:
            subresources.append(Subresource("status", defined.kind, _WRITE_VERBS))
        schema = usable_schema(kind.group_resource, defined.stored) if defined.stored else None
        if schema is not None:
            self._store.admission.custom[kind.group_resource] = schema
        else:
            self._store.admission.custom.pop(kind.group_resource, None)
        if has_status:
            self._store.status_kinds.add(kind.group_resource)
        else:
            self._store.status_kinds.discard(kind.group_resource)
        if defined.scale is not None:
            subresources.append(_scale())
        return Resource(
            kind,
            defined.version,
            defined.singular,
            defined.short_names,
            defined.categories,
            tuple(subresources),
            defined,
        )

    def _drop(self, kind: Kind) -> None:
        """The objects of a deleted definition are deleted, too."""
        self._store.admission.custom.pop(kind.group_resource, None)
        for item in self._store.table(kind).items():
            if item.owners or b'"finalizers"' in item.raw:
                metadata = item.section("metadata")
                if metadata.get("finalizers"):
                    self._store.patch(
                        kind,
                        item.namespace,
                        item.name,
                        {"metadata": {"finalizers": None}},
                        patch_type=MERGE_PATCH,
                    )
            if (item.namespace, item.name) in self._store.table(kind).objects:
                self._store.delete(kind, item.namespace, item.name, grace_period_seconds=0)

    # -- looking -----------------------------------------------------------------------------------------

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        versions = self._tree.groups.get(group)
        return versions.get(version, {}).get(plural) if versions else None

    def other_versions(self, group: str, plural: str) -> str:
        """The group versions that have a resource, such as ``autoscaling/v2``; empty when there is none."""
        versions = self._tree.groups.get(group, {})
        return ", ".join(f"{group}/{version}".lstrip("/") for version, found in versions.items() if plural in found)

    def groups(self) -> dict[str, dict[str, dict[str, Resource]]]:
        """Resources by group, version and plural."""
        return self._tree.groups

    def has_version(self, group: str, version: str) -> bool:
        return version in self._tree.groups.get(group, {})

    def resources(self) -> Iterator[Resource]:
        for versions in self._tree.groups.values():
            for resources in versions.values():
                yield from resources.values()


def _built_in(store: Store, kind: Kind, version: str) -> Resource:
    subresources: tuple[Subresource, ...] = ()
    if kind.group_resource == "pods":
        subresources = _POD_SUBRESOURCES
    elif kind.group_resource in _SCALED:
        subresources = (_scale(),)
    elif kind == SERVICE_ACCOUNTS:
        subresources = (Subresource("token", "TokenRequest", ("create",), "authentication.k8s.io", "v1"),)
    if kind.group_resource in store.status_kinds:
        subresources = (*subresources, Subresource("status", kind.kind, _WRITE_VERBS))
    return Resource(kind, version, kind.singular, kind.short_names, kind.categories, subresources)

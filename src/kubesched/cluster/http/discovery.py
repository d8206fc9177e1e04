"""Discovery: which groups, versions and resources there are, in the old forms and the aggregated one.

Caller: :mod:`.dispatch`. Answers are made from the catalog and kept until it changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from .answers import Accepted
from .catalog import REVIEWS, Catalog, Resource

__all__ = ["Discovery"]

_VERSION: Final = re.compile(r"v([0-9]{1,18})(?:(alpha|beta)([0-9]{1,18}))?")
_STAGES: Final = {None: 2, "beta": 1, "alpha": 0}


def _rank(version: str) -> tuple[int, int, int, str]:
    """Sort key of API versions, best first when sorted in reverse: v2, v1, v1beta1, v1alpha1, others."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (-1, 0, 0, version)
    return (_STAGES[match[2]], int(match[1]), int(match[3] or 0), "")


class Discovery:
    """Discovery documents of one server."""

    def __init__(self, catalog: Catalog, address: Callable[[], str]) -> None:
        self._catalog = catalog
        self._address = address

    def document(self, path: str, form: Accepted) -> tuple[bytes, str] | None:
        """The bytes and content type for a discovery path, or None when nothing is served there."""
        if form.transform == "APIGroupDiscoveryList" and path in ("/api", "/apis"):
            raw = self._catalog.kept(f"{path} {form.version}", lambda: self._aggregated(path, form.version))
            return raw, f"application/json;g=apidiscovery.k8s.io;v={form.version};as=APIGroupDiscoveryList"
        make = self._plain(path)
        return None if make is None else (self._catalog.kept(path, make), "application/json")

    # -- one document per group version ------------------------------------------------------------------

    def _plain(self, path: str) -> Callable[[], dict[str, Any]] | None:
        groups = self._catalog.groups
        match path.strip("/").split("/"):
            case ["api"]:
                clients = [{"clientCIDR": "0.0.0.0/0", "serverAddress": self._address()}]
                return lambda: {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": clients}
            case ["apis"]:
                found = [_group(name, versions) for name, versions in groups.items() if name]
                return lambda: {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
            case ["apis", group] if group in groups:
                return lambda: {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
            case ["api", version] if version in groups.get("", {}):
                return lambda: self._resource_list("", version)
            case ["apis", group, version] if group and version in groups.get(group, {}):
                return lambda: self._resource_list(group, version)
        return None

    def _resource_list(self, group: str, version: str) -> dict[str, Any]:
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": [entry for one in self._listed(group, version) for entry in _entries(one)],
        }

    def _listed(self, group: str, version: str) -> Iterable[Resource]:
        reviews = REVIEWS.get(group, {}).get(version, {})
        return (*self._catalog.groups[group][version].values(), *reviews.values())

    # -- everything at once ------------------------------------------------------------------------------

    def _aggregated(self, path: str, form_version: str) -> dict[str, Any]:
        def listed(group: str, version: str) -> dict[str, Any]:
            resources = [_aggregated_entry(one) for one in self._listed(group, version)]
            return {"version": version, "resources": resources, "freshness": "Current"}

        items = [
            {
                "metadata": {"name": group} if group else {},
                "versions": [listed(group, version) for version in sorted(versions, key=_rank, reverse=True)],
            }
            for group, versions in self._catalog.groups.items()
            if (path == "/apis") is bool(group)
        ]
        api_version = f"apidiscovery.k8s.io/{form_version}"
        return {"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items}


def _group(name: str, versions: Mapping[str, Any]) -> dict[str, Any]:
    ordered = sorted(versions, key=_rank, reverse=True)
    known = [{"groupVersion": f"{name}/{version}", "version": version} for version in ordered]
    return {"name": name, "versions": known, "preferredVersion": known[0]}


def _entries(resource: Resource) -> Iterable[dict[str, Any]]:
    """A resource and its subresources in the old form."""
    kind = resource.kind
    entry = {"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind}
    yield {**entry, "verbs": resource.verbs, **resource.names}
    for sub in resource.subresources:
        place = {"group": sub.group, "version": sub.version} if sub.version else {}
        name = f"{kind.plural}/{sub.name}"
        yield {**entry, "name": name, "singularName": "", "kind": sub.kind, "verbs": sub.verbs, **place}


def _aggregated_entry(resource: Resource) -> dict[str, Any]:
    kind = resource.kind
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": resource.gvk,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": resource.verbs,
        **resource.names,
    }
    for sub in resource.subresources:
        place = {"group": sub.group, "version": sub.version} if sub.version else {}
        shown = {
            "subresource": sub.name,
            "responseKind": {**resource.gvk, **place, "kind": sub.kind},
            "verbs": sub.verbs,
        }
        entry.setdefault("subresources", []).append(shown)
    return entry

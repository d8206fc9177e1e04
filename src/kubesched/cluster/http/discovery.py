"""Discovery: which groups, versions and resources there are, in the old forms and the aggregated one.

Caller: :mod:`.dispatch`. Answers are made from the catalog and kept until it changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..schema import encode
from .catalog import REVIEWS, Catalog, Resource, Subresource
from .negotiation import Accepted

__all__ = ["Discovery", "version_rank"]

_VERSION: Final = re.compile(r"v([0-9]{1,18})(?:(alpha|beta)([0-9]{1,18}))?")
_STAGES: Final = {None: 2, "beta": 1, "alpha": 0}


def version_rank(version: str) -> tuple[int, int, int, str]:
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
        self._cache: dict[str, bytes] = {}
        self._generation = -1

    def document(self, path: str, form: Accepted) -> tuple[bytes, str] | None:
        """The bytes and content type for a discovery path, or None when nothing is served there."""
        if self._generation != self._catalog.generation:
            self._cache.clear()
            self._generation = self._catalog.generation
        aggregated = form.transform == "APIGroupDiscoveryList" and path in ("/api", "/apis")
        key = f"{path} {form.version}" if aggregated else path
        raw = self._cache.get(key)
        if raw is None:
            data = self._aggregated(path, form.version) if aggregated else self._plain(path)
            if data is None:
                return None
            raw = self._cache[key] = encode(data)
        if aggregated:
            return raw, f"application/json;g=apidiscovery.k8s.io;v={form.version};as=APIGroupDiscoveryList"
        return raw, "application/json"

    # -- one document per group version ------------------------------------------------------------------

    def _plain(self, path: str) -> dict[str, Any] | None:
        parts = path.strip("/").split("/")
        groups = self._catalog.groups()
        if parts == ["api"]:
            clients = [{"clientCIDR": "0.0.0.0/0", "serverAddress": self._address()}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": clients}
        if parts == ["apis"]:
            found = [_group(name, versions) for name, versions in groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], groups[parts[1]])}
        group, version = ("", parts[-1]) if parts[0] == "api" and len(parts) == 2 else ("", "")
        if parts[0] == "apis" and len(parts) == 3:
            group, version = parts[1], parts[2]
        if not version or not self._catalog.has_version(group, version):
            return None
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": _resources(groups[group][version], group, version),
        }

    # -- everything at once ------------------------------------------------------------------------------

    def _aggregated(self, path: str, form_version: str) -> dict[str, Any]:
        items = []
        for group, versions in self._catalog.groups().items():
            if (path == "/api") is bool(group):
                continue
            items.append(
                {
                    "metadata": {"name": group} if group else {},
                    "versions": [
                        {
                            "version": version,
                            "resources": [_entry(item) for item in versions[version].values()]
                            + _review_entries(group, version),
                            "freshness": "Current",
                        }
                        for version in sorted(versions, key=version_rank, reverse=True)
                    ],
                }
            )
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{form_version}",
            "metadata": {},
            "items": items,
        }


def _group(name: str, versions: Mapping[str, Any]) -> dict[str, Any]:
    known = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in sorted(versions, key=version_rank, reverse=True)
    ]
    return {"name": name, "versions": known, "preferredVersion": known[0]}


def _resources(resources: Mapping[str, Resource], group: str, version: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for plural, resource in resources.items():
        kind = resource.kind
        entry: dict[str, Any] = {
            "name": plural,
            "singularName": resource.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": resource.verbs,
        }
        if resource.short_names:
            entry["shortNames"] = resource.short_names
        if resource.categories:
            entry["categories"] = resource.categories
        found.append(entry)
        for sub in resource.subresources:
            entry = {
                "name": f"{plural}/{sub.name}",
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": sub.kind,
                "verbs": sub.verbs,
            }
            if sub.version:
                entry |= {"group": sub.group, "version": sub.version}
            found.append(entry)
    found += [
        {
            "name": review.plural,
            "singularName": review.kind.lower(),
            "namespaced": review.namespaced,
            "kind": review.kind,
            "verbs": ["create"],
        }
        for review in REVIEWS.get((group, version), ())
    ]
    return found


def _gvk(group: str, version: str, kind: str) -> dict[str, str]:
    return {"group": group, "version": version, "kind": kind}


def _entry(resource: Resource) -> dict[str, Any]:
    kind = resource.kind
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": _gvk(kind.group, resource.version, kind.kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    }
    if resource.short_names:
        entry["shortNames"] = resource.short_names
    if resource.categories:
        entry["categories"] = resource.categories
    if resource.subresources:
        entry["subresources"] = [_sub_entry(resource, sub) for sub in resource.subresources]
    return entry


def _sub_entry(resource: Resource, sub: Subresource) -> dict[str, Any]:
    group, version = (sub.group, sub.version) if sub.version else (resource.kind.group, resource.version)
    return {"subresource": sub.name, "responseKind": _gvk(group, version, sub.kind), "verbs": sub.verbs}


def _review_entries(group: str, version: str) -> list[dict[str, Any]]:
    return [
        {
            "resource": review.plural,
            "responseKind": _gvk(group, version, review.kind),
            "scope": "Namespaced" if review.namespaced else "Cluster",
            "singularResource": review.kind.lower(),
            "verbs": ["create"],
        }
        for review in REVIEWS.get((group, version), ())
    ]

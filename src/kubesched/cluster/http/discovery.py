"""Documents about the API: its groups, versions and resources, OpenAPI, and the version.

Discovery has the old forms and the aggregated form. Documents made from the catalog are kept until the catalog changes.
Caller: :mod:`.dispatch`.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from ..schema import encode
from .answers import JSON, OPENAPI_V2_PROTOBUF, Accepted
from .catalog import REVIEWS, Catalog, Resource, Tree
from .openapi import openapi_document

__all__ = ["Documents"]

_VERSION: Final = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+kubesched",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_PATHS: Final = ("/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version")
_OPENAPI_V3: Final = "/openapi/v3/"
_RANKED: Final = re.compile(r"v([0-9]{1,18})(?:(alpha|beta)([0-9]{1,18}))?")
_STAGES: Final = {None: 2, "beta": 1, "alpha": 0}


def _best_first(versions: Iterable[str]) -> list[str]:
    """Return API versions in order of preference: v2, v1, v1beta1, v1alpha1, others."""

    def rank(version: str) -> tuple[int, int, int, str]:
        match = _RANKED.fullmatch(version)
        if match is None:
            return (-1, 0, 0, version)
        return (_STAGES[match[2]], int(match[1]), int(match[3] or 0), "")

    return sorted(versions, key=rank, reverse=True)


class Documents:
    """Documents of one server, which listens at ``address``."""

    def __init__(self, catalog: Catalog, address: Callable[[], str]) -> None:
        self._catalog = catalog
        self._address = address
        self._groups: Tree = {}
        self._made: dict[tuple[str, Accepted], tuple[bytes, str]] = {}

    def find(self, path: str, form: Accepted) -> tuple[bytes, str] | None:
        """Return the bytes and content type for a path, or None when nothing is served there."""
        place = path.rstrip("/")
        if not path.startswith("/") or (place in ("", "/version") and path not in ("/", "/version", "/version/")):
            return None
        if place.startswith(_OPENAPI_V3):
            place = _OPENAPI_V3 + unquote(place.removeprefix(_OPENAPI_V3), errors="replace").strip("/")
        is_aggregated = form.transform == "APIGroupDiscoveryList" and place in ("/api", "/apis")
        is_protobuf = form.media_type == OPENAPI_V2_PROTOBUF and place == "/openapi/v2"
        return self._kept(place, form if is_aggregated or is_protobuf else Accepted())

    def _kept(self, place: str, form: Accepted) -> tuple[bytes, str] | None:
        """Return a document from the cache, which holds documents of the present resources."""
        if self._groups is not self._catalog.groups:
            self._groups = self._catalog.groups
            self._made.clear()
        found = self._made.get((place, form)) or self._make(place, form)
        if found is not None:
            self._made[place, form] = found
        return found

    def _make(self, place: str, form: Accepted) -> tuple[bytes, str] | None:
        groups, places = self._groups, self._places()
        data: dict[str, Any] | None = None
        match place.split("/")[1:]:
            case ["api" | "apis" as root] if form.transform:
                content_type = f"application/json;g=apidiscovery.k8s.io;v={form.version};as=APIGroupDiscoveryList"
                return encode(self._aggregated(form.version, named=root == "apis")), content_type
            case ["openapi", "v2"]:
                trees = (resources for versions in groups.values() for resources in versions.values())
                data = openapi_document([one for resources in trees for one in resources.values()], v3=False)
                if form.media_type == OPENAPI_V2_PROTOBUF:
                    from .protobuf import encode_document  # noqa: PLC0415 - its runtime is only loaded for old clients

                    return encode_document(data), OPENAPI_V2_PROTOBUF.replace("@", ".")
            case ["openapi", "v3"]:
                data = {"paths": {one: self._openapi_place(one) for one in places}}
            case ["openapi", "v3", *_] if found := places.get(place.removeprefix(_OPENAPI_V3)):
                group, version = found
                data = openapi_document(groups[group][version].values(), v3=True)
            case ["api"]:
                clients = [{"clientCIDR": "0.0.0.0/0", "serverAddress": self._address()}]
                data = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": clients}
            case ["apis"]:
                listed = [_group(name, versions) for name, versions in groups.items() if name]
                data = {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
            case ["apis", group] if group in groups:
                data = {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
            case ["api" | "apis", *_] if found := places.get(place[1:]):
                data = self._resource_list(*found)
            case ["version"]:
                data = _VERSION
            case []:
                data = {"paths": sorted((*_PATHS, *(f"/{one}" for one in places)))}
        return None if data is None else (encode(data), JSON)

    def _places(self) -> dict[str, tuple[str, str]]:
        """Group versions by their places in paths: ``api/v1`` or ``apis/GROUP/VERSION``."""
        versions = ((group, version) for group, found in self._groups.items() for version in found)
        return {"/".join(("apis", *one) if one[0] else ("api", one[1])): one for one in versions}

    # -- OpenAPI -----------------------------------------------------------------------------------------

    def _openapi_place(self, place: str) -> dict[str, str]:
        """Return the URL of a group version's document. It changes with the document."""
        raw, _ = self._kept(_OPENAPI_V3 + place, Accepted()) or (b"", "")
        digest = hashlib.sha256(raw).hexdigest()[:32].upper()
        return {"serverRelativeURL": f"{_OPENAPI_V3}{place}?hash={digest}"}

    # -- discovery ---------------------------------------------------------------------------------------

    def _resource_list(self, group: str, version: str) -> dict[str, Any]:
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": [entry for one in self._listed(group, version) for entry in _entries(one)],
        }

    def _listed(self, group: str, version: str) -> Iterable[Resource]:
        reviews = REVIEWS.get(group, {}).get(version, {})
        return (*self._groups[group][version].values(), *reviews.values())

    def _aggregated(self, form_version: str, *, named: bool) -> dict[str, Any]:
        """Return the aggregated form: all named groups, or only the group without a name."""

        def listed(group: str, version: str) -> dict[str, Any]:
            resources = [_aggregated_entry(one) for one in self._listed(group, version)]
            return {"version": version, "resources": resources, "freshness": "Current"}

        items = [
            {
                "metadata": {"name": group} if group else {},
                "versions": [listed(group, version) for version in _best_first(versions)],
            }
            for group, versions in self._groups.items()
            if bool(group) is named
        ]
        api_version = f"apidiscovery.k8s.io/{form_version}"
        return {"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items}


def _group(name: str, versions: Mapping[str, Any]) -> dict[str, Any]:
    known = [{"groupVersion": f"{name}/{version}", "version": version} for version in _best_first(versions)]
    return {"name": name, "versions": known, "preferredVersion": known[0]}


def _entries(resource: Resource) -> Iterable[dict[str, Any]]:
    """Yield a resource and its subresources in the old form."""
    kind = resource.kind
    entry = {"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind}
    digest = hashlib.sha256(f"{kind.group}/{kind.version}/{kind.kind}".encode()).digest()
    stored = {"storageVersionHash": b64encode(digest[:8]).decode()} if "list" in resource.verbs else {}
    yield {**entry, "verbs": resource.verbs, **resource.names, **stored}
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

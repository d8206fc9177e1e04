"""Paths and query parameters of requests to an API server. Caller: :mod:`.http`."""

from __future__ import annotations

from urllib.parse import quote

from kubesched.api.kinds import Kind
from kubesched.api.wire import ListOptions, WatchOptions

__all__ = ["path_of", "query_of"]


def path_of(kind: Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of a kind, or of one object or a subresource of it."""
    parts = ["/apis", kind.group, kind.version] if kind.group else ["/api", kind.version]
    if kind.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(kind.plural)
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def query_of(options: ListOptions | WatchOptions) -> dict[str, str]:
    """Return the query parameters of a list or watch. Empty ones are left out."""
    query = {
        "labelSelector": options.get("label_selector", ""),
        "fieldSelector": options.get("field_selector", ""),
        "resourceVersion": options.get("resource_version", ""),
        "continue": str(options.get("continue_token") or ""),
        "limit": str(options.get("limit") or ""),
    }
    if options.get("send_initial_events"):
        query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    seconds = options.get("timeout_seconds")
    if isinstance(seconds, int | float):
        query["timeoutSeconds"] = str(max(1, int(seconds)))
    return {name: value for name, value in query.items() if value}

"""Service ``kubernetes`` in the namespace ``default``: the server's own address, for clients in the cluster.

Rules: upstream ``pkg/controlplane/controller/kubernetesservice`` and ``pkg/controlplane/reconcilers``. Objects that
differ are written again, so a restored cluster has the address of the server that it runs on now.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from kubesched.api.kinds import ENDPOINT_SLICES, SERVICES, Kind, kind_by_plural
from kubesched.api.wire import ApiError

from ..store import Store

__all__ = ["publish_address"]

_NAME: Final = "kubernetes"
_NAMESPACE: Final = "default"
#: First address of the network of cluster IPs.
_CLUSTER_IP: Final = "10.96.0.1"


def publish_address(store: Store, url: str) -> None:
    """Create the Service, its Endpoints and its EndpointSlice, or correct what differs in them.

    ``url`` is the server's. Without the namespace ``default``, nothing is published.
    """
    parts = urlsplit(url)
    address, port = _address(parts.hostname or ""), parts.port or 443
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    family = "IPv6" if ":" in address else "IPv4"
    endpoints = kind_by_plural("", "endpoints")
    assert endpoints is not None
    _put(
        store,
        SERVICES,
        {"component": "apiserver", "provider": _NAME},
        {
            "spec": {
                "type": "ClusterIP",
                "clusterIP": _CLUSTER_IP,
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            }
        },
    )
    _put(
        store,
        endpoints,
        {"endpointslice.kubernetes.io/skip-mirror": "true"},
        {"subsets": [{"addresses": [{"ip": address}], "ports": ports}]},
    )
    _put(
        store,
        ENDPOINT_SLICES,
        {"kubernetes.io/service-name": _NAME},
        {
            "addressType": family,
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": ports,
        },
    )


def _put(store: Store, kind: Kind, labels: dict[str, str], body: dict[str, Any]) -> None:
    """Write an object unless it has all that is wanted. A refusal is left: it is tried again at the next round."""
    known = store.table(kind).objects.get((_NAMESPACE, _NAME))
    try:
        if known is None:
            store.create(kind, _NAMESPACE, {"metadata": {"name": _NAME, "labels": labels}, **body})
            return
        data = known.data()
        if _has(data, body):
            return
        if kind is SERVICES:
            body = {"spec": {**data["spec"], **body["spec"]}}
        store.update(kind, _NAMESPACE, _NAME, {**data, **body})
    except ApiError as error:
        if error.code not in (403, 404, 409, 422):  # such as a namespace that is being deleted
            raise


def _has(data: Any, wanted: Any) -> bool:
    """True if ``data`` has all members of ``wanted``; members of its own do not count."""
    if isinstance(wanted, dict):
        return isinstance(data, dict) and all(_has(data.get(key), value) for key, value in wanted.items())
    return bool(data == wanted)


def _address(host: str) -> str:
    """Return the IP address of a host; loopback for the address of all interfaces, and for a name without one."""
    try:
        found = ip_address(host)
    except ValueError:
        try:
            return str(socket.getaddrinfo(host, None, family=socket.AF_INET)[0][4][0])
        except OSError:
            return "127.0.0.1"
    if found.is_unspecified:
        return "127.0.0.1" if found.version == 4 else "::1"
    return str(found)

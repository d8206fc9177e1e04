"""Proxy that the environment names for an address, by the rules of Go's ``http.ProxyFromEnvironment``.

The scheme of the address selects ``HTTPS_PROXY`` or ``HTTP_PROXY``, unless ``NO_PROXY`` exempts its host. Names in
lower case count too. Addresses of this machine are never reached through a proxy. Evaluated once for a transport, see
:mod:`.http`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

__all__ = ["environment_proxy"]


def environment_proxy(url: str, environ: Mapping[str, str]) -> str:
    """Return the URL of the proxy for ``url``, or "" for a direct connection."""
    parts = urlsplit(url)
    proxy = _variable(environ, f"{parts.scheme}_proxy")
    if not proxy or not parts.hostname or _is_exempt(parts.hostname, _port(url), _variable(environ, "no_proxy")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name.upper()) or environ.get(name) or "").strip()


def _port(url: str) -> str:
    parts = urlsplit(url)
    return str(parts.port or (443 if parts.scheme == "https" else 80))


def _is_exempt(host: str, port: str, exempt: str) -> bool:
    host = host.lower().rstrip(".")
    address = None
    with suppress(ValueError):
        address = ip_address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for part in exempt.lower().split(","):
        entry = part.strip()
        if entry == "*":
            return True
        if "/" in entry:
            with suppress(ValueError):
                if address is not None and address in ip_network(entry, strict=False):
                    return True
            continue
        name, separator, wanted = entry.rpartition(":")
        if separator and wanted.isdigit() and (":" not in name or name.startswith("[")):
            if wanted != port:
                continue
            entry = name
        entry = entry.strip("[]")
        if address is not None:
            with suppress(ValueError):
                if address == ip_address(entry):
                    return True
            continue
        # "name" exempts the name and its subdomains; ".name" and "*.name" exempt only the subdomains.
        if entry.startswith("*."):
            entry = entry[1:]
        if entry and (host == entry or host.endswith(entry if entry.startswith(".") else f".{entry}")):
            return True
    return False

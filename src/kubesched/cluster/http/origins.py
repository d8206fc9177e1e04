"""Check for a server without a token: it accepts only requests that no foreign web page can have made.

Any page in a browser on this machine can send requests to a loopback address. Each such request has one of these marks:

* its ``Host`` is another name, if the page's own name was made to resolve to this address (DNS rebinding);
* its ``Origin`` is the page's;
* its body lacks the content type of an API request. Without a CORS preflight, which is refused, a page may only send
  the types of a form, or no type.

A server with a token needs no such check, since a page does not know the token. Caller: :mod:`.server`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from aiohttp import web

from kubesched.api.wire import ApiError
from kubesched.base.hosts import address_of, is_local, is_loopback, name_in, plain_name

from .bodies import is_decodable, media_type, unsupported

__all__ = ["Origins", "is_loopback"]

_BROWSERS: Final = ("Mozilla/", "Opera/")


class Origins:
    """Names by which a server may be addressed.

    They are loopback addresses and ``localhost``, ``host`` (the address it is bound to), and ``names``. A server that
    is bound to all addresses of the machine accepts any address: a rebound request has a name in its ``Host``, never an
    address.

    Raises:
        ValueError: for a name with a scheme, a port or a path.
    """

    def __init__(self, host: str, names: Iterable[str] = ()) -> None:
        address = address_of(host)
        self._any_address = not host or (address is not None and address.is_unspecified)
        self._names = {"localhost", plain_name(host)}
        for name in names:
            plain = plain_name(name)
            if not plain or (address_of(plain) is None and not set(plain).isdisjoint(":/@?#[] ")):
                raise ValueError(f"{name!r} is no host name: give a name or an address alone, such as cluster.example")
            self._names.add(plain)
        self._check_host = lru_cache(maxsize=256)(self._check_named)

    def check(self, request: web.BaseRequest) -> None:
        """Refuse a request that a web page may have made.

        Raises:
            ApiError: 403 for another host or origin, 400 for a malformed ``Host``, 415 for a body of another type.
        """
        headers = request.headers
        hosts = headers.getall("Host", ())
        for host in hosts:
            self._check_host(host)
        for origin in headers.getall("Origin", ()):
            # ``null`` names no host, so it matches no host.
            if len(hosts) != 1 or origin.lower().partition("://")[2] != hosts[0].lower():
                text = f"requests of pages from {_shown(origin)} are refused, as this server asks for no token"
                raise ApiError(403, "Forbidden", text)
        if request.can_read_body:
            kind = media_type(headers.get("Content-Type", ""), "")
            # kubectl create --raw and pykube send no content type. A page cannot choose its User-Agent without a
            # preflight, and its browser sends the origin of the request in two further headers.
            agent = headers.get("User-Agent", "")
            is_page = not agent or agent.startswith(_BROWSERS) or "Origin" in headers or "Sec-Fetch-Site" in headers
            if not (is_decodable(kind) or (not kind and not is_page)):
                raise unsupported()

    def _check_named(self, host: str) -> None:
        name = name_in(host)
        if not name:
            raise ApiError.bad_request(f"malformed HTTP request: the Host header {_shown(host)} names no host")
        address = address_of(plain_name(name))
        is_known = address is not None and (self._any_address or is_local(address))
        if not is_known and plain_name(name) not in self._names:
            text = (
                f"this server is not known as {_shown(host)}: without a token it answers to loopback names, to the "
                "address it listens on and to the names it was given (--allowed-host)"
            )
            raise ApiError(403, "Forbidden", text)


def _shown(text: str) -> str:
    """Return a text of the client, short and printable."""
    return repr(text[:100].encode("utf-8", "replace").decode())

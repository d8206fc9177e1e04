"""Functions of Kubernetes for IP addresses, networks and URLs."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from .functions import function
from .values import EvaluationError

_IP: Final = "net.IP"
_CIDR: Final = "net.CIDR"
_URL: Final = "kubernetes.URL"
_V4_LOCAL: Final = ip_interface("224.0.0.0/24")
_V6_LOCAL: Final = ip_interface("ff02::/16")
Address = IPv4Address | IPv6Address
Network = IPv4Interface | IPv6Interface


def _address(text: str) -> Address:
    try:
        address = ip_address(text)
    except ValueError:
        raise EvaluationError(
            f'IP Address "{text}" parse error during conversion from string: ParseAddr("{text}"): unable to parse IP'
        ) from None
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            raise EvaluationError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
        if address.scope_id is not None:
            raise EvaluationError(f'IP address "{text}" with zone value is not allowed')
    return address


def _network(text: str) -> Network:
    host, slash, length = text.partition("/")
    try:
        if not slash or not length.isdigit() or (len(length) > 1 and length[0] == "0"):
            raise ValueError
        _address(host)
        return ip_interface(text)
    except (ValueError, EvaluationError):
        raise EvaluationError(
            f'network address parse error during conversion from string: netip.ParsePrefix("{text}"): invalid'
        ) from None


def _accepts(read: Any) -> Any:
    def accepts(text: str) -> bool:
        try:
            read(text)
        except EvaluationError:
            return False
        return True

    return accepts


function("ip", "string")(_address)
function("isIP", "string")(_accepts(_address))
function("ip.isCanonical", "string")(lambda text: str(_address(text)) == text)
function("string", _IP)(str)
function("family", _IP)(lambda address: address.version)
function("isUnspecified", _IP)(lambda address: address.is_unspecified)
function("isLoopback", _IP)(lambda address: address.is_loopback)
function("isLinkLocalMulticast", _IP)(
    lambda address: address in (_V4_LOCAL if address.version == 4 else _V6_LOCAL).network
)
function("isLinkLocalUnicast", _IP)(lambda address: address.is_link_local)
function("isGlobalUnicast", _IP)(
    lambda address: (
        not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)
        and str(address) != "255.255.255.255"
    )
)

function("cidr", "string")(_network)
function("isCIDR", "string")(_accepts(_network))
function("string", _CIDR)(str)
function("ip", _CIDR)(lambda network: network.ip)
function("masked", _CIDR)(lambda network: ip_interface(str(network.network)))
function("prefixLength", _CIDR)(lambda network: network.network.prefixlen)


@function("containsIP", _CIDR, _IP)
def _contains_ip(network: Network, address: Address) -> bool:
    return address.version == network.version and address in network.network


@function("containsIP", _CIDR, "string")
def _contains_ip_text(network: Network, text: str) -> bool:
    return _contains_ip(network, _address(text))


@function("containsCIDR", _CIDR, _CIDR)
def _contains_cidr(network: Network, other: Network) -> bool:
    return (
        network.version == other.version
        and other.ip in network.network
        and other.network.prefixlen >= network.network.prefixlen
    )


@function("containsCIDR", _CIDR, "string")
def _contains_cidr_text(network: Network, text: str) -> bool:
    return _contains_cidr(network, _network(text))


#: Most characters of a URL. Python remembers some URLs that it has read, and must not remember much.
_LONGEST_URL: Final = 1 << 16


def parsed_url(text: str) -> SplitResult:
    """Return the parts of a URL.

    Raises:
        ValueError: if the text is not a URL, or is too long.
    """
    if len(text) > _LONGEST_URL:
        raise ValueError(f"longer than {_LONGEST_URL} characters")
    return urlsplit(text)


@function("url", "string")
def _url(text: str) -> SplitResult:
    try:
        parts = parsed_url(text)
        _ = parts.port
    except ValueError as error:
        raise EvaluationError(f'URL parse error during conversion from string: parse "{text}": {error}') from None
    if not (parts.scheme and parts.netloc) and not text.startswith("/"):
        raise EvaluationError(f'URL parse error during conversion from string: parse "{text}": invalid URI for request')
    return parts


def _hostname(url: SplitResult) -> str:
    host = url.netloc.rpartition("@")[2]
    if host.startswith("["):
        return host[1 : host.index("]")]
    return host.partition(":")[0]


function("isURL", "string")(_accepts(_url))
function("getScheme", _URL)(lambda url: url.scheme)
function("getHost", _URL)(lambda url: url.netloc.rpartition("@")[2])
function("getHostname", _URL)(_hostname)
function("getPort", _URL)(lambda url: "" if url.port is None else str(url.port))
function("getEscapedPath", _URL)(lambda url: url.path)
function("getQuery", _URL)(lambda url: parse_qs(url.query, keep_blank_values=True))

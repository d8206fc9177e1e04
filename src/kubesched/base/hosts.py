"""Names and addresses of hosts: is it this machine, and which name is in a Host header."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

__all__ = ["address_of", "is_local", "is_loopback", "loopback_listener", "name_in", "plain_name"]


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server bound to ``host``: a loopback address, or ``localhost``."""
    address = address_of(host)
    return plain_name(host) == "localhost" if address is None else is_local(address)


def plain_name(name: str) -> str:
    """Return a name in the form in which equal names are equal."""
    return name.lower().removesuffix(".")


def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a text is, also in brackets; None for a name."""
    try:
        return ip_address(text.strip("[]"))
    except ValueError:
        return None


def is_local(address: IPv4Address | IPv6Address) -> bool:
    """True for a loopback address, also for one of IPv4 in IPv6."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def name_in(header: str) -> str:
    """Return the name or address in a Host header, without the port; empty if it has none."""
    try:
        parts = urlsplit(f"//{header}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return ""
    return "" if not name or "@" in header or "/" in header else name


def loopback_listener(text: str, host: str, port: int) -> tuple[str, int]:
    """Parse ``PORT`` or ``ADDRESS:PORT``; ``host`` and ``port`` are the defaults, the latter for an empty text.

    Raises:
        ValueError: for anything else, and for an address that is not loopback.
    """
    given, _, digits = text.rpartition(":")
    name = given.removeprefix("[").removesuffix("]") if given else host
    if text and not (digits.isascii() and digits.isdigit() and len(digits) < 6 and int(digits) < 65536):
        raise ValueError(f"{text[:64]!r} is no PORT and no ADDRESS:PORT with a port from 0 to 65535")
    if not is_loopback(name):
        raise ValueError(
            f"{name[:64]!r} is no loopback address; other machines reach it through a tunnel, such as kubectl port-forward"
        )
    return name, int(digits) if text else port

"""Named formats of names, keys and other values, which ``rules.txt`` of the schema uses too.

Caller: :mod:`.validation`.

Texts follow upstream (``apimachinery/pkg/util/validation``), so that people can search for them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from kubesched.api.cel.device_expressions import compile_device_expression
from kubesched.api.cel.engine import MissingLibraryError
from kubesched.api.cel.environment import CompilationError
from kubesched.api.cron import CronError, parse_cron, time_zone
from kubesched.api.quantity import QuantityError, parse_quantity
from kubesched.api.selectors import is_label_value, is_object_name, is_qualified_name
from kubesched.base.kept import remembered

from ..schema import QUANTITY_TEXT

__all__ = ["IP_TEXT", "QUALIFIED_TEXT", "QUANTITY_TEXT", "format_problem"]

_LABEL_PATTERN: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL: Final = re.compile(_LABEL_PATTERN)
_SUBDOMAIN_PATTERN: Final = rf"{_LABEL_PATTERN}(\.{_LABEL_PATTERN})*"
_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_PATTERN}')"
)
_CONFIG_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_PATTERN}')"
)
_WILDCARD_TEXT: Final = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower "
    "case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used "
    rf"for validation is '\*\.{_SUBDOMAIN_PATTERN}')"
)
QUALIFIED_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc'), with an optional DNS subdomain prefix and '/'"
)
_LABEL_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345'), at most 63 characters"
)
IP_TEXT: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_TEXT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_LONGEST_NAME: Final = 253
_NEGATIVE_TEXT: Final = "must be greater than or equal to 0"
_PORT_NAME: Final = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
_PORT_NAME_TEXT: Final = (
    "must be no more than 15 lower case alphanumeric characters or '-', and contain at least one letter (a-z)"
)
#: Ranges of addresses that mean the node itself, or the nodes of one link, by upstream's words.
_INSIDE: Final = {
    f"{words} ({', '.join(ranges)})": tuple(ipaddress.ip_network(one) for one in ranges)
    for words, ranges in {
        "loopback range": ("127.0.0.0/8", "::1/128"),
        "link-local range": ("169.254.0.0/16", "fe80::/10"),
        "link-local multicast range": ("224.0.0.0/24", "ff02::/16"),  # upstream names /10, and means this one
    }.items()
}
_CIDR_TEXT: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
#: Grammar of semver.org, 2.0.0: three numbers, identifiers of a pre-release, identifiers of a build.
_NUMBER: Final = "(?:0|[1-9][0-9]*)"
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-(?:{_NUMBER}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:{_NUMBER}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)


def _is_label(text: str) -> bool:
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def _is_config_key(text: str) -> bool:
    return len(text) <= 253 and _CONFIG_KEY.fullmatch(text) is not None and text not in (".", "..")


def _is_path_segment(text: str) -> bool:
    return text not in (".", "..") and "/" not in text and "%" not in text


def _subdomain(text: str) -> str:
    if is_object_name(text):
        return ""
    return _SUBDOMAIN_TEXT if len(text) <= _LONGEST_NAME else f"must be no more than {_LONGEST_NAME} characters"


def _segment(text: str) -> str:
    """Problem of a name that is a part of a path: the first of its words or characters that is not allowed there."""
    if text in (".", ".."):
        return f"may not be '{text}'"
    found = next((character for character in "/%" if character in text), "")
    return f"may not contain '{found}'" if found else ""


def _port_name(text: str) -> str:
    return "" if len(text) <= 15 and _PORT_NAME.fullmatch(text) else _PORT_NAME_TEXT


def _port(value: int | str) -> str:
    if isinstance(value, str):
        return _port_name(value)
    return "" if 1 <= value <= 65535 else "must be between 1 and 65535, inclusive"


def _amount(value: int | str) -> str:
    """Problem of a value that must be a number that is not negative, or a percentage."""
    if isinstance(value, str):
        return "" if _PERCENT.fullmatch(value) else _PERCENT_TEXT
    return _NEGATIVE_TEXT if value < 0 else ""


def _share(value: int | str) -> str:
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1]) > 100:
        return "must not be greater than 100%"
    return _amount(value)


def _unread(read: Callable[[Any], object], value: Any, *errors: type[Exception], text: str = "") -> str:
    """Return the problem of a value if ``read`` refuses it with one of the errors. The problem is ``text``; if that is
    empty, the text of the error.
    """
    try:
        read(value)
    except errors as error:
        return text or str(error)
    return ""


def _quantity(value: Any) -> str:
    return _unread(parse_quantity, value, QuantityError, text=QUANTITY_TEXT)


def _storage(value: Any) -> str:
    return _quantity(value) or (_NEGATIVE_TEXT if parse_quantity(value).nanos < 0 else "")


def _positive_amount(value: Any) -> str:
    return _quantity(value) or ("must be positive" if parse_quantity(value).nanos <= 0 else "")


def _cidr(text: str) -> str:
    read = partial(ipaddress.ip_network, strict=False)
    return _unread(read, text, ValueError, text=_CIDR_TEXT) if "/" in text else _CIDR_TEXT


def _outside_ip(text: str) -> str:
    """Problem of an IP address at which something outside of the cluster's nodes may be reached."""
    if problem := _FORMATS["ip"](text):
        return problem
    address = ipaddress.ip_address(text)
    for words, ranges in _INSIDE.items():
        if any(address in one for one in ranges):
            return f"may not be in the {words}"
    return f"may not be unspecified ({text})" if address.is_unspecified else ""


def _host(text: str) -> str:
    """Problem of a host name whose first label may be an asterisk."""
    with suppress(ValueError):
        ipaddress.ip_address(text)
        return "must be a DNS name, not an IP address"
    if "*" in text:
        return "" if text.startswith("*.") and is_object_name(text[2:]) and len(text) <= 253 else _WILDCARD_TEXT
    return "" if is_object_name(text) else _SUBDOMAIN_TEXT


def _time_zone(text: str) -> str:
    if text.lower() == "local":
        return "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    return _unread(time_zone, text, CronError)


@remembered(1 << 20)
def _device_expression(text: str) -> str:
    read = partial(compile_device_expression, lists=True)
    return _unread(read, text, CompilationError, MissingLibraryError)


def _extended_resource(name: str) -> str:
    domain, slash, _ = name.partition("/")
    native = not domain or domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    is_extended = slash and not native and not name.startswith("requests.") and is_qualified_name(name)
    return "" if is_extended else "must be a valid extended resource name"


#: Formats by name. Each returns the problem of a value, or an empty text.
_FORMATS: Final[dict[str, Callable[[Any], str]]] = {
    "short-name": lambda text: "must not contain dots" if "." in text else "" if _is_label(text) else _LABEL_TEXT,
    "label": lambda text: "" if _is_label(text) else _LABEL_TEXT,
    "subdomain": _subdomain,
    "driver": lambda text: "" if is_object_name(text.lower()) else _SUBDOMAIN_TEXT,
    "segment": _segment,
    "path-segment": lambda text: "" if _is_path_segment(text) else "may not be '.' or '..' nor contain '/' or '%'",
    "config-key": lambda text: "" if _is_config_key(text) else _CONFIG_KEY_TEXT,
    "key": lambda text: "" if is_qualified_name(text) else QUALIFIED_TEXT,
    "annotation-key": lambda text: "" if is_qualified_name(text.lower()) else QUALIFIED_TEXT,
    "label-value": lambda text: "" if is_label_value(text) else _LABEL_VALUE_TEXT,
    "image": lambda text: "" if text == text.strip() else "must not have leading or trailing whitespace",
    "port-name": _port_name,
    "port": _port,
    "amount": _amount,
    "share": _share,
    "positive-share": lambda value: "cannot be 0" if value in (0, "0%") else _share(value),
    "positive": lambda number: "" if number > 0 else "must be greater than 0",
    "amount-text": _quantity,
    "storage": _storage,
    "positive-amount": _positive_amount,
    "cidr": _cidr,
    "ip": lambda text: _unread(ipaddress.ip_address, text, ValueError, text=IP_TEXT),
    "outside-ip": _outside_ip,
    "host": _host,
    "cron": lambda text: _unread(parse_cron, text, CronError),
    "time-zone": _time_zone,
    "version": lambda text: (
        "" if _VERSION.fullmatch(text) else "must be a string compatible with semver.org spec 2.0.0"
    ),
    "device-expression": _device_expression,
    "extended-resource": _extended_resource,
}


def format_problem(name: str, value: Any) -> str:
    """Return the problem of a value, or an empty text.

    Empty values are valid unless the format's name ends with ``!``.
    """
    return "" if value == "" and not name.endswith("!") else _FORMATS[name.removesuffix("!")](value)

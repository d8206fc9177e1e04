"""Functions of Kubernetes for quantities, versions and named formats."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import date
from typing import Any, Final

from ..quantity import INT64_MAX, Quantity, QuantityError, parse_quantity
from ..selectors import is_label_value, is_qualified_name
from .functions import call_free, function
from .network import parsed_url
from .values import NO_VALUE, EvaluationError, NamedFormat, Optional, parse_semver

_Q: Final = "kubernetes.Quantity"
_V: Final = "kubernetes.Semver"
_NANO: Final = 10**9


# -- quantities --------------------------------------------------------------------------------------------


@function("quantity", "string")
def _quantity(text: str) -> Quantity:
    try:
        return parse_quantity(text)
    except QuantityError:
        raise EvaluationError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from None


@function("isQuantity", "string")
def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _whole(quantity: Quantity) -> int | None:
    number, rest = divmod(quantity.nanos, _NANO)
    return None if rest or abs(number) >= INT64_MAX else number


@function("isInteger", _Q)
def _is_integer(quantity: Quantity) -> bool:
    return _whole(quantity) is not None


@function("asInteger", _Q)
def _as_integer(quantity: Quantity) -> int:
    number = _whole(quantity)
    if number is None:
        raise EvaluationError("cannot convert value to integer")
    return number


function("asApproximateFloat", _Q)(lambda quantity: quantity.nanos / _NANO)
function("sign", _Q)(lambda quantity: (quantity.nanos > 0) - (quantity.nanos < 0))
function("add", _Q, _Q)(lambda a, b: a + b)
function("add", _Q, "int")(lambda a, b: a + Quantity(b * _NANO))
function("sub", _Q, _Q)(lambda a, b: a - b)
function("sub", _Q, "int")(lambda a, b: a - Quantity(b * _NANO))


# -- versions ----------------------------------------------------------------------------------------------


function("semver", "string")(parse_semver)
function("semver", "string", "bool")(lambda text, normalize: parse_semver(text, normalize=normalize))
function("major", _V)(lambda version: version.major)
function("minor", _V)(lambda version: version.minor)
function("patch", _V)(lambda version: version.patch)


@function("isSemver", "string")
def _is_semver(text: str) -> bool:
    return _is_semver_of(text, False)


@function("isSemver", "string", "bool")
def _is_semver_of(text: str, normalize: bool) -> bool:
    try:
        parse_semver(text, normalize=normalize)
    except EvaluationError:
        return False
    return True


def _ordered(kind: str) -> None:
    function("isGreaterThan", kind, kind)(lambda a, b: b < a)
    function("isLessThan", kind, kind)(lambda a, b: a < b)
    function("compareTo", kind, kind)(lambda a, b: (b < a) - (a < b))


_ordered(_Q)
_ordered(_V)


# -- named formats -----------------------------------------------------------------------------------------

_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?\Z", re.ASCII)
_LABEL_1035: Final = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?\Z", re.ASCII)
_UUID: Final = re.compile(r"(?i)[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\Z", re.ASCII)


def _label(text: str) -> bool:
    return len(text) <= 63 and _LABEL.match(text) is not None


def _subdomain(text: str) -> bool:
    return len(text) <= 253 and all(_LABEL.match(part) for part in text.split("."))


def _label_1035(text: str) -> bool:
    return len(text) <= 63 and _LABEL_1035.match(text) is not None


def _prefix_of(check: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda text: check(text[:-1] + "a" if text.endswith("-") else text)


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_date(text: str) -> bool:
    try:
        return len(text) == 10 and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _is_datetime(text: str) -> bool:
    try:
        call_free("timestamp", [text])
    except EvaluationError:
        return False
    return True


def _is_uri(text: str) -> bool:
    try:
        parts = parsed_url(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc) or text.startswith("/")


_FORMATS: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "dns1123Label": (_label, "a lowercase RFC 1123 label"),
    "dns1123Subdomain": (_subdomain, "a lowercase RFC 1123 subdomain"),
    "dns1035Label": (_label_1035, "a DNS-1035 label"),
    "qualifiedName": (is_qualified_name, "a qualified name"),
    "dns1123LabelPrefix": (_prefix_of(_label), "a prefix of a lowercase RFC 1123 label"),
    "dns1123SubdomainPrefix": (_prefix_of(_subdomain), "a prefix of a lowercase RFC 1123 subdomain"),
    "dns1035LabelPrefix": (_prefix_of(_label_1035), "a prefix of a DNS-1035 label"),
    "labelValue": (is_label_value, "a valid label value"),
    "uri": (_is_uri, "a URI"),
    "uuid": (lambda text: _UUID.match(text) is not None, "a UUID"),
    "byte": (_is_base64, "base64"),
    "date": (_is_date, "a date"),
    "datetime": (_is_datetime, "a date and time"),
}


def _named(name: str) -> None:
    function(f"format.{name}")(lambda: NamedFormat(name))


for _name in _FORMATS:
    _named(_name)


@function("format.named", "string")
def _format_named(name: str) -> Optional:
    return Optional(NamedFormat(name)) if name in _FORMATS else NO_VALUE


@function("validate", "kubernetes.NamedFormat", "string")
def _validate(named: NamedFormat, text: str) -> Optional:
    """Return the problems of a text, or nothing if it has the format."""
    check, what = _FORMATS[named.name]
    problems: Any = [f"must be {what}"]
    return NO_VALUE if check(text) else Optional(problems)

"""Whether fields have values that their rules allow: required ones, enumerations, bounds and formats.

A JSON Schema is made of ``schemas.txt`` and ``rules.txt`` for each type on first use, and evaluated by ``jsonschema-rs``
(a few microseconds for an object). Its findings become field errors with upstream's texts. Types have been checked
before (:mod:`..schema.forms`). Callers: :mod:`.kind_validation`, and :mod:`.admission` for pod specs.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any, Final

import jsonschema_rs

from ...api.cron import CronError, parse_cron, time_zone
from ...api.quantity import QuantityError, parse_quantity
from ..schema import FieldRules, Type, field_rules, reaches, types
from .validation import (
    LABEL_TEXT,
    QUANTITY_TEXT,
    SUBDOMAIN_TEXT,
    WILDCARD_TEXT,
    Causes,
    is_dns_label,
    is_dns_subdomain,
)

__all__ = ["check_values", "dotted"]

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_TEXT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_PORT_TEXT: Final = "must be between 1 and 65535, inclusive"
_NEGATIVE_TEXT: Final = "must be greater than or equal to 0"
_PORT_NAME: Final = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
_PORT_NAME_TEXT: Final = (
    "must be no more than 15 lower case alphanumeric characters or '-', and contain at least one letter (a-z)"
)
#: What printer columns may hold, and how it is written.
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")


def _port_name(text: str) -> str:
    return "" if len(text) <= 15 and _PORT_NAME.fullmatch(text) else _PORT_NAME_TEXT


def _port(value: int | str) -> str:
    if isinstance(value, str):
        return _port_name(value)
    return "" if 1 <= value <= 65535 else _PORT_TEXT


def _amount(value: int | str) -> str:
    """A number that is not negative, or a percentage."""
    if isinstance(value, str):
        return "" if _PERCENT.fullmatch(value) else _PERCENT_TEXT
    return _NEGATIVE_TEXT if value < 0 else ""


def _share(value: int | str) -> str:
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1]) > 100:
        return "must not be greater than 100%"
    return _amount(value)


def _positive_share(value: int | str) -> str:
    return "cannot be 0" if value in (0, "0%") else _share(value)


def _quantity(value: Any) -> str:
    try:
        parse_quantity(value)
    except QuantityError:
        return QUANTITY_TEXT
    return ""


def _storage(value: Any) -> str:
    return _quantity(value) or (_NEGATIVE_TEXT if parse_quantity(value).nanos < 0 else "")


def _cidr(text: str) -> str:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    return "" if "/" in text else "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def _host(text: str) -> str:
    """A host name, or one whose first label is an asterisk."""
    with suppress(ValueError):
        ipaddress.ip_address(text)
        return "must be a DNS name, not an IP address"
    if "*" in text:
        return "" if text.startswith("*.") and is_dns_subdomain(text[2:]) and len(text) <= 253 else WILDCARD_TEXT
    return "" if is_dns_subdomain(text) else SUBDOMAIN_TEXT


def _schedule(text: str) -> str:
    try:
        parse_cron(text)
    except CronError as error:
        return str(error)
    return ""


def _time_zone(text: str) -> str:
    if text.lower() == "local":
        return "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    try:
        time_zone(text)
    except CronError as error:
        return str(error)
    return ""


#: Each says what is wrong with a value that is not empty; nothing when it is right.
_FORMATS: Final[dict[str, Callable[[Any], str]]] = {
    "label": lambda text: "" if is_dns_label(text) else LABEL_TEXT,
    "subdomain": lambda text: "" if is_dns_subdomain(text) else SUBDOMAIN_TEXT,
    "driver": lambda text: "" if is_dns_subdomain(text.lower()) else SUBDOMAIN_TEXT,
    "image": lambda text: "" if text == text.strip() else "must not have leading or trailing whitespace",
    "port-name": _port_name,
    "port": _port,
    "amount": _amount,
    "share": _share,
    "positive-share": _positive_share,
    "positive": lambda number: "" if number > 0 else "must be greater than 0",
    "amount-text": _quantity,
    "storage": _storage,
    "cidr": _cidr,
    "host": _host,
    "column-type": lambda text: "" if text in _COLUMN_TYPES else f"must be one of {','.join(_COLUMN_TYPES)}",
    "column-format": lambda text: "" if text in _COLUMN_FORMATS else f"must be one of {','.join(_COLUMN_FORMATS)}",
    "json-path": lambda text: "" if text[0] == "." else "must be a simple json path starting with .",
    "cron": _schedule,
    "time-zone": _time_zone,
}


class _Format:
    """The keyword ``format`` of rules, as the validator calls it."""

    def __init__(self, parent: Mapping[str, Any], value: str, path: Iterable[str | int]) -> None:
        self._problem = _FORMATS[value]

    def validate(self, instance: Any) -> None:
        problem = "" if instance == "" else self._problem(instance)
        if problem:
            raise ValueError(problem)


@cache
def _validator(name: str) -> Any:
    """The validator of a type; None when nothing in it has rules."""
    if name not in reaches("fields"):
        return None
    definitions: dict[str, Any] = {}
    _define(types()[name], definitions)
    schema = {"$schema": _DRAFT, "$ref": f"#/$defs/{name}", "$defs": definitions}
    return jsonschema_rs.validator_for(schema, keywords={"rule": _Format})


def _define(type_: Type, definitions: dict[str, Any]) -> None:
    definition: dict[str, Any] = {}
    definitions[type_.name] = definition
    rules, held = field_rules(type_.name), reaches("fields")
    properties: dict[str, Any] = {}
    for name, field in type_.fields.items():
        schema = _one(rules[name]) if name in rules else {}
        if field.type in held:
            schema["$ref"] = f"#/$defs/{field.type}"
            if field.type not in definitions:
                _define(types()[field.type], definitions)
        if field.is_list or field.is_map:
            outer: dict[str, Any] = {"items" if field.is_list else "additionalProperties": schema} if schema else {}
            if name in rules:
                outer |= _whole(rules[name], "Items" if field.is_list else "Properties")
            schema = outer
        elif name in rules and rules[name].required and field.type == "str":
            schema["minLength"] = 1
        if schema:
            properties[name] = schema
    definition["properties"] = properties
    definition["required"] = [name for name, rule in rules.items() if rule.required]


def _one(rules: FieldRules) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if rules.enum:
        schema["enum"] = [*rules.enum]
    if rules.minimum is not None:
        schema["minimum"] = 0 if rules.zero else rules.minimum
    if rules.maximum is not None:
        schema["maximum"] = rules.maximum
    if rules.format:
        schema["rule"] = rules.format
    return schema


def _whole(rules: FieldRules, what: str) -> dict[str, int]:
    """Of a list or a map."""
    schema = {f"min{what}": 1} if rules.required else {}
    return schema | ({f"max{what}": rules.most} if rules.most is not None else {})


def check_values(type_: str, data: Any, path: str, causes: Causes) -> None:
    """Check an object of a type; ``path`` is where it is, such as ``spec`` for a PodSpec."""
    validator = _validator(type_)
    if validator is None or validator.is_valid(data):
        return
    seen: set[str] = set()
    for error in validator.iter_errors(data):
        where = dotted(path, _places(type_, error.instance_path))
        if where not in seen:
            _add(error, where, causes)
            if error.kind.name != "required":
                seen.add(where)


def _places(type_: str, path: Iterable[str | int]) -> Iterator[str | int]:
    """The steps to a value in an object of a type; keys of maps in brackets."""
    steps = iter(path)
    for name in steps:
        yield name
        field = types()[type_].fields[str(name)]
        if field.shape:
            for key in islice(steps, 1):
                yield key if field.is_list else f"[{key}]"
        type_ = field.type


def dotted(path: str, places: Iterable[str | int]) -> str:
    """``spec.ports[0].port``."""
    for place in places:
        if isinstance(place, int):
            path += f"[{place}]"
        else:
            path += f".{place}" if path and place[0] != "[" else place
    return path


def _add(error: Any, where: str, causes: Causes) -> None:
    kind, value, details = error.kind.name, error.instance, error.kind.as_dict()
    place = error.schema_path  # $defs, the type, properties, the field, ...
    if kind == "required":
        name = details["property"]
        causes.required(dotted(where, [name]), field_rules(place[1])[name].required_text)
    elif kind in ("minLength", "minItems", "minProperties"):
        causes.required(where, field_rules(place[1])[place[3]].required_text)
    elif kind == "enum":
        # Of a list, upstream names the list.
        causes.unsupported(re.sub(r"\[\d+\]$", "", where), value, filter(None, details["options"]))
    elif kind in ("maxItems", "maxProperties"):
        causes.too_many(where, len(value), details["limit"])
    elif kind in ("minimum", "maximum"):
        causes.invalid(where, value, _bounds(field_rules(place[1])[place[3]]))
    else:
        causes.invalid(where, value, error.message)


def _bounds(rules: FieldRules) -> str:
    if rules.maximum is None:
        return f"must be greater than or equal to {rules.minimum}"
    return f"must be between {rules.minimum} and {rules.maximum}, inclusive"

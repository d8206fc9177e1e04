"""Checks every object passes: names, labels, metadata; and the collector of field errors.

Caller: ``store`` before a write. What belongs to a type or a kind is in :mod:`.checks` and :mod:`.kinds`.
Texts follow upstream (``apimachinery/pkg/util/validation``), so that people can search for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final

import msgspec

from ...api.kinds import LEASE_CANDIDATES, PODS, Kind
from ...api.quantity import Quantity, QuantityError, parse_quantity
from ...api.selectors import NodeSelectorMatcher, is_label_value, is_qualified_name
from ...api.types import NodeSelector
from ...api.wire import ApiError
from ..schema import check_metadata_form, types, undecodable

__all__ = [
    "QUANTITY_TEXT",
    "Causes",
    "check_labels",
    "check_metadata",
    "check_node_selector",
    "check_quantities",
    "check_single",
    "check_source",
    "dotted",
    "forbidden",
    "is_config_key",
    "is_dns_label",
    "is_dns_subdomain",
    "repeated",
    "volume_sources",
]

_LABEL_PATTERN: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_PATTERN: Final = rf"{_LABEL_PATTERN}(\.{_LABEL_PATTERN})*"
_DNS_LABEL: Final = re.compile(_LABEL_PATTERN)
_DNS_SUBDOMAIN: Final = re.compile(_SUBDOMAIN_PATTERN)
_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_PATH_SEGMENT_GROUPS: Final = frozenset({"rbac.authorization.k8s.io"})
_DNS_LABEL_KINDS: Final = frozenset({"namespaces", "services"})

LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_PATTERN}')"
)
CONFIG_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_PATTERN}')"
)
WILDCARD_TEXT: Final = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower "
    "case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used "
    rf"for validation is '\*\.{_SUBDOMAIN_PATTERN}')"
)
QUALIFIED_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc'), with an optional DNS subdomain prefix and '/'"
)
LABEL_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345'), at most 63 characters"
)
IP_TEXT: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
QUANTITY_TEXT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    """403: what an admission rule says when it refuses."""
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return ApiError(403, "Forbidden", f'{kind.group_resource} "{name}" is forbidden: {why}', details)


class Causes(list[tuple[str, str, str]]):
    """Field errors as (path, reason, message), in the words of upstream's field package.

    ``kind`` is that of the object being checked, for what cannot even be decoded.
    """

    kind: Kind = PODS

    def invalid(self, path: str, value: object, why: str) -> None:
        self.append((path, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {why}"))

    def required(self, path: str, why: str = "") -> None:
        self.append((path, "FieldValueRequired", f"Required value: {why}" if why else "Required value"))

    def forbidden(self, path: str, why: str) -> None:
        self.append((path, "FieldValueForbidden", f"Forbidden: {why}"))

    def duplicate(self, path: str, value: object) -> None:
        self.append((path, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}"))

    def unsupported(self, path: str, value: object, allowed: Iterable[str]) -> None:
        texts = ", ".join(f'"{item}"' for item in allowed)
        self.append((path, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {texts}"))

    def too_many(self, path: str, size: int, most: int) -> None:
        self.append((path, "FieldValueTooMany", f"Too many: {size}: must have at most {most} items"))

    def too_long(self, path: str, most: int) -> None:
        self.append((path, "FieldValueTooLong", f"Too long: may not be more than {most} bytes"))

    def not_found(self, path: str, value: object, why: str = "") -> None:
        self.append((path, "FieldValueNotFound", f"Not found: {_shown(value)}{f': {why}' if why else ''}"))

    def add(self, reason: str, path: str, value: object, text: str) -> None:
        """An error by the name of its reason; for values that are not supported, ``text`` says which are, with bars between."""
        match reason:
            case "required" | "forbidden":
                getattr(self, reason)(path, text)
            case "duplicate":
                self.duplicate(path, value)
            case "unsupported":
                self.unsupported(path, value, text.split("|"))
            case _:
                self.invalid(path, value, text)

    def selector(self, text: str) -> None:
        """What a selector compiler said: it starts with the path already."""
        path, _, message = text.partition(": ")
        self.append((path, "FieldValueInvalid", message))

    def raise_if_any(self, kind: Kind, name: str) -> None:
        """Raise 422 Invalid when something was found."""
        if self:
            raise ApiError.invalid(kind, name, self)


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()


def dotted(path: str, places: Iterable[str | int]) -> str:
    """A path with further steps: ``spec.ports[0].port``. Keys of maps are in brackets."""
    for place in places:
        if isinstance(place, int):
            path += f"[{place}]"
        else:
            path += f".{place}" if path and place[0] != "[" else place
    return path


def is_dns_label(text: str) -> bool:
    """At most 63 lower-case letters, digits and dashes."""
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Dot-separated DNS labels, at most 253 characters."""
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_config_key(text: str) -> bool:
    """A key of a ConfigMap or Secret: at most 253 letters, digits, dashes, underscores and dots."""
    return len(text) <= 253 and _CONFIG_KEY.fullmatch(text) is not None and text not in (".", "..")


def _is_path_segment(text: str) -> bool:
    return text not in (".", "..") and "/" not in text and "%" not in text


def check_name(kind: Kind, path: str, name: str, causes: Causes) -> None:
    """Whether a name is one this kind may bear."""
    is_right, text = is_dns_subdomain, SUBDOMAIN_TEXT
    if kind.group in _PATH_SEGMENT_GROUPS:
        is_right, text = _is_path_segment, "may not be '.' or '..' nor contain '/' or '%'"
    elif kind.group_resource in _DNS_LABEL_KINDS:
        is_right, text = is_dns_label, LABEL_TEXT
    elif kind == LEASE_CANDIDATES:
        # Named after identities, which contain underscores: the rule is that of a ConfigMap's keys.
        is_right, text = is_config_key, CONFIG_KEY_TEXT
    if not is_right(name):
        causes.invalid(path, name, text)


@lru_cache(maxsize=65536)
def _is_label(key: str, value: str) -> bool:
    return is_qualified_name(key) and is_label_value(value)


def check_labels(labels: Mapping[str, Any], path: str, causes: Causes) -> None:
    """Label keys and values."""
    for key, value in labels.items():
        if isinstance(value, str) and _is_label(key, value):
            continue
        if not is_qualified_name(key):
            causes.invalid(path, key, QUALIFIED_TEXT)
        if not isinstance(value, str):
            raise ApiError.bad_request(f"{path}.{key}: a label value is a string, write it in quotes; got {value!r}")
        if not is_label_value(value):
            causes.invalid(path, value, LABEL_VALUE_TEXT)


def check_node_selector(selector: NodeSelector, path: str, causes: Causes) -> None:
    """The terms of a node selector; that there are some is a rule of the schema."""
    where = f"{path}.nodeSelectorTerms"
    for index, term in enumerate(selector.node_selector_terms):
        for position, field in enumerate(term.match_fields):
            if field.key != "metadata.name":
                place = f"{where}[{index}].matchFields[{position}].key"
                causes.invalid(place, field.key, "not a valid field selector key")
    error = NodeSelectorMatcher.compile(selector, where).error
    if error:
        causes.selector(error)


def check_metadata(kind: Kind, metadata: Mapping[str, Any], causes: Causes) -> None:
    """Name, labels, annotations, owner references and finalizers of an object about to be written.

    Raises:
        ApiError: 400, when a field has the wrong type.
    """
    check_name(kind, "metadata.name", metadata["name"], causes)
    labels = metadata.get("labels")
    if labels:
        check_labels(_typed(labels, dict, "metadata.labels"), "metadata.labels", causes)
    annotations = metadata.get("annotations")
    if annotations:
        for key, value in _typed(annotations, dict, "metadata.annotations").items():
            if not is_qualified_name(key.lower()):
                causes.invalid("metadata.annotations", key, QUALIFIED_TEXT)
            _typed(value, str, f"metadata.annotations.{key}")
    owners = metadata.get("ownerReferences")
    if owners:
        _check_owners(_typed(owners, list, "metadata.ownerReferences"), causes)
    finalizers = metadata.get("finalizers")
    if finalizers:
        for index, finalizer in enumerate(_typed(finalizers, list, "metadata.finalizers")):
            path = f"metadata.finalizers[{index}]"
            if not is_qualified_name(_typed(finalizer, str, path)):
                causes.invalid(path, finalizer, QUALIFIED_TEXT)
    check_metadata_form(kind, metadata)


def _check_owners(owners: list[Any], causes: Causes) -> None:
    controllers = 0
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        for field in ("apiVersion", "kind", "name", "uid"):
            if not _typed(owner, dict, path).get(field):
                causes.invalid(f"{path}.{field}", owner.get(field) or "", "must not be empty")
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        causes.invalid("metadata.ownerReferences", controllers, "Only one reference can have Controller set to true")


def _typed(value: Any, type_: type[Any], path: str) -> Any:
    if not isinstance(value, type_):
        words: dict[object, str] = {dict: "an object", list: "a list", str: "a string"}
        raise ApiError.bad_request(f"{path}: must be {words[type_]}, got {_shown(value)}")
    return value


def repeated(items: Iterable[Mapping[str, Any]] | None, keys: Iterable[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The items whose members of these names came before: index and members; absent ones are None."""
    seen: set[tuple[Any, ...]] = set()
    for index, item in enumerate(items or ()):
        key = tuple([item.get(name) for name in keys])
        if key in seen:
            yield index, key
        seen.add(key)


def check_single(names: Iterable[str], what: str, owner: Mapping[str, Any], path: str, causes: Causes) -> None:
    """Exactly one of some members that exclude each other, such as the sources of a volume."""
    given = [name for name in names if owner.get(name) is not None]
    if not given:
        causes.required(path, f"must specify a {what} type")
    for name in given[1:]:
        causes.forbidden(f"{path}.{name}", f"may not specify more than 1 {what} type")


@cache
def volume_sources(type_: str) -> tuple[str, ...]:
    """The fields of a type that are sources of volumes."""
    return tuple(name for name, field in types()[type_].fields.items() if field.type.endswith("VolumeSource"))


def check_source(type_: str, owner: Mapping[str, Any], path: str, causes: Causes) -> None:
    """A volume of a pod or a PersistentVolume has exactly one source."""
    check_single(volume_sources(type_), "volume", owner, path, causes)


def check_quantities(amounts: Mapping[str, Any] | None, path: str, causes: Causes) -> dict[str, Quantity]:
    """Read a resource list; negative amounts and malformed names are causes.

    Raises:
        ApiError: 400, for a text that is not a quantity: upstream fails while decoding it.
    """
    result: dict[str, Quantity] = {}
    for name, text in (amounts or {}).items():
        where = f"{path}.{name}" if "/" not in name and "." not in name else f"{path}[{name}]"
        try:
            amount = parse_quantity(text)
        except QuantityError:
            raise undecodable(causes.kind, f"{where}: {QUANTITY_TEXT}; got {_shown(text)}") from None
        if not is_qualified_name(name):
            causes.invalid(path, name, QUALIFIED_TEXT)
        if amount.nanos < 0:
            causes.invalid(where, str(text), "must be greater than or equal to 0")
        result[name] = amount
    return result

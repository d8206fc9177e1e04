"""Checks that every object passes (names, labels, metadata), and the collector of field errors.

Caller: ``store`` before a write. Checks of a type or a kind are in :mod:`.checks` and :mod:`.kinds`. Texts follow
upstream (``apimachinery/pkg/util/validation``), so that people can search for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final

import msgspec

from kubesched.api.kinds import LEASE_CANDIDATES, NODES, PODS, Kind
from kubesched.api.quantity import Quantity, QuantityError, parse_quantity
from kubesched.api.selectors import is_label_value, is_qualified_name
from kubesched.api.wire import ApiError

from ..schema import check_metadata_form, types, undecodable
from .formats import QUALIFIED_TEXT, QUANTITY_TEXT, format_problem

__all__ = [
    "QUOTA_RESOURCES",
    "Causes",
    "check_labels",
    "check_metadata",
    "check_quantities",
    "check_single",
    "check_source",
    "dotted",
    "forbidden",
    "repeated",
    "volume_sources",
]

#: Most errors that are reported for one object. (Upstream reports all.)
MOST_CAUSES: Final = 1_000
#: Most bytes of all annotations of an object, keys and values (upstream ``TotalAnnotationSizeLimitB``).
MOST_ANNOTATIONS: Final = 256 * 1024
#: Most characters of all expressions of an object. Compiling these takes a second, and blocks all other requests.
_MOST_EXPRESSIONS: Final = 64 * 1024
_PATH_SEGMENT_GROUPS: Final = frozenset({"apiregistration.k8s.io", "rbac.authorization.k8s.io"})
_DNS_LABEL_KINDS: Final = frozenset({"namespaces", "services"})
#: Resources that quotas know by name.
QUOTA_RESOURCES: Final = frozenset(
    ["cpu", "memory", "ephemeral-storage", "requests.storage", "services.nodeports"]
).union(
    ["requests.cpu", "requests.memory", "requests.ephemeral-storage", "limits.cpu", "limits.memory", "resourcequotas"],
    ["pods", "services", "replicationcontrollers", "secrets", "configmaps", "persistentvolumeclaims"],
    ["limits.ephemeral-storage", "services.loadbalancers"],
)
#: Names of resources without a domain, by where they may be used, in upstream's words.
_STANDARD: Final = {
    "type or fully qualified": QUOTA_RESOURCES | {"storage"},
    "for quota": QUOTA_RESOURCES,
    "for containers": frozenset(["cpu", "memory", "ephemeral-storage"]),
}


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    """Return the 403 error of an admission rule that refuses an object."""
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return ApiError(403, "Forbidden", f'{kind.group_resource} "{name}" is forbidden: {why}', details)


class Causes(list[tuple[str, str, str]]):
    """Field errors as (path, reason, message), in the words of upstream's field package.

    ``kind`` is the kind of the checked object, for errors in decoding. If kind and ``name`` are given, the checks end
    at :data:`MOST_CAUSES` errors.
    """

    def __init__(self, kind: Kind = PODS, name: str | None = None) -> None:
        super().__init__()
        self.kind = kind
        self._name = name
        self._expressions = 0

    def append(self, cause: tuple[str, str, str]) -> None:
        """Add an error.

        Raises:
            ApiError: 422 with all errors, when there are :data:`MOST_CAUSES`.
        """
        super().append(cause)
        if len(self) >= MOST_CAUSES and self._name is not None:
            super().append(("", "FieldValueInvalid", f"there may be more: after {MOST_CAUSES} errors the checks end"))
            self.raise_if_any(self.kind, self._name)

    def invalid(self, path: str, value: object, why: str) -> None:
        self.append((path, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {why}"))

    def check_format(self, name: str, path: str, value: Any) -> None:
        """Add an error if a value does not have the format of this name; see :func:`.formats.format_problem`."""
        if problem := format_problem(name, value):
            self.invalid(path, value, problem)

    def compiling(self, expression: str) -> None:
        """Count an expression that is about to be compiled.

        Raises:
            ApiError: 413, when the expressions of the object are too long together.
        """
        self._expressions += len(expression)
        if self._expressions > _MOST_EXPRESSIONS:
            text = f"Request entity too large: the expressions have more than {_MOST_EXPRESSIONS} characters together"
            raise ApiError(413, "RequestEntityTooLarge", text)

    def required(self, path: str, why: str = "") -> None:
        self.append((path, "FieldValueRequired", f"Required value: {why}" if why else "Required value"))

    def forbidden(self, path: str, why: str = "") -> None:
        self.append((path, "FieldValueForbidden", f"Forbidden: {why}" if why else "Forbidden"))

    def duplicate(self, path: str, value: object) -> None:
        self.append((path, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}"))

    def unsupported(self, path: str, value: object, allowed: Iterable[str]) -> None:
        texts = ", ".join(f'"{item}"' for item in allowed)
        self.append((path, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {texts}"))

    def too_many(self, path: str, size: int, most: int) -> None:
        self.append(
            (path, "FieldValueTooMany", f"Too many: {size}: must have at most {most} item{'s' if most != 1 else ''}")
        )

    def too_long(self, path: str, most: int) -> None:
        self.append((path, "FieldValueTooLong", f"Too long: may not be more than {most} bytes"))

    def not_found(self, path: str, value: object, why: str = "") -> None:
        self.append((path, "FieldValueNotFound", f"Not found: {_shown(value)}{f': {why}' if why else ''}"))

    def add(self, reason: str, path: str, value: object, text: str) -> None:
        """Add an error by the name of its reason.

        For an unsupported value, ``text`` has the supported ones, separated by bars.
        """
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
        """Add an error of the selector compiler, whose text starts with the path already."""
        path, _, message = text.partition(": ")
        self.append((path, "FieldValueInvalid", message))

    def raise_if_any(self, kind: Kind, name: str) -> None:
        """Raise 422 Invalid if there are errors."""
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
            path += f".{place}" if path and place[:1] != "[" else place
    return path


@lru_cache(maxsize=1024)
def _name_format(kind: Kind) -> str:
    """Return the format of the names that objects of a kind may have."""
    if kind.group in _PATH_SEGMENT_GROUPS:
        return "path-segment!"
    if kind.group_resource in _DNS_LABEL_KINDS:
        return "label!"
    # Lease candidates are named after identities, which contain underscores: they follow the rule of a ConfigMap's
    # keys.
    return "config-key!" if kind == LEASE_CANDIDATES else "subdomain!"


def check_labels(labels: Mapping[str, Any], path: str, causes: Causes) -> None:
    """Check label keys and values."""
    for key, value in labels.items():
        if isinstance(value, str) and is_qualified_name(key) and is_label_value(value):
            continue
        causes.check_format("key!", path, key)
        if not isinstance(value, str):
            raise ApiError.bad_request(f"{path}.{key}: a label value is a string, write it in quotes; got {value!r}")
        causes.check_format("label-value", path, value)


def check_metadata(kind: Kind, metadata: Mapping[str, Any], causes: Causes) -> None:
    """Check name, labels, annotations, owner references and finalizers of an object about to be written.

    Raises:
        ApiError: 400, when a field has the wrong type.
    """
    causes.check_format(_name_format(kind), "metadata.name", metadata["name"])
    if labels := metadata.get("labels"):
        check_labels(_typed(labels, dict, "metadata.labels"), "metadata.labels", causes)
    if annotations := metadata.get("annotations"):
        size = 0
        for key, value in _typed(annotations, dict, "metadata.annotations").items():
            causes.check_format("annotation-key!", "metadata.annotations", key)
            size += len(key.encode()) + len(_typed(value, str, f"metadata.annotations.{key}").encode())
        if size > MOST_ANNOTATIONS:
            causes.too_long("metadata.annotations", MOST_ANNOTATIONS)
    if owners := metadata.get("ownerReferences"):
        _check_owners(_typed(owners, list, "metadata.ownerReferences"), causes)
    if finalizers := metadata.get("finalizers"):
        for index, finalizer in enumerate(_typed(finalizers, list, "metadata.finalizers")):
            path = f"metadata.finalizers[{index}]"
            causes.check_format("key!", path, _typed(finalizer, str, path))
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
    """Yield the items whose key members equal those of an earlier item: index and members. Absent members are None."""
    seen: set[tuple[Any, ...]] = set()
    for index, item in enumerate(items or ()):
        key = tuple([item.get(name) for name in keys])
        if key in seen:
            yield index, key
        seen.add(key)


def check_single(names: Iterable[str], what: str, owner: Mapping[str, Any], path: str, causes: Causes) -> None:
    """Check that exactly one of several exclusive members is set, such as the sources of a volume."""
    given = [name for name in names if owner.get(name) is not None]
    if not given:
        causes.required(path, f"must specify a {what} type")
    for name in given[1:]:
        causes.forbidden(f"{path}.{name}", f"may not specify more than 1 {what} type")


@cache
def volume_sources(type_: str) -> tuple[str, ...]:
    """Return the fields of a type that are sources of volumes."""
    return tuple(name for name, field in types()[type_].fields.items() if field.type.endswith("VolumeSource"))


def check_source(type_: str, owner: Mapping[str, Any], path: str, causes: Causes) -> None:
    """Check that a volume of a pod or a PersistentVolume has exactly one source."""
    check_single(volume_sources(type_), "volume", owner, path, causes)


def check_quantities(
    amounts: Mapping[str, Any] | None, path: str, causes: Causes, use: str = ""
) -> dict[str, Quantity]:
    """Read a resource list. Negative amounts and malformed names are added to the causes.

    So are names without a domain that are not known, or not for a ``use`` in ``_STANDARD``.

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
        if not is_qualified_name(name):  # not check_format, which is slower: there are many amounts
            causes.invalid(path, name, QUALIFIED_TEXT)
        if use and "/" not in name and not name.removeprefix("requests.").startswith("hugepages-"):
            for words in dict.fromkeys(("type or fully qualified", use)):
                if name not in _STANDARD[words]:
                    causes.invalid(f"{path}[{name}]", name, f"must be a standard resource {words}")
        if amount.nanos < 0:
            shown = where if causes.kind is NODES else f"{path}[{name}]"
            causes.invalid(shown, str(text), "must be greater than or equal to 0")
        result[name] = amount
    return result

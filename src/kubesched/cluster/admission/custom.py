"""Custom resources by the schema of their definition: pruning of unknown fields, defaults, checks of values and rules.

A structural schema (OpenAPI v3) becomes a JSON Schema for ``jsonschema-rs``. Its rules are CEL expressions, see
:mod:`kubesched.api.cel.schema_rules`. Objects are checked by the schema of the stored version. As in 1.36, an update
may leave a wrong value as it was. Callers: :mod:`.kinds`; ``http`` for warnings about unknown fields.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any, Final, NamedTuple

import jsonschema_rs
import msgspec

from kubesched.api.cel.schema_rules import Failure, Rules
from kubesched.api.equality import same_json
from kubesched.api.kinds import DEFINITIONS
from kubesched.api.wire import ApiError
from kubesched.base.kept import remembered

from ..schema import encode, types, undecodable, unknown_members
from .custom_work import Part, Work, check_definition
from .validation import Causes, dotted

__all__ = ["CustomSchema", "check_schemas", "unknown_fields", "usable_schema"]

_log: Final = logging.getLogger("kubesched.cluster")

Data = dict[str, Any]
Schema = Mapping[str, Any]
#: Path of a value (None if the error belongs to no place), and the field error.
Problem = tuple[list[str | int] | None, tuple[str, str, str]]

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_HEAD: Final = frozenset({"apiVersion", "kind", "metadata"})
_BOUNDS: Final = ("multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_PLAIN: Final = ("enum", "required", "pattern", *_BOUNDS)
#: Most bytes of data whose errors are all reported. Each error costs 17 µs and a copy of its value.
_LARGE: Final = 64 * 1024
#: Most bytes that the copies in all errors of one object may have.
_MOST_READ: Final = 1 << 30
_UNDESCRIBED: Final = (
    'Invalid value: "": the object does not match its schema; finding the wrong values would take too long'
)
_FORMATS: Final = ("date-time", "date", "email", "ipv4", "ipv6", "uri", "uuid", "hostname")
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
#: Upstream's texts by keyword of the schema, after "PATH in body"; a limit is inserted.
_TEXTS: Final = {
    "minimum": "should be greater than or equal to {}",
    "maximum": "should be less than or equal to {}",
    "exclusiveMinimum": "should be greater than {}",
    "exclusiveMaximum": "should be less than {}",
    "minLength": "should be at least {} chars long",
    "minItems": "should have at least {} items",
    "minProperties": "should have at least {} properties",
    "multipleOf": "should be a multiple of {}",
    "pattern": "should match '{}'",
}
_COMPOSED: Final = {
    "anyOf": "must validate at least one schema (anyOf)",
    "oneOf": "must validate one and only one schema (oneOf). Found {}",
    "not": "must not validate the schema (not)",
}
#: Parts of JSON Schema that a definition may not have.
_UNSUPPORTED: Final = frozenset({"$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties"})
_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def _json_schema(schema: Schema) -> Data:
    """Return a schema as JSON Schema. Parts that demand nothing are left out."""
    made: Data = {name: schema[name] for name in _PLAIN if name in schema}
    if "required" in made:
        made["required"] = sorted(set(made["required"]))
    kinds = ["integer", "string"] if schema.get(_INT_OR_STRING) else [schema["type"]] if schema.get("type") else []
    if kinds:
        made["type"] = [*kinds, "null"] if schema.get("nullable") else kinds
    if schema.get("format") in _FORMATS:
        made["format"] = schema["format"]
    for name in ("minimum", "maximum"):
        if name in schema:
            exclusive = f"exclusive{name.capitalize()}"
            made[exclusive if schema.get(exclusive) else name] = schema[name]
    for name in ("allOf", "anyOf", "oneOf"):
        if schema.get(name):
            made[name] = [_json_schema(one) for one in schema[name]]
    for name in ("not", "items", "additionalProperties"):
        if name in schema:
            made[name] = _json_schema(schema[name]) if isinstance(schema[name], dict) else schema[name]
    if schema.get("properties"):
        made["properties"] = {name: _json_schema(one) for name, one in schema["properties"].items()}
    return made


def _children(schema: Schema, data: Any) -> Iterator[tuple[str | int, Schema, Any]]:
    """The members and items of a value that have a schema: key, schema, value."""
    if isinstance(data, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, value in data.items():
            child = properties.get(key, extra)
            if isinstance(child, dict):
                yield key, child, value
    elif isinstance(data, list) and isinstance(schema.get("items"), dict):
        for index, value in enumerate(data):
            yield index, schema["items"], value


class Place(NamedTuple):
    """Place of a value: its step within another place. Its path, which can be long, is built only when it is shown."""

    outer: Place | None
    key: str | int

    def __str__(self) -> str:
        steps, place = [], self
        while place.outer is not None:
            steps.append(place.key)
            place = place.outer
        return dotted("", [place.key, *reversed(steps)])


def unknown_fields(schema: Schema, data: Any, place: Place | None = None) -> Iterator[tuple[Data, str, Place]]:
    """Yield the members that a schema does not know: the object they are in, their name and their place.

    Metadata of the object, and of objects that are embedded in it, is that of all kinds, whatever the schema says.
    """
    is_object = place is None or bool(schema.get(_EMBEDDED))
    if isinstance(data, dict) and not schema.get(_PRESERVE):
        properties, extra = schema.get("properties"), schema.get("additionalProperties")
        head = _HEAD if is_object else ()
        if not extra and (properties is not None or "additionalProperties" in schema or schema.get("type") == "object"):
            known = properties or ()
            yield from ((data, key, Place(place, key)) for key in data if key not in known and key not in head)
    if is_object and isinstance(data, dict) and isinstance(metadata := data.get("metadata"), dict):
        for owner, name, path in unknown_members(types()["ObjectMeta"], metadata):
            yield owner, name, Place(Place(place, "metadata"), path)
    for key, child, value in _children(schema, data):
        if isinstance(value, dict | list) and not (is_object and key in _HEAD):
            yield from unknown_fields(child, value, Place(place, key))


class CustomSchema:
    """The schema of a custom resource, ready for use.

    Raises:
        ValueError: the schema, or a pattern in it, cannot be read.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._validator = jsonschema_rs.validator_for(
            {"$schema": _DRAFT, **_json_schema(schema)},
            validate_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(),  # linear time, as in Go
        )
        self.rules = Rules(schema, _children)
        #: Cost of each schema, by the schema's identity.
        self._parts: dict[int, Part] = {}
        self._defaults: dict[int, list[tuple[str, bytes]]] = {}

    def fill(self, data: Data) -> None:
        """Prune unknown fields and fill in defaults, in place.

        Raises:
            ApiError: 413, when that is too much work.
        """
        for owner, name, _ in list(unknown_fields(self.schema, data)):
            del owner[name]
        self._fill(self.schema, data, Work(self._parts, _children))

    def _fill(self, schema: Schema, data: Any, work: Work) -> None:
        """Drop nulls where they are not allowed, then fill in defaults."""
        if isinstance(data, dict):
            for key, child, value in list(_children(schema, data)):
                if value is None and not child.get("nullable"):
                    del data[key]
            for name, default in self._defaults_of(schema):
                if name not in data:
                    work.step(len(default))
                    data[name] = msgspec.json.decode(default)
        for _, child, value in _children(schema, data):
            if isinstance(value, dict | list):
                self._fill(child, value, work)

    def _defaults_of(self, schema: Schema) -> list[tuple[str, bytes]]:
        known = self._defaults.get(id(schema))
        if known is None:
            members = (schema.get("properties") or {}).items()
            known = [(name, encode(child["default"])) for name, child in members if "default" in child]
            self._defaults[id(schema)] = known
        return known

    def values(self, data: Any, path: str = "", work: Work | None = None) -> list[Problem]:
        """Return the values that the schema does not allow; of large data only the first. ``path`` leads to ``data``.

        Raises:
            ApiError: 413, when looking for them is too much work.
        """
        work = work or Work(self._parts, _children)
        work.values(self.schema, data)
        if self._validator.is_valid(data):
            return []
        size = len(encode(data))
        if not work.is_described:
            return [([], ("<nil>", "FieldValueInvalid", _UNDESCRIBED))]
        if size <= _LARGE and size * work.total <= _MOST_READ:
            return [_problem(one, path) for one in self._validator.iter_errors(data)]
        try:
            self._validator.validate(data)
        except jsonschema_rs.ValidationError as error:
            place, (where, reason, text) = _problem(error, path)
            more = f"{text}; there may be more: of more than {_LARGE} bytes only the first error is reported"
            return [(place and place[:1], (where, reason, more))]
        return []

    def check(self, data: Data, old: Data | None, causes: Causes) -> None:
        """Check an object; ``old`` is its state before an update. Rules are evaluated only if all values are right."""
        change, is_right, work = _Change(old, data), True, Work(self._parts, _children)
        values = chain(self.values(data, work=work), _duplicates(self.schema, data, [], change, work))
        for problems in (values, map(_broken, self.rules.failures(data, old))):
            for place, cause in problems if is_right else ():
                is_right = False
                if place is None or not change.is_unchanged(place):
                    causes.append(cause)


@remembered(16 << 20)
def custom_schema(raw: bytes) -> CustomSchema:
    """Return the schema of a definition in JSON; equal bytes give the identical object."""
    return CustomSchema(msgspec.json.decode(raw))


class _Change:
    """Comparison of an object with its state before an update.

    Each pair of values is compared once, because many places may lie in the same list or within one another.
    """

    def __init__(self, old: Data | None, new: Data) -> None:
        self._old, self._new = old, new
        self._known: dict[tuple[int, int], bool] = {}

    def is_unchanged(self, place: list[str | int]) -> bool:
        """True if the value at a place has not changed.

        Items of lists are not matched: the whole list has to be equal.
        """
        old: Any = self._old
        new: Any = self._new
        for key in place:
            if isinstance(key, int) or not (
                isinstance(old, dict) and isinstance(new, dict) and key in old and key in new
            ):
                break
            old, new = old[key], new[key]
        return self._old is not None and self._is_same(old, new)

    def _is_same(self, old: Any, new: Any) -> bool:
        if not isinstance(old, dict | list):
            return same_json(old, new)
        pair = id(old), id(new)
        if pair not in self._known:
            if isinstance(old, dict) and isinstance(new, dict):
                same = old.keys() == new.keys() and all(self._is_same(value, new[key]) for key, value in old.items())
            else:
                same = same_json(old, new)
            self._known[pair] = same
        return self._known[pair]


def _problem(error: Any, root: str) -> Problem:
    kind, value, details, place = error.kind.name, error.instance, error.kind.as_dict(), list(error.instance_path)
    path, causes = dotted(root, place), Causes()
    if kind == "required":
        place = [*place, details["property"]]
        causes.required(dotted(root, place))
    elif kind == "enum":
        causes.unsupported(path, value, [str(one) for one in details["options"]])
    elif kind == "type":
        wanted = ",".join(one for one in details["types"] if one != "null")
        given = "null" if value is None else _TYPES[type(value)]
        text = f'Invalid value: "{given}": {path} in body must be of type {wanted}: "{given}"'
        causes.append((path, "FieldValueTypeInvalid", text))
    elif kind == "maxLength":
        causes.too_long(path, details["limit"])
    elif kind in ("maxItems", "maxProperties"):
        causes.too_many(path, len(value), details["limit"])
    elif kind in _COMPOSED:
        valid = sum(not problems for problems in details.get("context") or ())
        found = f"{valid} valid alternatives" if valid else "none valid"
        causes.invalid("<nil>", "", f'"{path}" {_COMPOSED[kind].format(found)}')
    elif kind == "format":
        causes.invalid(path, value, f'{path} in body must be of type {details["format"]}: "{value}"')
    else:
        limit = next((one for name, one in details.items() if name in ("limit", "pattern", "multiple_of")), "")
        shown = len(value) if isinstance(value, list | dict) else value
        causes.invalid(path, shown, f"{path} in body {_TEXTS.get(kind, error.message).format(limit)}")
    return place, causes[0]


def _broken(failure: Failure) -> Problem:
    """Return the problem of a rule that does not hold. A transition rule has no place, because the change itself broke
    the rule.
    """
    causes, path = Causes(), (dotted("", failure.place) + failure.field_path).removeprefix(".") or "<nil>"
    causes.add(failure.reason.removeprefix("FieldValue").lower(), path, failure.kind, failure.text)
    return None if failure.is_transition else failure.place, causes[0]


def _duplicates(schema: Schema, data: Any, place: list[str | int], change: _Change, work: Work) -> Iterator[Problem]:
    """Yield the duplicate items of sets, and of maps by their keys, in lists that have changed."""
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or ()
    if kind in ("set", "map") and isinstance(data, list) and not change.is_unchanged(place):
        seen: set[bytes] = set()
        work.step(len(data) * len(keys))
        for index, item in enumerate(data):
            shown = (
                {key: item[key] for key in keys if key in item} if kind == "map" and isinstance(item, dict) else item
            )
            raw = encode(shown)
            if raw in seen:
                causes = Causes()
                causes.duplicate(dotted("", [*place, index]), shown)
                yield [*place, index], causes[0]
            seen.add(raw)
    for key, child, value in _children(schema, data):
        if isinstance(value, dict | list):
            yield from _duplicates(child, value, [*place, key], change, work)


# -- definitions -------------------------------------------------------------------------------------------


@cache
def _form() -> Any:
    """Return the form of a schema. Only members that are used here are read, and parts are checked only one level
    deep.
    """
    return jsonschema_rs.validator_for(files(__package__).joinpath("structural.json").read_text(encoding="utf-8"))


def schema_problems(schema: Schema, path: str, causes: Causes) -> None:
    """Add the reasons why the schema of a definition cannot be used.

    A schema must be structural, and all its parts must be readable.

    Raises:
        ApiError: 400 for parts of a wrong form, 413 for a schema that takes too long to prepare.
    """
    error = next(_form().iter_errors(schema), None)
    if error is not None:
        raise undecodable(DEFINITIONS, f"{dotted(path, error.instance_path)}: {error.message}")
    if not schema.get("type"):
        causes.required(f"{path}.type", "must not be empty at the root")
    elif schema["type"] != "object":
        causes.invalid(f"{path}.type", schema["type"], "must be object at the root")
    before = len(causes)
    try:
        check_definition(schema, lambda part: (one for _, one, _ in _parts(part, "")), causes)
        _check_supported(schema, path, causes)
        _check_structure(schema, path, causes)
        if len(causes) == before:
            for where, rule, problem in custom_schema(encode(schema)).rules.malformed():
                causes.invalid(path + where, rule, problem)
    except RecursionError:
        causes.invalid(path, "", "is nested too deeply")
    except ValueError as error:
        causes.invalid(path, "", str(error).partition("\n")[0])


def usable_schema(name: str, schema: Schema) -> CustomSchema | None:
    """Return the schema of a definition.

    For an unusable one that was stored unchecked: None, and a warning in the log.
    """
    causes = Causes()
    try:
        schema_problems(schema, "", causes)
    except ApiError as error:
        causes.invalid("", "", error.message)
    if causes:
        _log.warning("objects of %s are stored unchecked: its schema cannot be used: %s", name, causes[0])
        return None
    return custom_schema(encode(schema))


def _parts(schema: Schema, path: str) -> Iterator[tuple[str, Schema, str]]:
    """Yield the schemas of members and items: path, schema, and its purpose."""
    for name, one in (schema.get("properties") or {}).items():
        yield f"{path}.properties[{name}]", one, "object fields"
    for name, what in (("items", "array items"), ("additionalProperties", "object fields")):
        if isinstance(schema.get(name), dict):
            yield f"{path}.{name}", schema[name], what


def _check_structure(schema: Schema, path: str, causes: Causes) -> None:
    for where, part, what in _parts(schema, path):
        if not part.get("type") and not part.get(_INT_OR_STRING) and not part.get(_PRESERVE):
            causes.required(f"{where}.type", f"must not be empty for specified {what}")
        elif "default" in part:
            causes += [cause for _, cause in CustomSchema(part).values(part["default"], f"{where}.default")]
        _check_structure(part, where, causes)


def _check_supported(schema: Schema, path: str, causes: Causes) -> None:
    """Refuse parts of JSON Schema that are not allowed here, in a schema and in everything below it."""
    for name in sorted(_UNSUPPORTED & schema.keys()):
        causes.forbidden(f"{path}.{name}", f"{name} is not supported")
    alternatives = [
        (f"{path}.{name}[{index}]", part, "")
        for name in ("allOf", "anyOf", "oneOf")
        for index, part in enumerate(schema.get(name) or ())
    ]
    for where, part, _ in [*_parts(schema, path), *alternatives, (f"{path}.not", schema.get("not") or {}, "")]:
        if part:
            _check_supported(part, where, causes)


def check_schemas(data: Data, path: str, causes: Causes) -> None:
    """Check the schemas of a CustomResourceDefinition."""
    for index, version in enumerate(data["spec"].get("versions") or ()):
        where = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            causes.required(where, "schemas are required")
        else:
            schema_problems(schema, where, causes)

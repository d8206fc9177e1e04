"""Form check: the fields of an object have the types of its kind. Values are not checked.

Every reader of a stored object relies on it: typed views, controllers, kubelets, tables, saved clusters. The fields of
every built-in kind (:mod:`.schema`) are compiled into msgspec structs on first use, so that a check is one decode in C.
Callers: ``store`` for changed sections, ``admission`` for pod specs, ``validation`` for metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final

import msgspec

from kubesched.api.kinds import Kind
from kubesched.api.quantity import Quantity, QuantityError, parse_quantity
from kubesched.api.wire import ApiError

from .objects import encode
from .schema import Field, root_type, types

__all__ = ["QUANTITY_TEXT", "check_form", "check_metadata_form", "check_type", "undecodable"]

_INT: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_SCALARS: Final[Mapping[str, Any]] = {
    "str": str,
    "int": _INT,
    "int32": Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)],
    "num": float,
    "bool": bool,
    "any": Any,
    "time": Annotated[datetime, msgspec.Meta(tz=True)],
    "intstr": _INT | str,
    "quantity": Quantity,
}


_WORDS: Final = {bool: "bool", list: "array", type(None): "null"}
QUANTITY_TEXT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@cache
def _struct(name: str) -> Any:
    """Return the struct of a type. Its fields are numbered, because names on the wire need not be Python
    identifiers.
    """
    fields = types()[name].fields
    numbered = [
        (f"f{number}", _annotation(field, name) | msgspec.UnsetType, msgspec.UNSET)
        for number, field in enumerate(fields.values())
    ]
    return msgspec.defstruct(
        name, numbered, rename=dict(zip((one for one, *_ in numbered), fields, strict=True)), gc=False
    )


def _annotation(field: Field, owner: str) -> Any:
    if field.type == owner:
        one: Any = dict[str, Any]  # a type that contains itself (JSONSchemaProps) is checked one level deep
    else:
        one = _SCALARS[field.type] if field.type in _SCALARS else _struct(field.type)
    if field.shape == "list":
        return list.__class_getitem__(one)
    return dict.__class_getitem__((str, one)) if field.shape == "map" else one


@cache
def _decoder(name: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_struct(name), dec_hook=_read)


def _read(type_: type[Quantity], value: Any) -> Quantity:
    """Read a quantity, which is a text or a number in JSON.

    Raises:
        ValueError: the decoder's message, with the place, for a value that is no quantity.
    """
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError(f"Expected `int | float | str`, got `{_WORDS.get(type(value), 'object')}`")
    try:
        return parse_quantity(value)
    except QuantityError:
        raise ValueError(f"{QUANTITY_TEXT}; got {encode(value).decode():.100}") from None


def check_form(kind: Kind, raw: bytes) -> None:
    """Check the JSON of an object, or of some of its sections. Null members must have been removed.

    Kinds without a schema pass.

    Raises:
        ApiError: 400, naming the field, its expected type and the type found.
    """
    root = None if kind.custom else root_type(kind.group, kind.kind)
    if root is not None:
        check_type(root.name, raw, kind, "")


def check_metadata_form(kind: Kind, metadata: Mapping[str, Any]) -> None:
    """Check the form of metadata of any kind.

    Raises:
        ApiError: 400, see :func:`check_form`.
    """
    try:
        msgspec.convert(metadata, _struct("ObjectMeta"))
    except msgspec.ValidationError as error:
        raise _refusal(kind, error, "metadata") from None


def check_type(name: str, raw: bytes, kind: Kind, path: str) -> None:
    """Check the JSON of one section, by the name of its type, such as PodSpec at ``spec``.

    Raises:
        ApiError: 400, see :func:`check_form`.
    """
    try:
        _decoder(name).decode(raw)
    except msgspec.ValidationError as error:
        if QUANTITY_TEXT in str(error):
            raise undecodable(kind, _wrong_quantity(name, msgspec.json.decode(raw), path)) from None
        raise _refusal(kind, error, path) from None


def _wrong_quantity(name: str, data: Any, path: str) -> str:
    """Return a message about the first quantity in an object that cannot be read, with its path.

    The decoder's own message does not name keys of maps.
    """
    for member, field in types()[name].fields.items():
        value = data.get(member) if isinstance(data, dict) else None
        where = f"{path}.{member}" if path else member
        for place, one in _items(value, field.shape, where):
            if field.type == "quantity":
                try:
                    _read(Quantity, one)
                except ValueError as error:
                    return f"{place}: {error}"
            elif field.type in types() and field.type != name and (found := _wrong_quantity(field.type, one, place)):
                return found
    return ""


def _items(value: Any, shape: str, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of a field, with their paths."""
    if shape == "list" and isinstance(value, list):
        yield from ((f"{path}[{index}]", one) for index, one in enumerate(value))
    elif shape == "map" and isinstance(value, dict):
        for key, one in value.items():
            yield f"{path}[{key}]" if "/" in key or "." in key else f"{path}.{key}", one
    elif value is not None and not shape:
        yield path, value


def _refusal(kind: Kind, error: Exception, path: str) -> ApiError:
    prefix = f"`{path}." if path else "`"
    text = str(error).replace("`$.", prefix).replace("`$[", f"`{path}[").replace("`$`", f"`{path or '.'}`")
    return undecodable(kind, text)


def undecodable(kind: Kind, why: str) -> ApiError:
    """Return 400, for an object of a kind that cannot be decoded."""
    return ApiError.bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')

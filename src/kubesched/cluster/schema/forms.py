"""Whether the fields of an object have the types that its kind gives them, whatever their values.

Every reader of a stored object relies on it: typed views, controllers, kubelets, tables, saved clusters. The
fields of every built-in kind (:mod:`.schema`) are compiled into msgspec structs on first use, so that a check is
one decode in C. Callers: ``store`` for what a write changes, ``admission`` for pod specs, ``validation`` for metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final

import msgspec

from ...api.kinds import Kind
from ...api.wire import ApiError
from .schema import Field, root_type, types

__all__ = ["check_form", "check_metadata_form", "check_type", "undecodable"]

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
    "quantity": str | int | float,
}


@cache
def _struct(name: str) -> Any:
    """The struct of a type. Its own fields are numbered: names on the wire need not be identifiers."""
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
        one: Any = dict[str, Any]  # a type inside itself (JSONSchemaProps) is checked one level deep
    else:
        one = _SCALARS[field.type] if field.type in _SCALARS else _struct(field.type)
    if field.shape == "list":
        return list.__class_getitem__(one)
    return dict.__class_getitem__((str, one)) if field.shape == "map" else one


@cache
def _decoder(name: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_struct(name))


def check_form(kind: Kind, raw: bytes) -> None:
    """Check JSON, without null members, of an object or of some of its sections; kinds without a schema pass.

    Raises:
        ApiError: 400, naming the field, its expected type and what is there.
    """
    root = None if kind.custom else root_type(kind.group, kind.kind)
    if root is not None:
        check_type(root.name, raw, kind, "")


def check_metadata_form(kind: Kind, metadata: Mapping[str, Any]) -> None:
    """The same for metadata of any kind.

    Raises:
        ApiError: 400, as above.
    """
    try:
        msgspec.convert(metadata, _struct("ObjectMeta"))
    except msgspec.ValidationError as error:
        raise _refusal(kind, error, "metadata") from None


def check_type(name: str, raw: bytes, kind: Kind, path: str) -> None:
    """The same for the JSON of one section, by the name of its type, such as PodSpec at ``spec``.

    Raises:
        ApiError: 400, as above.
    """
    try:
        _decoder(name).decode(raw)
    except msgspec.ValidationError as error:
        raise _refusal(kind, error, path) from None


def _refusal(kind: Kind, error: Exception, path: str) -> ApiError:
    prefix = f"`{path}." if path else "`"
    text = str(error).replace("`$.", prefix).replace("`$[", f"`{path}[").replace("`$`", f"`{path or '.'}`")
    return undecodable(kind, text)


def undecodable(kind: Kind, why: str) -> ApiError:
    """400: an object of a kind that cannot be read."""
    return ApiError.bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')

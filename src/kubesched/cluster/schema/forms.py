"""Whether the fields of an object have the types that its kind gives them, whatever their values.

Every reader of a stored object relies on it: typed views, controllers, kubelets, tables, saved clusters. The
fields of every built-in kind (:mod:`.http.schema`) are compiled into msgspec structs on first use, so that a check is
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
from .schema import Field, Type, root_type, types

__all__ = ["check_form", "check_metadata_form", "check_type"]

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


class _Compiler:
    """Struct types by the name of their schema type; each is made once."""

    def __init__(self) -> None:
        self._made: dict[str, type[msgspec.Struct]] = {}
        self._begun: set[str] = set()

    def struct(self, type_: Type) -> Any:
        made = self._made.get(type_.name)
        if made is not None:
            return made
        if type_.name in self._begun:
            return dict[str, Any]  # a type inside itself (JSONSchemaProps) is checked one level deep
        self._begun.add(type_.name)
        fields: list[tuple[str, Any, Any]] = []
        names: dict[str, str] = {}
        for number, (name, field) in enumerate(type_.fields.items()):
            names[f"f{number}"] = name  # wire names need not be identifiers
            fields.append((f"f{number}", self._annotation(field) | msgspec.UnsetType, msgspec.UNSET))
        self._begun.discard(type_.name)
        struct = msgspec.defstruct(type_.name, fields, rename=names, gc=False)
        self._made[type_.name] = struct
        return struct

    def _annotation(self, field: Field) -> Any:
        inner = types().get(field.type)
        one = self.struct(inner) if inner is not None else _SCALARS[field.type]
        if field.is_list:
            return list.__class_getitem__(one)
        return dict.__class_getitem__((str, one)) if field.is_map else one


_compiler: Final = _Compiler()


@cache
def _decoder(group: str, kind: str) -> msgspec.json.Decoder[Any] | None:
    root = root_type(group, kind)
    return None if root is None else msgspec.json.Decoder(_compiler.struct(root))


@cache
def _type_decoder(name: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_compiler.struct(types()[name]))


def check_form(kind: Kind, raw: bytes) -> None:
    """Check JSON, without null members, of an object or of some of its sections; kinds without a schema pass.

    Raises:
        ApiError: 400, naming the field, its expected type and what is there.
    """
    decoder = None if kind.custom else _decoder(kind.group, kind.kind)
    if decoder is not None:
        _checked(kind, decoder, raw, "")


def check_metadata_form(kind: Kind, metadata: Mapping[str, Any]) -> None:
    """The same for metadata of any kind.

    Raises:
        ApiError: 400, as above.
    """
    try:
        msgspec.convert(metadata, _metadata_type())
    except msgspec.ValidationError as error:
        raise _refusal(kind, error, "metadata") from None


@cache
def _metadata_type() -> Any:
    return _compiler.struct(types()["ObjectMeta"])


def check_type(name: str, raw: bytes, kind: Kind, path: str) -> None:
    """The same for the JSON of one section, by the name of its type, such as PodSpec at ``spec``.

    Raises:
        ApiError: 400, as above.
    """
    _checked(kind, _type_decoder(name), raw, path)


def _checked(kind: Kind, decoder: msgspec.json.Decoder[Any], raw: bytes, path: str) -> None:
    try:
        decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise _refusal(kind, error, path) from None


def _refusal(kind: Kind, error: Exception, path: str) -> ApiError:
    prefix = f"`{path}." if path else "`"
    text = str(error).replace("`$.", prefix).replace("`$[", f"`{path}[").replace("`$`", f"`{path or '.'}`")
    text = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {text}'
    return ApiError.bad_request(text)

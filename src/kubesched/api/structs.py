"""Base of the API types, and scalar types that several of their modules use."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = ["Int32", "Int64", "Labels", "ResourceList", "Struct"]

#: Resource name to quantity, as written.
ResourceList = dict[str, str | int | float]
Labels = dict[str, str]

#: Numbers as wide as upstream's fields. Larger ones are refused while decoding.
Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Struct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """Base of the API types: immutable, camelCase on the wire, defaults left out when encoding.

    They are trees of scalars, tuples and plain dicts, so the garbage collector need not track them.
    """

"""JSON schema of the dashboard's documents, from which the page's types are made: ``python -m kubesched.dashboard.json_schema``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.inspect import StructType, multi_type_info

from kubesched.explain.report import Explanation

from .schema import Change, Dashboard, Fault, NodePage, Played, PodList, PodPage, Queues, Series, State, Verdicts
from .schema_what_if import Applied, Choices, Outcome, WhatIf

__all__ = ["DOCUMENTS", "documents_schema"]

#: Documents that requests and answers consist of; everything else is a part of one.
DOCUMENTS: Final = (
    Applied,
    Change,
    Choices,
    Dashboard,
    Explanation,
    Fault,
    NodePage,
    Outcome,
    Played,
    PodList,
    PodPage,
    Queues,
    Series,
    State,
    Verdicts,
    WhatIf,
)


def documents_schema() -> dict[str, Any]:
    """Return one JSON schema with a definition for each document and each part of one, as the server writes them."""
    _, parts = msgspec.json.schema_components(DOCUMENTS, ref_template="#/$defs/{name}")
    complete = {name: _as_written(parts[name], cls) for name, cls in _structs()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": dict(sorted({**parts, **complete}.items())),
    }


def _as_written(part: dict[str, Any], cls: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of what is written: with its defaults, unless the type leaves them out."""
    if cls.__struct_config__.omit_defaults:
        return part
    return {**part, "required": list(part["properties"])}


def _structs() -> Iterator[tuple[str, type[msgspec.Struct]]]:
    seen: set[type] = set()
    todo: list[Any] = list(multi_type_info(DOCUMENTS))
    while todo:
        info = todo.pop()
        if isinstance(info, StructType):
            if info.cls in seen:
                continue
            seen.add(info.cls)
            yield info.cls.__name__, info.cls
            todo += [field.type for field in info.fields]
        else:
            for name in ("item_type", "value_type", "key_type"):
                todo += [getattr(info, name)] if hasattr(info, name) else []
            todo += getattr(info, "types", ())


def main() -> None:
    """Write the schema to standard output."""
    json.dump(documents_schema(), sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()

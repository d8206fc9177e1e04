"""Checks of CustomResourceDefinitions: names, versions and schemas. Caller: :mod:`.checks`."""

from __future__ import annotations

from typing import Any

from .custom import schema_problems
from .validation import Causes

__all__ = ["check_definition"]


def check_definition(data: dict[str, Any], path: str, causes: Causes) -> None:
    spec = data["spec"]
    versions, names = spec.get("versions") or [], spec.get("names") or {}
    if versions and sum(bool(version.get("storage")) for version in versions) != 1:
        shown = [version.get("name") for version in versions]
        causes.invalid("spec.versions", shown, "must have exactly one version marked as storage version")
    name, wanted = data["metadata"]["name"], f"{names.get('plural')}.{spec.get('group')}"
    if names.get("plural") and spec.get("group") and name != wanted:
        causes.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    for index, version in enumerate(versions):
        where = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            causes.required(where, "schemas are required")
        else:
            schema_problems(schema, where, causes)

"""OpenAPI v2 and v3 documents, enough for ``kubectl explain``, client-side validation and option checks.

Generated from the schema table and the stored definitions. Caller: :mod:`.discovery`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from kubesched.api.wire import STRATEGIC_PATCH

from ..schema import Field, FieldRules, Type, descriptions, field_rules, patch_markers, root_type, types
from .catalog import Resource

__all__ = ["openapi_document"]

_INFO: Final = {"title": "Kubernetes (kubesched embedded cluster)", "version": "v1.36.0"}
_V2: Final = "#/definitions/"
_V3: Final = "#/components/schemas/"
_GVK: Final = "x-kubernetes-group-version-kind"
_PRESERVED: Final = "x-kubernetes-preserve-unknown-fields"
_ABSENT_IN_V2: Final = {"allOf", "anyOf", "not", "nullable", "oneOf"}
_SCALARS: Final[dict[str, dict[str, Any]]] = {
    "str": {"type": "string"},
    "int": {"type": "integer", "format": "int64"},
    "int32": {"type": "integer", "format": "int32"},
    "num": {"type": "number", "format": "double"},
    "bool": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "any": {_PRESERVED: True},
    "intstr": {"type": "string", "format": "int-or-string"},
    "quantity": {"type": "string"},
}
_WRITE_OPTIONS: Final = ("pretty", "dryRun", "fieldManager", "fieldValidation")
_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "get": ("pretty",),
    "post": _WRITE_OPTIONS,
    "put": _WRITE_OPTIONS,
    "patch": (*_WRITE_OPTIONS, "force"),
    "delete": ("pretty", "dryRun", "gracePeriodSeconds", "propagationPolicy"),
}
_PATCHES: Final = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")


def openapi_document(resources: Collection[Resource], *, v3: bool) -> dict[str, Any]:
    """Return the OpenAPI document of some resources: version 3, or version 2 (Swagger)."""
    ref = _V3 if v3 else _V2
    paths = {path: item for resource in resources for path, item in _paths(resource, ref).items()}
    schemas = _schemas(resources, ref)
    if v3:
        return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": schemas}


# -- schemas ---------------------------------------------------------------------------------------------


def _schemas(resources: Iterable[Resource], ref: str) -> dict[str, Any]:
    """Return the schemas that some resources need, by name."""
    known, found = types(), dict[str, Any]()
    todo: list[Type] = []
    for resource in resources:
        kind = resource.kind
        root = None if resource.defined is not None else root_type(kind.group, kind.kind, resource.version)
        if root is None:
            name = ".".join((*reversed(kind.group.split(".")), resource.version, kind.kind))
            found[name] = _custom_schema(resource, ref)
            todo.append(known["ObjectMeta"])
        else:
            todo.append(root)
            # Versions with equal fields share a definition.
            schema = found.setdefault(root.definition, {**_schema(root, ref), _GVK: []})
            schema[_GVK].append(resource.gvk)
    seen: set[str] = set()
    while todo:
        type_ = todo.pop()
        if type_.name not in seen:
            seen.add(type_.name)
            found.setdefault(type_.definition, _schema(type_, ref))
            todo += [known[field.type] for field in type_.fields.values() if field.type in known]
    return dict(sorted(found.items()))


def _schema(type_: Type, ref: str) -> dict[str, Any]:
    words = descriptions()
    text = words.get(type_.name) or f"{type_.definition.rpartition('.')[2]} of the Kubernetes API."
    required = [name for name, field in type_.fields.items() if field.required]
    properties = {
        name: _property(type_, name, field, ref, words.get(f"{type_.name}.{name}") or words.get(f"*.{name}", ""))
        for name, field in type_.fields.items()
    }
    demanded = {"required": required} if required else {}
    return {"type": "object", "description": text, **demanded, "properties": properties}


def _property(type_: Type, name: str, field: Field, ref: str, description: str) -> dict[str, Any]:
    inner = types().get(field.type)
    value: dict[str, Any] = {"$ref": ref + inner.definition} if inner is not None else dict(_SCALARS[field.type])
    rules = field_rules(type_.name).get(name, FieldRules()) if ref == _V3 else FieldRules()
    limits = {"enum": [one for one in rules.enum if one], "minimum": rules.minimum, "maximum": rules.maximum}
    value |= {word: limit for word, limit in limits.items() if limit not in (None, [])}
    if field.shape == "list":
        value = {"type": "array", "items": value}
        if rules.most is not None:
            value["maxItems"] = rules.most
    elif field.shape == "map":
        value = {"type": "object", "additionalProperties": value}
    elif "$ref" in value and ref == _V3:
        value = {"allOf": [value]}
    if rules.default:
        value["default"] = msgspec.Raw(rules.default.encode())
    if description:
        value["description"] = description
    return value | patch_markers(type_, name)


def _custom_schema(resource: Resource, ref: str) -> dict[str, Any]:
    """Return the schema of a custom resource; free form where it declares no fields."""
    free = {"type": "object", _PRESERVED: True}
    schema = (resource.defined.schema if resource.defined is not None else None) or free
    gvks = {_GVK: [resource.gvk]}
    if ref == _V2 and schema.get(_PRESERVED):
        # Clients that validate by version 2 would refuse any property that is not listed.
        return {"type": "object", **gvks}
    schema = _for_version_2(schema) if ref == _V2 else schema
    given, words = schema.get("properties"), descriptions()
    metadata = {"$ref": ref + types()["ObjectMeta"].definition}
    properties = {
        **(given if isinstance(given, dict) else {}),
        "apiVersion": {"type": "string", "description": words["*.apiVersion"]},
        "kind": {"type": "string", "description": words["*.kind"]},
        "metadata": {"allOf": [metadata]} if ref == _V3 else metadata,
    }
    return {**schema, "properties": properties, **gvks}


def _for_version_2(schema: Any) -> Any:
    """Return a schema as version 2 can express it, in which nothing is null and no alternatives exist.

    What may be null, or hold unknown fields, is free form, because clients would refuse what is not listed.
    """
    if not isinstance(schema, dict):
        return schema
    free = {"type", "items", "properties"} if schema.get("nullable") or schema.get(_PRESERVED) else set()
    kept = {name: value for name, value in schema.items() if name not in free | _ABSENT_IN_V2}
    inner = kept.get("properties") or {}
    kept |= {name: _for_version_2(kept[name]) for name in ("items", "additionalProperties") if name in kept}
    if inner:
        kept["properties"] = {name: _for_version_2(one) for name, one in inner.items()}
    return kept


# -- paths -----------------------------------------------------------------------------------------------


def _paths(resource: Resource, ref: str) -> dict[str, Any]:
    """Return collection and item paths with the options of each verb. Clients look for supported options here."""
    kind = resource.kind
    prefix = f"/apis/{resource.api_version}" if kind.group else f"/api/{resource.version}"
    collection = f"{prefix}{'/namespaces/{namespace}' if kind.namespaced else ''}/{kind.plural}"
    verbs = {collection: ("get", "post"), collection + "/{name}": ("get", "put", "patch", "delete")}
    return {
        path: {verb: _operation(resource, verb, ref, many=path == collection) for verb in found}
        for path, found in verbs.items()
    }


def _operation(resource: Resource, verb: str, ref: str, *, many: bool) -> dict[str, Any]:
    action = "list" if many and verb == "get" else verb
    text: dict[str, Any] = {"schema": {"type": "string"}} if ref == _V3 else {"type": "string"}
    operation: dict[str, Any] = {
        "operationId": f"{action}{resource.version.capitalize()}{resource.kind.kind}",
        "parameters": [{"name": name, "in": "query", **text} for name in _OPTIONS[verb]],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        _GVK: resource.gvk,
    }
    if verb == "patch":
        patches = _PATCHES if resource.defined is not None else (*_PATCHES, STRATEGIC_PATCH)
        if ref == _V3:
            operation["requestBody"] = {"content": {name: {"schema": {"type": "object"}} for name in patches}}
        else:
            operation["consumes"] = list(patches)
    return operation

"""OpenAPI v2 and v3 documents, enough for ``kubectl explain``, client-side validation and option checks.

Generated from the schema table and the stored definitions; kept until the catalog changes. Caller: :mod:`.dispatch`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from ...api.wire import STRATEGIC_PATCH
from ..schema import Field, FieldRules, Type, descriptions, encode, field_rules, patch_markers, root_type, types
from .catalog import Catalog, Resource

__all__ = ["OpenApi"]

_INFO: Final = {"title": "Kubernetes (kubesched embedded cluster)", "version": "v1.36.0"}
_V2: Final = "#/definitions/"
_V3: Final = "#/components/schemas/"
_SCALARS: Final[dict[str, dict[str, Any]]] = {
    "str": {"type": "string"},
    "int": {"type": "integer", "format": "int64"},
    "int32": {"type": "integer", "format": "int32"},
    "num": {"type": "number", "format": "double"},
    "bool": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
    "intstr": {"type": "string", "format": "int-or-string"},
    "quantity": {"type": "string"},
}
_QUERY: Final[dict[str, tuple[str, ...]]] = {
    "get": ("pretty",),
    "post": ("pretty", "dryRun", "fieldManager", "fieldValidation"),
    "put": ("pretty", "dryRun", "fieldManager", "fieldValidation"),
    "patch": ("pretty", "dryRun", "fieldManager", "fieldValidation", "force"),
    "delete": ("pretty", "dryRun", "gracePeriodSeconds", "propagationPolicy"),
}
_PATCHES: Final = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")


class OpenApi:
    """The documents of one server."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def v2(self, *, protobuf: bool = False) -> bytes:
        """The whole API as one Swagger document."""
        if protobuf:
            from .openapi_protobuf import encode_document  # noqa: PLC0415 - its runtime is only loaded for old clients

            return self._catalog.kept("v2 protobuf", self._v2_document, encode_document)
        return self._catalog.kept("v2", self._v2_document)

    def v3_index(self) -> bytes:
        """Where the document of each group version is."""
        paths = {}
        for group, versions in self._catalog.groups.items():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                raw = self.v3(path)
                digest = hashlib.sha256(raw or b"").hexdigest()[:32].upper()
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return encode({"paths": paths})

    def v3(self, path: str) -> bytes | None:
        """The document of ``api/v1`` or ``apis/GROUP/VERSION``; None for another path."""
        prefix, _, rest = path.strip("/").partition("/")
        group, _, version = rest.rpartition("/")
        resources = self._catalog.groups.get(group, {}).get(version)
        if prefix != ("apis" if group else "api") or resources is None:
            return None
        return self._catalog.kept(f"v3 {path}", lambda: _v3_document(resources.values()))

    def _v2_document(self) -> dict[str, Any]:
        resources = [
            one for versions in self._catalog.groups.values() for found in versions.values() for one in found.values()
        ]
        paths, definitions = _paths(resources, v3=False), _schemas(resources, _V2)
        return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions}


def _v3_document(resources: Collection[Resource]) -> dict[str, Any]:
    paths, schemas = _paths(resources, v3=True), _schemas(resources, _V3)
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


# -- schemas ---------------------------------------------------------------------------------------------


def _schemas(resources: Iterable[Resource], ref: str) -> dict[str, Any]:
    """The definitions some resources need."""
    known, found = types(), dict[str, Any]()
    todo: list[Type] = []
    for resource in resources:
        kind = resource.kind
        gvk = {"group": kind.group, "version": resource.version, "kind": kind.kind}
        root = None if resource.defined is not None else root_type(kind.group, kind.kind, resource.version)
        if root is None:
            found[_custom_name(resource)] = _custom_schema(resource, gvk, ref)
            todo.append(known["ObjectMeta"])
        else:
            todo.append(root)
            # Versions with the same fields share a definition.
            schema = found.setdefault(root.definition, {**_schema(root, ref), "x-kubernetes-group-version-kind": []})
            schema["x-kubernetes-group-version-kind"].append(gvk)
    seen: set[str] = set()
    while todo:
        type_ = todo.pop()
        if type_.name in seen:
            continue
        seen.add(type_.name)
        found.setdefault(type_.definition, _schema(type_, ref))
        todo += [known[field.type] for field in type_.fields.values() if field.type in known]
    return dict(sorted(found.items()))


def _schema(type_: Type, ref: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    words = descriptions()
    text = words.get(type_.name) or f"{type_.definition.rpartition('.')[2]} of the Kubernetes API."
    schema["description"] = text
    required = [name for name, field in type_.fields.items() if field.required]
    if required:
        schema["required"] = required
    schema["properties"] = {
        name: _property(type_, name, field, ref, words.get(f"{type_.name}.{name}") or words.get(f"*.{name}", ""))
        for name, field in type_.fields.items()
    }
    return schema


def _property(type_: Type, name: str, field: Field, ref: str, description: str) -> dict[str, Any]:
    inner = types().get(field.type)
    if inner is not None:
        value: dict[str, Any] = {"$ref": ref + inner.definition}
    else:
        value = dict(_SCALARS[field.type])
    rules = field_rules(type_.name).get(name, FieldRules()) if ref == _V3 else FieldRules()
    limits = {"enum": [one for one in rules.enum if one], "minimum": rules.minimum, "maximum": rules.maximum}
    value |= {word: limit for word, limit in limits.items() if limit not in (None, [])}
    if field.is_list:
        value = {"type": "array", "items": value}
        if rules.most is not None:
            value["maxItems"] = rules.most
    elif field.is_map:
        value = {"type": "object", "additionalProperties": value}
    elif "$ref" in value and ref == _V3:
        value = {"allOf": [value]}
    if rules.default:
        value["default"] = msgspec.Raw(rules.default.encode())
    if description:
        value["description"] = description
    value |= patch_markers(type_, name)
    return value


def _custom_name(resource: Resource) -> str:
    return ".".join((*reversed(resource.kind.group.split(".")), resource.version, resource.kind.kind))


def _custom_schema(resource: Resource, gvk: dict[str, str], ref: str) -> dict[str, Any]:
    """The schema of a definition; free form where no fields are declared."""
    schema: dict[str, Any] = dict(resource.defined.schema) if resource.defined is not None else {}
    if not schema:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if ref == _V2 and schema.get("x-kubernetes-preserve-unknown-fields"):
        # Clients that validate by version 2 take a list of properties for all there are.
        return {"type": "object", "x-kubernetes-group-version-kind": [gvk]}
    given = schema.get("properties")
    properties = dict(given) if isinstance(given, dict) else {}
    words = descriptions()
    properties["apiVersion"] = {"type": "string", "description": words["*.apiVersion"]}
    properties["kind"] = {"type": "string", "description": words["*.kind"]}
    metadata = {"$ref": ref + types()["ObjectMeta"].definition}
    properties["metadata"] = {"allOf": [metadata]} if ref == _V3 else metadata
    return {**schema, "properties": properties, "x-kubernetes-group-version-kind": [gvk]}


# -- paths -----------------------------------------------------------------------------------------------


def _paths(resources: Iterable[Resource], *, v3: bool) -> dict[str, Any]:
    """Collection and item paths with the options of each verb: clients look here for what is supported."""
    paths: dict[str, Any] = {}
    for resource in resources:
        kind = resource.kind
        prefix = f"/apis/{resource.api_version}" if kind.group else f"/api/{resource.version}"
        middle = "/namespaces/{namespace}" if kind.namespaced else ""
        collection = f"{prefix}{middle}/{kind.plural}"
        gvk = {"group": kind.group, "version": resource.version, "kind": kind.kind}
        paths[collection] = {verb: _operation(resource, verb, gvk, v3=v3, many=True) for verb in ("get", "post")}
        paths[collection + "/{name}"] = {
            verb: _operation(resource, verb, gvk, v3=v3, many=False) for verb in ("get", "put", "patch", "delete")
        }
    return paths


def _operation(resource: Resource, verb: str, gvk: Mapping[str, str], *, v3: bool, many: bool) -> dict[str, Any]:
    action = "list" if many and verb == "get" else verb
    kind = resource.kind
    text: dict[str, Any] = {"schema": {"type": "string"}} if v3 else {"type": "string"}
    operation: dict[str, Any] = {
        "operationId": f"{action}{resource.version.capitalize()}{kind.kind}",
        "parameters": [{"name": name, "in": "query", **text} for name in _QUERY[verb]],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": dict(gvk),
    }
    if verb == "patch":
        patches = _PATCHES if resource.defined is not None else (*_PATCHES, STRATEGIC_PATCH)
        if v3:
            operation["requestBody"] = {"content": {name: {"schema": {"type": "object"}} for name in patches}}
        else:
            operation["consumes"] = list(patches)
    return operation

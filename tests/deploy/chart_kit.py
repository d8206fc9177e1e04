"""The part of the chart's schema that describes KubeSchedulerConfiguration, made from the configuration types.

python tests/deploy/chart_kit.py        # writes it into values.schema.json
"""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Any

import msgspec

from kubesched.scheduler.config import KubeSchedulerConfiguration
from kubesched.scheduler.config.args import ARGS_TYPES, args_kind
from kubesched.scheduler.config.durations import Duration
from kubesched.scheduler.config.types import API_VERSION, KIND, Extender, PluginConfig, ProfileConfig

SCHEMA = Path(__file__).parents[2] / "deploy" / "helm" / "kubesched" / "values.schema.json"
#: What the chart decides by itself.
_DECIDED = ("resourceName", "resourceNamespace", "resourceLock")
_PLAIN: dict[Any, dict[str, Any]] = {
    Any: {},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string"},
    Duration: {"type": "string", "pattern": "^[-+]?(0|([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$"},
}


def configuration_definitions() -> dict[str, Any]:
    """Definitions by type name; ``config`` and ``profile`` are what the values of these names may be."""
    found: dict[str, Any] = {}

    def of(annotation: Any) -> dict[str, Any]:
        if annotation in _PLAIN:
            return _PLAIN[annotation]
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            return of(arguments[0])
        if origin in (types.UnionType, typing.Union):
            return of(next(one for one in arguments if one is not type(None)))
        if origin in (tuple, list):
            return {"type": "array", "items": of(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": of(arguments[1])}
        name = annotation.__name__
        if name not in found:
            found[name] = {}  # a type may contain itself
            found[name] = structure(annotation)
        return {"$ref": f"#/definitions/{name}"}

    def structure(type_: type[msgspec.Struct]) -> dict[str, Any]:
        hints = typing.get_type_hints(type_, include_extras=True)
        properties = {field.encode_name: of(hints[field.name]) for field in msgspec.structs.fields(type_)}
        return {"type": "object", "additionalProperties": False, "properties": properties}

    config = structure(KubeSchedulerConfiguration)
    del config["properties"]["profiles"]
    head = {"apiVersion": {"const": API_VERSION}, "kind": {"const": KIND}}
    config["properties"] = {**head, **config["properties"]}
    election = found["LeaderElection"]["properties"]
    for name in _DECIDED:
        del election[name]
    election["leaderElect"] = {"const": True}
    profile = structure(ProfileConfig)
    del profile["properties"]["schedulerName"]
    cases = []
    for name, type_ in ARGS_TYPES.items():
        of(type_)
        arguments = found[type_.__name__]["properties"]
        arguments |= {"apiVersion": {"const": API_VERSION}, "kind": {"const": args_kind(name)}}
        then = {"properties": {"args": {"$ref": f"#/definitions/{type_.__name__}"}}}
        cases.append({"if": {"properties": {"name": {"const": name}}, "required": ["name"]}, "then": then})
    found[PluginConfig.__name__] |= {"required": ["name"], "allOf": cases}
    found[Extender.__name__]["required"] = ["urlPrefix"]
    return {"config": config, "profile": profile, **dict(sorted(found.items()))}


if __name__ == "__main__":
    whole = json.loads(SCHEMA.read_text(encoding="utf-8"))
    whole["definitions"] = configuration_definitions()
    SCHEMA.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

"""Writer of a typed configuration to plain data and YAML, for ``--write-config-to``.

Source: rules/configuration §8.1. Upstream chooses per type which fields are printed even when empty; the table below
holds these.
"""

from __future__ import annotations

import base64
from collections.abc import Collection
from typing import Any, Final

import msgspec

from kubesched.api.types import (
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorRequirement,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
)
from kubesched.api.yamltext import to_yaml

from .args import (
    ARGS_TYPES,
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    ResourceSpec,
    UtilizationShapePoint,
    args_kind,
)
from .durations import Duration
from .types import (
    API_VERSION,
    KIND,
    ClientConnection,
    Extender,
    ExtenderManagedResource,
    KubeSchedulerConfiguration,
    LeaderElection,
    Plugin,
    PluginConfig,
    Plugins,
    ProfileConfig,
)

__all__ = ["dump_config", "dump_yaml"]

_ALL: Final = frozenset({"*"})

#: Fields printed even when empty, by type; ``*`` stands for all. Other fields are left out when empty.
_ALWAYS: Final[dict[type[Any], frozenset[str]]] = {
    KubeSchedulerConfiguration: frozenset(
        {
            "parallelism",
            "leaderElection",
            "clientConnection",
            "enableProfiling",
            "enableContentionProfiling",
            "percentageOfNodesToScore",
            "podInitialBackoffSeconds",
            "podMaxBackoffSeconds",
            "profiles",
        }
    ),
    LeaderElection: _ALL,
    ClientConnection: _ALL,
    ProfileConfig: frozenset({"schedulerName", "plugins"}),
    Plugins: _ALL,
    Plugin: _ALL,
    Extender: frozenset({"urlPrefix", "httpTimeout"}),
    ExtenderManagedResource: frozenset({"name"}),
    DefaultPreemptionArgs: _ALL,
    InterPodAffinityArgs: _ALL,
    ResourceSpec: _ALL,
    UtilizationShapePoint: _ALL,
    NodeSelector: _ALL,
    PreferredSchedulingTerm: _ALL,
    NodeSelectorRequirement: frozenset({"key", "operator"}),
    LabelSelectorRequirement: frozenset({"key", "operator"}),
    TopologySpreadConstraint: frozenset({"maxSkew", "topologyKey", "whenUnsatisfiable"}),
}
#: Fields whose zero is a value of its own; they are left out only when they are None.
_POINTERS: Final = frozenset(
    {"percentageOfNodesToScore", "filterTimeout", "bindingTimeout", "bindTimeoutSeconds", "minDomains"}
)


def _plain(value: Any) -> Any:
    if isinstance(value, PluginConfig):
        return {"name": value.name, "args": _args(value)}
    if isinstance(value, msgspec.Struct):
        return _struct(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _struct(value: msgspec.Struct) -> dict[str, Any]:
    always = _ALWAYS.get(type(value), frozenset())
    out = {}
    for name, attribute in zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True):
        content = getattr(value, attribute)
        kept = name in always or always is _ALL or (name in _POINTERS and content is not None)
        if kept or content or (isinstance(content, msgspec.Struct)):
            out[name] = _plain(content)
    return out


def _args(entry: PluginConfig) -> Any:
    if entry.name not in ARGS_TYPES or not isinstance(entry.args, msgspec.Struct):
        return entry.args
    return {"apiVersion": API_VERSION, "kind": args_kind(entry.name), **_struct(entry.args)}


def dump_config(config: KubeSchedulerConfiguration, *, registered: Collection[str] | None = None) -> dict[str, Any]:
    """Return the configuration as plain data in version v1.

    With ``registered`` (the names of all existing plugins) the result has the form of ``--write-config-to``: each
    ``pluginConfig`` has only plugins that are enabled, registered and have arguments, sorted by name.
    """
    if registered is not None:
        profiles = [_written(profile, registered) for profile in config.profiles]
        config = msgspec.structs.replace(config, profiles=tuple(profiles))
    return {"apiVersion": API_VERSION, "kind": KIND, **_struct(config)}


def _written(profile: ProfileConfig, registered: Collection[str]) -> ProfileConfig:
    names = profile.plugins.enabled_names() & set(registered)
    entries = [entry for entry in profile.plugin_config if entry.name in names and entry.args is not None]
    return msgspec.structs.replace(profile, plugin_config=tuple(sorted(entries, key=lambda entry: entry.name)))


def dump_yaml(config: KubeSchedulerConfiguration, *, registered: Collection[str] | None = None) -> str:
    """Write :func:`dump_config` as YAML: keys sorted, two spaces, dashes at the parent's column."""
    return to_yaml(dump_config(config, registered=registered))

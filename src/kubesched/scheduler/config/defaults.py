"""Defaults that depend on other fields, on the number of profiles, or on feature gates; plugin-set merging.

Called by ``load`` between decoding and validation. Source: rules/configuration §1 to §4; merging: rules/configuration
§3.3.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from .args import (
    ARGS_TYPES,
    CPU_AND_MEMORY,
    DynamicResourcesArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ResourceSpec,
    UtilizationShapePoint,
    VolumeBindingArgs,
)
from .durations import Duration
from .features import FeatureGates
from .intree import default_multi_point
from .types import (
    DEFAULT_SCHEDULER_NAME,
    KubeSchedulerConfiguration,
    LeaderElection,
    Plugin,
    PluginConfig,
    PluginSet,
    ProfileConfig,
)

__all__ = ["apply_defaults", "default_args", "merge_plugin_set"]

_FILTER_TIMEOUT: Final = Duration.of_seconds(10)
_BINDING_TIMEOUT: Final = Duration.of_seconds(600)
_STORAGE_SHAPE: Final = (
    UtilizationShapePoint(utilization=0, score=10),
    UtilizationShapePoint(utilization=100, score=0),
)


def _or_default(value: Any, fields: tuple[str, ...]) -> Any:
    """Replace empty (zero) fields by the type's defaults."""
    blank = type(value)()
    return replace(value, **{name: getattr(blank, name) for name in fields if not getattr(value, name)})


def merge_plugin_set(defaults: PluginSet, custom: PluginSet) -> PluginSet:
    """Merge a profile's plugin set into the default one.

    Defaults come first, without the disabled ones. A custom entry of the same name takes the default's place, and
    its weight replaces the default's, even when it is not given. Other custom entries follow.
    """
    disabled = {plugin.name for plugin in (*custom.disabled, *defaults.disabled)}
    given: dict[str, tuple[int, Plugin]] = {}
    for index, plugin in enumerate(custom.enabled):
        given[plugin.name] = (index, plugin)
    merged: list[Plugin] = []
    replaced: set[int] = set()
    if "*" not in disabled:
        for plugin in defaults.enabled:
            if plugin.name in disabled:
                continue
            index, chosen = given.get(plugin.name, (-1, plugin))
            replaced.add(index)
            merged.append(chosen)
    merged += [plugin for index, plugin in enumerate(custom.enabled) if index not in replaced]
    return PluginSet(enabled=tuple(merged), disabled=custom.disabled + defaults.disabled)


def _with_weights(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    return tuple(replace(item, weight=item.weight or 1) for item in resources) or CPU_AND_MEMORY


def default_args(args: Any, gates: FeatureGates) -> Any:
    """Fill in the missing fields of plugin arguments; plain data of unknown plugins stays as it is."""
    match args:
        case NodeResourcesFitArgs():
            strategy = args.scoring_strategy
            return replace(args, scoring_strategy=replace(strategy, resources=_with_weights(strategy.resources)))
        case NodeResourcesBalancedAllocationArgs():
            return replace(args, resources=_with_weights(args.resources))
        case NodeAffinityArgs() if args.added_affinity and args.added_affinity.preferred == ():
            # An empty list has the same meaning as no list. Only the latter form is kept.
            without = replace(args.added_affinity, preferred_during_scheduling_ignored_during_execution=None)
            return replace(args, added_affinity=without)
        case PodTopologySpreadArgs():
            return _or_default(args, ("defaulting_type",))
        case VolumeBindingArgs() if not args.shape and gates.enabled("StorageCapacityScoring"):
            return replace(args, shape=_STORAGE_SHAPE)
        case DynamicResourcesArgs():
            filtering, binding = args.filter_timeout, args.binding_timeout
            if filtering is None and gates.enabled("DRASchedulerFilterTimeout"):
                filtering = _FILTER_TIMEOUT
            if binding is None and _device_binding(gates):
                binding = _BINDING_TIMEOUT
            return replace(args, filter_timeout=filtering, binding_timeout=binding)
    return args


def _device_binding(gates: FeatureGates) -> bool:
    return gates.enabled("DRADeviceBindingConditions") and gates.enabled("DRAResourceClaimDeviceStatus")


def _default_profile(profile: ProfileConfig, gates: FeatureGates) -> ProfileConfig:
    plugins = replace(
        profile.plugins, multi_point=merge_plugin_set(default_multi_point(gates), profile.plugins.multi_point)
    )
    entries = [
        replace(
            entry,
            args=default_args(
                ARGS_TYPES[entry.name]() if entry.args is None and entry.name in ARGS_TYPES else entry.args, gates
            ),
        )
        for entry in profile.plugin_config
    ]
    missing = (plugins.enabled_names() & ARGS_TYPES.keys()) - {entry.name for entry in entries}
    entries += [PluginConfig(name=name, args=default_args(ARGS_TYPES[name](), gates)) for name in sorted(missing)]
    return replace(profile, plugins=plugins, plugin_config=tuple(entries))


def apply_defaults(
    config: KubeSchedulerConfiguration, given: dict[str, Any], gates: FeatureGates
) -> KubeSchedulerConfiguration:
    """Complete a decoded configuration. ``given`` is the plain data it was decoded from."""
    if given.get("enableContentionProfiling") is None:
        config = replace(config, enable_contention_profiling=config.enable_profiling)
    profiles = config.profiles or (ProfileConfig(),)
    if len(profiles) == 1:
        listed = given.get("profiles") or [None]
        if (listed[0] or {}).get("schedulerName") is None:
            profiles = (replace(profiles[0], scheduler_name=DEFAULT_SCHEDULER_NAME),)
    return replace(
        config,
        leader_election=_or_default(
            config.leader_election, tuple(name for name in LeaderElection.__struct_fields__ if name != "leader_elect")
        ),
        client_connection=_or_default(config.client_connection, ("content_type", "qps", "burst")),
        profiles=tuple(_default_profile(profile, gates) for profile in profiles),
    )

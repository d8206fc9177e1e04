"""Expansion of a completed profile to the plugins that run at each extension point, in order, with weights.

Called by the framework with the points that the registered plugin classes implement. Rules, errors and their order:
rules/framework §7.3 to §7.8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from .args import NodeResourcesFitArgs
from .errors import ConfigError, join_errors
from .features import DEFAULT_GATES, FeatureGates
from .intree import default_multi_point
from .types import POINTS, KubeSchedulerConfiguration, Plugin, ProfileConfig
from .validate_args import validate_args

__all__ = ["Expanded", "expand_profile", "expand_profiles", "ignore_extender_resources", "plugin_type"]

#: Plugins that run at a point as (name, weight), by point; the weight is 0 where nothing is scored.
Expanded = dict[str, list[tuple[str, int]]]

_MAX_INT64: Final = 2**63 - 1
_MAX_NODE_SCORE: Final = 100
_WEIGHTED: Final = {"score": "score plugins", "placementScore": "placement score plugins"}


def plugin_type(point: str) -> str:
    """Upstream's name of a point's interface: ``PreFilterPlugin`` for ``preFilter``."""
    return f"{point[0].upper()}{point[1:]}Plugin"


def _error(text: str, *details: str) -> ConfigError:
    return ConfigError("framework", [text], details=details)


def expand_profile(
    profile: ProfileConfig,
    capabilities: Mapping[str, frozenset[str]],
    *,
    known_missing: Collection[str] = frozenset(),
    gates: FeatureGates = DEFAULT_GATES,
) -> Expanded:
    """Return the plugins of a profile by point (all fourteen points are keys, in upstream's order).

    ``capabilities`` maps each registered plugin to the points that it implements. ``known_missing`` are plugins of
    upstream that are missing here. They are skipped as part of the default set, and are an error if the user names
    them. An entry of multiPoint counts as part of the default set if it equals the default entry and nothing there
    disables that default (a written configuration lists all of them).

    Raises:
        ConfigError: stage ``framework``; the text lacks the prefix that names the profile.
    """
    multi = _available_multi_point(profile, known_missing, gates)
    configured: set[str] = set()
    for entry in profile.plugin_config:
        if entry.name in configured:
            raise _error(f"repeated config for plugin {entry.name}")
        configured.add(entry.name)
    explicit = {point: _explicit(profile, point, capabilities) for point in POINTS}
    lists = explicit
    if multi:
        lists = {point: _with_multi_point(profile, point, explicit[point], multi, capabilities) for point in POINTS}
    _check_counts(profile.scheduler_name, lists)
    weights = {point: _weights(profile, point, multi, capabilities) for point in _WEIGHTED}
    return {
        point: [(name, weights[point][name] if point in weights else 0) for name in names]
        for point, names in lists.items()
    }


def _available_multi_point(
    profile: ProfileConfig, known_missing: Collection[str], gates: FeatureGates
) -> tuple[Plugin, ...]:
    """Return the multiPoint entries without the default plugins in ``known_missing``.

    Raises:
        ConfigError: when the profile names such a plugin itself.
    """
    multi = profile.plugins.multi_point
    if not known_missing:
        return multi.enabled
    off = {plugin.name for plugin in multi.disabled}
    defaults = () if multi.disables_all else tuple(p for p in default_multi_point(gates).enabled if p.name not in off)
    dropped = [plugin for plugin in multi.enabled if plugin.name in known_missing and plugin in defaults]
    kept = tuple(plugin for plugin in multi.enabled if plugin not in dropped)
    named = [plugin.name for point in POINTS for plugin in profile.plugins.at(point).enabled]
    for name in (*named, *(plugin.name for plugin in kept)):
        if name in known_missing:
            raise _error(f'plugin "{name}" is part of Kubernetes but not available in this version of kubesched')
    return kept


def _explicit(profile: ProfileConfig, point: str, capabilities: Mapping[str, frozenset[str]]) -> list[str]:
    names: list[str] = []
    for plugin in profile.plugins.at(point).enabled:
        if plugin.name not in capabilities:
            raise _error(f'{plugin_type(point)} "{plugin.name}" does not exist', *_unnamed(plugin, point))
        if point not in capabilities[plugin.name]:
            raise _error(f'plugin "{plugin.name}" does not extend {plugin_type(point)} plugin')
        if plugin.name in names:
            raise _error(
                f'plugin "{plugin.name}" already registered as "{plugin_type(point)}"',
                f"plugins.{point}.enabled names {plugin.name} twice; name it once",
            )
        names.append(plugin.name)
    return names


def _unnamed(plugin: Plugin, point: str) -> list[str]:
    """Return a detail about an entry without a name."""
    return (
        [] if plugin.name else [f"an entry of plugins.{point}.enabled has no name; write - name: and a plugin's name"]
    )


def _with_multi_point(
    profile: ProfileConfig,
    point: str,
    explicit: list[str],
    multi: tuple[Plugin, ...],
    capabilities: Mapping[str, frozenset[str]],
) -> list[str]:
    """Order a point's plugins: first its overrides of multiPoint plugins, then the other plugins of multiPoint, then
    the other plugins of the point.
    """
    plugin_set = profile.plugins.at(point)
    if plugin_set.disables_all:
        return explicit
    disabled = {plugin.name for plugin in plugin_set.disabled}
    overrides: set[str] = set()
    added: list[str] = []
    for plugin in multi:
        name = plugin.name
        if name not in capabilities:
            raise _error(f'{plugin_type(point)} "{name}" does not exist', *_unnamed(plugin, "multiPoint"))
        if point not in capabilities[name] or name in disabled:
            continue
        if name in explicit:
            overrides.add(name)
        elif name in added:
            raise _error(
                f'plugin "{name}" already registered as "{plugin_type(point)}"',
                f"plugins.multiPoint.enabled names {name} twice; name it once",
            )
        else:
            added.append(name)
    first = [name for name in explicit if name in overrides]
    return first + added + [name for name in explicit if name not in overrides]


def _check_counts(scheduler_name: str, lists: Mapping[str, list[str]]) -> None:
    where = f'for profile with scheduler name "{scheduler_name}"'
    if len(lists["queueSort"]) != 1:
        raise _error(f"only one queue sort plugin required {where}, but got {len(lists['queueSort'])}")
    if not lists["bind"]:
        raise _error(f"at least one bind plugin is needed {where}")
    if len(lists["placementGenerate"]) > 1:
        raise _error(f"at most one placement generate plugin is allowed {where}")


def _weights(
    profile: ProfileConfig, point: str, multi: tuple[Plugin, ...], capabilities: Mapping[str, frozenset[str]]
) -> dict[str, int]:
    """Return weights by plugin.

    The point's own entries come before multiPoint's. The first entry of a name counts; 0 means 1.
    """
    weights: dict[str, int] = {}
    total = 0
    for plugin in (*profile.plugins.at(point).enabled, *multi):
        if plugin.name in weights or point not in capabilities.get(plugin.name, ()):
            continue
        weight = plugin.weight or 1
        if weight < 0 or weight * _MAX_NODE_SCORE > _MAX_INT64 - total:
            raise _error(
                f"{_WEIGHTED[point]}: total score of Score plugins could overflow",
                f"the weight of {plugin.name} at {point} is {weight}; it must be at least 1"
                if weight < 0
                else f"the weights at {point} add up to more than {_MAX_INT64 // _MAX_NODE_SCORE}",
            )
        total += weight * _MAX_NODE_SCORE
        weights[plugin.name] = weight
    return weights


def _argument_errors(
    profile: ProfileConfig, capabilities: Mapping[str, frozenset[str]], gates: FeatureGates
) -> Iterator[str]:
    """Yield the errors that registered, enabled plugins would raise for their arguments when they are built."""
    enabled = profile.plugins.enabled_names() & capabilities.keys()
    for entry in profile.plugin_config:
        if entry.name in enabled and (errors := validate_args(entry.name, entry.args, gates)):
            yield f'initializing plugin "{entry.name}": {join_errors(errors)}'


def expand_profiles(
    config: KubeSchedulerConfiguration,
    capabilities: Mapping[str, frozenset[str]],
    *,
    known_missing: Collection[str] = frozenset(),
    gates: FeatureGates = DEFAULT_GATES,
) -> dict[str, Expanded]:
    """Expand every profile, by scheduler name, and check plugin arguments: a dry run of building the plugins.

    Raises:
        ConfigError: stage ``framework``, with upstream's full text.
    """
    config = ignore_extender_resources(config)
    expanded: dict[str, Expanded] = {}
    first: ProfileConfig | None = None
    for profile in config.profiles:
        name = profile.scheduler_name
        try:
            for text in _argument_errors(profile, capabilities, gates):
                raise _error(text)
            points = expand_profile(profile, capabilities, known_missing=known_missing, gates=gates)
        except ConfigError as error:
            raise _error(
                f"initializing profiles: creating profile for scheduler name {name}: {error}", *error.details
            ) from None
        if first is None:
            first = profile
        sorter, first_sorter = points["queueSort"][0][0], next(iter(expanded.values()), points)["queueSort"][0][0]
        if sorter != first_sorter:
            text = f'different queue sort plugins for profile "{name}": "{sorter}", first: "{first_sorter}"'
            raise _error(f"initializing profiles: {text}")
        if profile.args_for(sorter) != first.args_for(sorter):
            raise _error(f'initializing profiles: different queue sort plugin args for profile "{name}"')
        expanded[name] = points
    return expanded


def ignore_extender_resources(config: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """Let NodeResourcesFit ignore resources that only extenders manage (``ignoredByScheduler``).

    The names replace ``ignoredResources`` in every profile; without such names nothing changes.

    Raises:
        ConfigError: stage ``framework``, when a profile has no NodeResourcesFit arguments.
    """
    names = [
        resource.name
        for extender in config.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    ]
    if not names:
        return config
    profiles = []
    for profile in config.profiles:
        if not isinstance(profile.args_for("NodeResourcesFit"), NodeResourcesFitArgs):
            raise _error("couldn't build extenders: can't find NodeResourcesFitArgs in plugin config")
        entries = [
            replace(entry, args=replace(entry.args, ignored_resources=tuple(names)))
            if entry.name == "NodeResourcesFit"
            else entry
            for entry in profile.plugin_config
        ]
        profiles.append(replace(profile, plugin_config=tuple(entries)))
    return replace(config, profiles=tuple(profiles))

"""Conversion of profiles of older versions to today's profiles.

Up to v1beta2 a profile was a list of plugins per extension point. It becomes a v1 profile that names them per
point and disables the default multiPoint set, with three additions that a current cluster needs:

* points that a plugin has gained since (``_GAINED``), because its later points read the results of these points;
* plugins for features that pods could not ask for then (``_SINCE``). They are enabled through multiPoint, so that a
  point at which the file disables ``*`` stays disabled;
* NodeVolumeLimits in place of the volume limits per cloud, which v1 cannot name. If the configuration is to be run,
  limits that the file itself names stay.

Source: rules/configuration §9, and rules/configuration §3 for the v1 form.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from kubesched.scheduler.config.defaults import merge_plugin_set
from kubesched.scheduler.config.features import FeatureGates
from kubesched.scheduler.config.intree import IN_TREE
from kubesched.scheduler.config.types import Plugin, Plugins, PluginSet

from .default_plugins import VOLUME_LIMITS, PluginLists

__all__ = ["Notes", "explicit_plugins", "merged_lists", "multi_point_plugins"]

#: Plugins that lacked a point at that time which their later points need today: (later points, missing point, plugins).
_GAINED: Final = (
    ("filter", "pre_filter", ("VolumeRestrictions", "NodeVolumeLimits", "VolumeZone")),
    ("score", "pre_score", ("NodeResourcesFit", "NodeResourcesBalancedAllocation", "VolumeBinding")),
    ("post_filter", "pre_enqueue", ("DefaultPreemption",)),
)
#: Plugins for scheduling gates, devices and node features: without them such pods would be placed wrongly.
_SINCE: Final = ("SchedulingGates", "DynamicResources", "NodeDeclaredFeatures")

_LIMITS: Final = "NodeVolumeLimits"
_ALL: Final = Plugin(name="*")


@dataclass(slots=True)
class Notes:
    """Warnings of a conversion. ``left_out`` collects default plugins that are not available.

    With ``keep_limits`` volume limits per cloud that a file names stay.
    """

    unavailable: Collection[str] = ()
    keep_limits: bool = False
    warnings: list[str] = field(default_factory=list)
    left_out: set[str] = field(default_factory=set)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def has(self, name: str) -> bool:
        """True if a default plugin is available; a missing one is noted."""
        if name in self.unavailable:
            self.left_out.add(name)
            return False
        return True


def merged_lists(
    defaults: PluginLists, custom: Mapping[str, PluginSet], notes: Notes, *, in_place: bool
) -> dict[str, list[Plugin]]:
    """Merge defaults and a profile's own plugins, per point.

    With ``in_place`` (from v1beta2) an own entry takes the place of the default of the same name. Before v1beta2, own
    entries only followed the defaults. An own entry for a default that is not disabled is an error then, when the
    profile is built.
    """
    merged: dict[str, list[Plugin]] = {}
    for point in {**defaults, **custom}:
        own = custom.get(point, PluginSet())
        named = {item.name for item in own.enabled}
        available = tuple(
            plugin
            for plugin in defaults.get(point, ())
            if plugin.name in named
            or (notes.has(plugin.name) and not (notes.keep_limits and plugin.name in VOLUME_LIMITS))
        )
        if in_place:
            merged[point] = list(merge_plugin_set(PluginSet(enabled=available), own).enabled)
        else:
            off = {plugin.name for plugin in own.disabled}
            kept = [] if "*" in off else [plugin for plugin in available if plugin.name not in off]
            merged[point] = [*kept, *own.enabled]
    return merged


def explicit_plugins(
    lists: Mapping[str, list[Plugin]],
    disabled: Mapping[str, tuple[Plugin, ...]],
    gates: FeatureGates,
    notes: Notes,
) -> Plugins:
    """Make the v1 form of complete lists per point. ``disabled`` are the plugins that the file disables there."""
    full = {point: _fold_limits(plugins, notes) for point, plugins in lists.items()}
    for later, earlier, names in _GAINED:
        listed = {plugin.name for plugin in full.get(earlier, ())}
        full.setdefault(earlier, [])
        full[earlier] += [
            Plugin(name=plugin.name)
            for plugin in full.get(later, ())
            if plugin.name in names and plugin.name not in listed
        ]
    sets = {
        point: PluginSet(enabled=tuple(full.get(point, ())), disabled=disabled.get(point, ()))
        for point in {**full, **disabled}
    }
    since = tuple(
        Plugin(name=name, weight=IN_TREE[name].weight)
        for name in _SINCE
        if (not IN_TREE[name].gate or gates.enabled(IN_TREE[name].gate)) and notes.has(name)
    )
    return Plugins(**sets, multi_point=PluginSet(enabled=since, disabled=(_ALL,)))


def _fold_limits(plugins: list[Plugin], notes: Notes) -> list[Plugin]:
    """List NodeVolumeLimits once, at the first place where it or a limit per cloud is listed."""
    if notes.keep_limits:
        return plugins
    folded: list[Plugin] = []
    for plugin in plugins:
        if plugin.name not in VOLUME_LIMITS:
            folded.append(plugin)
        elif not any(item.name == _LIMITS for item in (*folded, *plugins)) and notes.has(_LIMITS):
            folded.append(Plugin(name=_LIMITS))
    return folded


def multi_point_plugins(plugins: Plugins, notes: Notes, *, selector_spread: bool) -> Plugins:
    """Convert a v1beta3 profile's plugins, which have the form of v1 already.

    A volume limit per cloud becomes NodeVolumeLimits, unless that runs anyway or limits are kept.
    """
    multi = plugins.multi_point
    off = {plugin.name for plugin in multi.disabled}
    by_default = not {"*", _LIMITS} & off or _LIMITS in {plugin.name for plugin in multi.enabled}
    sets = {}
    for attribute in plugins.__struct_fields__:
        plugin_set: PluginSet = getattr(plugins, attribute)
        here = {plugin.name for plugin in plugin_set.disabled}
        runs = by_default and (attribute == "multi_point" or not {"*", _LIMITS} & here)
        kept: list[Plugin] = []
        for plugin in plugin_set.enabled:
            if plugin.name not in VOLUME_LIMITS or notes.keep_limits:
                kept.append(plugin)
            elif not runs and not any(item.name == _LIMITS for item in (*kept, *plugin_set.enabled)):
                kept.append(Plugin(name=_LIMITS))
        sets[attribute] = replace(plugin_set, enabled=tuple(kept))
    if selector_spread and not {"*", "SelectorSpread"} & off:
        known = sets["multi_point"]
        if all(plugin.name != "SelectorSpread" for plugin in known.enabled):
            sets["multi_point"] = replace(known, enabled=(*known.enabled, Plugin(name="SelectorSpread", weight=1)))
    return Plugins(**sets)

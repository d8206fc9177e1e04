"""Conversion of plugin arguments of older versions to today's types.

Source: rules/configuration §9.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from kubesched.scheduler.config.args import (
    InterPodAffinityArgs,
    Part,
    PodTopologySpreadArgs,
    UtilizationShapePoint,
    VolumeBindingArgs,
)
from kubesched.scheduler.config.errors import ConfigError
from kubesched.scheduler.config.features import FeatureGates
from kubesched.scheduler.config.types import PluginConfig

from .default_plugins import VOLUME_LIMITS
from .profiles import Notes
from .retired_args import RETIRED_ARGS, plain_args, retired_args_errors
from .types import AlphaConfiguration, LegacyPodTopologySpreadArgs, OldConfiguration, V1Alpha1Configuration

__all__ = ["RENAMED", "bind_timeout", "hard_weight", "plugin_config"]

#: New names of plugins that were renamed, by the old ones.
RENAMED: Final = {"DefaultPodTopologySpread": "SelectorSpread"}
_OLD_SLOPE: Final = (UtilizationShapePoint(utilization=0, score=0), UtilizationShapePoint(utilization=100, score=10))


def bind_timeout(config: OldConfiguration | None) -> int | None:
    """Return the seconds that VolumeBinding waits, from a field that v1alpha1 and v1alpha2 had."""
    return config.bind_timeout_seconds if isinstance(config, AlphaConfiguration) else None


def hard_weight(config: OldConfiguration | None) -> int | None:
    """Return the weight of InterPodAffinity, from a field that v1alpha1 had."""
    return config.hard_pod_affinity_symmetric_weight if isinstance(config, V1Alpha1Configuration) else None


def plugin_config(
    entries: Iterable[PluginConfig],
    path: str,
    config: OldConfiguration,
    gates: FeatureGates,
    notes: Notes,
    *,
    spread: bool,
    version: str,
) -> tuple[PluginConfig, ...]:
    """Convert a profile's arguments to today's types, completed by fields that older versions had elsewhere."""
    found: list[PluginConfig] = []
    errors: list[str] = []
    for index, entry in enumerate(entries):
        at = f"{path}pluginConfig[{index}]"
        if entry.name in VOLUME_LIMITS:
            notes.warn(f"{at}: {entry.name} takes no arguments; the entry is ignored")
            continue
        args: Any = entry.args
        if isinstance(args, LegacyPodTopologySpreadArgs):
            args = _spread_args(args, spread=spread)
        elif entry.name in RETIRED_ARGS and isinstance(args, Part):
            errors += retired_args_errors(args, f"{at}.args")
            args = plain_args(args)
        found.append(PluginConfig(name=RENAMED.get(entry.name, entry.name), args=args))
    if errors:
        raise ConfigError("validate", errors)
    given = {entry.name for entry in found}
    extra: dict[str, Any] = {}
    if "PodTopologySpread" not in given and not spread:
        extra["PodTopologySpread"] = PodTopologySpreadArgs(defaulting_type="List")
    weight = hard_weight(config)
    if weight is not None:
        extra["InterPodAffinity"] = InterPodAffinityArgs(hard_pod_affinity_weight=weight)
    seconds = bind_timeout(config)
    if seconds is not None:
        extra["VolumeBinding"] = VolumeBindingArgs(bind_timeout_seconds=seconds)
    for name, args in extra.items():
        if name in given:
            notes.warn(f"{path}pluginConfig of {name} is used, the older field for the same value is ignored")
        else:
            found.append(PluginConfig(name=name, args=args))
    if version in ("v1beta2", "v1beta3") and gates.enabled("StorageCapacityScoring"):
        found = _with_old_slope(found, notes)
    return tuple(found)


def _spread_args(args: LegacyPodTopologySpreadArgs, *, spread: bool) -> PodTopologySpreadArgs:
    system = spread and not args.default_constraints
    return PodTopologySpreadArgs(
        default_constraints=args.default_constraints,
        defaulting_type=args.defaulting_type or ("System" if system else "List"),
    )


def _with_old_slope(entries: list[PluginConfig], notes: Notes) -> list[PluginConfig]:
    """Add the old default shape for storage scores: a full node was best then, an empty one is today."""
    notes.warn("VolumeBinding scores storage by the default shape of its version: 0 at 0 %, 10 at 100 %")
    if all(entry.name != "VolumeBinding" for entry in entries):
        entries = [*entries, PluginConfig(name="VolumeBinding", args=VolumeBindingArgs())]
    return [
        replace(entry, args=replace(entry.args, shape=_OLD_SLOPE))
        if isinstance(entry.args, VolumeBindingArgs) and not entry.args.shape
        else entry
        for entry in entries
    ]

"""From configuration to frameworks: one per profile, by scheduler name."""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.config import (
    IN_TREE,
    ConfigError,
    KubeSchedulerConfiguration,
    expand_profiles,
    ignore_extender_resources,
)
from kubesched.framework.interface import Recorder
from kubesched.framework.metrics import SchedulerMetrics
from kubesched.framework.registry import Registry
from kubesched.framework.runtime import Framework

from .handle import Backends, ProfileHandle
from .search import Search

__all__ = ["Profile", "build_frameworks"]


@dataclass(frozen=True, slots=True)
class Profile:
    """What schedules the pods of one schedulerName: its plugins, its search, and the recorder of its events."""

    framework: Framework
    search: Search
    recorder: Recorder


def build_frameworks(
    config: KubeSchedulerConfiguration, registry: Registry, backends: Backends, metrics: SchedulerMetrics
) -> dict[str, Framework]:
    """Build every profile, in the configuration's order.

    Upstream plugins that the registry lacks are left out of the default set; naming one is an error.

    Raises:
        ConfigError: stage ``framework``, when a profile cannot be built.
    """
    config = ignore_extender_resources(config)
    missing = IN_TREE.keys() - registry.keys()
    expanded = expand_profiles(config, registry.capabilities(), known_missing=missing, gates=backends.gates)
    frameworks: dict[str, Framework] = {}
    for profile in config.profiles:
        name = profile.scheduler_name
        handle = ProfileHandle(name, backends)
        try:
            handle.framework = frameworks[name] = Framework(
                name,
                expanded[name],
                registry,
                profile.args_for,
                handle,
                metrics,
                percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
            )
        except ConfigError as error:
            text = f"initializing profiles: creating profile for scheduler name {name}: {error}"
            raise ConfigError("framework", [text]) from error
    return frameworks

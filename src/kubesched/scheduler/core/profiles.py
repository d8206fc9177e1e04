"""Profiles by scheduler name, built in two steps: their plugins before the queue, their searches after it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..config import IN_TREE, ConfigError, KubeSchedulerConfiguration, expand_profiles, ignore_extender_resources
from ..framework.interface import Recorder
from ..framework.metrics import SchedulerMetrics
from ..framework.registry import Registry
from ..framework.runtime import Framework
from ..nodes import Snapshot
from ..nodes.nominating import Nominations
from .full_scan import Rotation
from .handle import Backends, ProfileHandle
from .search import Search

__all__ = ["Profile", "build_frameworks", "build_profiles"]


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of one schedulerName: its plugins, its search, and the recorder of its events."""

    framework: Framework
    search: Search
    recorder: Recorder


def build_frameworks(
    config: KubeSchedulerConfiguration, registry: Registry, backends: Backends, metrics: SchedulerMetrics
) -> dict[str, Framework]:
    """Build the plugins of every profile, in the configuration's order.

    Upstream plugins that the registry lacks are left out of the default set; a profile that names one is an error.

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
            )
        except ConfigError as error:
            text = f"initializing profiles: creating profile for scheduler name {name}: {error}"
            raise ConfigError("framework", [text]) from error
    return frameworks


def build_profiles(
    config: KubeSchedulerConfiguration,
    frameworks: Mapping[str, Framework],
    snapshot: Snapshot,
    nominations: Nominations,
    rng: random.Random,
    recorder: Callable[[str], Recorder],
    wrap_search: Callable[[Search], Search],
) -> dict[str, Profile]:
    """Make a profile of every framework and a new search.

    The profile uses the result of ``wrap_search``, which may be the search itself. ``recorder`` returns the recorder of
    events for a scheduler name.
    """
    rotation = Rotation()
    profiles: dict[str, Profile] = {}
    for profile in config.profiles:
        name, percentage = profile.scheduler_name, profile.percentage_of_nodes_to_score
        if percentage is None:
            percentage = config.percentage_of_nodes_to_score
        own_rng = random.Random(rng.getrandbits(64))
        search = Search(frameworks[name], snapshot, nominations, own_rng, rotation, percentage)
        profiles[name] = Profile(frameworks[name], wrap_search(search), recorder(name))
    return profiles

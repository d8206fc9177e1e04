"""Checks of a whole configuration, in upstream's order of emission.

Called by ``load`` after defaults, and by the command line after flags changed something. ``validate_args`` checks
plugin arguments. Texts: rules/configuration §5 and §6.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from kubesched.api.requests import is_extended_resource

from .args import ARGS_TYPES
from .errors import ConfigError
from .features import DEFAULT_GATES, FeatureGates
from .fielderrors import duplicate, go_json, invalid, qualified_name_errors, quote, required
from .types import API_VERSION, POINTS, Extender, KubeSchedulerConfiguration, LeaderElection, PluginSet, ProfileConfig
from .validate_args import validate_args

__all__ = ["REMOVED_PLUGINS", "validate", "validation_errors"]

#: In-tree plugins of older releases that version v1 no longer accepts by name.
REMOVED_PLUGINS: Final = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
_REMOVED_TEXT: Final = f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{API_VERSION}")'
_PLACEMENT: Final = ("placementGenerate", "placementScore")


def validate(
    config: KubeSchedulerConfiguration, gates: FeatureGates = DEFAULT_GATES, retired: Collection[str] = ()
) -> None:
    """Check a completed configuration. It may name the ``retired`` plugins, as an older version could.

    Raises:
        ConfigError: stage ``validate``, with every error found.
    """
    if errors := validation_errors(config, gates, retired):
        raise ConfigError("validate", errors)


def validation_errors(
    config: KubeSchedulerConfiguration, gates: FeatureGates = DEFAULT_GATES, retired: Collection[str] = ()
) -> list[str]:
    """Return every error of a completed configuration, in order, equal ones once. See :func:`validate`."""
    return list(dict.fromkeys(_errors(config, gates, REMOVED_PLUGINS.difference(retired))))


def _errors(config: KubeSchedulerConfiguration, gates: FeatureGates, removed: frozenset[str]) -> Iterator[str]:
    if config.client_connection.burst < 0:
        yield invalid("clientConnection.burst", config.client_connection.burst, "must be non-negative")
    yield from _leader_election(config.leader_election)
    if config.parallelism <= 0:
        yield invalid("parallelism", config.parallelism, "should be an integer value greater than zero")
    if not config.profiles:
        yield required("profiles")
    seen: set[str] = set()
    for index, profile in enumerate(config.profiles):
        yield from _profile(profile, f"profiles[{index}]", gates, removed)
        if profile.scheduler_name in seen:
            yield duplicate(f"profiles[{index}].schedulerName", "{}")  # upstream prints braces, not the name
        seen.add(profile.scheduler_name)
    yield from _common_queue_sort(config.profiles)
    yield from _percentage("percentageOfNodesToScore", config.percentage_of_nodes_to_score)
    if config.pod_initial_backoff_seconds <= 0:
        yield invalid("podInitialBackoffSeconds", config.pod_initial_backoff_seconds, "must be greater than 0")
    if config.pod_max_backoff_seconds < config.pod_initial_backoff_seconds:
        text = "must be greater than or equal to PodInitialBackoffSeconds"
        yield invalid("podMaxBackoffSeconds", config.pod_max_backoff_seconds, text)
    yield from _extenders(config.extenders)


def _leader_election(election: LeaderElection) -> Iterator[str]:
    if not election.leader_elect:
        return
    for name, span in (
        ("leaseDuration", election.lease_duration),
        ("renewDeadline", election.renew_deadline),
        ("retryPeriod", election.retry_period),
    ):
        if span.nanoseconds <= 0:
            yield invalid(f"leaderElection.{name}", span, "must be greater than zero")
    if election.lease_duration <= election.renew_deadline:
        # Upstream prints the deadline here, not the duration that the path names.
        text = "must be greater than `RenewDeadline`"
        yield invalid("leaderElection.leaseDuration", election.renew_deadline, text)
    for name, value in (
        ("resourceLock", election.resource_lock),
        ("resourceNamespace", election.resource_namespace),
        ("resourceName", election.resource_name),
    ):
        if not value:
            yield required(f"leaderElection.{name}")
    if election.resource_lock != "leases":
        text = 'resourceLock value must be "leases"'
        yield invalid("leaderElection.resourceLock", election.resource_lock, text)


def _percentage(path: str, value: int | None) -> Iterator[str]:
    if value is not None and not 0 <= value <= 100:
        yield invalid(path, value, "not in valid range [0-100]")


def _profile(profile: ProfileConfig, path: str, gates: FeatureGates, removed: frozenset[str]) -> Iterator[str]:
    if not profile.scheduler_name:
        yield required(f"{path}.schedulerName")
    yield from _percentage(f"{path}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score)
    for point in POINTS:
        if point not in _PLACEMENT:  # upstream does not look there, nor in multiPoint
            for index, plugin in enumerate(profile.plugins.at(point).enabled):
                if plugin.name in removed:
                    yield invalid(f"{path}.plugins.{point}.enabled[{index}]", plugin.name, _REMOVED_TEXT)
    seen: set[str] = set()
    for index, entry in enumerate(profile.plugin_config):
        entry_path = f"{path}.pluginConfig[{index}]"
        if entry.name in removed:
            yield invalid(entry_path, entry.name, _REMOVED_TEXT)
        if entry.name in seen:
            yield duplicate(entry_path, quote(entry.name))
        seen.add(entry.name)
        # NodeResourcesFit is checked when the plugin is built, as upstream (rules/configuration §4.1).
        if entry.name in ARGS_TYPES and entry.name != "NodeResourcesFit":
            yield from validate_args(entry.name, entry.args, gates, f"{entry_path}.args")


def _common_queue_sort(profiles: tuple[ProfileConfig, ...]) -> Iterator[str]:
    """Check that all profiles, which share one queue, have the same sorter with the same arguments.

    If the first profile has no sorter, arguments without a plugin's name count as the sorter's arguments, as upstream.
    """
    if not profiles:
        return
    first = profiles[0].plugins.queue_sort
    if len(first.enabled) > 1:
        text = "only one queue sort plugin can be enabled"
        yield invalid("profiles[0].plugins.queueSort.Enabled", len(first.enabled), text)
    sorter = first.enabled[0].name if first.enabled else ""
    args = profiles[0].args_for(sorter) if sorter else None
    for index, profile in enumerate(profiles[1:], start=1):
        own: PluginSet = profile.plugins.queue_sort
        if own != first:
            yield invalid(f"profiles[{index}].plugins.queueSort", go_json(own), "must be the same for all profiles")
        for entry in profile.plugin_config:
            if entry.name == sorter and entry.args != args:
                text = "queueSort must be the same for all profiles"
                yield invalid(f"profiles[{index}].pluginConfig.args", go_json(entry.args), text)


def _extenders(extenders: tuple[Extender, ...]) -> Iterator[str]:
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        if extender.prioritize_verb and extender.weight <= 0:
            yield invalid(f"extenders[{index}].weight", extender.weight, "must have a positive weight applied to it")
        for number, resource in enumerate(extender.managed_resources):
            path = f"extenders[{index}].managedResources[{number}].name"
            if errors := qualified_name_errors(resource.name):
                yield from (invalid(path, resource.name, error) for error in errors)
            elif not is_extended_resource(resource.name):
                yield invalid(path, resource.name, "is an invalid extended resource name")
            if resource.name in managed:
                yield invalid(path, resource.name, "duplicate extender managed resource name")
            managed.add(resource.name)
    binders = sum(bool(extender.bind_verb) for extender in extenders)
    if binders > 1:
        yield invalid(
            "extenders", f"found {binders} extenders implementing bind", "only one extender can implement bind"
        )

"""Conversion of a configuration of an older version to today's form, before defaults and validation.

``load`` calls :func:`read_old` with the parsed document, reads a Policy if the document names one, and passes the
result on to the defaults and checks of v1. Everything that is changed or ignored gives a warning in ``Notes``.
Source: rules/configuration §9.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from kubesched.api.yamltext import Document
from kubesched.scheduler.config.args import InterPodAffinityArgs, PodTopologySpreadArgs, VolumeBindingArgs
from kubesched.scheduler.config.decode import REMOVED_IN, Scheme, decode_args, duplicate_keys, strict_error
from kubesched.scheduler.config.defaults import merge_plugin_set
from kubesched.scheduler.config.durations import Duration
from kubesched.scheduler.config.errors import ConfigError
from kubesched.scheduler.config.features import FeatureGates
from kubesched.scheduler.config.fielderrors import invalid
from kubesched.scheduler.config.shapes import Decoder, WrongTypeError, fold_names
from kubesched.scheduler.config.types import (
    API_VERSION,
    DEFAULT_SCHEDULER_NAME,
    Extender,
    KubeSchedulerConfiguration,
    LeaderElection,
    Plugin,
    PluginConfig,
    Plugins,
    PluginSet,
    ProfileConfig,
)

from .default_plugins import PROVIDERS, VOLUME_LIMITS, default_plugins
from .plugin_args import RENAMED, bind_timeout, hard_weight, plugin_config
from .policy import Policy, policy_plugins
from .profiles import Notes, explicit_plugins, merged_lists, multi_point_plugins
from .retired_args import RETIRED_PLUGINS
from .types import (
    OLD_VERSIONS,
    SCHEMES,
    AddressedConfiguration,
    AlgorithmSource,
    AlphaConfiguration,
    LegacyLeaderElection,
    OldConfiguration,
    PolicyExtender,
    ProfiledConfiguration,
    V1Alpha1Configuration,
    V1Alpha2Configuration,
    V1Beta2Configuration,
    V1Beta3Configuration,
)

__all__ = ["Converted", "OldDocument", "convert", "convert_policy", "read_old"]

#: Versions in whose last releases PodTopologySpread had replaced SelectorSpread.
_SPREAD_GATE_ON: Final = ("v1beta1", "v1beta2", "v1beta3")
_OLD_LOCKS: Final = frozenset({"endpoints", "configmaps", "endpointsleases", "configmapsleases"})
_MAX_PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class OldDocument:
    """Decoded document of an older version: its short version, the typed form, and the plain data."""

    version: str
    config: OldConfiguration
    data: dict[str, Any]

    @property
    def source(self) -> AlgorithmSource:
        """Source of the document's plugins."""
        return self.config.algorithm_source if isinstance(self.config, V1Alpha1Configuration) else AlgorithmSource()


@dataclass(frozen=True, slots=True)
class Converted:
    """Configuration in v1 form without defaults, the given fields on which defaults depend, and retired plugins."""

    config: KubeSchedulerConfiguration
    given: dict[str, Any]
    retired: frozenset[str]


# -- reading -----------------------------------------------------------------------------------------------------


def read_old(document: Document, version: str, notes: Notes) -> OldDocument:
    """Decode a document of an older version with the fields that version had.

    v1alpha1 was read leniently: unknown fields and keys given twice are warnings there, errors in all others.

    Raises:
        ConfigError: stage ``decode``.
    """
    type_ = OLD_VERSIONS[version]
    data = document.data
    twice: list[str] = []
    if version == "v1alpha2" and isinstance(data.get("extenders"), list):
        data = {**data, "extenders": fold_names(data["extenders"], tuple[PolicyExtender, ...], twice, "extenders")}
    decoder = Decoder()
    try:
        config: OldConfiguration = decoder.decode(data, type_)
    except WrongTypeError as error:
        raise ConfigError("decode", [error.text], details=[error.detail]) from None
    doubled = [f"{path}: given twice in different spelling" for path in twice]
    twice_keys = duplicate_keys(document)
    errors = ["\n".join(["yaml: unmarshal errors:", *(f"  {text}" for text in twice_keys)])] if twice_keys else []
    errors += [f"unknown field {name}" for name in decoder.unknown] + doubled
    if version == "v1alpha1":
        for text in [*twice_keys, *decoder.details]:
            notes.warn(f"{text} (ignored: {version} was read leniently)")
        errors = []
    details = list(decoder.details)
    config = _with_args(config, SCHEMES[version], errors, details)
    if errors:
        raise ConfigError("decode", [strict_error(errors)], details=details)
    notes.warn(
        f"apiVersion {SCHEMES[version].api_version} was removed in Kubernetes {REMOVED_IN[version]}; it is converted to "
        f"{API_VERSION} (kubesched config convert writes it)"
    )
    return OldDocument(version, config, data)


def _with_args(config: OldConfiguration, scheme: Scheme, errors: list[str], details: list[str]) -> OldConfiguration:
    """Return the configuration with typed plugin arguments."""

    def decoded(entries: Iterable[PluginConfig], path: str) -> tuple[PluginConfig, ...]:
        found = []
        for number, entry in enumerate(entries):
            at = f"{path}pluginConfig[{number}]"
            try:
                typed, strict = decode_args(entry, f"{at}.args.", details, scheme)
            except ConfigError as error:
                raise ConfigError("decode", [f"decoding .{at}: {error}"], details=error.details) from None
            found.append(typed)
            if strict:
                errors.append(f"decoding .{at}: strict decoding error: {strict}")
        return tuple(found)

    if isinstance(config, V1Alpha1Configuration):
        if config.plugin_config is None:
            return config
        return replace(config, plugin_config=decoded(config.plugin_config, ""))
    profiles = tuple(
        replace(profile, plugin_config=decoded(profile.plugin_config, f"profiles[{index}]."))
        for index, profile in enumerate(config.profiles)
    )
    return replace(config, profiles=profiles)


# -- converting --------------------------------------------------------------------------------------------------


def convert(
    old: OldDocument, policy: Policy | None, gates: FeatureGates, notes: Notes, *, spread_gate: bool | None = None
) -> Converted:
    """Convert a document to today's form. ``policy`` is the Policy that its ``algorithmSource`` names, read already.

    ``spread_gate`` is the setting of the retired feature gate DefaultPodTopologySpread; None: the version's default.

    Raises:
        ConfigError: when the document cannot be converted; paths are those of the document.
    """
    config, version = old.config, old.version
    spread = version in _SPREAD_GATE_ON if spread_gate is None else spread_gate
    if errors := list(_old_field_errors(config, version)):
        raise ConfigError("validate", errors)
    extenders: tuple[Extender, ...] = ()
    profiles: tuple[ProfileConfig, ...]
    if isinstance(config, V1Alpha1Configuration):
        profiles = (_alpha1_profile(config, policy, gates, notes, spread=spread),)
        names = [old.data.get("schedulerName") or None]
        extenders = _policy_extenders(policy.extenders) if policy is not None else ()
    else:
        # One profile may go without a name, and no profile at all stands for one: as in v1.
        listed = config.profiles or (config.profile_type(),)
        given = old.data.get("profiles") or [None]
        names = [(item or {}).get("schedulerName") for item in given]
        profiles = tuple(
            _profile(profile, f"profiles[{index}].", config, version, gates, notes, spread=spread)
            for index, profile in enumerate(listed)
        )
        if isinstance(config, V1Alpha2Configuration):
            extenders = _policy_extenders(config.extenders)
        else:
            extenders = config.extenders
    _note_addresses(config, notes)
    current = KubeSchedulerConfiguration(
        parallelism=getattr(config, "parallelism", 16),
        leader_election=_leader_election(config.leader_election, notes),
        client_connection=config.client_connection,
        enable_profiling=config.enable_profiling,
        enable_contention_profiling=config.enable_contention_profiling,
        percentage_of_nodes_to_score=config.percentage_of_nodes_to_score,
        pod_initial_backoff_seconds=config.pod_initial_backoff_seconds,
        pod_max_backoff_seconds=config.pod_max_backoff_seconds,
        profiles=profiles,
        extenders=extenders,
    )
    newer = version in ("v1beta2", "v1beta3")
    known = frozenset({"SelectorSpread"}) | VOLUME_LIMITS if newer else frozenset(RETIRED_PLUGINS)
    given_fields = {
        "enableContentionProfiling": old.data.get("enableContentionProfiling"),
        "profiles": [{"schedulerName": name} for name in names],
    }
    return Converted(current, given_fields, _retired_in(current, known, notes))


def convert_policy(policy: Policy, gates: FeatureGates, notes: Notes, *, spread_gate: bool | None = None) -> Converted:
    """Convert a Policy that was given in place of a configuration to today's form.

    Raises:
        ConfigError: when the Policy names something unknown, or contradicts itself.
    """
    notes.warn(f"the Policy API was removed in Kubernetes 1.23; the Policy is converted to {API_VERSION}")
    profile = _policy_profile(policy, None, gates, notes, spread=bool(spread_gate))
    config = KubeSchedulerConfiguration(profiles=(profile,), extenders=_policy_extenders(policy.extenders))
    return Converted(config, {}, _retired_in(config, frozenset(RETIRED_PLUGINS), notes))


def _retired_in(config: KubeSchedulerConfiguration, known: frozenset[str], notes: Notes) -> frozenset[str]:
    """Return the retired plugins in use.

    A v1 file can name them only if they are loaded; it can never name volume limits.
    """
    used = {name for profile in config.profiles for name in profile.plugins.enabled_names()} & known
    if loadable := used - VOLUME_LIMITS:
        notes.warn(
            f"retired plugins in use: {', '.join(sorted(loadable))}; kubesched runs them for this file, while a v1 file "
            "needs --plugin-module kubesched.retired.plugins, and kube-scheduler does not have them"
        )
    if notes.left_out:
        notes.warn(
            f"default plugins that kubesched does not have yet are left out: {', '.join(sorted(notes.left_out))}"
        )
    return frozenset(used)


# -- removed fields ----------------------------------------------------------------------------------------------


def _old_field_errors(config: OldConfiguration, version: str) -> Iterator[str]:
    seconds = bind_timeout(config)
    if seconds is not None and seconds < 0:
        yield invalid("bindTimeoutSeconds", seconds, "must be zero or a positive number of seconds")
    weight = hard_weight(config)
    if weight is not None and not 0 <= weight <= _MAX_PERCENT:
        yield invalid("hardPodAffinitySymmetricWeight", weight, "not in valid range [0-100]")
    if isinstance(config, V1Beta2Configuration):
        for name, address in (
            ("healthzBindAddress", config.healthz_bind_address),
            ("metricsBindAddress", config.metrics_bind_address),
        ):
            if address and not _is_address(address):
                yield invalid(name, address, "must be an IP address and a port, such as 0.0.0.0:10251")


def _is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return bool(colon) and port.isascii() and port.isdigit() and int(port) <= 65535


def _note_addresses(config: OldConfiguration, notes: Notes) -> None:
    if isinstance(config, AddressedConfiguration):
        for name, address in (
            ("healthzBindAddress", config.healthz_bind_address),
            ("metricsBindAddress", config.metrics_bind_address),
        ):
            if address:
                notes.warn(f"{name} is ignored: health and metrics are served with TLS (--bind-address, --secure-port)")
    if isinstance(config, V1Alpha1Configuration) and config.failure_domains is not None:
        notes.warn("failureDomains is ignored: InterPodAffinity needs an explicit topologyKey in every term")


def _leader_election(election: LeaderElection, notes: Notes) -> LeaderElection:
    values = {name: getattr(election, name) for name in LeaderElection.__struct_fields__}
    if election.resource_lock in _OLD_LOCKS:
        notes.warn(
            f"leaderElection.resourceLock {election.resource_lock} was removed, leases is used: stop schedulers that hold "
            "the old lock before this one starts"
        )
        values["resource_lock"] = "leases"
    if isinstance(election, LegacyLeaderElection):
        values["resource_namespace"] = election.lock_object_namespace or election.resource_namespace
        values["resource_name"] = election.lock_object_name or election.resource_name
    return LeaderElection(**values)


def _policy_extenders(extenders: Iterable[PolicyExtender]) -> tuple[Extender, ...]:
    found = []
    for extender in extenders:
        values = {name: getattr(extender, name) for name in extender.__struct_fields__}
        values["http_timeout"] = Duration(values["http_timeout"])
        found.append(Extender(**values))
    return tuple(found)


# -- profiles ----------------------------------------------------------------------------------------------------


def _profile(
    profile: Any,
    path: str,
    config: ProfiledConfiguration,
    version: str,
    gates: FeatureGates,
    notes: Notes,
    *,
    spread: bool,
) -> ProfileConfig:
    entries = plugin_config(profile.plugin_config, path, config, gates, notes, spread=spread, version=version)
    own = {attribute: getattr(profile.plugins, attribute) for attribute in profile.plugins.__struct_fields__}
    _note_limits(own, path, notes)
    if isinstance(config, V1Beta3Configuration):
        plugins = multi_point_plugins(Plugins(**own), notes, selector_spread=not spread)
    else:
        plugins = _lists(own, version, config, gates, notes, spread=spread)
    return ProfileConfig(scheduler_name=profile.scheduler_name, plugins=plugins, plugin_config=entries)


def _lists(
    own: dict[str, PluginSet],
    version: str,
    config: OldConfiguration,
    gates: FeatureGates,
    notes: Notes,
    *,
    spread: bool,
    provider: str = "DefaultProvider",
) -> Plugins:
    """Convert a profile of a version in which each point has its own list of plugins."""
    own = {point: _renamed(plugin_set, notes) for point, plugin_set in own.items()}
    defaults = default_plugins(version, selector_spread=not spread, provider=provider)
    unreserve = own.pop("unreserve", PluginSet())
    if unreserve != PluginSet():
        notes.warn("plugins.unreserve is part of reserve today; the plugins enabled there are enabled at reserve")
        reserve = own["reserve"]
        listed = {plugin.name for plugin in merge_plugin_set(PluginSet(enabled=defaults["reserve"]), reserve).enabled}
        more = tuple(plugin for plugin in unreserve.enabled if plugin.name not in listed)
        own["reserve"] = replace(reserve, enabled=(*reserve.enabled, *more))
    lists = merged_lists(defaults, own, notes, in_place=version == "v1beta2")
    disabled = {point: plugin_set.disabled for point, plugin_set in own.items()}
    if isinstance(config, AlphaConfiguration) and config.disable_preemption:
        preemption = Plugin(name="DefaultPreemption")
        lists["post_filter"] = [item for item in lists["post_filter"] if item.name != preemption.name]
        disabled["post_filter"] = (*disabled.get("post_filter", ()), preemption)
    return explicit_plugins(lists, disabled, gates, notes)


def _renamed(plugin_set: PluginSet, notes: Notes) -> PluginSet:
    def renamed(plugins: tuple[Plugin, ...]) -> tuple[Plugin, ...]:
        for plugin in plugins:
            if plugin.name in RENAMED:
                notes.warn(f"plugin {plugin.name} is called {RENAMED[plugin.name]} since Kubernetes 1.19")
        return tuple(replace(plugin, name=RENAMED.get(plugin.name, plugin.name)) for plugin in plugins)

    return PluginSet(enabled=renamed(plugin_set.enabled), disabled=renamed(plugin_set.disabled))


def _note_limits(own: dict[str, PluginSet], path: str, notes: Notes) -> None:
    named = {plugin.name for plugin_set in own.values() for plugin in plugin_set.enabled} & VOLUME_LIMITS
    if named and notes.keep_limits:
        notes.warn(
            f"{path}plugins: {', '.join(sorted(named))} count volumes on nodes where those are not migrated to CSI, and run for "
            "this file only; in v1 (kubesched config convert) NodeVolumeLimits counts them"
        )
    elif named:
        notes.warn(
            f"{path}plugins: {', '.join(sorted(named))} did nothing once the volumes were migrated to CSI, as they are in "
            "every current cluster; NodeVolumeLimits counts them"
        )


def _alpha1_profile(
    config: V1Alpha1Configuration, policy: Policy | None, gates: FeatureGates, notes: Notes, *, spread: bool
) -> ProfileConfig:
    name = config.scheduler_name
    if policy is not None:
        for text, value in (("Plugins", config.plugins), ("PluginConfig", config.plugin_config)):
            if value is not None:
                raise ConfigError(
                    "validate",
                    [f"using {text} and Policy simultaneously is not supported"],
                    details=["leave out algorithmSource.policy, or plugins and pluginConfig"],
                )
        profile = _policy_profile(policy, config, gates, notes, spread=spread)
        return replace(profile, scheduler_name=name)
    provider = config.algorithm_source.provider or "DefaultProvider"
    if provider not in PROVIDERS:
        raise ConfigError(
            "framework",
            [
                f'couldn\'t create scheduler using provider "{provider}": algorithm provider "{provider}" is not '
                "registered"
            ],
            details=[f"algorithmSource.provider: write one of {', '.join(PROVIDERS)}"],
        )
    own: dict[str, PluginSet] = {}
    if config.plugins is not None:
        own = {attribute: getattr(config.plugins, attribute) for attribute in config.plugins.__struct_fields__}
        post_filter = own.pop("post_filter")
        if post_filter != PluginSet():
            notes.warn("plugins.postFilter of v1alpha1 is called preScore today; its plugins are moved there")
            own["pre_score"] = post_filter
    _note_limits(own, "", notes)
    entries = plugin_config(config.plugin_config or (), "", config, gates, notes, spread=spread, version="v1alpha1")
    plugins = _lists(own, "v1alpha1", config, gates, notes, spread=spread, provider=provider)
    return ProfileConfig(scheduler_name=name, plugins=plugins, plugin_config=entries)


def _policy_profile(
    policy: Policy, config: V1Alpha1Configuration | None, gates: FeatureGates, notes: Notes, *, spread: bool
) -> ProfileConfig:
    weight = policy.hard_pod_affinity_symmetric_weight or hard_weight(config)
    chosen = policy_plugins(policy, notes, spread=spread)
    lists, disabled = chosen.lists, {}
    if isinstance(config, AlphaConfiguration) and config.disable_preemption:
        lists["post_filter"] = []
        disabled["post_filter"] = (Plugin(name="DefaultPreemption"),)
    entries = list(chosen.plugin_config)
    if weight is not None:
        entries.append(
            PluginConfig(name="InterPodAffinity", args=InterPodAffinityArgs(hard_pod_affinity_weight=weight))
        )
    defaulting = "System" if chosen.spreads_by_default else "List"
    entries.append(PluginConfig(name="PodTopologySpread", args=PodTopologySpreadArgs(defaulting_type=defaulting)))
    seconds = bind_timeout(config)
    if seconds is not None:
        entries.append(PluginConfig(name="VolumeBinding", args=VolumeBindingArgs(bind_timeout_seconds=seconds)))
    plugins = explicit_plugins(lists, disabled, gates, notes)
    return ProfileConfig(scheduler_name=DEFAULT_SCHEDULER_NAME, plugins=plugins, plugin_config=tuple(entries))

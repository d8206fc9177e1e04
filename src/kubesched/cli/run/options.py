"""Options of ``kubesched run``, from flags and files, checked in upstream's order.

Source: rules/configuration §7.1, §7.2 and §8.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubesched.scheduler.config import (
    IN_TREE,
    FeatureGateError,
    FeatureGates,
    KubeSchedulerConfiguration,
    Plugin,
    default_config,
    parse_feature_gates,
    validate,
)
from kubesched.scheduler.config.features import FEATURES
from kubesched.scheduler.config.load import read_config_file
from kubesched.scheduler.config.older import GetConfigMap, LoadOptions, older
from kubesched.scheduler.framework.registry import PluginError, Registry

from .flagset import Flags

__all__ = [
    "OptionsError",
    "RunOptions",
    "Versions",
    "default_plugins",
    "feature_gates",
    "option_errors",
    "options_of",
    "vmodule_of",
    "with_plugins",
]

_CURRENT: Final = (1, 36)
_OLDEST: Final = (1, 33)
_PREVIOUS: Final = "1.35"
_VERSION: Final = re.compile(r"v?(\d{1,3})\.(\d{1,3})(?:\.\d+)?")
_REMOVED_LOCKS: Final = ("endpoints", "configmaps", "endpointsleases", "configmapsleases")
_PATTERN: Final = re.compile(r"(?P<pattern>[^=,]+)=(?P<level>\d{1,9})")


class OptionsError(Exception):
    """The options cannot work. ``logged`` is true if kube-scheduler writes a log line, not ``Error: …``."""

    def __init__(self, message: str, *, logged: bool = False) -> None:
        super().__init__(message)
        self.logged = logged


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions (major, minor): the version whose feature stages apply, and the lowest version of other components."""

    emulated: tuple[int, int] = _CURRENT
    compatible: tuple[int, int] = (_CURRENT[0], _CURRENT[1] - 1)

    @classmethod
    def of(cls, flags: Flags) -> Versions:
        """Read both versions from flags.

        Raises:
            OptionsError: if one is not a version or out of range.
        """
        emulated = _component_version(flags["emulated-version"], "emulated-version") or _CURRENT
        given = _component_version(flags["min-compatibility-version"], "min-compatibility-version")
        compatible = given or max(_OLDEST, (emulated[0], emulated[1] - 1))
        errors = []
        if not _OLDEST <= emulated <= _CURRENT:
            errors.append(f"emulation version {_text(emulated)} is not between [{_text(_OLDEST)}, {_text(_CURRENT)}.0]")
        if not _OLDEST <= compatible <= emulated:
            errors.append(
                f"minCompatibilityVersion version {_text(compatible)} is not between "
                f"[{_text(_OLDEST)}, {_text(emulated)}]"
            )
        _raise_all(errors)
        return cls(emulated, compatible)


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _component_version(given: Sequence[str], flag: str) -> tuple[int, int] | None:
    version = None
    for item in given:
        component, equals, text = item.rpartition("=")
        if equals and component != "kube":
            raise OptionsError(f"component not registered: {component}")
        match = _VERSION.fullmatch(text)
        if match is None:
            raise OptionsError(f'--{flag}: could not parse "{text}" as version')
        version = int(match[1]), int(match[2])
    return version


def feature_gates(flags: Flags, versions: Versions) -> tuple[dict[str, bool], FeatureGates]:
    """Return the settings of retired gates, and the gates in effect.

    A gate that reached its stage after the emulated version is off unless a flag sets it.

    Raises:
        OptionsError: with upstream's text.
    """
    try:
        given = parse_feature_gates(flags["feature-gates"])
        settings = {name: value for name, value in given.items() if name not in older().gates}
        retired = {name: value for name, value in given.items() if name in older().gates}
        younger = {
            feature.name: False
            for feature in FEATURES.values()
            if feature.default and feature.since and _since(feature.since) > versions.emulated and not feature.locked
        }
        return retired, FeatureGates.of({**_closed(younger), **settings})
    except FeatureGateError as error:
        raise OptionsError(str(error)) from None


def _since(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _closed(off: dict[str, bool]) -> dict[str, bool]:
    """Return the gates that are off, and all gates that need one of them."""
    result = dict(off)
    changed = True
    while changed:
        needing = {
            feature.name: False
            for feature in FEATURES.values()
            if feature.name not in result and any(name in result for name in feature.needs)
        }
        result.update(needing)
        changed = bool(needing)
    return result


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options that the flags and the configuration file give together.

    ``retired`` names the retired plugins that the configuration uses. They have to be registered.
    """

    flags: Flags
    config: KubeSchedulerConfiguration
    gates: FeatureGates
    versions: Versions
    warnings: tuple[str, ...] = ()
    retired: frozenset[str] = frozenset()


async def options_of(flags: Flags, get_config_map: GetConfigMap, unavailable: Collection[str] = ()) -> RunOptions:
    """Read the configuration file and check everything that needs no API server.

    ``get_config_map`` is called only for a Policy in a ConfigMap. ``unavailable`` names in-tree plugins that are
    missing here.

    Raises:
        OptionsError: for flags.
        ConfigError: for the file.
    """
    versions = Versions.of(flags)
    retired_gates, gates = feature_gates(flags, versions)
    _raise_all(_logging_errors(flags, gates))
    _raise_all(_gated_flag_errors(flags, gates))
    _raise_all(option_errors(flags), logged=True)
    given = {name: flags[name] for name in flags.changed if name in {flag.name for flag in older().flags}}
    source: str | bytes | dict[str, Any] | None
    source = read_config_file(flags["config"]) if flags["config"] else older().document_from_flags(given)
    warnings = older().flag_warnings(given)
    retired: frozenset[str] = frozenset()
    if source is None:
        config = default_config(gates=gates)
    else:
        keep_limits = not flags["write-config-to"]
        options = LoadOptions(flags["config"], gates, retired_gates, unavailable, keep_limits)
        loaded = await older().load_with_api(source, get_config_map, options)
        config, retired = loaded.config, loaded.retired
        warnings += loaded.warnings
    if flags["config"]:
        config = _with_election(config, flags)
        validate(config, gates, retired)
    else:
        config = _with_election(_with_deprecated(config, flags), flags)
        _raise_all(_late_errors(config), logged=True)
    return RunOptions(flags, config, gates, versions, tuple(warnings), retired)


# -- what flags change in the configuration (rules/configuration §7.1) -----------------------------------


def _with_election(config: KubeSchedulerConfiguration, flags: Flags) -> KubeSchedulerConfiguration:
    names = {
        "leader-elect": "leader_elect",
        "leader-elect-lease-duration": "lease_duration",
        "leader-elect-renew-deadline": "renew_deadline",
        "leader-elect-retry-period": "retry_period",
        "leader-elect-resource-lock": "resource_lock",
        "leader-elect-resource-name": "resource_name",
        "leader-elect-resource-namespace": "resource_namespace",
    }
    changes = {field: flags[name] for name, field in names.items() if name in flags.changed}
    if not changes:
        return config
    return msgspec.structs.replace(config, leader_election=msgspec.structs.replace(config.leader_election, **changes))


def _with_deprecated(config: KubeSchedulerConfiguration, flags: Flags) -> KubeSchedulerConfiguration:
    names = {
        "kubeconfig": "kubeconfig",
        "kube-api-qps": "qps",
        "kube-api-burst": "burst",
        "kube-api-content-type": "content_type",
    }
    connection = {field: flags[name] for name, field in names.items() if name in flags.changed}
    changes: dict[str, Any] = {
        "client_connection": msgspec.structs.replace(config.client_connection, **connection),
    }
    if "profiling" in flags.changed:
        changes["enable_profiling"] = flags["profiling"]
    if "contention-profiling" in flags.changed:
        changes["enable_contention_profiling"] = flags["contention-profiling"]
    return msgspec.structs.replace(config, **changes)


def default_plugins(config: KubeSchedulerConfiguration) -> set[str]:
    """Return the in-tree plugins that some profile has by default."""
    return {
        plugin.name
        for profile in config.profiles
        for plugin in profile.plugins.multi_point.enabled
        if plugin.name in IN_TREE
    }


def with_plugins(
    config: KubeSchedulerConfiguration, names: Sequence[str], registry: Registry
) -> KubeSchedulerConfiguration:
    """Enable these plugins in every profile, at all their points, after the present ones.

    Raises:
        PluginError: if one is not registered.
    """
    for name in names:
        if name not in registry:
            raise PluginError(f"--enable-plugin {name}: there is no plugin of that name; load it with --plugin-module")
    if not names:
        return config
    profiles = []
    for profile in config.profiles:
        points = profile.plugins.multi_point
        known = {plugin.name for plugin in points.enabled}
        more = tuple(Plugin(name) for name in names if name not in known)
        points = msgspec.structs.replace(points, enabled=points.enabled + more)
        plugins = msgspec.structs.replace(profile.plugins, multi_point=points)
        profiles.append(msgspec.structs.replace(profile, plugins=plugins))
    return msgspec.structs.replace(config, profiles=tuple(profiles))


# -- checks (rules/configuration §7.2) ---------------------------------------------------------------------


def _raise_all(errors: Sequence[str], *, logged: bool = False) -> None:
    if errors:
        unique = list(dict.fromkeys(errors))
        raise OptionsError(unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]", logged=logged)


def _vmodule_items(flags: Flags) -> list[str]:
    return [item.strip() for item in ",".join(flags["vmodule"]).split(",") if item.strip()]


def vmodule_of(flags: Flags) -> dict[str, int]:
    """Return the level of each module pattern, from flags that were checked."""
    return {
        match["pattern"]: int(match["level"]) for item in _vmodule_items(flags) if (match := _PATTERN.fullmatch(item))
    }


def _logging_errors(flags: Flags, gates: FeatureGates) -> list[str]:
    errors = []
    if flags["logging-format"] not in ("text", "json"):
        errors.append(f'format: Invalid value: "{flags["logging-format"]}": Unsupported log format')
    elif flags["vmodule"] and flags["logging-format"] != "text":
        errors.append("vmodule: Forbidden: Only supported for text log format")
    items = _vmodule_items(flags)
    errors += [f'vmodule: Invalid value: "{item}": must be pattern=N' for item in items if not _PATTERN.fullmatch(item)]
    if flags["logging-format"] == "json" and not gates.enabled("LoggingBetaOptions"):
        errors.append("format: Forbidden: Log format json is BETA and disabled, see LoggingBetaOptions feature")
    if not gates.enabled("LoggingAlphaOptions"):
        for kind in ("text", "json"):
            if flags[f"log-{kind}-split-stream"]:
                errors.append(f"options.{kind}.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled")
            if flags[f"log-{kind}-info-buffer-size"] != "0":
                errors.append(f"options.{kind}.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled")
    return errors


def _gated_flag_errors(flags: Flags, gates: FeatureGates) -> list[str]:
    if flags["requestheader-uid-headers"] and not gates.enabled("RemoteRequestHeaderUID"):
        return ["--requestheader-uid-headers requires the feature gate RemoteRequestHeaderUID"]
    return []


def option_errors(flags: Flags) -> list[str]:
    """Return the errors in flags of serving, authentication, authorization and metrics."""
    errors = []
    port = flags["secure-port"]
    if port < 0:
        errors.append(f"--secure-port {port} must be between 0 and 65535, inclusive. 0 for turning off secure port")
    elif port > 65535:
        errors.append(f"--secure-port {port} must be between 1 and 65535, inclusive. It cannot be turned off with 0")
    if bool(flags["tls-cert-file"]) != bool(flags["tls-private-key-file"]):
        errors.append("--tls-cert-file and --tls-private-key-file must be given together")
    if flags["http2-max-streams-per-connection"] < 0:
        errors.append("--http2-max-streams-per-connection must not be negative")
    ttls = ("authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-unauthorized-ttl")
    errors += [f"--{name} must not be negative" for name in ttls if flags[name].nanoseconds < 0]
    shown = flags["show-hidden-metrics-for-version"]
    if shown and shown != _PREVIOUS:
        errors.append(
            f'metrics.showHiddenMetricsForVersion: Invalid value: "{shown}": must be omitted or have the value '
            f"'{_PREVIOUS}'; only the previous minor version is allowed"
        )
    return errors


def _late_errors(config: KubeSchedulerConfiguration) -> list[str]:
    """Return the errors that upstream finds only when it builds the client and the lock."""
    election, connection = config.leader_election, config.client_connection
    if connection.qps > 0 and connection.burst <= 0:
        return ["burst is required to be greater than 0 when RateLimiter is not set and QPS is set to greater than 0"]
    if not election.leader_elect:
        return []
    lock = election.resource_lock
    if lock in _REMOVED_LOCKS:
        return [f"couldn't create resource lock: {lock} lock is removed, migrate to leases"]
    if lock != "leases":
        return [f"couldn't create resource lock: Invalid lock-type {lock}"]
    return []

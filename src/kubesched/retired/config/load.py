"""Loader of a configuration of any version: v1 unchanged, older versions and Policies converted to v1 with warnings.

:func:`load_any` and :func:`load_any_file` serve commands without an API server. :func:`load_any_with_api` also reads a
Policy from a ConfigMap. Each returns a whole configuration or raises. Source: rules/configuration §9 and §10.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kubesched.api.yamltext import Document
from kubesched.scheduler.config.decode import MAX_BYTES, REMOVED_IN, decode_document, parse_document, version_and_kind
from kubesched.scheduler.config.defaults import apply_defaults
from kubesched.scheduler.config.errors import ConfigError
from kubesched.scheduler.config.features import FeatureGates
from kubesched.scheduler.config.load import read_config_file
from kubesched.scheduler.config.older import GetConfigMap, Loaded, LoadOptions
from kubesched.scheduler.config.types import GROUP, KIND, KubeSchedulerConfiguration
from kubesched.scheduler.config.validate import validation_errors

from ..flags import SPREAD_GATE
from .convert import Converted, OldDocument, convert, convert_policy, read_old
from .policy import POLICY_KIND, POLICY_VERSION, Policy, decode_policy, parse_policy
from .profiles import Notes
from .types import PolicyConfigMapSource, PolicySource

__all__ = [
    "POLICY_CONFIG_MAP_KEY",
    "SPREAD_GATE",
    "load_any",
    "load_any_file",
    "load_any_with_api",
    "policy_from_config_map",
]

POLICY_CONFIG_MAP_KEY: Final = "policy.cfg"
_SYSTEM_NAMESPACE: Final = "kube-system"

_DEFAULTS: Final = LoadOptions()


def load_any(source: str | bytes | dict[str, Any], options: LoadOptions = _DEFAULTS) -> Loaded:
    """Load a configuration of any version, or a Policy, from its text (or its plain data).

    A Policy file that a v1alpha1 document names is read, too.

    Raises:
        ConfigError: when the text cannot be used; a Policy in a ConfigMap needs :func:`load_any_with_api`.
    """
    return _guarded(options, lambda: _finish_sync(_read(source, options), options))


def load_any_file(path: str | os.PathLike[str], options: LoadOptions = _DEFAULTS) -> Loaded:
    """Load a configuration as :func:`load_any`, from a file.

    Raises:
        ConfigError: also when the file cannot be read.
    """
    return load_any(read_config_file(path), replace(options, source=os.fspath(path)))


async def load_any_with_api(
    source: str | bytes | dict[str, Any], get_config_map: GetConfigMap, options: LoadOptions = _DEFAULTS
) -> Loaded:
    """Load a configuration as :func:`load_any`, with an API server from which to read a Policy's ConfigMap.

    Raises:
        ConfigError: when the text or the ConfigMap cannot be used.
    """
    started = _guarded_read(source, options)
    wanted = _config_map(started)
    policy: Policy | None = None
    if wanted is not None:
        try:
            policy = await policy_from_config_map(wanted.namespace, wanted.name, get_config_map, started.notes)
        except ConfigError as error:
            raise _named(error, options) from None
    return _guarded(options, lambda: _finish(started, policy, options) if policy else _finish_sync(started, options))


async def policy_from_config_map(namespace: str, name: str, get_config_map: GetConfigMap, notes: Notes) -> Policy:
    """Read the Policy in a ConfigMap's key ``policy.cfg``; an empty namespace stands for ``kube-system``.

    Raises:
        ConfigError: ``couldn't get policy config map …``, ``missing policy config map value …``, ``invalid policy: …``.
    """
    namespace = namespace or _SYSTEM_NAMESPACE
    where = f"{namespace}/{name}"
    try:
        data = await get_config_map(namespace, name)
    except Exception as error:  # the client's error, of any kind, is the reason why there is no Policy
        raise ConfigError("decode", [f"couldn't get policy config map {where}: {error}"]) from error
    text = data.get(POLICY_CONFIG_MAP_KEY)
    if not isinstance(text, str):
        raise ConfigError(
            "decode",
            [f'missing policy config map value at key "{POLICY_CONFIG_MAP_KEY}"'],
            details=[f"ConfigMap {where} has the keys {', '.join(sorted(data)) or 'none'}"],
        )
    return parse_policy(text, notes, source=f"ConfigMap {where}")


# -- steps -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Started:
    """Decoded document. One of a v1 configuration, an older configuration and a Policy is set; the other two are
    None.
    """

    notes: Notes
    data: dict[str, Any]
    v1: KubeSchedulerConfiguration | None = None
    old: OldDocument | None = None
    policy: Policy | None = None


def _named(error: ConfigError, options: LoadOptions) -> ConfigError:
    return error.with_source(options.source) if options.source and not error.source else error


def _guarded(options: LoadOptions, work: Callable[[], Loaded]) -> Loaded:
    try:
        return work()
    except ConfigError as error:
        raise _named(error, options) from None


def _guarded_read(source: str | bytes | dict[str, Any], options: LoadOptions) -> _Started:
    try:
        return _read(source, options)
    except ConfigError as error:
        raise _named(error, options) from None


def _read(source: str | bytes | dict[str, Any], options: LoadOptions) -> _Started:
    text, document = ("", Document(source)) if isinstance(source, dict) else parse_document(source)
    notes = Notes(unavailable=options.unavailable, keep_limits=options.keep_limits)
    started = _Started(notes, document.data)
    spelled = (
        {str(key).lower(): value for key, value in document.data.items()} if isinstance(document.data, dict) else {}
    )
    if (spelled.get("apiversion"), spelled.get("kind")) == (POLICY_VERSION, POLICY_KIND):
        started.policy = decode_policy(document, text, notes)
        return started
    version, kind = version_and_kind(document.data, text)
    group, _, short = version.rpartition("/")
    if group == GROUP and short in REMOVED_IN and kind == KIND:
        started.old = read_old(document, short, notes)
    else:
        started.v1 = decode_document(document, text)
    return started


def _policy_source(started: _Started) -> PolicySource | None:
    return started.old.source.policy if started.old is not None else None


def _config_map(started: _Started) -> PolicyConfigMapSource | None:
    source = _policy_source(started)
    return source.config_map if source is not None and source.file is None else None


def _finish_sync(started: _Started, options: LoadOptions) -> Loaded:
    """Read a Policy file if the document names one, and finish."""
    source, policy = _policy_source(started), None
    if source is not None and source.file is not None:
        policy = _policy_file(source.file.path, started.notes)
    elif source is not None and source.config_map is not None:
        name = f"{source.config_map.namespace or _SYSTEM_NAMESPACE}/{source.config_map.name}"
        raise ConfigError(
            "decode",
            [f"couldn't get policy config map {name}: this command reads files only"],
            details=["algorithmSource.policy: save the ConfigMap's policy.cfg to a file and name it with file.path"],
        )
    elif source is not None:
        text = "no policy source: write file.path or configMap.name"
        raise ConfigError("decode", ["invalid policy: it names neither a file nor a ConfigMap"], details=[text])
    return _finish(started, policy, options)


def _policy_file(path: str, notes: Notes) -> Policy:
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("decode", [f"missing policy config file {path}"]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError("decode", [f"couldn't read policy config: {path}: {reason}"]) from None
    try:
        return parse_policy(text, notes, source=path)
    except ConfigError as error:
        raise error.with_source(path) from None


def _finish(started: _Started, policy: Policy | None, options: LoadOptions) -> Loaded:
    """Convert, complete and validate."""
    gates, spread_gate = options.gates, (options.retired_gates or {}).get(SPREAD_GATE)
    if started.v1 is not None:
        config = _checked(apply_defaults(started.v1, started.data, gates), gates)
        return Loaded(config)
    if started.old is not None:
        made = convert(started.old, policy, gates, started.notes, spread_gate=spread_gate)
    else:
        assert started.policy is not None
        made = convert_policy(started.policy, gates, started.notes, spread_gate=spread_gate)
    config = _checked(_completed(made, gates), gates, started.old, made.retired)
    at = f"{options.source}: " if options.source else ""
    return Loaded(config, tuple(f"{at}{text}" for text in started.notes.warnings), made.retired)


def _completed(made: Converted, gates: FeatureGates) -> KubeSchedulerConfiguration:
    return apply_defaults(made.config, made.given, gates)


def _checked(
    config: KubeSchedulerConfiguration,
    gates: FeatureGates,
    old: OldDocument | None = None,
    retired: frozenset[str] = frozenset(),
) -> KubeSchedulerConfiguration:
    """Return a valid configuration. An invalid one raises ConfigError with the paths that its file has."""
    errors = validation_errors(config, gates, retired)
    if old is not None and old.version == "v1alpha1":  # the document itself is the only profile
        errors = [error.removeprefix("profiles[0].") for error in errors]
    if errors:
        raise ConfigError("validate", errors)
    return config

"""Registry and configuration: in-tree plugins, installed ones, modules and classes, and a KubeSchedulerConfiguration.

Callers: the commands and the simulator.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from .config import (
    API_VERSION,
    DEFAULT_GATES,
    IN_TREE,
    KIND,
    ConfigError,
    FeatureGates,
    KubeSchedulerConfiguration,
    expand_profiles,
    load_config_data,
)
from .config import Plugin as PluginEntry
from .config.older import LoadOptions, older
from .config.profiles import Expanded
from .framework.registry import PluginError, Registry
from .plugins import in_tree_registry

__all__ = [
    "enable_plugins",
    "expand",
    "load_configuration",
    "load_registry",
    "register_retired",
    "with_plugins",
]


def load_registry(plugins: Sequence[str | os.PathLike[str] | type] = ()) -> tuple[Registry, list[str]]:
    """Return a registry with every plugin, and the names of the given plugins.

    Plugins are given as module names, ``.py`` files or plugin classes.

    Entry points that cannot be loaded are left out; see :attr:`~kubesched.scheduler.framework.Registry.problems`.

    Raises:
        PluginError: when one of the given plugins cannot be imported or does not fit.
    """
    registry = in_tree_registry()
    registry.load_entry_points()
    own: list[str] = []
    for plugin in plugins:
        if inspect.isclass(plugin):
            own.append(registry.register(plugin).name)  # type: ignore[attr-defined]
            continue
        if not isinstance(plugin, str | os.PathLike):
            raise PluginError(f"{plugin!r} is no plugin: expected a class, a module's name or the path of a .py file")
        try:
            own += [found.name for found in registry.load_module(os.fspath(plugin))]  # type: ignore[attr-defined]
        except SystemExit as error:
            raise PluginError(f"plugin module {plugin} ended the program while it was imported") from error
    return registry, own


def register_retired(registry: Registry, names: Collection[str]) -> None:
    """Add the retired plugins that a converted configuration uses. A registered plugin of the same name stays."""
    for name in sorted(names):
        if name not in registry:
            registry.register(older().plugins[name])


def with_plugins(names: Sequence[str], *, gates: FeatureGates = DEFAULT_GATES) -> KubeSchedulerConfiguration:
    """Return the default configuration with more plugins enabled, at every point they extend."""
    enabled = [{"name": name} for name in names]
    profile = {"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": enabled}}}
    return load_config_data({"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}, gates=gates)


def enable_plugins(config: KubeSchedulerConfiguration, names: Sequence[str]) -> KubeSchedulerConfiguration:
    """Return the configuration with more plugins enabled, in every profile at every point they extend.

    If a profile enables or disables a plugin explicitly, that setting stays.
    """
    profiles = []
    for profile in config.profiles:
        said = {plugin.name for _, point in profile.plugins.items() for plugin in (*point.enabled, *point.disabled)}
        more = tuple(PluginEntry(name=name) for name in dict.fromkeys(names) if name not in said)
        multi = profile.plugins.multi_point
        plugins = replace(profile.plugins, multi_point=replace(multi, enabled=(*multi.enabled, *more)))
        profiles.append(replace(profile, plugins=plugins))
    return replace(config, profiles=tuple(profiles))


def load_configuration(
    source: str | os.PathLike[str] | Mapping[str, Any] | KubeSchedulerConfiguration | None,
    registry: Registry,
    own: Sequence[str],
    *,
    enable: Sequence[str] = (),
    gates: FeatureGates = DEFAULT_GATES,
) -> tuple[KubeSchedulerConfiguration, list[str]]:
    """Return the configuration to run with, and remarks about it. Its profiles can be built from the registry.

    ``source`` is a file, a document as plain data, or a complete configuration; without it there is one profile that
    enables the plugins ``own``. The plugins ``enable`` are enabled in every profile of any source. A source of an older
    version is converted; the retired plugins it uses are added to the registry.

    Raises:
        ConfigError: when it cannot be used.
    """
    if not isinstance(source, str | os.PathLike | Mapping | KubeSchedulerConfiguration | None):
        text = f"config: expected a path, a document as a dict, or a configuration, found {type(source).__name__}"
        raise ConfigError("decode", [text])
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else "the configuration"
    remarks: list[str] = []
    if source is None:
        config = with_plugins(own, gates=gates)
        if not enable:
            return config, []
    elif isinstance(source, KubeSchedulerConfiguration):
        config = source
    else:
        options = LoadOptions(unavailable=IN_TREE.keys() - registry.keys(), keep_limits=True, source=name, gates=gates)
        loaded = (
            older().load(dict(source), options) if isinstance(source, Mapping) else older().load_file(source, options)
        )
        config = loaded.config
        register_retired(registry, loaded.retired)
        remarks += loaded.warnings
    config = enable_plugins(config, enable)
    expand(config, registry, name)
    used = {name for profile in config.profiles for name in profile.plugins.enabled_names()}
    remarks += [f"plugin {one} was loaded, but no profile of {name} enables it" for one in own if one not in used]
    return config, remarks


def expand(config: KubeSchedulerConfiguration, registry: Registry, path: str) -> dict[str, Expanded]:
    """Return the plugins of every profile, per extension point.

    Raises:
        ConfigError: when a profile cannot be built, with the file's name and the nearest plugin names.
    """
    missing = IN_TREE.keys() - registry.keys()
    try:
        return expand_profiles(config, registry.capabilities(), known_missing=missing)
    except ConfigError as error:
        unknown = re.search(r'"([^"]+)" does not exist', str(error))
        details = list(error.details)
        if unknown is not None:
            near = difflib.get_close_matches(unknown[1], registry, n=1)
            hint = (
                f"did you mean {near[0]}?" if near else "load its module with --plugin-module, or install its package"
            )
            if unknown[1] in older().plugins:
                hint = "it is retired: give --plugin-module kubesched.retired.plugins, or the file of an older version"
            details += [f"no plugin is named {unknown[1]}; {hint}", *registry.problems]
        raise ConfigError(error.stage, error.errors, details=details, source=path) from error

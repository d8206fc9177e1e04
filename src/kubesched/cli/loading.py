"""Registry and configuration for commands: in-tree plugins, installed ones, modules, and a KubeSchedulerConfiguration."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

from kubesched.api.kinds import NODES
from kubesched.cluster.files import ManifestError, load_manifests
from kubesched.config import (
    API_VERSION,
    IN_TREE,
    KIND,
    ConfigError,
    KubeSchedulerConfiguration,
    expand_profiles,
    load_config_data,
)
from kubesched.config.legacy import LoadOptions, load_any_file
from kubesched.config.profiles import Expanded
from kubesched.framework.registry import PluginError, Registry
from kubesched.plugins import in_tree_registry, retired
from kubesched.simulate.intake import check_devices

__all__ = ["expand", "load_configuration", "load_node_template", "load_registry", "with_plugins"]


def load_registry(modules: Sequence[str] = ()) -> tuple[Registry, list[str]]:
    """Every plugin there is, and the names of those that the given modules brought.

    Raises:
        PluginError: when one cannot be imported or does not fit.
    """
    registry = in_tree_registry()
    registry.load_entry_points()
    own: list[str] = []
    for module in modules:
        try:
            own += [plugin.name for plugin in registry.load_module(module)]  # type: ignore[attr-defined]
        except SystemExit as error:
            raise PluginError(f"plugin module {module} ended the program while it was imported") from error
    return registry, own


def with_plugins(names: Sequence[str]) -> KubeSchedulerConfiguration:
    """The default configuration with more plugins enabled, at every point they extend."""
    enabled = [{"name": name} for name in names]
    profile = {"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": enabled}}}
    return load_config_data({"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]})


def load_configuration(
    path: str | None, registry: Registry, own: Sequence[str]
) -> tuple[KubeSchedulerConfiguration, list[str]]:
    """The configuration a command runs with, and remarks about it; its profiles can be built from the registry.

    A file of an older version is converted; the retired plugins it uses are added to the registry.

    Raises:
        ConfigError: when the file cannot be used.
    """
    if path is None:
        return with_plugins(own), []
    loaded = load_any_file(path, LoadOptions(unavailable=IN_TREE.keys() - registry.keys(), keep_limits=True))
    config = loaded.config
    retired.register(registry, loaded.retired)
    expand(config, registry, path)
    used = {name for profile in config.profiles for name in profile.plugins.enabled_names()}
    unused = [name for name in own if name not in used]
    remarks = [f"plugin {name} was loaded, but no profile of {path} enables it" for name in unused]
    return config, [*loaded.warnings, *remarks]


def load_node_template(path: str) -> dict[str, Any]:
    """The first Node of a file; its name is not used.

    Raises:
        ManifestError: when there is none, or when the devices it is annotated with cannot be read.
    """
    nodes = [item for item in load_manifests([path]).objects if item.kind == NODES]
    if not nodes:
        raise ManifestError(f"{path}: holds no Node; a template is a manifest of kind Node")
    check_devices(nodes[:1])
    return nodes[0].data


def expand(config: KubeSchedulerConfiguration, registry: Registry, path: str) -> dict[str, Expanded]:
    """The plugins of every profile, per extension point.

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
            if unknown[1] in retired.RETIRED:
                hint = "it is retired: give --plugin-module kubesched.plugins.retired, or the file of an older version"
            details.append(f"no plugin is named {unknown[1]}; {hint}")
        raise ConfigError(error.stage, error.errors, details=details, source=path) from error

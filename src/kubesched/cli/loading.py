"""Plugins and configuration for commands: :mod:`kubesched.scheduler.loading`, with remarks on stderr.

Output of plugins goes to stderr, so that it does not mix with output of commands.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import sys
from collections.abc import Sequence
from typing import NamedTuple

from kubesched.scheduler import loading
from kubesched.scheduler.config import FeatureGateError, FeatureGates, KubeSchedulerConfiguration
from kubesched.scheduler.framework.registry import Registry

from .console import warn
from .errors import CliError

__all__ = ["Setup", "load_gates", "load_registry", "load_setup"]


def load_registry(modules: Sequence[str] = ()) -> tuple[Registry, list[str]]:
    """Load all plugins. Return their registry, and the names of those that the given modules added.

    Raises:
        PluginError: if a module cannot be imported or one of its plugins does not fit.
    """
    with contextlib.redirect_stdout(sys.stderr):
        registry, own = loading.load_registry(modules)
    for problem in registry.problems:
        warn(problem)
    return registry, own


class Setup(NamedTuple):
    """Plugins and configuration that a command works with, and remarks about them."""

    registry: Registry
    config: KubeSchedulerConfiguration
    gates: FeatureGates
    remarks: list[str]


def load_setup(options: argparse.Namespace, path: str | None, *, remark_unused: bool = True) -> Setup:
    """Load what ``--feature-gates`` (where there is one), ``--plugin-module``, ``--enable-plugin`` and a file say.

    ``path`` is the file of the configuration; None for the default.

    Raises:
        CliError, PluginError, ConfigError: if one of them cannot be used.
    """
    gates = load_gates(options)
    registry, own = load_registry(options.plugin_module)
    for name in options.enable_plugin:
        if name not in registry:
            near = difflib.get_close_matches(name, registry, n=1)
            hint = (
                f"did you mean {near[0]}?" if near else "load its module with --plugin-module, or install its package"
            )
            raise CliError("\n".join((f"--enable-plugin {name}: no plugin has this name; {hint}", *registry.problems)))
    named = own if remark_unused or path is None else []
    config, remarks = loading.load_configuration(path, registry, named, enable=options.enable_plugin, gates=gates)
    return Setup(registry, config, gates, remarks)


def load_gates(options: argparse.Namespace) -> FeatureGates:
    """Return the feature gates of ``--feature-gates``, where a command has it.

    Raises:
        CliError: if they cannot be used.
    """
    try:
        return FeatureGates.parse(*getattr(options, "feature_gates", ()))
    except FeatureGateError as error:
        raise CliError(f"--feature-gates: {error}") from None

"""Plugins for commands: what :mod:`kubesched.simulate.loading` loads, with remarks on stderr about what it could not."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.framework.registry import Registry
from kubesched.simulate import loading

from .console import warn

__all__ = ["load_registry"]


def load_registry(modules: Sequence[str] = ()) -> tuple[Registry, list[str]]:
    """Every plugin there is, and the names of those that the given modules brought.

    Raises:
        PluginError: when a module cannot be imported or a plugin of it does not fit.
    """
    registry, own = loading.load_registry(modules)
    for problem in registry.problems:
        warn(problem)
    return registry, own

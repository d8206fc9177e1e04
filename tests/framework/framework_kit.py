"""A profile of plugins made on the spot, for one extension point at a time."""

from __future__ import annotations

import random
from typing import Any

from builders import a_node
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.core.handle import Backends, ProfileHandle
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.framework.points import POINTS, capabilities
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes import NodeList


class StillClock:
    def now(self) -> float:
        return 0.0


def make_plugin(plugin_name: str, **members: Any) -> type:
    """A plugin class with these methods."""
    return type(plugin_name, (), {"name": plugin_name, "__init__": lambda self, args, handle: None, **members})


def say(value: Any) -> Any:
    """A method that answers ``value``, whatever it is asked; it raises exceptions."""

    def method(*args: Any) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    return method


def profile(*plugins: type, args: dict[str, Any] | None = None) -> Framework:
    """A framework with these plugins, in this order at every point they extend."""
    cache = Cache()
    for name in ("n1", "n2", "n3"):
        cache.set_node(a_node(name))
    backends = Backends(StillClock(), random.Random(0), cache.snapshot())
    points = {
        point.key: [(plugin.name, 1) for plugin in plugins if point.key in capabilities(plugin)]  # type: ignore[attr-defined]
        for point in POINTS
    }
    registry: dict[str, Any] = {plugin.name: plugin for plugin in plugins}  # type: ignore[attr-defined]
    handle = ProfileHandle("default-scheduler", backends)
    given = args or {}
    return Framework("default-scheduler", points, registry, given.get, handle, SchedulerMetrics())


def nodes() -> NodeList:
    """Three nodes for plugins that do not read them."""
    cache = Cache()
    for name in ("n1", "n2", "n3"):
        cache.set_node(a_node(name))
    return cache.snapshot().nodes()


def shown(status: Status | None) -> tuple[str, str, str]:
    """(code, message, plugin)."""
    return ("Success", "", "") if status is None else (status.code.label, status.message(), status.plugin)

"""Who is asked about a pod: which plugins of a profile signed it, and what is left for those that did not.

One per pattern of signatures, made once. Used by :mod:`.search`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kubesched.framework.entries import PluginFailedError, failed
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.runtime import Framework

__all__ = ["Plan"]


class Plan:
    """Which plugins of a profile signed, for one pattern of answers."""

    def __init__(self, framework: Framework, signed: frozenset[str]) -> None:
        self.signed = signed
        self.signed_filters = tuple(entry for entry in framework.filters if entry.name in signed)
        self.unsigned_filters = tuple(entry for entry in framework.filters if entry.name not in signed)
        self.has_expensive_scores = any(entry.expensive for entry in framework.scores)
        self.signed_scores = tuple(
            entry for entry in framework.scores if entry.name in signed and not entry.has_own_normalize
        )
        self.unsigned_scores = tuple(entry for entry in framework.scores if entry not in self.signed_scores)
        #: PreFilter and PreScore plugins to ask on every attempt.
        self.pre_filters = frozenset(name for name, _ in framework.points["preFilter"] if name not in signed)
        in_lane = signed - {entry.name for entry in self.unsigned_scores}
        self.unsigned_names = frozenset(name for name, _ in framework.points["preScore"] if name not in in_lane)
        names = {entry.name: None for entry in (*self.unsigned_filters, *self.unsigned_scores)}
        names.update(dict.fromkeys((*self.pre_filters, *self.unsigned_names)))
        plugins = [framework.plugins[name] for name in names]
        #: Skipping, and catching up, is for plugins whose Filter and Score follow their PreFilter and PreScore. One that
        #: a profile has at the later point only is called, and may fail for the lack of its state.
        prepared = not any(_lacks_preparation(framework, plugin) for plugin in plugins)
        #: Their ``skips``; empty when there are none, or one of them lacks it.
        skipping = prepared and all(hasattr(plugin, "skips") for plugin in plugins)
        self._skips = tuple(plugin.skips for plugin in plugins) if skipping else ()
        filtering = [entry.plugin for entry in self.unsigned_filters]
        scoring = [entry.plugin for entry in self.unsigned_scores]
        #: Whether all of them offer what an overlay needs.
        self.can_relate = bool(plugins) and (
            prepared
            and all(hasattr(plugin, "relation") for plugin in plugins)
            and all(hasattr(plugin, "catch_up_filter") for plugin in filtering)
            and all(hasattr(plugin, "catch_up_scores") and hasattr(plugin, "normalize_within") for plugin in scoring)
        )
        self._plugins = tuple(plugins)
        #: Whom an overlay asks which rows to look at again.
        self.filters_to_catch_up = tuple(
            plugin
            for plugin in plugins
            if hasattr(plugin, "catch_up_filter") and (plugin in filtering or plugin.name in self.pre_filters)
        )
        self.scores_to_catch_up = tuple(
            plugin
            for plugin in plugins
            if hasattr(plugin, "catch_up_scores") and (plugin in scoring or plugin.name in self.unsigned_names)
        )
        self.skipped = frozenset(names)

    def relation(self, pod: PodInfo) -> tuple[Hashable, ...] | None:
        """What the plugins that did not sign need to know of a pod; None when one of them cannot say.

        Raises:
            PluginFailedError: when one of them fails.
        """
        found = []
        for plugin in self._plugins:
            try:
                relation = plugin.relation(pod)
                hash(relation)
            except Exception as error:
                raise PluginFailedError(plugin.name, failed("running PreFilter plugin", plugin.name, error)) from error
            if relation is None:
                return None
            found.append(relation)
        return tuple(found)

    def nobody_else_cares(self, pod: PodInfo) -> bool:
        """Whether every plugin that did not sign says of itself that it has nothing to do for the pod.

        Raises:
            PluginFailedError: when one of them fails.
        """
        for place, skips in enumerate(self._skips):
            try:
                if not skips(pod):
                    return False
            except Exception as error:
                name = self._plugins[place].name
                raise PluginFailedError(name, failed("running PreFilter plugin", name, error)) from error
        return bool(self._skips)


def _lacks_preparation(framework: Framework, plugin: Any) -> bool:
    """Whether the profile has the plugin at Filter without its PreFilter, or at Score without its PreScore."""
    at = {point: {name for name, _ in plugins} for point, plugins in framework.points.items()}
    return any(
        hasattr(plugin, method) and plugin.name in at[later] - at[earlier]
        for method, earlier, later in (("pre_filter", "preFilter", "filter"), ("pre_score", "preScore", "score"))
    )

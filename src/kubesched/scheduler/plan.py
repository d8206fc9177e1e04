"""Which layer evaluates which plugin, for pods that the same plugins signed.

One plan per pattern of signatures, made once. Used by :mod:`.search`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

from kubesched.cache.nominated_rows import NominatedPods
from kubesched.framework.changed_rows import ChangedRows
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.entries import FilterEntry, PluginFailedError, failed
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.runtime import Framework

__all__ = ["PRE_FILTER_FAILED", "Plan", "Share"]

#: How the text of a failure before Filter begins.
PRE_FILTER_FAILED: Final = "running PreFilter plugin"


class Share:
    """The plugins of a profile that one layer evaluates.

    Attributes:
        filters, scores: entries, in the profile's order.
        pre_filters, pre_scores: names of those to call at PreFilter and PreScore.
        plugins: all of them, each once.
        view: the nominated pods that the layer counts, None unless it is a nomination layer.
    """

    view: NominatedPods | None = None
    #: Of a signature layer, by plugin, the methods by which the question of the current pod may take the place of the kept one.
    follow: tuple[tuple[str, Callable[[CycleState, PodInfo], object]], ...] = ()

    def __init__(self, framework: Framework, at_filter: frozenset[str], at_score: frozenset[str]) -> None:
        self.filters = tuple(entry for entry in framework.filters if entry.name in at_filter)
        self.scores = tuple(entry for entry in framework.scores if entry.name in at_score)
        self.pre_filters = frozenset(name for name, _ in framework.points["preFilter"] if name in at_filter)
        self.pre_scores = frozenset(name for name, _ in framework.points["preScore"] if name in at_score)
        filtering = self.pre_filters.union(entry.name for entry in self.filters)
        scoring = self.pre_scores.union(entry.name for entry in self.scores)
        self.names = filtering | scoring
        self.plugins: tuple[Any, ...] = tuple(framework.answering[name] for name in sorted(self.names))
        self.refresh_filter = self._offered("refresh_filter", filtering)
        self.refresh_scores = self._offered("refresh_scores", scoring)

    def _offered(self, method: str, names: frozenset[str]) -> list[ChangedRows]:
        plugins = (plugin for plugin in self.plugins if plugin.name in names)
        return [ChangedRows(plugin, method) for plugin in plugins if hasattr(plugin, method)]


class Plan:
    """The shares of the layers, for one pattern of signatures.

    Attributes:
        framework: the profile's plugins.
        signed: what the signature layer evaluates: the plugins that signed the pod, without scores that are only
            normalised all together.
        unsigned: everything else: what an interaction layer evaluates, or a full scan.
        can_interact: whether all unsigned plugins offer what an interaction layer needs.
    """

    def __init__(self, framework: Framework, signed: frozenset[str], absent: frozenset[str] = frozenset()) -> None:
        """``absent``: those of the ``signed`` plugins that have nothing to do for the pods; their points are skipped."""
        self.framework = framework
        scored = signed - ({entry.name for entry in framework.scores if entry.needs_all} - absent)
        names = frozenset(framework.plugins)
        self.signed = Share(framework, signed, scored)
        asking = (framework.answering[name] for name in sorted(signed - absent))
        self.signed.follow = tuple(
            (each.name, each.follow_question) for each in asking if hasattr(each, "follow_question")
        )
        self.unsigned = unsigned = Share(framework, names - signed, names - scored)
        plugins = unsigned.plugins
        #: Skipping and interaction layers are for plugins whose Filter and Score follow their PreFilter and PreScore. One
        #: that a profile has at the later point only is called, and may fail for the lack of its state.
        prepared = not any(_lacks_preparation(framework, plugin) for plugin in plugins)
        skipping = prepared and all(hasattr(plugin, "skips") for plugin in plugins)
        #: Their ``skips``; None when one of them lacks it.
        self._skips = tuple((plugin.name, plugin.skips) for plugin in plugins) if skipping else None
        self.can_interact = (
            prepared
            and all(hasattr(plugin, "interaction_key") for plugin in plugins)
            and all(hasattr(entry.plugin, "refresh_filter") for entry in unsigned.filters)
            and all(
                hasattr(entry.plugin, "refresh_scores") and not entry.needs_all and not entry.is_plain
                for entry in unsigned.scores
            )
        )

        self._keys = tuple((plugin.name, plugin.interaction_key) for plugin in plugins) if self.can_interact else ()
        #: Names of plugins to skip, and the same with those of ``unsigned``.
        self._skipping: dict[frozenset[str], frozenset[str]] = {}
        failing = [entry.index for entry in unsigned.filters if getattr(entry.plugin, "may_fail", False)]
        #: The place of the first unsigned filter that may fail for a node, None without any.
        self._first_failing = min(failing, default=None)

    def follows(self, filters: Iterable[FilterEntry]) -> bool:
        """Whether no filter comes after an unsigned one that may fail.

        An interaction layer calls no filter for nodes that its base rejects, whatever their order.
        """
        first = self._first_failing
        return first is None or all(entry.index < first for entry in filters)

    def interaction_key(self, pod: PodInfo) -> tuple[Hashable, ...] | None:
        """What the unsigned plugins' answers depend on of a pod, if they ``can_interact``; None when one gives no signature.

        Raises:
            PluginFailedError: when one of them fails.
        """
        found: list[Hashable] = []
        for name, key_of in self._keys:
            try:
                key = key_of(pod)
                hash(key)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise PluginFailedError(name, failed(PRE_FILTER_FAILED, name, error)) from error
            if key is None:
                return None
            found.append(key)
        return tuple(found)

    def skipping(self, names: frozenset[str]) -> frozenset[str]:
        """These names and those of the unsigned plugins."""
        found = self._skipping.get(names)
        if found is None:
            found = self._skipping[names] = names | self.unsigned.names
        return found

    def all_skip(self, pod: PodInfo) -> bool:
        """Whether every unsigned plugin has nothing to do for the pod.

        Raises:
            PluginFailedError: when one of them fails.
        """
        if self._skips is None:
            return False
        for name, skips in self._skips:
            try:
                if not skips(pod):
                    return False
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise PluginFailedError(name, failed(PRE_FILTER_FAILED, name, error)) from error
        return True


def _lacks_preparation(framework: Framework, plugin: Any) -> bool:
    """Whether the profile has the plugin at Filter without its PreFilter, or at Score without its PreScore."""
    at = {point: {name for name, _ in plugins} for point, plugins in framework.points.items()}
    return any(
        hasattr(plugin, method) and plugin.name in at[later] - at[earlier]
        for method, earlier, later in (("pre_filter", "preFilter", "filter"), ("pre_score", "preScore", "score"))
    )

"""Who is asked about a pod: which plugins of a profile signed it, and what is left for those that did not.

One per pattern of signatures, made once. Used by :mod:`.search`.
"""

from __future__ import annotations

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
        #: Their ``skips``; empty when there are none, or one of them lacks it.
        self._skips = tuple(plugin.skips for plugin in plugins) if all(hasattr(p, "skips") for p in plugins) else ()
        self._names = tuple(names)
        self.skipped = frozenset(names)

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
                name = self._names[place]
                raise PluginFailedError(name, failed("running PreFilter plugin", name, error)) from error
        return bool(self._skips)

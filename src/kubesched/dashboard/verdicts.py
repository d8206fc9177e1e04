"""Verdict on each node for one pod, by the scheduler's own search: the reason against it, or its scores."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from kubesched.api.types import Pod
from kubesched.base.turns import Steps
from kubesched.explain.placed import taken_off
from kubesched.explain.scores import score_table
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.columns import IntArray
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.scheduler import Scheduler

from .schema import ScoreColumn, VerdictReason, Verdicts
from .source import Refused

__all__ = ["finding_verdicts"]

#: Most reasons that are told apart; the last one stands for all others.
_MOST_REASONS: Final = 200
_FITS: Final = -1
_FREE: Final = -2
#: Plugins that left nodes out at PreFilter, in the reason for that.
_LEFT_OUT_BY: Final = re.compile(r"plugin\(s\) \[([\w ,]+)\]$")


def finding_verdicts(scheduler: Scheduler, pod: Pod) -> Steps[Verdicts]:
    """Return the verdicts for a pod as if it were placed now; a pod with a node is taken off it for that.

    Raises:
        Refused: when no profile is for the pod, or a plugin fails.
    """
    profile = scheduler.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        known = ", ".join(scheduler.profiles)
        raise Refused(
            409, f'no profile is named "{pod.spec.scheduler_name}" (there is {known}); another scheduler decides'
        )
    table, now = scheduler.cache.table, scheduler.clock.now()
    alive = table.alive.copy()
    width = int(alive.nonzero()[0].max(initial=-1)) + 1
    try:
        with taken_off(profile.search, PodInfo(pod)) as (bare, node), profile.search.aside():
            found = score_table(profile.framework, profile.search, bare)
    except PluginFailedError as error:
        raise Refused(500, f"the verdicts cannot be evaluated: {error}") from None
    reasons = _Reasons()
    statuses = found.diagnosis.statuses if isinstance(found, Rejection) else found.statuses
    told = len(statuses) + (0 if isinstance(found, Rejection) else len(found.rows))
    places = np.full(len(alive), reasons.place(statuses.absent) if told < len(table) else _FITS, np.int64)
    for status, rows in statuses.by_row():
        places[rows] = reasons.place(status)
    scores = []
    if not isinstance(found, Rejection):
        places[found.rows] = _FITS
        for plugin, weight in found.weights.items():
            yield
            column = np.zeros(len(alive), np.int64)
            column[found.rows] = found.normalized[plugin] * weight
            scores.append(ScoreColumn(plugin=plugin, weight=weight, scores=column[:width].tolist()))
    verdict = np.where(alive, places, _FREE)[:width]
    yield
    return Verdicts(
        pod=pod.key,
        at=now,
        reasons=reasons.counted(verdict),
        verdict=verdict.tolist(),
        own=node.row if node is not None else None,
        scores=scores,
    )


class _Reasons:
    """Reasons by plugin and text, in the order in which they are met."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], int] = {}

    def place(self, status: Status) -> int:
        """Return the position of a status' first reason."""
        texts = status.reasons()
        text = texts[0] if texts else "the node was left out before the filters"
        plugins = _LEFT_OUT_BY.search(text) if not status.plugin else None
        key = plugins[1] if plugins is not None else status.plugin, text
        if key not in self._places and len(self._places) >= _MOST_REASONS - 1:
            key = "", "other reasons"
        return self._places.setdefault(key, len(self._places))

    def counted(self, verdict: IntArray) -> list[VerdictReason]:
        counts = np.bincount(verdict[verdict >= 0], minlength=len(self._places)).tolist()
        items = zip(self._places, counts, strict=True)
        return [VerdictReason(plugin=plugin, text=text, nodes=count) for (plugin, text), count in items]

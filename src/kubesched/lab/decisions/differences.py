"""Differences of a replay: a recorded decision, what another configuration decides in the same state, and why.

Caller: :mod:`.replay`.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
import numpy as np

from kubesched.explain.records.schema import Decided, Record
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.full_scan import Evaluation
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes import NodeTable

__all__ = ["Difference", "Kind", "difference"]

#: ``otherNode``: the recorded node fits and another one has a greater total. ``rejected``: the recorded node does not
#: fit, another one does. ``unschedulable``: no node fits any more. ``fits``: no node did, and one does now.
#: ``error``: the decision cannot be made.
Kind = Literal["otherNode", "rejected", "unschedulable", "fits", "error"]

#: Nodes of the new best total that are named.
_NAMED: Final = 5


class Difference(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Decision that would differ.

    Attributes:
        seq, at, pod: of the recorded decision; the pod as ``namespace/name``.
        kind: see :data:`Kind`.
        recorded: the recorded node, or "".
        now: nodes that would be chosen, each with the same chance; at most five are named.
        ties: their number.
        plugin: the plugin that rejects the recorded node now, or whose score decided.
        why: the reason in words.
        before: final scores, weighted, that were recorded, by node and plugin; only nodes near the top were.
        scores: such scores now, of the recorded node and of one that would be chosen.
    """

    seq: int
    at: float
    pod: str
    kind: Kind
    recorded: str = ""
    now: list[str] = []
    ties: int = 0
    plugin: str = ""
    why: str = ""
    before: dict[str, dict[str, int]] = {}
    scores: dict[str, dict[str, int]] = {}

    def remember(self, record: Record) -> None:
        """Take over the recorded scores of the nodes that matter."""
        nodes = {self.recorded, *self.now}
        self.before = {one.node: one.scores for one in record.top if one.node in nodes and one.scores}


def difference(decided: Decided, outcome: Evaluation | Rejection, table: NodeTable) -> Difference | None:
    """Return the difference between a recorded decision and the outcome in the same state; None if there is none.

    A recorded node that has the best total, alone or with others, is no difference.
    """
    found = Difference(seq=decided.seq, at=decided.at, pod=decided.key, kind="error", recorded=decided.node)
    if isinstance(outcome, Rejection):
        if not decided.node:
            return None
        status = outcome.diagnosis.statuses.get(decided.node)
        _reject(found, "unschedulable", status, outcome.message())
        return found
    best = _best(outcome)
    rows = outcome.feasible[best]
    names = [table.info(row).name for row in rows[:_NAMED].tolist()]
    row = table.row_of(decided.node) if decided.node else None
    if row is not None and row in rows.tolist():
        return None
    found.now, found.ties = names, len(rows)
    if not decided.node:
        found.kind, found.why = "fits", f"fits {len(outcome.feasible)} of {len(table)} nodes now"
        return found
    at = np.flatnonzero(outcome.feasible == row).tolist() if row is not None else []
    if not at:
        if row is None:
            found.kind, found.why = "rejected", f"node {decided.node} is not there"
        else:
            _reject(found, "rejected", outcome.statuses.get(decided.node), "")
        return found
    _compare(found, outcome, at[0], int(best[0]))
    return found


def _best(outcome: Evaluation) -> Any:
    """Return the places of the feasible rows with the greatest total; all of them when they were not scored."""
    totals = outcome.totals
    return np.arange(len(outcome.feasible)) if totals is None else np.flatnonzero(totals == totals.max())


def _reject(found: Difference, kind: Kind, status: Status, text: str) -> None:
    found.kind, found.plugin = kind, status.plugin
    reasons = ", ".join(status.reasons()) or text
    by = f" by {status.plugin}" if status.plugin else ""
    found.why = f"{found.recorded} is rejected{by}: {reasons}"
    if kind == "unschedulable":
        found.why += ", and no other node fits"


def _compare(found: Difference, outcome: Evaluation, mine: int, best: int) -> None:
    assert outcome.totals is not None
    names, scores = (found.recorded, found.now[0]), outcome.scores or {}
    for name, place in zip(names, (mine, best), strict=True):
        found.scores[name] = {plugin: int(values[place]) for plugin, values in scores.items()}
    gaps = {plugin: int(values[best] - values[mine]) for plugin, values in scores.items()}
    ordered = sorted(((plugin, gap) for plugin, gap in gaps.items() if gap), key=lambda pair: -pair[1])
    found.kind = "otherNode"
    found.plugin = ordered[0][0] if ordered else ""
    parts = ", ".join(f"{plugin} {gap:+d}" for plugin, gap in ordered)
    totals = int(outcome.totals[best]), int(outcome.totals[mine])
    found.why = f"{names[1]} has {totals[0]}, {names[0]} {totals[1]}: {parts}"

"""Best nodes of a decision with their scores by plugin, read from what the search has just decided by.

Caller: :mod:`.recorder`, before anything changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kubesched.scheduler.core.full_scan import Evaluation
from kubesched.scheduler.core.layers import Layer
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.nodes import NodeTable

__all__ = ["EXTENDERS", "Ranked", "ranked"]

#: Name under which the contributions of extenders are listed.
EXTENDERS = "extenders"

#: Names of the score plugins; the best nodes, the chosen one first, with final scores, which add up to the node's total;
#: number of nodes with the best total.
Ranked = tuple[tuple[str, ...], Sequence[tuple[str, tuple[int, ...]]], int]


def ranked(decision: Decision, table: NodeTable, most: int) -> Ranked:
    """Return the chosen node and the next best, together at most ``most``, and the number of nodes with the best total.

    Call it before the decision is acted on.
    """
    basis, chosen = decision.basis, decision.node
    if isinstance(basis, Layer):
        if decision.feasible > 1:
            return _by_layer(basis, chosen.row, table, most)
    elif basis is not None and basis.totals is not None:
        return _by_scan(basis, chosen.row, table, most)
    return (), ((chosen.name, ()),), 1


def _by_layer(layer: Layer, chosen: int, table: NodeTable, most: int) -> Ranked:
    ranking, infos = layer.ranking, table.infos
    rows = ranking.top(most)
    if rows[0] != chosen:
        if chosen in rows:
            rows.remove(chosen)
        else:
            del rows[-1]
        rows.insert(0, chosen)
    names, finals = layer.scores_at(rows)
    top = [(infos[row].name, scores) for row, scores in zip(rows, finals, strict=True)]  # type: ignore[union-attr]
    return names, top, ranking.ties


def _by_scan(found: Evaluation, chosen: int, table: NodeTable, most: int) -> Ranked:
    rows, totals = found.feasible, found.totals
    assert totals is not None
    best = totals.max()
    count = min(most, len(rows))
    at = np.argpartition(totals, -count)[-count:] if count < len(rows) else np.arange(len(rows))
    mine = int(np.flatnonzero(rows == chosen)[0])
    order = [mine, *(one for one in sorted(at.tolist(), key=lambda one: (-totals.item(one), one)) if one != mine)]
    at = np.array(order[:count], np.intp)
    scores: dict[str, list[int]] = {}
    if found.layer is not None:
        scores.update(found.layer.scores_among(rows[at], rows))
    scores.update((name, values[at].tolist()) for name, values in (found.scores or {}).items())
    sums = totals[at].tolist()
    by_node: list[tuple[int, ...]] = list(zip(*scores.values(), strict=True)) if scores else [()] * len(sums)
    others = [total - sum(mine) for total, mine in zip(sums, by_node, strict=True)]
    if any(others):
        scores[EXTENDERS] = others
        by_node = [(*mine, other) for mine, other in zip(by_node, others, strict=True)]
    top = [(table.info(row).name, scores) for row, scores in zip(rows[at].tolist(), by_node, strict=True)]
    return tuple(scores), top, int(np.count_nonzero(totals == best))

"""Node groups of a run as lines for people. Callers: :mod:`.report` and :mod:`.html_view`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubesched.base.lines import Line, table, title

from .durations import seconds
from .result import GroupUse, Scaling

__all__ = ["SCALING_HEAD", "scaling_cells", "scaling_lines", "scaling_text"]

#: Columns of :func:`scaling_cells`.
SCALING_HEAD: Final = ("GROUP", "NODES", "PEAK", "ADDED", "REMOVED", "INTERRUPTED", "NODE-HOURS", "PRICE", "COST")


def scaling_text(scaling: Scaling) -> str:
    """Return cost, hours, and the wait of pods for nodes, in one line."""
    text = f"cost {scaling.cost:,.2f} for {scaling.node_hours:,.1f} node-hours"
    wait = scaling.wait
    if wait is None:
        return f"{text}; no pod waited for a node"
    pods = "1 pod" if wait.count == 1 else f"{wait.count:,} pods"
    return (
        f"{text}; {pods} waited for a node: mean {seconds(wait.mean)}, p95 {seconds(wait.p95)}, max {seconds(wait.max)}"
    )


def scaling_lines(scaling: Scaling | None, width: int | None) -> list[Line]:
    """Return the groups as a table, and their cost; nothing for a run without node groups."""
    if scaling is None:
        return []
    cells = [scaling_cells(one) for one in scaling.groups]
    lines = title(f"Node groups (expander {','.join(scaling.expander)})")
    return [*lines, *table(SCALING_HEAD, cells, range(1, len(SCALING_HEAD)), width), Line(scaling_text(scaling))]


def scaling_cells(one: GroupUse) -> Sequence[str]:
    """Return a row about a group: its nodes at the end and at most, what came and went, hours, and cost."""
    counts = (one.nodes, one.peak, one.added, one.removed, one.interrupted)
    return (
        one.name,
        *(f"{count:,}" for count in counts),
        f"{one.node_hours:,.1f}",
        f"{one.price:,g}",
        f"{one.cost:,.2f}",
    )

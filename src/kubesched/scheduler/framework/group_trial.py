"""Trial of a pod group: the members are placed one after the other, to see whether the group fits.

The group cycle makes one trial per placement and hands it to every member's attempt as ``state.group``. Members that
fit are assumed on the live cache, so the next member sees them; afterwards all are given back, or all are kept.

During a trial a plugin must not write to the API and must not let waiting pods go: the trial may be undone.

Source: rules/groups §10.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..nodes.columns import RowArray

__all__ = ["GroupTrial"]


@dataclass(slots=True, eq=False)
class GroupTrial:
    """One trial of a pod group.

    Attributes:
        key: ``namespace/name`` of the group.
        rows: intp[n], rows of the nodes that members may be placed on; None for all nodes.
        simulated: True if preemption only tries what would happen: no PostFilter plugin is called.
        assumed: UIDs of the members that the trial has placed.
    """

    key: str
    rows: RowArray | None = None
    simulated: bool = False
    assumed: set[str] = field(default_factory=set)

"""State of a page that follows changes, as a program without any idea of scheduling would keep it."""

from __future__ import annotations

from typing import Any

from kubesched.dashboard.schema import Change, NodeColumns, State

__all__ = ["Page"]


class Page:
    """Nodes by row, from a state and the changes after it."""

    def __init__(self, state: State) -> None:
        self.version = state.version
        self.nodes = _rows(state.nodes)
        self.sample = state.sample

    def apply(self, change: Change) -> None:
        assert change.version == self.version + 1
        self.version = change.version
        for one in change.nodes:
            if not one.name:
                self.nodes.pop(one.row, None)
                continue
            self.nodes[one.row] = {
                "name": one.name,
                "allocatable": _without_zeros(one.allocatable),
                "requested": _without_zeros(one.requested),
                "labels": dict(one.labels),
                "taints": one.taints,
                "status": one.status,
            }
        for resource, amounts in change.requested.items():
            for row, amount in zip(change.rows, amounts, strict=True):
                requested = self.nodes[row]["requested"]
                requested[resource] = amount
                if not amount:
                    del requested[resource]
        self.sample = change.sample if change.sample is not None else self.sample


def _without_zeros(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


def _rows(columns: NodeColumns) -> dict[int, dict[str, Any]]:
    def text(values: list[str], index: int) -> str:
        return values[index] if index >= 0 else ""

    return {
        row: {
            "name": name,
            "allocatable": {one.name: one.allocatable[row] for one in columns.resources if one.allocatable[row]},
            "requested": {one.name: one.requested[row] for one in columns.resources if one.requested[row]},
            "labels": {one.key: one.values[one.index[row]] for one in columns.labels if one.index[row] >= 0},
            "taints": text(columns.taints.values, columns.taints.index[row]),
            "status": text(columns.status.values, columns.status.index[row]),
        }
        for row, name in enumerate(columns.names)
        if name
    }

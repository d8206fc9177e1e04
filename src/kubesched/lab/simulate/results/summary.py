"""Summary of a result in five lines, for ``repr``. Caller: :mod:`.views`."""

from __future__ import annotations

from typing import Final

from kubesched.scheduler.plugins.demands.words import counted

from .durations import seconds
from .result import Result
from .tables import TABLES

__all__ = ["summary"]

_LONGEST: Final = 150


def summary(result: Result) -> str:
    """Return what happened, when it ended, what is used, what is wrong, and where the details are; a line for each."""
    return "\n".join((_counts(result), _end(result), _use(result), _problems(result), _more()))


def _counts(result: Result) -> str:
    totals = result.totals
    optional = {
        "succeeded": totals.succeeded,
        "failed": totals.failed,
        "on failed nodes": totals.on_failed_nodes,
        "on missing nodes": totals.on_missing_nodes,
        "refused": totals.refused,
        "removed": totals.removed,
    }
    more = "".join(f", {count:,} {name}" for name, count in optional.items() if count)
    where = f"{counted(totals.nodes, 'node')}, {counted(totals.pods, 'pod')}"
    return f"SimulationResult: {where}: {totals.placed:,} placed, {totals.pending:,} pending{more}"


def _end(result: Result) -> str:
    text = f"ended after {seconds(result.virtual_seconds)} of virtual time ({result.stopped}), seed {result.seed}"
    wait = result.times.wait
    if wait is not None and wait.max:
        text += f"; wait until bound: mean {seconds(wait.mean)}, most {seconds(wait.max)}"
    return text


def _use(result: Result) -> str:
    parts = [
        f"{one.name} mean {one.utilisation:.0%}, peak {one.peak_utilisation:.0%}, goodput {one.goodput:.0%}"
        for one in result.times.resources
        if one.peak_utilisation and one.name not in ("pods", "ephemeral-storage")
    ]
    if result.scaling is not None:
        parts.insert(0, f"cost {result.scaling.cost:,.2f}, {result.scaling.node_hours:,.1f} node-hours")
    return _cut("utilisation: " + ("; ".join(parts) or "none"))


def _problems(result: Result) -> str:
    said = [*(one.text for one in result.errors), *(one.message for one in result.refused), *result.warnings]
    if result.pending:
        group = result.pending[0]
        return _cut(f"pending: {group.count:,} of {group.workload or group.pods[0]}: {group.message}")
    return _cut(f"remarks: {len(said):,}, the first: {said[0]}") if said else "nothing is pending, no remarks"


def _more() -> str:
    return f"tables for .table(name), .to_frame(name): {', '.join(TABLES)}; .plot(), .to_dict()"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"

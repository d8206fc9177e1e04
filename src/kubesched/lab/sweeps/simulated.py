"""Simulation as the run of a sweep: the arguments of ``kubesched.simulate``, and the figures of its result.

Caller: :mod:`.running`, in every worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kubesched.api.requests import PODS

from .plan import Scalar, SweepError

if TYPE_CHECKING:
    from ..simulate.results.result import Distribution, NodeUse, Result

__all__ = ["check_arguments", "figures_of", "simulated", "with_paths_from"]

#: Arguments that are paths, or lists of paths.
_PATHS: Final = frozenset(
    {"config", "events", "manifests", "node_groups", "node_template", "nodes", "plugins", "stages", "trace"}
)
#: Argument that contains other arguments.
_WORKLOAD: Final = "workload"


def simulated(*, workload: Any = None, **arguments: Any) -> dict[str, Scalar]:
    """Simulate, and return the figures of the result.

    ``arguments`` are those of ``kubesched.simulate``. ``workload`` contains arguments that vary together: further
    arguments by name, or manifests alone.

    Raises:
        SweepError: when an exception was raised inside the run, or pods were refused, because its figures would be
            wrong.
        Exception: any error of ``kubesched.simulate``.
    """
    from ..simulate.entry import simulate  # noqa: PLC0415 - not needed by sweeps of other functions

    result = simulate(**_together(workload, arguments))
    if result.errors:
        raise SweepError(result.errors[0].text)
    if result.refused:
        raise SweepError(f"{result.totals.refused} pods were refused; the first: {result.refused[0].message}")
    return figures_of(result)


def check_arguments(workload: Any = None, **arguments: Any) -> None:
    """Check that :func:`simulated` accepts the arguments, without calling it.

    Raises:
        SweepError: naming the argument.
    """
    from ..simulate.entry import (  # noqa: PLC0415 - not needed by sweeps of other functions
        Options,
        unknown_argument,
    )

    given = _together(workload, arguments)
    for name in given:
        if name != "manifests" and name not in Options.__annotations__:
            raise SweepError(unknown_argument(name, "workload"))
    if not given.get("manifests") and given.get("trace") is None:
        raise SweepError(
            "a simulation needs manifests, or a trace: give them by arguments, by the grid, or by a workload"
        )


def _together(workload: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    more = workload if isinstance(workload, Mapping) else {} if workload is None else {"manifests": workload}
    twice = sorted(more.keys() & arguments.keys())
    if twice:
        raise SweepError(f"argument {twice[0]} is given by itself and by the workload; expected one of the two")
    return {**arguments, **more}


def figures_of(result: Result) -> dict[str, Scalar]:
    """Return counts of pods, seconds of virtual time, and shares of resources from 0 to 1."""
    totals = result.totals
    figures: dict[str, Scalar] = {
        "stopped": result.stopped,
        "virtual_seconds": result.virtual_seconds,
        "nodes_in_use": sum(_has_pods(node) for node in result.nodes),
        "pods": totals.pods,
        "placed": totals.placed,
        "pending": totals.pending,
        "succeeded": totals.succeeded,
        "failed": totals.failed,
        "removed": totals.removed,
        "preemptions": len(result.preemptions),
        "attempts": totals.attempts,
        "makespan": result.times.makespan,
        **_spread("wait", result.times.wait),
        **_spread("turnaround", result.times.turnaround),
    }
    if result.scaling is not None:
        figures["cost"], figures["node_hours"] = result.scaling.cost, result.scaling.node_hours
        figures |= _spread("wait_for_node", result.scaling.wait)
        figures |= {f"node_hours {one.name}": one.node_hours for one in result.scaling.groups}
    for resource in result.resources:
        if resource.allocatable:
            figures[f"requested {resource.name}"] = round(resource.requested / resource.allocatable, 6)
    for share in result.times.resources:
        figures[f"utilisation {share.name}"] = share.utilisation
        figures[f"peak utilisation {share.name}"] = share.peak_utilisation
        figures[f"goodput {share.name}"] = share.goodput
        figures[f"fragmentation {share.name}"] = share.fragmentation
    return figures


def _has_pods(node: NodeUse) -> bool:
    return any(use.name == PODS and use.requested for use in node.resources)


def _spread(name: str, seconds: Distribution | None) -> dict[str, Scalar]:
    parts = ("mean", "p50", "p95", "max")
    return {f"{name}_{part}": None if seconds is None else getattr(seconds, part) for part in parts}


def with_paths_from(directory: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of :func:`simulated` with paths relative to ``directory`` replaced by paths from here."""
    return {
        name: with_paths_from(directory, value)
        if name == _WORKLOAD and isinstance(value, Mapping)
        else _path(directory, value)
        if name in _PATHS or name == _WORKLOAD
        else value
        for name, value in arguments.items()
    }


def _path(directory: Path, value: Any) -> Any:
    if isinstance(value, list):
        return [_path(directory, one) for one in value]
    if isinstance(value, str) and "\n" not in value and (directory / value).exists():
        return str(directory / value)
    return value

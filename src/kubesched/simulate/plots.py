"""Plots of a result with matplotlib: the cluster over time, the queue, waiting times, how full the nodes are.

matplotlib comes with the extra ``notebook`` and is imported when a plot is drawn. No global state of its is used, so
that plots work in any program and thread. Callers: :mod:`.views`, and the plots of sweeps.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from .result import Result

__all__ = ["PLOTS", "new_figure", "plot"]

#: Resources drawn when none are named: those of which something was requested, but these.
_QUIET: Final = frozenset({"pods", "ephemeral-storage"})
_PLACES: Final = ("active", "backoff", "unschedulable", "gated")
_BINS: Final = 20


def _named(result: Result, resource: str | None) -> list[str]:
    known = list(result.series.requested)
    if resource is not None:
        if resource not in known:
            raise ValueError(f"resource={resource!r}: the cluster has {', '.join(known) or 'none'}")
        return [resource]
    return [name for name in known if name not in _QUIET and any(result.series.requested[name])] or ["cpu"]


def _utilisation(result: Result, axes: Any, resource: str | None) -> None:
    times = result.series.times
    for name in _named(result, resource):
        pairs = zip(result.series.requested.get(name, ()), result.series.allocatable.get(name, ()), strict=True)
        shares = [100 * used / there if there else 0.0 for used, there in pairs]
        axes.step(times[: len(shares)], shares, where="post", label=name)
    axes.set(title="Requested of the cluster", ylabel="%", ylim=(0, 105))
    axes.legend(loc="best")


def _fragmentation(result: Result, axes: Any, resource: str | None) -> None:
    for name in _named(result, resource):
        shares = [100 * share for share in result.series.fragmentation.get(name, ())]
        axes.step(result.series.times[: len(shares)], shares, where="post", label=name)
    axes.set(title="Free but unusable for the pods of the run", ylabel="%", ylim=(0, 105))
    axes.legend(loc="best")


def _queue(result: Result, axes: Any, resource: str | None) -> None:
    series = result.series
    depths = {place: getattr(series, place) for place in _PLACES if any(getattr(series, place))}
    if depths:
        axes.stackplot(series.times, *depths.values(), labels=list(depths), step="post")
        axes.legend(loc="best")
    axes.set(title="Pods in the scheduling queue", ylabel="pods")


def _waits(result: Result, axes: Any, resource: str | None) -> None:
    waits = [pod.bound - pod.queued for pod in result.pods if pod.bound is not None and pod.queued is not None]
    if waits:
        axes.hist(waits, bins=_BINS)
    axes.set(title="Waiting time of the pods that were bound", ylabel="pods")


def _nodes(result: Result, axes: Any, resource: str | None) -> None:
    names = _named(result, resource)
    for name in names:
        shares = [
            100 * use.requested / use.allocatable
            for node in result.nodes
            for use in node.resources
            if use.name == name and use.allocatable
        ]
        axes.hist(shares, bins=_BINS, range=(0, 100), alpha=0.6 if len(names) > 1 else 1.0, label=name)
    axes.set(title="How full the nodes are at the end", xlabel="% requested", ylabel="nodes")
    axes.legend(loc="best")


#: Name to what draws it, and the label below.
PLOTS: Final[dict[str, tuple[Callable[[Result, Any, str | None], None], str]]] = {
    "utilisation": (_utilisation, "virtual seconds"),
    "queue": (_queue, "virtual seconds"),
    "fragmentation": (_fragmentation, "virtual seconds"),
    "waits": (_waits, "seconds"),
    "nodes": (_nodes, "% requested"),
}
#: What is drawn when no plot is named.
_OVERVIEW: Final = ("utilisation", "queue", "waits", "nodes")


def plot(result: Result, kind: str | None = None, *, resource: str | None = None, axes: Any = None) -> Any:
    """A figure with one plot of :data:`PLOTS`, or with an overview; into given ``axes``, these are returned.

    Raises:
        ValueError: when no plot or no resource has this name, or axes are given for an overview.
        ImportError: when matplotlib is not installed.
    """
    if kind is not None and kind not in PLOTS:
        raise ValueError(f"no plot is named {kind!r}; there are {', '.join(PLOTS)}")
    if axes is not None and kind is None:
        raise ValueError(f"axes take one plot; name one of {', '.join(PLOTS)}")
    if axes is not None and kind is not None:
        _draw(result, kind, axes, resource)
        return axes
    kinds = _OVERVIEW if kind is None else (kind,)
    figure = new_figure(len(kinds))
    for place, one in zip(figure.axes, kinds, strict=True):
        _draw(result, one, place, resource)
    return figure


def _draw(result: Result, kind: str, axes: Any, resource: str | None) -> None:
    draw, below = PLOTS[kind]
    draw(result, axes, resource)
    axes.set_xlabel(below)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)


def new_figure(plots: int) -> Any:
    """A figure that notebooks show by itself, with so many places for plots.

    Raises:
        ImportError: when matplotlib is not installed.
    """
    try:
        figures = import_module("matplotlib.figure")
        agg = import_module("matplotlib.backends.backend_agg")
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        text = "plots need matplotlib, which is not installed: pip install 'kubesched[notebook]'"
        raise ImportError(text) from None

    class Figure(figures.Figure):  # type: ignore[misc, name-defined]  # imported when it is needed
        def _repr_png_(self) -> bytes:
            picture = io.BytesIO()
            self.savefig(picture, format="png")
            return picture.getvalue()

    columns = 2 if plots > 1 else 1
    rows = -(-plots // columns)
    figure = Figure(figsize=(6 * columns, 3.2 * rows), layout="constrained")
    agg.FigureCanvasAgg(figure)
    figure.subplots(rows, columns)
    return figure

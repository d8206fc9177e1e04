"""Plots of a result with matplotlib: the cluster over time, the queue, waiting times, use of the nodes.

matplotlib comes with the extra ``notebook`` and is imported when a plot is drawn. Its global state is not used, so that
plots work in any program and thread. Callers: :mod:`.views`, and the plots of sweeps.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from kubesched.base.extras import MissingPackageError, how_to_install

from .result import Result
from .svg_charts import tick_step, time_unit

__all__ = ["PLOTS", "new_figure", "plot"]

#: Resources that are not drawn unless they are named, although pods request them.
_QUIET: Final = frozenset({"pods", "ephemeral-storage"})
_PLACES: Final = ("active", "backoff", "unschedulable", "gated")
_BINS: Final = 20
_LONGEST_LABEL: Final = 30


def _named(result: Result, resource: str | None) -> list[str]:
    known = list(result.series.requested)
    if resource is not None:
        if resource not in known:
            raise ValueError(f"resource={resource!r}: the cluster has {', '.join(known) or 'none'}")
        return [resource]
    return [name for name in known if name not in _QUIET and any(result.series.requested[name])] or ["cpu"]


def _over_time(result: Result, axes: Any, lines: Mapping[str, Sequence[float]], *, stacked: bool = False) -> None:
    """Draw values that hold until the next one.

    Values of a run that lasts a single moment are drawn over the whole width.
    """
    times = result.series.times or [0.0]
    begun = axes.dataLim.x1 if axes.has_data() else 0.0  # another run may be drawn there already
    lasts = times[-1] > 0
    at = times if lasts else [0.0, 1.0]
    drawn = {label: list(values) if lasts else [*values, *values[-1:]] for label, values in lines.items()}
    if stacked and drawn:
        axes.stackplot(at, *drawn.values(), labels=list(drawn), step="post")
    for label, values in drawn.items() if not stacked else ():
        axes.step(at[: len(values)], values, where="post", label=label)
    _seconds(axes, max(at[-1], begun), "virtual ")
    if not lasts and begun <= 0:
        axes.set(xlabel="at the start, after which nothing changed", xticks=[])


def _seconds(axes: Any, end: float, kind: str = "") -> None:
    """Set up an axis of seconds from 0 to ``end``, in the unit that fits."""
    unit, name = time_unit(end)
    ticker = import_module("matplotlib.ticker")
    axes.xaxis.set_major_locator(ticker.MultipleLocator(unit * tick_step(end / unit)))
    axes.xaxis.set_major_formatter(lambda value, position: f"{value / unit:g}")
    axes.set(xlabel=f"{kind}{name}", xlim=(0, end))


def _legend(axes: Any) -> None:
    """Draw the labels, cut where they are long, so that they do not cover the lines."""
    handles, labels = axes.get_legend_handles_labels()
    cut = [label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…" for label in labels]
    if cut:
        axes.legend(handles, cut, loc="best", fontsize="small" if len(cut) < 5 else "x-small", framealpha=0.6)


def _shares(result: Result, resource: str | None, of: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return percentages, by resource."""
    return {name: [100 * share for share in of.get(name, ())] for name in _named(result, resource)}


def _utilisation(result: Result, axes: Any, resource: str | None) -> None:
    series = result.series
    used = {
        name: [one / there if there else 0.0 for one, there in zip(values, series.allocatable[name], strict=True)]
        for name, values in series.requested.items()
    }
    _over_time(result, axes, _shares(result, resource, used))
    axes.set(title="Requested of the cluster", ylabel="%", ylim=(0, 105))
    _legend(axes)


def _fragmentation(result: Result, axes: Any, resource: str | None) -> None:
    _over_time(result, axes, _shares(result, resource, result.series.fragmentation))
    axes.set(title="Free but unusable for the pods of the run", ylabel="%", ylim=(0, 105))
    _legend(axes)


def _queue(result: Result, axes: Any, resource: str | None) -> None:
    series = result.series
    _over_time(
        result,
        axes,
        {place: getattr(series, place) for place in _PLACES if any(getattr(series, place))},
        stacked=True,
    )
    _counts(axes, "Pods in the scheduling queue", "pods", empty=not axes.collections)
    _legend(axes)


def _waits(result: Result, axes: Any, resource: str | None) -> None:
    waits = [pod.bound - pod.queued for pod in result.pods if pod.bound is not None and pod.queued is not None]
    most = max(waits, default=0.0)
    if waits:
        axes.hist(waits, bins=_BINS, range=(0, most or 1.0))
    _seconds(axes, most or 1.0)
    _counts(axes, "Waiting time of the pods that were bound", "pods", empty=not waits)


def _nodes(result: Result, axes: Any, resource: str | None) -> None:
    names = _named(result, resource)
    shares = [
        [
            100 * use.requested / use.allocatable
            for node in result.nodes
            for use in node.resources
            if use.name == name and use.allocatable
        ]
        for name in names
    ]
    axes.hist(shares, bins=_BINS // 2, range=(0, 100), label=names)
    axes.set_xlabel("% requested")
    _counts(axes, "How full the nodes are at the end", "nodes", empty=not result.nodes)
    _legend(axes)


def _node_groups(result: Result, axes: Any, resource: str | None) -> None:
    nodes = {name: values for name, values in result.series.nodes.items() if any(values)}
    _over_time(result, axes, nodes, stacked=True)
    _counts(axes, "Nodes of groups, ordered or there", "nodes", empty=not nodes)
    _legend(axes)


def _cost(result: Result, axes: Any, resource: str | None) -> None:
    _over_time(result, axes, {"cost": result.series.cost} if result.series.cost else {})
    axes.set(title="Cost of the node groups so far", ylabel="in the currency of the prices")


def _counts(axes: Any, title: str, of: str, *, empty: bool) -> None:
    """Set up an axis of whole numbers, with a word where there is nothing to count."""
    axes.set(title=title, ylabel=of)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter(lambda value, position: f"{value:,.0f}")
    if empty:
        axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", va="center", color="0.5")


#: Functions that draw a plot, by its name.
PLOTS: Final[dict[str, Callable[[Result, Any, str | None], None]]] = {
    "utilisation": _utilisation,
    "queue": _queue,
    "fragmentation": _fragmentation,
    "waits": _waits,
    "nodes": _nodes,
    "node_groups": _node_groups,
    "cost": _cost,
}
#: Plots of the overview, which is drawn when no plot is named.
_OVERVIEW: Final = ("utilisation", "queue", "waits", "nodes")
#: Plots that the overview has besides, for a run with node groups.
_OF_GROUPS: Final = ("node_groups", "cost")


def plot(result: Result, kind: str | None = None, *, resource: str | None = None, axes: Any = None) -> Any:
    """Return a figure with one plot of :data:`PLOTS` or with an overview; with ``axes``, draw there and return them.

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
    overview = _OVERVIEW if result.scaling is None else (*_OVERVIEW, *_OF_GROUPS)
    kinds = overview if kind is None else (kind,)
    figure = new_figure(len(kinds))
    for place, one in zip(figure.axes, kinds, strict=True):
        _draw(result, one, place, resource)
    return figure


def _draw(result: Result, kind: str, axes: Any, resource: str | None) -> None:
    PLOTS[kind](result, axes, resource)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)


def new_figure(plots: int) -> Any:
    """Return a figure that notebooks show by itself, with places for ``plots`` plots.

    Raises:
        ImportError: when matplotlib is not installed.
    """
    try:
        figures = import_module("matplotlib.figure")
        agg = import_module("matplotlib.backends.backend_agg")
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        text = f"plots need matplotlib, which is not installed: {how_to_install('notebook')}"
        raise MissingPackageError(text) from None

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

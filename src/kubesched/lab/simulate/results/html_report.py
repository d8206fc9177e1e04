"""Report of a result: one page of HTML with plots and tables. It loads no scripts, fonts or pictures from elsewhere.

Caller: ``kubesched simulate --report``.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

from .durations import seconds
from .html_view import html_of, html_table
from .result import Distribution, PodTimes, Result
from .svg_charts import histogram, step_chart

__all__ = ["notebook_view", "page_of", "render_html"]

#: Most pods listed in the page. Tables that can be saved have all of them.
_MOST_PODS: Final = 500
_QUIET: Final = frozenset({"pods", "ephemeral-storage"})
_STYLE: Final = """
body{font:14px/1.45 system-ui,sans-serif;max-width:1400px;margin:1.5em auto;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:1.8em}table{border-collapse:collapse;margin:.6em 0}
th,td{padding:.2em .8em .2em 0;text-align:left;border-bottom:1px solid #ddd;vertical-align:top}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1em}
svg{width:100%;height:auto}svg .t{font-weight:600;font-size:13px}svg .g{stroke:#e4e4e4}
svg text{font-size:11px;fill:#444}svg .y{text-anchor:end}svg .x{text-anchor:middle}
"""


def notebook_view(result: Result) -> str:
    """Return counts, tables, times and plots as a piece of HTML, for notebooks. All text is escaped."""
    style = "<style>.kubesched .plots{display:grid;grid-template-columns:repeat(2,minmax(300px,560px));gap:1em}"
    style += ".kubesched svg{width:100%;height:auto}.kubesched svg .g{stroke:#ccc}.kubesched svg text{font-size:11px;fill:currentColor}"
    style += ".kubesched svg .y{text-anchor:end}.kubesched svg .x{text-anchor:middle}</style>"
    plots = "".join(_plots(result)) if len(result.series.times) > 1 else ""
    return f'<div class="kubesched">{style}{html_of(result)}{_times(result)}<div class="plots">{plots}</div></div>'


def render_html(result: Result, title: str = "Simulation") -> str:
    """Return the page. All text is escaped."""
    content = "".join(
        (
            html_of(result),
            "<h2>Times</h2>",
            _times(result),
            '<h2>Over time</h2><div class="plots">',
            *_plots(result),
            "</div><h2>Pods</h2>",
            _pods(result.pods),
            f"<p>kubesched, seed {result.seed}</p>",
        )
    )
    return page_of(title, content)


def page_of(title: str, content: str) -> str:
    """Return a page with a title, which is escaped, and a content, which is HTML."""
    name = html.escape(title)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return "".join(
        (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body><h1>{name}</h1>',
            content,
            "</body></html>\n",
        )
    )


def _times(result: Result) -> str:
    times = result.times
    rows = [
        (
            label,
            f"{one.count:,}",
            *(seconds(value) for value in (one.mean, one.p50, one.p90, one.p95, one.p99, one.max)),
        )
        for label, one in _distributions(result)
    ]
    makespan = seconds(times.makespan) if times.makespan is not None else "no pod finished"
    parts = [f"<p>Makespan: {makespan}. Scheduling attempts: {result.totals.attempts:,}.</p>"]
    if rows:
        parts.append(html_table(("", "pods", "mean", "50 %", "90 %", "95 %", "99 %", "most"), rows))
    shares = [
        (one.name, *(f"{v:.1%}" for v in (one.utilisation, one.peak_utilisation, one.goodput, one.fragmentation)))
        for one in times.resources
        if one.peak_utilisation
    ]
    if shares:
        parts.append(html_table(("resource", "mean utilisation", "highest", "goodput", "mean fragmentation"), shares))
    return "".join(parts)


def _distributions(result: Result) -> Iterable[tuple[str, Distribution]]:
    times = result.times
    for label, one in (
        ("waiting in the queue until bound", times.wait),
        ("from creation to the end", times.turnaround),
        ("not bound at the end, waiting since", times.waiting),
    ):
        if one is not None:
            yield label, one


def _plots(result: Result) -> Iterable[str]:
    series = result.series
    names = [name for name, values in series.requested.items() if name not in _QUIET and any(values)]
    if names:
        shares = {
            name: [
                used / there if there else 0.0
                for used, there in zip(series.requested[name], series.allocatable[name], strict=True)
            ]
            for name in names
        }
        yield step_chart("Requested of the cluster", series.times, shares, percent=True)
        fragments = {name: series.fragmentation[name] for name in names}
        yield step_chart("Free, but unusable for the pods of the run", series.times, fragments, percent=True)
    if result.scaling is not None:
        yield step_chart("Nodes of groups, ordered or there", series.times, series.nodes)
        yield step_chart("Cost of the node groups so far", series.times, {"": series.cost})
    places = ("active", "backoff", "unschedulable", "gated")
    depths = {place: values for place in places if any(values := getattr(series, place))}
    yield step_chart("Pods in the scheduling queue", series.times, depths or {"active": series.active})
    yield step_chart("Pods on nodes", series.times, {"": series.on_nodes})
    waits = [pod.bound - pod.queued for pod in result.pods if pod.bound is not None and pod.queued is not None]
    if any(waits):
        yield histogram("Waiting times of pods that were bound", waits)


def _pods(pods: Sequence[PodTimes]) -> str:
    def at(value: float | None) -> str:
        return "" if value is None else seconds(value)

    rows = [
        (
            f"{pod.namespace}/{pod.name}",
            pod.workload,
            pod.node,
            pod.phase + (", preempted" if pod.preempted else ""),
            *(at(value) for value in (pod.created, pod.queued, pod.bound, pod.started, pod.finished)),
            str(pod.attempts),
        )
        for pod in pods[:_MOST_PODS]
    ]
    head = ("pod", "workload", "node", "phase", "created", "queued", "bound", "started", "finished", "attempts")
    more = f"<p>and {len(pods) - _MOST_PODS:,} more pods</p>" if len(pods) > _MOST_PODS else ""
    return (html_table(head, rows) if rows else "<p>There were none.</p>") + more

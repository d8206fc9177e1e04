"""Reference page of metrics, from their tables.

Caller: :mod:`.reference`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubesched.scheduler.framework import metrics as scheduler
from kubesched.scheduler.framework.metrics import MetricDef
from kubesched.scheduler.server import process_metrics, resources

__all__ = ["metrics_page"]

_HEAD: Final = """# Metrics

Names, labels and buckets are those of Kubernetes 1.36, so dashboards and alerts for kube-scheduler work. `/metrics` needs permission
to `get` that path. In the exposition each help text begins with the stability level.
"""
_SECTIONS: Final[tuple[tuple[str, str, tuple[MetricDef, ...]], ...]] = (
    (
        "Scheduler (`/metrics`)",
        "Metrics without labels are there from the start, others with their first value. A metric that names a feature gate is "
        "there if the gate is on.",
        scheduler.DEFINITIONS,
    ),
    (
        "Process (`/metrics`)",
        "The API client, the lease, feature gates, the metrics themselves, and the HTTPS server. Besides these there are the "
        "`process_*` and `python_*` families of the Prometheus client.",
        process_metrics.DEFINITIONS,
    ),
    (
        "Pod resources (`/metrics/resources`)",
        "Computed when read, from the pods' specifications. Only the leader shows them; another candidate answers with nothing.",
        resources.DEFINITIONS,
    ),
    (
        "Service level indicators (`/metrics/slis`)",
        "Written whenever a health check runs.",
        process_metrics.SLI_DEFINITIONS,
    ),
)
_DIFFERENCES: Final = """## Differences from kube-scheduler

* There are no `go_*`, `workqueue_*`, `rest_client_exec_plugin_*` and `rest_client_transport_*` families: this program has no Go
  runtime, no work queues, and one connection pool. Families of the API server library that do not concern scheduling are left out.
* Two counters whose names do not end in `_total` (`authenticated_user_requests`, `authentication_attempts`) are exposed as untyped.
* The exposition is text, with gzip if wanted; the protobuf format and native histograms are not offered.
* `cardinality_enforcement_unexpected_categorizations_total` counts label values that were replaced, not each write.
* `scheduler_plugin_evaluation_total` counts calls of plugins, for Filter and Score one per node. What a signature layer
  remembers is not counted, so that the numbers are far below kube-scheduler's.
* Gauges are kept by `DELETE /metrics`: they show the present state.
"""


def metrics_page(made: str) -> str:
    """Return the page; ``made`` says how it is made."""
    parts = [_HEAD, f"{made}\n"]
    for title, text, rows in _SECTIONS:
        parts.append(f"## {title}\n\n{text}\n\n{_table(rows)}")
    return "\n".join([*parts, _DIFFERENCES])


def _table(rows: Iterable[MetricDef]) -> str:
    lines = ["| name | type | labels | level | meaning |", "|---|---|---|---|---|"]
    for row in rows:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        meaning = row.help
        if row.buckets:
            meaning += f" Buckets: {_buckets(row.buckets)}."
        if row.gate:
            meaning += f" Gate: `{row.gate}`."
        lines.append(f"| `{row.full_name}` | {row.kind} | {labels} | {row.level} | {meaning} |")
    return "\n".join([*lines, ""])


def _buckets(bounds: tuple[float, ...]) -> str:
    if len(bounds) <= 8:
        return ", ".join(f"{bound:g}" for bound in bounds)
    return f"{len(bounds)} from {bounds[0]:g} to {bounds[-1]:g}"

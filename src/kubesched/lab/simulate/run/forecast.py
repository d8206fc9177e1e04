"""Forecast of a run from its input: about how many pods will be bound, and what they request. Caller: :mod:`.simulation`."""

from __future__ import annotations

from typing import Any, Final

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.kinds import CRON_JOBS, PODS
from kubesched.api.quantity import QuantityError
from kubesched.api.requests import pod_requests
from kubesched.api.types import Pod
from kubesched.cluster.files import Manifest

from ..inputs.intake import Intake, is_unplaced
from ..results.pod_times import amounts

__all__ = ["pods_to_come", "requests_of"]

#: Most pods, evenly spaced, from which the requests of a run's pods are sampled.
_SAMPLE: Final = 2_000


def _spec(item: Manifest) -> dict[str, Any]:
    """Return the spec of a workload; for a CronJob, the spec of its jobs."""
    spec: dict[str, Any] = item.data.get("spec") or {}
    if item.kind == CRON_JOBS:
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    return spec


def _count(item: Manifest) -> int:
    """Return the number of pods that a workload's spec asks for. The actual number may differ."""
    counts = [
        value for name in ("completions", "replicas", "parallelism") if (value := _spec(item).get(name)) is not None
    ]
    return int(counts[0]) if counts else 1


def pods_to_come(intake: Intake) -> int:
    """Return the approximate number of pods that will be bound."""
    driven = {item.data["metadata"].get("uid") for item in intake.driven}
    owners = (
        (item.data["metadata"].get("ownerReferences") or [{}]) for item in intake.everything() if is_unplaced(item)
    )
    bare = sum(owner[0].get("uid") not in driven for owner in owners)
    return bare + sum(_count(item) for item in intake.driven if item.kind != CRON_JOBS)


def requests_of(intake: Intake) -> tuple[list[dict[str, int]], list[int]]:
    """Return the requests of the run's pods, and the number of pods with each.

    All pods count, or a sample if there are many.
    """
    pods = [item for item in intake.everything() if item.kind == PODS]
    step = max(1, len(pods) // _SAMPLE)
    bodies = [(item.data, step) for item in pods[::step]]
    bodies += [(_spec(item).get("template") or {}, _count(item)) for item in intake.driven]
    found, counts = [], []
    for body, count in bodies:
        try:
            found.append(amounts(pod_requests(from_builtins(body, Pod))))
            counts.append(count)
        except (DecodeError, QuantityError):
            continue  # the store refuses such a pod
    return found, counts

"""Model of an upstream defect that is in the record: sums that change their operands.

Upstream keeps some quantities as a shared decimal: fractions with a binary suffix (``4.3Gi``) and numbers of 18 digits
or more. When such a quantity is a pod-level request and the pod has overhead for the same resource, every computation
of the pod's requests adds the overhead to the shared decimal once more, so the pod looks bigger each time. The number
of computations before Filter, and before Score, depends on how the recording ran.

We add overhead once. To compare such a record, the replay is repeated with the overhead counted up to eight times, and
at Score at least as often as at Filter. If a repetition agrees with the whole record, it explains the record. Vectors
without such a pod are never treated this way.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from kubesched.api.quantity import int_value, milli_value
from kubesched.api.requests import CPU, Resources
from kubesched.scheduler.nodes.podinfo import PodInfo

from .pods import Change

__all__ = ["drift_variants", "drifts"]

_MOST: Final = 8
_BINARY_FRACTION: Final = re.compile(r"^[+-]?[0-9]*\.[0-9]+[KMGTPE]i$")
_DIGITS: Final = 18


def drift_variants(pods: list[PodInfo]) -> list[tuple[Change, str]]:
    """Return the repetitions to try for these pods, fewest first, each with its explanation."""
    names = sorted({f"{pod.key} ({resource})" for pod in pods for resource in _drifting(pod)})
    if not names:
        return []
    counts = [(at_filter, at_score) for at_score in range(2, _MOST + 1) for at_filter in range(1, at_score + 1)]
    return [
        (
            partial(_drifted, at_filter=at_filter, at_score=at_score),
            f"decimal drift: upstream counted the overhead of {', '.join(names)} {at_filter} times at Filter and "
            f"{at_score} times at Score",
        )
        for at_filter, at_score in sorted(counts)
    ]


def drifts(pod: PodInfo) -> bool:
    """True if upstream changes the pod's requests by computing them."""
    return bool(_drifting(pod))


def _drifting(pod: PodInfo) -> list[str]:
    """Return the resources whose pod-level request is a shared decimal to which upstream adds overhead."""
    if pod.spec.resources is None:
        return []
    requests = pod.spec.resources.requests
    return [name for name, amount in requests.items() if name in pod.spec.overhead and _is_shared(str(amount))]


def _is_shared(quantity: str) -> bool:
    digits = re.match(r"^[+-]?([0-9]*)\.?([0-9]*)", quantity)
    many = digits is not None and sum(map(len, digits.groups())) >= _DIGITS
    return many or _BINARY_FRACTION.match(quantity) is not None


def _drifted(pod: PodInfo, *, at_filter: int, at_score: int) -> PodInfo:
    """Return the pod with its overhead added ``at_filter`` times for Filter and ``at_score`` times for Score.

    A pod that does not drift is returned itself.
    """
    names = _drifting(pod)
    if not names:
        return pod
    drifted = pod.with_pod(pod.pod)
    drifted._fit_requests = _with_overhead(pod, names, pod.fit_requests, at_filter - 1)
    drifted.requests = _with_overhead(pod, names, pod.requests, at_score - 1)
    return drifted


def _with_overhead(pod: PodInfo, names: list[str], requests: Resources, times: int) -> Resources:
    seen = Resources(
        requests.milli_cpu, requests.memory, requests.ephemeral_storage, requests.allowed_pods, dict(requests.scalars)
    )
    for name in names:
        overhead = pod.spec.overhead[name]
        if name == CPU:
            seen.milli_cpu += times * milli_value(overhead)
        elif name == "memory":
            seen.memory += times * int_value(overhead)
        else:
            seen.scalars[name] = seen.scalars.get(name, 0) + times * int_value(overhead)
    return seen

"""An upstream defect that is in the record: sums that change their operands.

Upstream keeps a quantity such as ``4.3Gi`` (a fraction with a binary suffix) as a shared decimal. When such
a quantity is a pod-level request and the pod has overhead for the same resource, every computation of the
pod's requests adds the overhead to the shared decimal once more, so the pod looks bigger each time a plugin
asks. How often that happened before a score was recorded depends on how the recording ran.

We add overhead once. To compare such a record at all, the replay repeats the attempt with the overhead
counted 2 to 8 times at scoring, and accepts a repetition that explains the whole record. Vectors without
such a pod are never treated this way.
"""

from __future__ import annotations

import re
from typing import Final

from kubesched.api.quantity import int_value
from kubesched.api.requests import Resources
from kubesched.framework.podinfo import PodInfo

__all__ = ["REPETITIONS", "drift", "drifts"]

REPETITIONS: Final = range(2, 9)
_SHARED_DECIMAL: Final = re.compile(r"^[0-9]*\.[0-9]+[KMGTPE]i$")


def _drifting(pod: PodInfo) -> list[str]:
    """Memory is the only pod-level resource that is written this way."""
    level = pod.spec.resources
    amount = level.requests.get("memory") if level is not None else None
    shared = isinstance(amount, str) and _SHARED_DECIMAL.match(amount) is not None
    return ["memory"] if shared and "memory" in pod.spec.overhead else []


def drifts(pods: list[PodInfo]) -> bool:
    """Whether the defect could show for any of these pods."""
    return any(_drifting(pod) for pod in pods)


def drift(pod: PodInfo, repetitions: int) -> None:
    """Let a pod look to Score as if its overhead had been added ``repetitions`` times."""
    if not _drifting(pod):
        return
    filtered = pod.fit_requests
    seen = Resources(filtered.milli_cpu, filtered.memory, filtered.ephemeral_storage, 0, dict(filtered.scalars))
    seen.memory += (repetitions - 1) * int_value(pod.spec.overhead["memory"])
    pod.requests = seen

"""Policies of a Job: which failures of pods count, which indexes have failed for good, and when it has succeeded early.

Rules: upstream ``pod_failure_policy.go``, ``success_policy.go``, ``backoff_utils.go`` and ``indexed_job_utils.go``.
Caller: :mod:`.jobs`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kubesched.api.selectors import parse_int64
from kubesched.api.wire import Item
from kubesched.base.times import parse_time

from .context import Data, data_of
from .indexes import Indexes

__all__ = ["FAILURES", "IGNORED", "FailedIndexes", "FailureRule", "failure_rule", "met_criteria"]

#: Annotations of a pod: how often its index has failed before, and how many failures of it were ignored.
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED: Final = "batch.kubernetes.io/job-index-ignored-failure-count"


class FailureRule(NamedTuple):
    """Rule of a pod failure policy that a failed pod matches: its action, and the text of a job's failure by it."""

    action: str
    text: str


def failure_rule(spec: Data, pod: Item) -> FailureRule | None:
    """Return the first rule of a job's spec that a failed pod matches."""
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    status = data_of(pod).get("status") or {} if rules else {}
    for number, rule in enumerate(rules):
        action, codes = str(rule.get("action", "")), rule.get("onExitCodes")
        end = f"matching {action} rule at index {number}"
        if codes:
            for container in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
                code = ((container.get("state") or {}).get("terminated") or {}).get("exitCode")
                is_named = codes.get("containerName") in (None, container.get("name"))
                if code and is_named and (code in (codes.get("values") or ())) is (codes.get("operator") == "In"):
                    name = container.get("name")
                    return FailureRule(action, f"Container {name} for pod {pod.key} failed with exit code {code} {end}")
        for wanted in rule.get("onPodConditions") or ():
            for one in status.get("conditions") or ():
                if one.get("type") == wanted.get("type") and one.get("status") == wanted.get("status", "True"):
                    return FailureRule(action, f"Pod {pod.key} has condition {one['type']} {end}")
    return None


def met_criteria(spec: Data, completed: Indexes) -> str:
    """Return the text about the first rule of a success policy that the completed indexes meet; empty if none does."""
    completions = int(spec.get("completions") or 0)
    for number, rule in enumerate((spec.get("successPolicy") or {}).get("rules") or ()):
        text, least = rule.get("succeededIndexes"), rule.get("succeededCount")
        chosen = Indexes([(0, completions - 1)]) if text is None else Indexes.parse(text, completions)
        if completed.common(chosen) >= (len(chosen) if least is None else int(least)):
            return f"Matched rules at index {number}"
    return ""


class FailedIndexes:
    """Failures of a job by index, of a job with ``backoffLimitPerIndex``.

    ``pods`` are the pods that have failed, each with its index.
    """

    def __init__(self, data: Data, pods: Iterable[tuple[int, Item]]) -> None:
        spec, status = data.get("spec") or {}, data.get("status") or {}
        limit = int(spec["backoffLimitPerIndex"])
        over: set[int] = set()
        #: Failures that count and failures that were ignored, and the time of the last one, by index.
        self._counts: dict[int, tuple[int, int, float]] = {}
        for index, pod in pods:
            annotations = pod.typed.metadata.annotations
            failures, ignored = (parse_int64(annotations.get(name, "0")) or 0 for name in (FAILURES, IGNORED))
            rule = failure_rule(spec, pod)
            action = rule.action if rule is not None else "Count"
            if action == "FailIndex" or (action != "Ignore" and failures >= limit):
                over.add(index)
            ended = failures + (action != "Ignore"), ignored + (action == "Ignore"), _ended(pod)
            self._counts[index] = max(ended, self._counts.get(index, ended))
        noted = Indexes.parse(status.get("failedIndexes") or "", int(spec.get("completions") or 0))
        #: Indexes that get no further pod.
        self.over = noted.union(over)

    def annotations(self, index: int) -> dict[str, str]:
        """Return the annotations of an index's next pod."""
        failures, ignored, _ = self._counts.get(index, (0, 0, 0.0))
        return {FAILURES: str(failures), **({IGNORED: str(ignored)} if ignored else {})}

    def last(self, index: int | None) -> tuple[int, float]:
        """Return the number of an index's failures, and the time of the last one in seconds since the epoch."""
        failures, ignored, ended = self._counts.get(index if index is not None else -1, (0, 0, 0.0))
        return failures + ignored, ended


def _ended(pod: Item) -> float:
    """Return the time at which the last container of a pod ended; 0 if it is unknown."""
    statuses = (data_of(pod).get("status") or {}).get("containerStatuses") or ()
    times = [((one.get("state") or {}).get("terminated") or {}).get("finishedAt") for one in statuses]
    return max((parse_time(time) for time in times if time), default=0.0)

"""Counts of compared, different and left-out records, of one vector and of a file.

A vector has **records** of several **kinds** (``filters``, ``scores``, ``message``, …: the names of the golden format).
Each record that a replay meets is counted once, as passed, failed or not compared; nothing is passed without a
comparison. Verdicts on whole vectors follow from these counts.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .wording import failed_plugin

__all__ = ["AreaResult", "Comparison", "Finding", "Verdict"]


class Verdict(enum.StrEnum):
    """Verdict on a vector as a whole."""

    #: Every record was compared and agrees.
    PASSED = "passed"
    #: All compared records agree; the rest is counted as not compared, with reasons.
    PARTLY = "partly"
    #: Nothing was compared.
    NOT_COMPARED = "not compared"
    FAILED = "failed"
    #: Agrees once a known defect of the recording is modelled (see :mod:`.decimals`).
    EXPLAINED = "explained"
    #: Agrees once a difference that ``docs/differences.md`` declares is undone (see :mod:`.declared`).
    DECLARED = "declared"


class Comparison:
    """Counts of one vector's records.

    Attributes:
        passed, failed: record kind to number of records.
        left: (record kind, reason) to number of records that were not compared.
        differences: readable lines, one for each failed record.
    """

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.left: Counter[tuple[str, str]] = Counter()
        self.differences: list[str] = []

    def check(self, kind: str, where: str, want: Any, got: Any) -> bool:
        """Compare one record; ``where`` names its vector. Returns True if it agrees."""
        if want == got:
            self.passed[kind] += 1
            return True
        self.fail(kind, f"{where}: expected {_short(want)}, got {_short(got)}")
        return False

    def check_error(self, kind: str, where: str, want: str, got: str, any_of: Set[str]) -> bool:
        """Compare two errors by extension point and plugin only. Any error in ``any_of`` counts as right."""
        wanted, given = failed_plugin(want), failed_plugin(got)
        return self.check(kind, where, wanted, wanted if {wanted, given} <= any_of else given)

    def fail(self, kind: str, difference: str) -> None:
        self.failed[kind] += 1
        self.differences.append(difference)

    def leave(self, kind: str, reason: str) -> None:
        """Count a record as not compared, with the reason."""
        self.left[kind, reason] += 1

    @property
    def verdict(self) -> Verdict:
        if self.differences:
            return Verdict.FAILED
        if not self.passed:
            return Verdict.NOT_COMPARED
        return Verdict.PARTLY if self.left else Verdict.PASSED


def _short(value: Any, limit: int = 400) -> str:
    text = msgspec.json.encode(value, order="sorted").decode()
    return text if len(text) <= limit else f"{text[:limit]}…"


@dataclass(frozen=True, slots=True)
class Finding:
    """Vector that a report names; ``lines`` are its differences, or the explanation."""

    vector: str
    lines: list[str]


@dataclass(slots=True)
class AreaResult:
    """Result of one golden file.

    Attributes:
        verdicts: number of vectors by verdict.
        kinds: record kind to counts under ``passed``, ``failed`` and ``not compared``.
        reasons: number of records that were not compared, by reason.
        failures, explained, declared: the vectors of these verdicts.
    """

    area: str
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[Finding] = field(default_factory=list)
    explained: list[Finding] = field(default_factory=list)
    declared: list[Finding] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.verdicts.total()

    def add(self, vector: str, comparison: Comparison, verdict: Verdict | None = None, why: str = "") -> None:
        """Count a vector. ``verdict`` and ``why`` are given when a variant of the replay agreed."""
        chosen = verdict if verdict is not None else comparison.verdict
        self.verdicts[chosen] += 1
        if chosen is Verdict.FAILED:
            self.failures.append(Finding(vector, comparison.differences))
        elif chosen is Verdict.EXPLAINED:
            self.explained.append(Finding(vector, [why]))
        elif chosen is Verdict.DECLARED:
            self.declared.append(Finding(vector, [why]))
        for kind, number in comparison.passed.items():
            self._of(kind)["passed"] += number
        for kind, number in comparison.failed.items():
            self._of(kind)["failed"] += number
        for (kind, reason), number in comparison.left.items():
            self._of(kind)["not compared"] += number
            self.reasons[reason] += number

    def _of(self, kind: str) -> Counter[str]:
        return self.kinds.setdefault(kind, Counter())

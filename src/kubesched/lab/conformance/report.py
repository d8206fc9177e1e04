"""Report of a conformance run: tables for people, JSON for programs. The columns: ``docs/conformance.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kubesched.base.large_json import large_json
from kubesched.base.lines import Line, columns

from .comparison import AreaResult, Finding, Verdict
from .coverage import FORMS, Coverage

__all__ = ["Report"]

_COUNTS: Final = ("passed", "failed", "not compared")
_BY_VECTOR: Final = (
    Verdict.PASSED,
    Verdict.PARTLY,
    Verdict.EXPLAINED,
    Verdict.DECLARED,
    Verdict.FAILED,
    Verdict.NOT_COMPARED,
)
_COMPARED: Final = frozenset({Verdict.PASSED, Verdict.PARTLY, Verdict.EXPLAINED, Verdict.DECLARED})


class Report:
    """Results of some golden files, and their coverage if it was watched."""

    def __init__(self, results: Sequence[AreaResult], coverage: Coverage | None = None) -> None:
        self._results = results
        self._coverage = coverage
        self._verdicts: Counter[Verdict] = Counter()
        self._kinds: dict[str, Counter[str]] = {}
        self._reasons: Counter[str] = Counter()
        for result in results:
            self._verdicts += result.verdicts
            self._reasons += result.reasons
            for kind, counts in result.kinds.items():
                self._kinds.setdefault(kind, Counter()).update(counts)

    @property
    def agrees(self) -> bool:
        """True if something was compared, and nothing failed."""
        return not self._verdicts[Verdict.FAILED] and any(self._verdicts[verdict] for verdict in _COMPARED)

    # -- JSON ------------------------------------------------------------------------------------------

    def as_json(self) -> str:
        """Return indented JSON with a newline at the end."""
        data: dict[str, Any] = {
            **_counts(self._verdicts),
            "total": self._verdicts.total(),
            "notComparedByReason": dict(sorted(self._reasons.items())),
            "records": _kinds(self._kinds),
            "areas": [_area(result) for result in self._results],
        }
        if self._coverage is not None:
            data["coverage"] = {
                "paths": dict(self._coverage.paths),
                "calls": [
                    {"point": point, "plugin": plugin, **counts}
                    for (point, plugin), counts in self._coverage.calls.items()
                ],
            }
        return large_json(data, indent=2).decode() + "\n"

    # -- tables ----------------------------------------------------------------------------------------

    def as_lines(self) -> list[Line]:
        """Return failures first, then the tables, each with totals in its last row."""
        lines: list[Line] = []
        for result in self._results:
            for failure in result.failures:
                lines.append(Line(f"{result.area}: {failure.vector}", "bad"))
                lines += [Line(f"  {text}") for text in failure.lines]
        if lines:
            lines.append(Line(""))
        lines += self._area_lines()
        lines += self._kind_lines()
        lines += self._reason_lines()
        lines += self._named("explained", [(result.area, result.explained) for result in self._results])
        lines += self._named("declared", [(result.area, result.declared) for result in self._results])
        if self._coverage is not None:
            lines += _coverage_lines(self._coverage)
        if not any(self._verdicts[verdict] for verdict in (*_COMPARED, Verdict.FAILED)):
            what = "the files are empty" if not self._verdicts.total() else "see the reasons above"
            lines.append(Line(f"nothing was compared: {what}", "bad"))
        return lines

    def _area_lines(self) -> list[Line]:
        head = ("AREA", "VECTORS", *(verdict.value.upper() for verdict in _BY_VECTOR))
        rows = [
            (result.area, f"{result.total:,}", *(f"{result.verdicts[verdict]:,}" for verdict in _BY_VECTOR))
            for result in self._results
        ]
        total = ("all", f"{self._verdicts.total():,}", *(f"{self._verdicts[verdict]:,}" for verdict in _BY_VECTOR))
        marks = ["bad" if result.failures else "" for result in self._results]
        return _table(head, [*rows, total], [*marks, "good" if self.agrees else "bad"])

    def _kind_lines(self) -> list[Line]:
        if not self._kinds:
            return []
        kinds = sorted(self._kinds.items())
        rows = [(kind, *(f"{counts[name]:,}" for name in _COUNTS)) for kind, counts in kinds]
        marks = ["bad" if counts["failed"] else "" for _, counts in kinds]
        return [Line(""), *_table(("RECORD", *(name.upper() for name in _COUNTS)), rows, marks)]

    def _reason_lines(self) -> list[Line]:
        if not self._reasons:
            return []
        rows = [(reason, f"{number:,}") for reason, number in self._reasons.most_common()]
        return [Line(""), *_table(("NOT COMPARED BECAUSE", "RECORDS"), rows, [""] * len(rows))]

    @staticmethod
    def _named(title: str, areas: Iterable[tuple[str, list[Finding]]]) -> list[Line]:
        lines = [Line(f"  {finding.vector}: {'; '.join(finding.lines)}") for _, found in areas for finding in found]
        return [Line(""), Line(title.upper(), "dim"), *lines] if lines else []


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], marks: Sequence[Any]) -> list[Line]:
    """Return aligned columns, numbers to the right; one mark per row."""
    texts = columns(head, rows, right=range(1, len(head)))
    return [Line(texts[0], "dim"), *(Line(text, mark) for text, mark in zip(texts[1:], marks, strict=True))]


def _coverage_lines(coverage: Coverage) -> list[Line]:
    paths = [(path, f"{number:,}") for path, number in coverage.paths.items()]
    calls = [
        (f"{point} {plugin}", *(f"{counts[form]:,}" for form in FORMS))
        for (point, plugin), counts in coverage.calls.items()
    ]
    lines = [Line(""), *_table(("PATH OF FIND", "ATTEMPTS"), paths, [_unused([number]) for _, number in paths])]
    if calls:
        head = ("CALLS DURING FIND", *(form.upper() for form in FORMS))
        lines += [Line(""), *_table(head, calls, [_unused(row[1:]) for row in calls])]
    return lines


def _unused(numbers: Sequence[str]) -> str:
    return "warn" if "0" in numbers else ""


def _counts(verdicts: Counter[Verdict]) -> dict[str, int]:
    return {_camel(verdict.value): verdicts[verdict] for verdict in _BY_VECTOR}


def _camel(words: str) -> str:
    first, *rest = words.split()
    return first + "".join(map(str.capitalize, rest))


def _kinds(kinds: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {kind: {_camel(name): counts[name] for name in _COUNTS} for kind, counts in sorted(kinds.items())}


def _area(result: AreaResult) -> dict[str, Any]:
    return {
        "area": result.area,
        **_counts(result.verdicts),
        "total": result.total,
        "records": _kinds(result.kinds),
        "failures": [{"vector": failure.vector, "differences": failure.lines} for failure in result.failures],
        "explainedVectors": _findings(result.explained),
        "declaredVectors": _findings(result.declared),
    }


def _findings(findings: list[Finding]) -> list[dict[str, str]]:
    return [{"vector": finding.vector, "why": "; ".join(finding.lines)} for finding in findings]

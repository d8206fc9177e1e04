"""Summaries of a sweep as lines of text. Caller: ``kubesched sweep``."""

from __future__ import annotations

from collections.abc import Sequence

from .plan import Scalar
from .summary import Summary

__all__ = ["summary_lines"]

_HEAD = ("figure", "runs", "mean", "95 % interval", "median", "least", "most")


def summary_lines(summaries: Sequence[Summary]) -> list[str]:
    """Return a header, and a line for each figure of each group. Columns are as wide as they need to be."""
    names = list(summaries[0].group) if summaries else []
    rows = [[*names, *_HEAD]]
    for one in summaries:
        interval = "-" if one.low is None or one.high is None else f"{_number(one.low)} to {_number(one.high)}"
        numbers = (_number(one.mean), interval, _number(one.median), _number(one.least), _number(one.most))
        rows.append([*(_text(one.group[name]) for name in names), one.figure, str(one.runs), *numbers])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    left = len(names) + 1
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4g}"


def _text(value: Scalar) -> str:
    return "-" if value is None else str(value)

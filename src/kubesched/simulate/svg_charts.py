"""Charts as SVG text, without any library: steps over time, and histograms. Caller: :mod:`.html_report`."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["histogram", "step_chart"]

_WIDTH: Final = 640
_HEIGHT: Final = 220
#: Margins around the plot.
_LEFT: Final = 56
_RIGHT: Final = 12
_TOP: Final = 28
_BOTTOM: Final = 30
#: Distinct also for the colour-blind (Okabe and Ito).
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_TICKS: Final = 5
#: Points of one line at most; more cannot be distinguished on a screen.
_MOST_POINTS: Final = 1_500


def _ticks(most: float) -> list[float]:
    """Round numbers from 0 to at least ``most``."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def _frame(
    title: str, below: str, ticks_x: Sequence[tuple[float, str]], ticks_y: Sequence[tuple[float, str]]
) -> list[str]:
    """Title and axes; positions are shares of the width and height."""
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(title)}">',
        f'<text x="{_LEFT}" y="16" class="t">{html.escape(title)}</text>',
    ]
    for share, text in ticks_y:
        y = _y(share)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="g"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="y">{html.escape(text)}</text>')
    for share, text in ticks_x:
        parts.append(f'<text x="{_x(share):.1f}" y="{_HEIGHT - _BOTTOM + 14}" class="x">{html.escape(text)}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" class="y">{html.escape(below)}</text>')
    return parts


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _time_axis(end: float) -> tuple[float, str]:
    """Seconds per unit, and its name, for an axis from 0 to ``end`` seconds."""
    return next(((size, name) for size, name in _UNITS if end >= 2 * size), _UNITS[-1])


def step_chart(
    title: str, times: Sequence[float], lines: Mapping[str, Sequence[float]], *, percent: bool = False
) -> str:
    """Lines over time in seconds; each value holds until the next. ``percent``: values are shares from 0 to 1."""
    end = times[-1] if times else 0.0
    unit, name = _time_axis(end)
    ticks = _ticks(end / unit)
    span = ticks[-1] * unit
    most = 1.0 if percent else max((max(values, default=0.0) for values in lines.values()), default=0.0)
    marks = _ticks(most)
    top = marks[-1]
    parts = _frame(
        title,
        name,
        [(tick / ticks[-1], f"{tick:g}") for tick in ticks],
        [(mark / top, f"{mark:.0%}" if percent else f"{mark:,g}") for mark in marks],
    )
    for number, (label, values) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        step = max(1, len(times) // _MOST_POINTS)
        path: list[str] = []
        last = ""
        for time, value in zip(times[::step], values[::step], strict=True):
            x, y = f"{_x(time / span):.1f}", f"{_y(value / top):.1f}"
            path.append(f"M{x} {y}" if not path else f"H{x}" + (f"V{y}" if y != last else ""))
            last = y
        if times:
            path.append(f"H{_x(end / span):.1f}")
        parts.append(f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        place = max(_WIDTH - _RIGHT - 110 * (len(lines) - number), _LEFT)
        parts.append(f'<text x="{place}" y="16" fill="{colour}" class="l">{html.escape(label)}</text>')
    return "".join(parts) + "</svg>"


def histogram(title: str, seconds: Sequence[float], bins: int = 30) -> str:
    """How many durations, in seconds, are how long."""
    most = max(seconds, default=0.0)
    unit, name = _time_axis(most)
    ticks = _ticks(most / unit)
    span = ticks[-1] * unit
    counts = [0] * bins
    for one in seconds:
        counts[min(bins - 1, int(bins * one / span))] += 1
    marks = _ticks(max(counts))
    top = marks[-1]
    parts = _frame(
        title, name, [(tick / ticks[-1], f"{tick:g}") for tick in ticks], [(mark / top, f"{mark:,g}") for mark in marks]
    )
    width = (_x(1.0) - _x(0.0)) / bins
    for number, count in enumerate(counts):
        if count:
            y = _y(count / top)
            parts.append(
                f'<rect x="{_x(number / bins):.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="{_y(0) - y:.1f}" '
                f'fill="{_COLOURS[0]}"/>'
            )
    return "".join(parts) + "</svg>"

"""Events of a run as lines for people. Caller: :mod:`.report`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubesched.base.lines import Line, title
from kubesched.scheduler.plugins.demands.words import counted

from .durations import seconds
from .result import DrainReport, EventReport

__all__ = ["event_lines"]

#: Most names of nodes, and most blocking pods, in one line.
_MOST: Final = 5


def event_lines(events: Sequence[EventReport]) -> list[Line]:
    """Return a line for each event, and lines about its drains; nothing for a run without events."""
    lines = title("Events") if events else []
    for event in events:
        names = ", ".join(event.targets[:_MOST]) or "nothing"
        more = f" and {len(event.targets) - _MOST:,} more" if len(event.targets) > _MOST else ""
        until = f", until {seconds(event.undone)}" if event.undone is not None else ""
        lines.append(Line(f"after {seconds(event.at)}: {event.action} {names}{more}{until}"))
        for drain in event.drains:
            lines += _drain(drain, event.at)
    return lines


def _drain(drain: DrainReport, began: float) -> Iterator[Line]:
    evicted = f"{counted(len(drain.evicted), 'pod')} evicted"
    if drain.finished is not None:
        yield Line(f"  {drain.node}: {evicted}, drained after {seconds(drain.finished - began)}", "dim")
        return
    yield Line(f"  {drain.node}: {evicted}, not drained", "warn")
    for one in drain.blocked[:_MOST]:
        yield Line(f"    {one.pod} {one.why}", "warn")
    if len(drain.blocked) > _MOST:
        yield Line(f"    and {len(drain.blocked) - _MOST:,} more pods", "warn")

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
#: Most deeds of the autoscaler that are listed.
_MOST_DEEDS: Final = 10


def event_lines(events: Sequence[EventReport], *, wide: bool = False) -> list[Line]:
    """Return a line for each event, and lines about its drains; nothing for a run without events.

    Of what the autoscaler did, only the first deeds are listed, unless ``wide``.
    """
    lines = title("Events") if events else []
    shown, more_deeds = (events, 0) if wide else _without_many_deeds(events)
    for event in shown:
        names = ", ".join(event.targets[:_MOST]) or "nothing"
        more = f" and {len(event.targets) - _MOST:,} more" if len(event.targets) > _MOST else ""
        until = f", until {seconds(event.undone)}" if event.undone is not None else ""
        lines.append(
            Line(
                f"after {seconds(event.at)}: {event.action} {names}{more}{until}{f': {event.why}' if event.why else ''}"
            )
        )
        for drain in event.drains:
            lines += _drain(drain, event.at)
    if more_deeds:
        lines.append(Line(f"and {more_deeds:,} more scalings of node groups (--wide lists them all)", "dim"))
    return lines


def _without_many_deeds(events: Sequence[EventReport]) -> tuple[list[EventReport], int]:
    """Return the events with the first deeds of the autoscaler, which have a reason, and the number of those left out."""
    deeds = [event for event in events if event.why][:_MOST_DEEDS]
    shown = [event for event in events if not event.why or event in deeds]
    return shown, len(events) - len(shown)


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

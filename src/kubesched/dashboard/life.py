"""Life of a pod: its events in the order of time, from its object, its place in the queue, and what was observed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kubesched.api.types import Pod
from kubesched.base.times import cached_time
from kubesched.explain.records.schema import Record
from kubesched.explain.report import PreemptionReport
from kubesched.scheduler.scheduler import Scheduler

from .observed import PodEvent
from .queue_groups import MOST_TEXT, scheduled_message
from .schema import Moment

__all__ = ["is_whole", "life_of"]

#: Most events of a pod that are listed: the first, and the last ones.
_MOST: Final = 200
#: Seconds within which an event of the same kind, told by an object, is the same.
_SAME: Final = 2.0
#: Words of conditions that are events; the times of others say nothing about scheduling.
_CONDITIONS: Final = {
    ("Ready", "True"): "ready",
    ("DisruptionTarget", "True"): "evicted",
    ("Ready", "False"): "",
}
#: Order of events of the same time.
_ORDER: Final = ("created", "waits", "tried", "rejected", "failed", "nominated", "bound", "started", "ready")
_OUTCOMES: Final = {"bound": "bound", "rejected": "rejected", "unschedulable": "rejected", "error": "failed"}


def life_of(
    scheduler: Scheduler,
    pod: Pod,
    events: Sequence[PodEvent],
    records: Iterable[Record],
    preemptions: Iterable[PreemptionReport],
) -> list[Moment]:
    """Return what is known of a pod's life. ``records`` are its recorded decisions, which tell more than ``events``."""
    known = list(records)
    exact = [*map(_of_record, known), *_of_events(events, is_recorded=bool(known))]
    exact += _of_preemptions(pod.key, preemptions)
    exact += _of_queue(scheduler, pod, {moment.what for moment in exact})
    ordered = sorted([*_untold(_of_object(pod), exact), *exact], key=lambda moment: (moment.at, _rank(moment)))
    if len(ordered) <= _MOST:
        return ordered
    return [ordered[0], *ordered[len(ordered) - _MOST + 1 :]]


def is_whole(scheduler: Scheduler, pod: Pod, events: Sequence[PodEvent], start: float) -> bool:
    """Return True if nothing of a pod's life can have been missed: it came later than ``start``, or its first attempt did."""
    created = _time(pod.metadata.creation_timestamp)
    if (created is not None and created >= int(start)) or any(event.attempt == 1 for event in events):
        return True
    record = scheduler.queue.views.get_pod(pod.name, pod.namespace)
    if record is None or record.uid != pod.uid:
        return False
    return record.initial_attempt_timestamp is None or record.initial_attempt_timestamp >= start


def _untold(rough: Iterable[Moment], exact: Sequence[Moment]) -> Iterator[Moment]:
    """Yield the events of an object, whose times are whole seconds, without those that another source has exactly."""
    for one in rough:
        if not any(other.what == one.what and abs(other.at - one.at) <= _SAME for other in exact):
            yield one


def _of_object(pod: Pod) -> Iterator[Moment]:
    meta, status = pod.metadata, pod.status
    if (at := _time(meta.creation_timestamp)) is not None:
        yield Moment(at=at, what="created")
    for one in status.conditions:
        at = _time(one.last_transition_time)
        if at is None:
            continue
        if one.type == "PodScheduled" and one.status == "False":
            yield Moment(
                at=at, what="rejected" if one.reason == "Unschedulable" else "waits", text=one.message[:MOST_TEXT]
            )
        elif one.type == "PodScheduled" and one.status == "True":
            yield Moment(at=at, what="bound", node=pod.spec.node_name)
        elif what := _CONDITIONS.get((one.type, one.status)):
            yield Moment(at=at, what=what, text=one.message[:MOST_TEXT])
    if (at := _time(status.start_time)) is not None:
        yield Moment(at=at, what="started", node=pod.spec.node_name)
    if (at := _time(meta.deletion_timestamp)) is not None:
        yield Moment(at=at, what="deleted", text="at the latest")


def _of_record(record: Record) -> Moment:
    node = record.node or record.nominated_node
    text = record.message[:MOST_TEXT] or (f"{record.feasible} of {record.nodes} nodes fit" if record.node else "")
    return Moment(at=record.at, what=_OUTCOMES.get(record.outcome, record.outcome), text=text, node=node)


def _of_events(events: Sequence[PodEvent], *, is_recorded: bool) -> Iterator[Moment]:
    for event in events:
        if event.what in ("bound", "rejected", "failed"):
            if not is_recorded:
                by = ", ".join(sorted(filter(None, event.by)))
                yield Moment(at=event.at, what=event.what, text=f"by {by}" if by else "", node=event.node)
        elif event.what == "preempts":
            yield Moment(at=event.at, what="nominated", text="pods on the node make room", node=event.node)


def _of_preemptions(key: str, preemptions: Iterable[PreemptionReport]) -> Iterator[Moment]:
    for one in preemptions:
        if key in one.victims:
            yield Moment(at=one.at, what="evicted", text=f"made room for {one.pod}", node=one.node)


def _of_queue(scheduler: Scheduler, pod: Pod, told: set[str]) -> Iterator[Moment]:
    record = scheduler.queue.views.get_pod(pod.name, pod.namespace)
    if record is None or record.uid != pod.uid or pod.spec.node_name:
        return
    first = record.initial_attempt_timestamp
    if first is not None:
        text = f"the first of {record.attempts} attempts" if record.attempts > 1 else ""
        yield Moment(at=first, what="tried", text=text)
    if record.attempts > 1 and "rejected" not in told and scheduled_message(pod):
        yield Moment(at=record.timestamp, what="rejected", text=scheduled_message(pod))


def _rank(moment: Moment) -> int:
    """Return the place among events of the same time."""
    return _ORDER.index(moment.what) if moment.what in _ORDER else len(_ORDER)


def _time(text: str | None) -> float | None:
    return cached_time(text) if text else None

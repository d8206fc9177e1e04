"""Recording of a file of decisions: the lives of its nodes and pods, from the lines in their order.

Objects in the file have no times of their own; decisions have. A change of an object gets the time of the next decision, and
a new object that of its creation if that is later than the decision before.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from kubesched.api.groups import group_key
from kubesched.api.kinds import NODES, PODS
from kubesched.api.quantity import QuantityError
from kubesched.api.requests import pod_requests
from kubesched.api.types import Node, Pod
from kubesched.base.times import parse_time
from kubesched.explain.objects import Objects as ObjectReader
from kubesched.explain.records.reading import DecisionsError, read_lines
from kubesched.explain.records.schema import Change, Decided, Gone, Header, Put, Record
from kubesched.explain.workloads import Workloads
from kubesched.lab.decisions.objects import BadLineError, Objects
from kubesched.lab.decisions.port import ReplayPort
from kubesched.lab.simulate.results.node_times import NodeBook
from kubesched.lab.simulate.results.pod_times import FINISHED, PodLife, amounts

from ..schema import Profile
from .queue import Told
from .recording import Preempting, Reasons, Recording
from .timeline import MOST_PODS, RecordingError, Timeline

__all__ = ["Stamped", "created_at", "recording_of_decisions"]

_KINDS: Final = ("nodes", "pods")
#: Most lines that wait for the time of a decision.
_MOST_LINES: Final = 100_000


def created_at(obj: Any) -> float | None:
    """Return the time of an object's creation in epoch seconds, if it says one."""
    metadata = obj["metadata"] if isinstance(obj, dict) else obj.metadata
    text = metadata.get("creationTimestamp") if isinstance(metadata, dict) else metadata.creation_timestamp
    if not isinstance(text, str):
        return None
    with suppress(ValueError, OverflowError):
        return parse_time(text)
    return None


@dataclass(slots=True)
class _Life(PodLife):
    """Life of a pod so far. ``node`` is its last node."""

    node: str = ""
    came_with_node: bool = False


class _Nothing:
    """Objects for the names of workloads: a scheduler reads none."""

    def knows(self, kind: Any) -> bool:
        return False

    def controller(self, kind: Any, namespace: str, name: str) -> None:
        return None


class Stamped:
    """Lines of objects that wait for the time of the next decision."""

    def __init__(self, start: float) -> None:
        #: Time of the last decision.
        self.now = start
        self._waiting: list[tuple[Put | Change | Gone, int]] = []

    def add(self, line: Put | Change | Gone, number: int) -> bool:
        """Keep a line. True if so many wait that they must be taken now, at the time of the last decision."""
        self._waiting.append((line, number))
        return len(self._waiting) >= _MOST_LINES

    def take(self, at: float | None = None) -> list[tuple[Put | Change | Gone, int]]:
        """Move to a decision at ``at``, or to the end. Return the lines before it."""
        if at is not None:
            self.now = max(self.now, at)
        lines, self._waiting = self._waiting, []
        return lines

    @property
    def waiting(self) -> list[tuple[Put | Change | Gone, int]]:
        return self._waiting


@dataclass(slots=True)
class _Tries:
    """Failed attempts, in the order of the file."""

    times: list[float] = field(default_factory=list)
    pods: list[int] = field(default_factory=list)
    reasons: list[int] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    texts: dict[tuple[str, tuple[str, ...]], int] = field(default_factory=dict)

    def add(self, pod: int, record: Record) -> None:
        plugins = tuple(dict.fromkeys(one.plugin for one in record.verdicts if one.plugin))
        reason = record.message or record.outcome, plugins
        self.times.append(record.at)
        self.pods.append(pod)
        self.reasons.append(self.texts.setdefault(reason, len(self.texts)))
        self.attempts.append(min(record.attempt, 2**31 - 1))

    def told(self) -> Told:
        order = np.argsort(np.array(self.times, np.float64), kind="stable")
        pods, reasons, attempts = (np.array(one, np.int32)[order] for one in (self.pods, self.reasons, self.attempts))
        return Told(np.array(self.times, np.float64)[order], pods, reasons, attempts, [*self.texts], every=True)


class _Reader:
    """Reader of one file: the lives of its pods and nodes."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self._torn: list[str] = []
        self._port = ReplayPort()
        self._objects = Objects(self._port)
        for kind in (NODES, PODS):
            self._port.informer(kind).add_handler(_Handler(kind.plural, self))
        self._stamped = Stamped(0.0)
        self._before = 0.0
        self._now = 0.0
        self.nodes = NodeBook(lambda: self._now)
        self._nodes_seen: set[str] = set()
        self._workloads = Workloads(cast("ObjectReader", _Nothing()))
        self.lives: list[_Life] = []
        self._by_uid: dict[str, int] = {}
        self._shared: dict[tuple[object, ...], dict[str, int]] = {}
        self.tries = _Tries()
        self.preemptions: list[Preempting] = []
        self.records = 0
        self.first_attempt = 0
        self.unknown = 0
        self.end = 0.0

    def read(self, path: Path) -> None:
        torn = self._torn
        for number, line in read_lines(path, on_torn=lambda text: torn.append(text.removeprefix(f"{path}: "))):
            match line:
                case Header():
                    self.header = line
                    self._stamped = Stamped(line.at)
                    self._before = self.end = line.at
                case Put() | Change() | Gone():
                    if line.kind in _KINDS and self._stamped.add(line, number):
                        self._carry_out(path, self._stamped.now)
                case Decided():
                    self._carry_out(path, line.at)
                case Record():
                    self._ended(line)
        self._carry_out(path, None)

    def _carry_out(self, path: Path, at: float | None) -> None:
        self._before = self._stamped.now
        lines = self._stamped.take(at)
        self._now = self._stamped.now
        self.end = max(self.end, self._now)
        for line, number in lines:
            try:
                self._objects.take(line)
            except BadLineError as error:
                raise DecisionsError(f"{path}: line {number}: {error}") from None
            if len(self.lives) > MOST_PODS:
                raise RecordingError(f"has more than {MOST_PODS:,} pods, which is the most that can be shown")

    # -- objects -----------------------------------------------------------------------------------------

    def _came(self, obj: Any) -> float:
        """Return the time at which a new object came, between the last decision and the next one."""
        stamp = created_at(obj)
        return self._now if stamp is None else min(max(stamp, self._before), self._now)

    def node(self, node: Node) -> None:
        if node.name in self._nodes_seen:
            self.nodes.put(node)
            return
        self._nodes_seen.add(node.name)
        now, self._now = self._now, self._came(node)
        self.nodes.put(node)
        self._now = now

    def pod(self, pod: Pod) -> None:
        index = self._by_uid.get(pod.uid)
        if index is None:
            self._new(pod, self._came(pod))
            return
        life = self.lives[index]
        before, life.pod = life.pod, pod
        if pod.spec.node_name and not life.node:
            life.node, life.bound = pod.spec.node_name, self._now
        if pod.status.phase != before.status.phase:
            if pod.status.phase == "Running" and life.started is None:
                life.started = self._now
            elif pod.status.phase in FINISHED and life.finished is None:
                life.finished = self._now

    def _new(self, pod: Pod, created: float) -> _Life:
        try:
            requests = pod_requests(pod)
            asked = self._shared.setdefault(requests.as_tuple(), amounts(requests))
        except QuantityError:
            asked = {}
        life = _Life(pod, created, self._workloads.of(pod), asked, node=pod.spec.node_name)
        life.came_with_node = bool(life.node)
        if pod.status.phase in FINISHED:
            life.finished = created
        self._by_uid[pod.uid] = len(self.lives)
        self.lives.append(life)
        return life

    def gone(self, obj: Node | Pod) -> None:
        if isinstance(obj, Node):
            self.nodes.gone(obj.name)
            return
        index = self._by_uid.get(obj.uid)
        if index is not None and self.lives[index].removed is None:
            self.lives[index].removed = self._now

    # -- attempts ----------------------------------------------------------------------------------------

    def _ended(self, record: Record) -> None:
        self.records += 1
        self.first_attempt = self.first_attempt or record.seq
        self.end = max(self.end, record.at)
        index = self._by_uid.get(record.pod.uid)
        if index is None:
            self.unknown += 1
            return
        life = self.lives[index]
        if life.queued is None:
            life.queued = max(life.created, record.at - record.queue_seconds)
        life.attempts = max(life.attempts, record.attempt)
        if record.outcome == "bound" and record.node:
            life.node, life.bound = record.node, record.at
        else:
            self.tries.add(index, record)
        if record.preemption is not None:
            self._preempted(record)

    def _preempted(self, record: Record) -> None:
        assert record.preemption is not None
        victims = record.preemption.victims
        self.preemptions.append(Preempting(record.at, record.pod.key, record.preemption.node, victims))
        for key in victims:
            pod = self._port.informers["pods"].get_by_key(key)
            if pod is not None and pod.uid in self._by_uid:
                self.lives[self._by_uid[pod.uid]].preempted = True

    def remarks(self) -> list[str]:
        """Return sentences about what the file lacks."""
        assert self.header is not None
        found = []
        missing = [name for name in _KINDS if name not in self.header.kinds]
        if missing:
            found.append(f"The file has no {' and no '.join(missing)}.")
        if self.first_attempt > 1:
            before = self.first_attempt - 1
            found.append(
                f"The file begins after {before:,} attempts; of pods from before, it has only their last state."
            )
        if self.unknown:
            found.append(f"{self.unknown:,} attempts are left out, because the file does not have their pods.")
        if not self.records:
            found.append("The file has no attempts.")
        return found + [text[0].upper() + text[1:] + "." for text in self._torn]


@dataclass(frozen=True, slots=True)
class _Handler:
    """Handler of one kind of objects."""

    kind: str
    reader: _Reader

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self._put(obj)

    def on_update(self, old: Any, new: Any) -> None:
        if isinstance(new, Pod) and old.uid != new.uid:
            self.reader.gone(old)
        self._put(new)

    def on_delete(self, obj: Any) -> None:
        self.reader.gone(obj)

    def _put(self, obj: Any) -> None:
        if isinstance(obj, Pod):
            self.reader.pod(obj)
        elif isinstance(obj, Node):
            self.reader.node(obj)


def recording_of_decisions(path: Path, reasons: Reasons, profiles: Sequence[Profile] = ()) -> Recording:
    """Return the recording of a file of decisions; ``reasons`` explains, by a configuration with ``profiles``.

    Raises:
        DecisionsError: if the file is damaged; the text names the line.
        RecordingError: if it is too large, or its times cannot be.
        OSError: if it cannot be read.
    """
    reader = _Reader()
    reader.read(path)
    assert reader.header is not None
    pods = [life.times(life.node, group_key(life.pod)) for life in reader.lives]
    line = Timeline(reader.nodes.nodes(), pods, reader.header.at, max(reader.end, reader.header.at))
    return Recording(
        str(path),
        line,
        reasons,
        profiles=profiles,
        told=reader.tries.told(),
        preemptions=reader.preemptions,
        explains=True,
        remarks=reader.remarks(),
    )

"""Schema of decision records: a record per attempt to schedule a pod, and the other lines of a file of decisions.

A record is one JSON object with camelCase fields; fields with their default are left out. A later version may add
fields, and keeps the meaning of these. ``docs/decisions.md`` describes them.

Source: rules/cycle §2 to §10 (the stages of an attempt).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "NO_STATUS",
    "OUTCOMES",
    "PLUGINS",
    "VERSION",
    "Bound",
    "Change",
    "Decided",
    "Ended",
    "Gone",
    "Header",
    "Line",
    "Nominated",
    "Plugins",
    "PodRef",
    "Preempted",
    "Put",
    "RankedNode",
    "Record",
    "Row",
    "Tried",
    "Verdict",
]

#: Name and version of the format of files. In version 1 each attempt had the lines ``Decided`` and ``Record``; since
#: version 2 it has the rows ``Tried`` and ``Bound`` or ``Ended``, which take a third of the bytes. In version 3 most
#: attempts have one row: that of a decision also says when the pod was bound.
FORMAT: Final = "kubesched.io/decisions"
FORMAT_VERSION: Final = 3
#: Version of the schema of records.
VERSION: Final = 1

#: Most lists of plugins that rows refer to by number; numbers are used again.
PLUGINS: Final = 256

#: Status that did not change.
NO_STATUS: Final = msgspec.Raw(b"null")

#: Ends of an attempt: the pod is bound; no node fits; a plugin rejected the chosen node; an error.
OUTCOMES: Final = ("bound", "unschedulable", "rejected", "error")


class _Part(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """Part of a line."""


class PodRef(_Part, frozen=True):
    """Pod of an attempt, in the version that was tried."""

    namespace: str
    name: str
    uid: str
    resource_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class RankedNode(_Part, frozen=True):
    """Node near the top: its total, and the final scores, weighted, by plugin. A single feasible node has no scores."""

    node: str
    total: int = 0
    scores: dict[str, int] = {}

    @classmethod
    def of(cls, node: str, plugins: Sequence[str], scores: Sequence[int]) -> RankedNode:
        """Return a node with its scores in the order of the plugins; without any if it is the only one that fits."""
        return cls(node, sum(scores), dict(zip(plugins, scores, strict=True)) if scores else {})


class Verdict(_Part, frozen=True):
    """Outcome that ``nodes`` nodes have in common: the plugin that rejected them, the code, and the reasons."""

    plugin: str
    code: str
    reasons: list[str] = []
    nodes: int = 0


class Preempted(_Part, frozen=True):
    """Preemption: the node, its victims as ``namespace/name``, and the number that violate a disruption budget.

    ``lost`` counts the other candidates by the criterion that decided against them, and ``not_helpful`` the nodes where
    evictions would make no room, by reason. Both are None if they were not counted: only the first preemptions of a
    second are.
    """

    node: str
    victims: list[str]
    budget_violations: int = 0
    lost: dict[str, int] | None = None
    not_helpful: dict[str, int] | None = None


class Line(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, tag_field="type", gc=False):
    """Line of a file of decisions."""


class Record(Line, frozen=True, tag="record", kw_only=True):
    """Record of one attempt.

    Attributes:
        version: of the schema.
        seq: number of the attempt within the scheduler's run, from 1.
        at: time of the decision, in epoch seconds of the scheduler's clock.
        pod: the pod.
        profile: the pod's schedulerName.
        attempt: number of the pod's attempts so far, this one included.
        outcome: one of ``OUTCOMES``.
        stage: for ``rejected`` and ``error`` after a node was chosen: Reserve, Permit, PreBind or Bind.
        node: the chosen node; empty if there was none.
        message: the text of the pod's event when it was not bound.
        path: the way in which the search found its answer, such as "signature layer" or "full scan".
        nodes: number of nodes in the cluster.
        evaluated, feasible: number of nodes that were evaluated, and that fit.
        ties: number of nodes with the greatest total, among which chance decided; 0 without a node.
        top: the chosen node, and the next best ones.
        verdicts: the reasons why nodes do not fit, by outcome. A pod that was bound has them only after a full scan.
        preemption: the pods that were evicted for this one, or None.
        nominated_node: the node that the pod was nominated to at the end.
        queue_seconds: time in the queue since the last attempt or since the pod came.
        search_seconds, binding_seconds: time from the pop to the decision, and from there to the end of the attempt.
    """

    seq: int
    at: float
    pod: PodRef
    outcome: str
    version: int = VERSION
    profile: str = ""
    attempt: int = 0
    stage: str = ""
    node: str = ""
    message: str = ""
    path: str = ""
    nodes: int = 0
    evaluated: int = 0
    feasible: int = 0
    ties: int = 0
    top: list[RankedNode] = []
    verdicts: list[Verdict] = []
    preemption: Preempted | None = None
    nominated_node: str = ""
    queue_seconds: float = 0.0
    search_seconds: float = 0.0
    binding_seconds: float = 0.0


class Header(Line, frozen=True, tag="header", kw_only=True):
    """First line of a file. ``kinds`` are the plurals of the objects that the scheduler reads, without Secrets."""

    format: str = ""
    format_version: int = 0
    at: float = 0.0
    profiles: list[str] = []
    kinds: list[str] = []


class Put(Line, frozen=True, tag="put"):
    """Object that came or changed, with the fields that the scheduler reads.

    ``spec`` > 0 numbers the object's spec. It is left out when an earlier line of the file has the number.
    """

    kind: str
    object: msgspec.Raw
    spec: int = 0


class Change(Line, frozen=True, tag="change"):
    """Change of an object that the file has: another version, and perhaps another node or status."""

    kind: str
    key: str
    version: str
    node: str | None = None
    status: msgspec.Raw = NO_STATUS


class Gone(Line, frozen=True, tag="gone"):
    """Deletion of an object that the file has."""

    kind: str
    key: str


class Decided(Line, frozen=True, tag="decided"):
    """Moment of a decision, within the changes of objects. The record of the same ``seq`` follows at its end.

    A file has it for pods that were decided before the file began. A reader gets it for each :class:`Tried`, too.

    ``start`` is the place in the node list at which a sampled scan began; None if all nodes were evaluated. ``seq`` 0
    is a pod that was decided before the file began.
    """

    seq: int
    at: float
    key: str
    uid: str
    node: str = ""
    start: int | None = None


class Nominated(Line, frozen=True, tag="nominated"):
    """Nomination that was in memory when the file began."""

    key: str
    node: str


class Row(msgspec.Struct, array_like=True, tag_field="type", gc=False):
    """Line of a file of decisions without names of fields: an array that begins with its tag."""


class Plugins(Row, tag="plugins"):
    """Score plugins, to which rows refer by number."""

    number: int
    names: tuple[str, ...]


class Tried(Row, tag="tried"):
    """First half of a record, at the moment of the decision; the whole record if the pod was bound before it is written.

    The fields are those of :class:`Record` and :class:`Decided`, except:

    Attributes:
        plugins: number of the score plugins; 0 if there are none.
        top: the best nodes, each with its scores by plugin, which add up to its total. The first is the chosen one.
        queue, search: microseconds; less than 0 if the clock was set back.
        bound: microseconds from the decision to the end of the binding; None if another row has the end.
    """

    profile: str
    attempt: int
    path: str
    nodes: int
    evaluated: int
    feasible: int
    start: int | None
    plugins: int
    seq: int
    at: float
    namespace: str
    name: str
    uid: str
    resource_version: str
    queue: int
    search: int
    ties: int
    top: Sequence[tuple[str, tuple[int, ...]]] = ()
    verdicts: list[Verdict] = []
    bound: int | None = None


class Bound(Row, tag="bound"):
    """Second half of the record of a pod that was bound ``binding`` microseconds after the decision."""

    seq: int
    binding: int


class Ended(Row, tag="ended"):
    """Second half of another record. The fields are those of :class:`Record`; ``binding`` is in microseconds."""

    seq: int
    binding: int
    outcome: str
    stage: str
    message: str
    verdicts: list[Verdict]
    preemption: Preempted | None
    nominated_node: str

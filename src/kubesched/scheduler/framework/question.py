"""Questions: how a fast plugin answers for many nodes at once, and what of its answers may be kept.

A plugin's ``ask(pod, nodes)`` gives a question, or None when the pod does not concern it now. A question belongs to one
plugin and one pod. Its answers are arrays with one element per row of the node table. Pods whose questions have equal keys get
equal answers in equal clusters: the decision core keeps the answers by row, and asks again only about rows that changed.

Source: rules/framework §4 (PreFilter, Filter, PreScore, Score); upstream has them as methods of the plugin.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .status import Status

if TYPE_CHECKING:
    from ..nodes import NodeList

__all__ = ["NOT_SCORED", "NO_ROWS", "IntArray", "Normalize", "Question", "Reads", "RowArray", "VerdictArray", "defines"]

IntArray = npt.NDArray[np.int64]
RowArray = npt.NDArray[np.integer]
#: uint64[rows]: 0 passes; any other value is the plugin's own encoding of why not (see :meth:`Question.why`).
VerdictArray = npt.NDArray[np.uint64]

#: Raw score of a row that a question leaves out: not among the bounds, 0 in the end.
NOT_SCORED: Final = -(1 << 63)
#: No row.
NO_ROWS: Final[RowArray] = np.zeros(0, np.intp)
NO_ROWS.flags.writeable = False


class Reads(enum.IntFlag):
    """Changes of a row's own node that make an answer about the row stale; what is not read costs nothing."""

    NOTHING = 0
    #: The node object: labels, taints, allocatable, images' names, declared features.
    NODE = 1
    #: The pods on the node: requested amounts, pod count, ports.
    PODS = 2
    #: The image table of the whole cluster, and how many nodes there are.
    IMAGES = 4


class Normalize(enum.Enum):
    """Ready-made normalisation: scale to the greatest raw score (rules/node-plugins §4)."""

    #: 100 for the greatest; nothing happens when all are 0.
    FORWARD = "forward"
    #: 0 for the greatest; 100 for all when all are 0.
    REVERSE = "reverse"


class Question:
    """One pod's question to one plugin. Derive from it, and define what the plugin answers.

    A class that defines ``verdicts`` filters, one that defines ``scores`` scores; a class may do both. Extension points in
    configuration files are those of the methods defined: ``pre_filter``, ``verdicts`` (Filter), ``pre_score``, ``scores``.

    A method that raises fails the pod's attempt with code Error naming the plugin; nothing else is disturbed.

    Attributes, of the class or of one question where it says so:
        key: of each question: a value such that pods with equal values get equal answers in equal clusters; None: answers are
            never reused.
        reads: which changes of a row's own node make an answer about the row stale.
        is_local: of the class or a question: whether an answer about a row changes with the row's own node alone. Otherwise
            ``changed`` and ``rescored`` name rows; without either, answers are never reused.
        by_spec: whether ``ask`` reads nothing of a pod but its spec and namespace: pods of one template are then asked for
            once, and again when images come to the cluster or leave it, and after ``handle.ask_again()``. A question that
            depends on more sets False for itself: then None alone is by the spec.
        normalize: ready-made normalisation of raw scores; None means scores are final, or ``normalized`` is defined.
        may_fail: whether verdicts may fail for a node because of objects that users wrote. They are then asked for in the
            profile's order, also for nodes that a later filter rejects.
        throughout: whether a pod without a question leaves the plugin out after the choice of a node, too: Reserve to
            PostBind are not called.
        stands_alone: keys of extension points, ``filter`` and ``score``, that work in a profile without the point that
            prepares them.
    """

    reads: ClassVar[Reads] = Reads.NODE | Reads.PODS
    by_spec: bool = False
    normalize: ClassVar[Normalize | None] = None
    may_fail: ClassVar[bool] = False
    throughout: ClassVar[bool] = False
    stands_alone: ClassVar[frozenset[str]] = frozenset()

    key: Hashable | None = None
    is_local: bool = True

    # -- Filter ----------------------------------------------------------------------------------------

    def pre_filter(self, nodes: NodeList) -> frozenset[str] | Status | None:
        """Prepare the verdicts, once before any is asked for.

        Return a set of node names to allow only those, Skip when every node passes, Unschedulable or
        UnschedulableAndUnresolvable to reject the pod everywhere.
        """
        raise AssertionError("documentation only")

    def verdicts(self, rows: RowArray) -> VerdictArray:
        """uint64[len(rows)]: 0 where the pod may run."""
        raise AssertionError("documentation only")

    def verdict(self, node: NodeInfo) -> int:
        """Optional: the verdict on one node in plain Python, for a handful of changed rows."""
        raise AssertionError("documentation only")

    def why(self, verdict: int) -> Status:
        """A status that says what a verdict other than 0 means. Called only when it is read."""
        raise AssertionError("documentation only")

    def changed(self) -> RowArray | None:
        """Catch up with the cluster, and name the rows whose verdict may be another by something elsewhere.

        None when that is not known: ``pre_filter`` is called again and every row is evaluated. Rows whose own node or
        pods changed are evaluated in any case. Also called after Skip.
        """
        return NO_ROWS

    def assuming(self, node: NodeInfo, added: Sequence[PodInfo], removed: Sequence[PodInfo]) -> Question:
        """What if these pods came to the node, or left it? A question of its own; this one stays as it is.

        The node and its row show the change already: only a question that keeps something about pods, such as counts by
        zone, has anything to do. Serves nominated pods and preemption. To be defined together with ``pre_filter``.
        """
        return self

    def amounts(self) -> Sequence[tuple[int, int]] | None:
        """Optional: that nothing but these amounts decides, as (resource index, amount).

        The pod may run where ``requested + amount <= allocatable`` for each of them, by the table's columns. None when
        there is more to it. Preemption is then computed for all nodes at once.
        """
        return None

    # -- Score -----------------------------------------------------------------------------------------

    def pre_score(self, nodes: NodeList) -> Status | None:
        """Prepare the scores of the feasible nodes (two or more). Skip when there is nothing to score."""
        raise AssertionError("documentation only")

    def scores(self, rows: RowArray) -> IntArray:
        """int64[len(rows)]: raw scores of feasible rows, 0…100 unless they are normalised."""
        raise AssertionError("documentation only")

    def score(self, node: NodeInfo) -> int:
        """Optional: the raw score of one node in plain Python."""
        raise AssertionError("documentation only")

    def rescored(self, *, same: bool) -> RowArray | None:
        """Catch up like :meth:`changed`, for scores; ``same`` when the feasible nodes are those of the last time."""
        return NO_ROWS

    @staticmethod
    def normalized(scores: IntArray, low: int, high: int) -> IntArray:
        """int64[len(scores)]: raw scores turned into 0…100, given the least and greatest raw score of all feasible rows.

        Each score's answer depends on nothing else: it is called for one score, for many, and for scores that no row has.
        NOT_SCORED is never among them.
        """
        raise AssertionError("documentation only")

    # -- keeping answers ---------------------------------------------------------------------------------

    def follow(self, kept: Self) -> Question:
        """Which of two questions with equal keys answers from now on: this one, of the current pod, or the one kept so far."""
        return kept


def defines(question: type[Question], method: str) -> bool:
    """Whether a question class has a method of its own."""
    return getattr(question, method) is not getattr(Question, method)

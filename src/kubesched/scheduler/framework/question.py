"""Questions: a fast plugin's answers for many nodes at once, which the decision core may keep.

A plugin's ``ask(pod, nodes)`` returns a question, or None when the plugin has nothing to do for the pod now. A question
belongs to one plugin and one pod. Its answers are arrays with one element per row of the node table. Pods whose
questions have equal keys get equal answers in equal clusters. So the decision core keeps the answers by row, and asks
again only about rows that changed.

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
#: uint64[rows]: 0 passes; any other value is the plugin's own code of a reason (see :meth:`Question.why`).
VerdictArray = npt.NDArray[np.uint64]

#: Raw score of a row that a question leaves out: it does not count for the bounds, and its final score is 0.
NOT_SCORED: Final = -(1 << 63)
#: Empty array of rows, read-only.
NO_ROWS: Final[RowArray] = np.zeros(0, np.intp)
NO_ROWS.flags.writeable = False


class Reads(enum.IntFlag):
    """Data that an answer about a row reads: when it changes, the row is evaluated again."""

    NOTHING = 0
    #: The node object: labels, taints, allocatable, images' names, declared features.
    NODE = 1
    #: The pods on the node: requested amounts, pod count, ports.
    PODS = 2
    #: The image table of the whole cluster, and the number of nodes.
    IMAGES = 4


class Normalize(enum.Enum):
    """Ready-made normalisation: scale to the greatest raw score (rules/node-plugins §4)."""

    #: 100 for the greatest raw score; if all are 0, all stay 0.
    FORWARD = "forward"
    #: 0 for the greatest raw score; if all are 0, all become 100.
    REVERSE = "reverse"


class Question:
    """Question of one pod to one plugin. Derive from it, and define the methods that the plugin answers with.

    A class that defines ``verdicts`` filters, one that defines ``scores`` scores; a class may do both. The defined
    methods decide the plugin's extension points in configuration files: ``pre_filter``, ``verdicts`` (Filter),
    ``pre_score``, ``scores`` (Score).

    If a method raises, the pod's attempt fails with code Error and the plugin's name; nothing else is disturbed.

    Attributes that each question sets:
        key: value such that pods with equal values get equal answers in equal clusters; None: answers are never reused.

    Attributes that the class sets, or a question for itself:
        is_local: True if an answer about a row changes only with the row's own node. If False, ``changed`` and
            ``rescored`` name the changed rows; without either method, answers are never reused.
        by_spec: True if ``ask`` reads only a pod's spec and namespace. Then the plugin is asked once for pods of one
            template, and again when images come to the cluster or leave it, and after ``handle.ask_again()``. A
            question that depends on more sets False for itself; then only the answer None is kept.

    Attributes that the class sets:
        reads: data of a row's own node; when it changes, an answer about the row is stale.
        normalize: ready-made normalisation of raw scores. None: scores are final, or ``normalized`` is defined.
        may_fail: True if verdicts may fail for a node because of objects that users wrote. Then the plugin is called in
            the profile's order, also for nodes that a later filter rejects.
        throughout: True if the plugin, without a question, is not called after the choice of a node either (Reserve to
            PostBind).
        stands_alone: keys of extension points (``filter``, ``score``) that work in a profile without PreFilter or
            PreScore of this plugin.
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
        """Prepare the verdicts. Called once, before any verdict.

        Return a set of node names to allow only these nodes, Skip when every node passes, or Unschedulable or
        UnschedulableAndUnresolvable to reject the pod everywhere.
        """
        raise AssertionError("documentation only")

    def verdicts(self, rows: RowArray) -> VerdictArray:
        """Return the verdicts on rows, uint64[len(rows)]: 0 where the pod may run."""
        raise AssertionError("documentation only")

    def verdict(self, node: NodeInfo) -> int:
        """Optional: return the verdict on one node, in plain Python; quicker when only a few rows changed."""
        raise AssertionError("documentation only")

    def why(self, verdict: int) -> Status:
        """Return the status that a verdict other than 0 stands for. Called only when the reasons are read."""
        raise AssertionError("documentation only")

    def changed(self) -> RowArray | None:
        """Catch up with the cluster. Return the rows whose verdict may have changed because of changes elsewhere.

        Return None when the rows are not known: then ``pre_filter`` is called again and every row is evaluated. Rows
        whose own node or pods changed are evaluated in any case. ``changed`` is also called if ``pre_filter`` answered
        Skip.
        """
        return NO_ROWS

    def assuming(self, node: NodeInfo, added: Sequence[PodInfo], removed: Sequence[PodInfo]) -> Question:
        """Return a question for the case that pods were added to a node and removed from it. Do not change this one.

        The node and its row show the change already. So only a question that keeps data about pods, such as counts by
        zone, must adjust that data. Used for nominated pods and preemption. A class that defines this method must also
        define ``pre_filter``.
        """
        return self

    def amounts(self) -> Sequence[tuple[int, int]] | None:
        """Optional: return pairs of (resource index, amount) if these amounts alone decide, else None.

        They alone decide if the pod may run exactly where ``requested + amount <= allocatable`` for each of them, by
        the node table's columns. Preemption is then computed for all nodes at once.
        """
        return None

    # -- Score -----------------------------------------------------------------------------------------

    def pre_score(self, nodes: NodeList) -> Status | None:
        """Prepare the scores of the feasible nodes (two or more). Skip when there is nothing to score."""
        raise AssertionError("documentation only")

    def scores(self, rows: RowArray) -> IntArray:
        """Return the raw scores of feasible rows, int64[len(rows)]; 0…100 unless they are normalised."""
        raise AssertionError("documentation only")

    def score(self, node: NodeInfo) -> int:
        """Optional: return the raw score of one node, in plain Python."""
        raise AssertionError("documentation only")

    def rescored(self, *, same: bool) -> RowArray | None:
        """Return the rows whose score may have changed; see :meth:`changed`. ``same``: the feasible nodes are
        unchanged.
        """
        return NO_ROWS

    @staticmethod
    def normalized(scores: IntArray, low: int, high: int) -> IntArray:
        """Turn raw scores into 0…100, int64[len(scores)].

        ``low`` and ``high`` are the least and the greatest raw score of all feasible rows. The result of a score must
        depend only on these bounds and the score itself. The method is called for one score, for many, and for scores
        that no row has. ``scores`` never contains NOT_SCORED.
        """
        raise AssertionError("documentation only")

    # -- keeping answers ---------------------------------------------------------------------------------

    def follow(self, kept: Self) -> Question:
        """Return the question that answers from now on: this one, or ``kept``, which has an equal key.

        This question was made for the current pod, ``kept`` for an earlier pod. Return this one if its answers read
        objects that belong to the pod, such as its claims: those of the earlier pod may be gone.
        """
        return kept


def defines(question: type[Question], method: str) -> bool:
    """Return True if a class of questions defines the method itself."""
    return getattr(question, method) is not getattr(Question, method)

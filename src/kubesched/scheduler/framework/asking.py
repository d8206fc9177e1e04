"""Plugins as the decision core asks them: :class:`FastPlugin` has questions, :class:`PlainPlugin` is called by node.

:class:`~.runtime.Framework` makes one of them for each plugin of a profile. This object finds the key that a pod's
answers from the plugin depend on, so that the answers can be kept. It stores the question of an attempt in the cycle
state.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .cycle_state import CycleState
from .failures import called, shape_of
from .interface import Plugin
from .points import asked_points
from .question import IntArray, Question, Reads, RowArray, VerdictArray, defines
from .status import Status
from .wrong_answer import WrongAnswerError

if TYPE_CHECKING:
    from ..nodes import NodeList

__all__ = ["ABSENT", "FastPlugin", "Key", "PlainPlugin", "Turn", "answering", "is_prepared", "question_key"]

#: Key of a pod for a plugin: the value that the plugin's answers depend on besides the nodes. It has one of four forms:
#: ``ABSENT``; (key,) if answers change only with a row's own node; (key, True) if the question names the rows that
#: change for other reasons; None if answers cannot be kept.
Key = tuple[Hashable, ...] | None
#: Key of a pod that the plugin has nothing to do for.
ABSENT: Final[tuple[Hashable, ...]] = ()
#: Point to the point that prepares it.
_PREPARED_AT: Final = {"filter": "preFilter", "score": "preScore"}
#: Most rows for which plain Python is quicker than NumPy.
_FEW: Final = 8
#: Shape of an array that names no rows.
_NONE: Final = (0,)
#: Beginnings of the texts of failures.
_PRE_FILTER: Final = "running PreFilter plugin"
_PRE_SCORE: Final = "running PreScore plugin"


def question_key(plugin: str) -> str:
    """Return the key of a plugin's question in the cycle state."""
    return f"Question{plugin}"


def is_prepared(plugin: Plugin) -> bool:
    """Return True if the profile has the plugin at PreFilter; without it, its later points may fail for every pod."""
    return any(name == plugin.name for name, _ in plugin.handle.framework.points["preFilter"])


class Turn:
    """Counter of a profile's attempts; with it, a question of one attempt is not used in the next."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


def answering(plugin: Any, handle: Any, turn: Turn | None = None, at: Container[str] | None = None) -> PlainPlugin:
    """Return a plugin as the decision core asks it. ``at``: keys of its points in the profile; None for all points."""
    if not hasattr(plugin, "ask"):
        return PlainPlugin(plugin)
    return FastPlugin(plugin, handle, turn or Turn(), at if at is not None else {*_PREPARED_AT, *_PREPARED_AT.values()})


class PlainPlugin:
    """Plugin that is called node by node.

    Attributes:
        asks: the class of its questions.
        points: keys of the points that its questions answer.
        reads: data of a row's own node; when it changes, an answer is stale.
        by_spec: True if ``ask`` reads only a pod's spec and namespace.
        is_local: True if, for pods that have a key, the answer for a row changes only with the row's own node.
        may_fail: True if verdicts may fail for a node because of objects that users wrote.
        follows: True if the questions define :meth:`~.question.Question.follow`.
        has_what_if: True if the plugin must be told about pods that are added to nodes or removed from them.
    """

    points: frozenset[str] = frozenset()
    asks: type[Question] = Question
    reads = Reads.NODE | Reads.PODS
    by_spec = may_fail = follows = False
    #: Beginning of the text of a failure while a pod's key is asked for.
    _asking: ClassVar = "signing pod with plugin"
    #: The method that returns the key, and the words for its answer in a message.
    _keyed_by: ClassVar = ("sign", "sign returned")

    def __init__(self, plugin: Any) -> None:
        self.plugin = plugin
        self.name: str = plugin.name
        self._sign: Callable[[PodInfo], Hashable | None] | None = getattr(plugin, "sign", None)
        self.is_local = self._sign is not None
        self.has_what_if = hasattr(plugin, "add_pod")

    def at(self, point: str) -> Any:
        """Return the object whose methods a point calls: this one if questions answer, else the plugin."""
        return self if point in self.points else self.plugin

    def question(self, state: CycleState, pod: PodInfo, point: str) -> Question:
        """Return the question that answers at a point, which must be one of ``points``."""
        raise AssertionError("a plain plugin has no questions")

    def keeps(self, pod: PodInfo) -> bool:
        """Return True if the pod's key depends on nothing but its spec."""
        return self.by_spec

    def key(self, pod: PodInfo) -> Key:
        """Return the pod's key (see :data:`Key`).

        Raises:
            PluginFailedError: when the plugin raises, or returns a key that has no hash.
        """
        key: Key = called(self._asking, self.name, self._hashable_key, pod)
        return key

    def _hashable_key(self, pod: PodInfo) -> Key:
        key: Any = self._key(pod)
        try:
            hash(key)
        except TypeError as error:
            method, words = self._keyed_by
            problem = f"{words} {key[0]!r}, which has no hash ({error}); expected texts, numbers, or tuples of them"
            raise WrongAnswerError(self.plugin, method, problem) from error
        return key  # type: ignore[no-any-return]

    def _key(self, pod: PodInfo) -> Key:
        signature = self._sign(pod) if self._sign is not None else None
        return None if signature is None else (signature,)


class _NoQuestion(Question):
    """Question for a pod that the plugin has nothing to do for: every node passes and scores 0."""

    def pre_filter(self, nodes: NodeList) -> Status:
        return Status.skip()

    pre_score = pre_filter

    def verdicts(self, rows: RowArray) -> VerdictArray:
        return np.zeros(len(rows), np.uint64)

    def verdict(self, node: NodeInfo) -> int:
        return 0

    def scores(self, rows: RowArray) -> IntArray:
        return np.zeros(len(rows), np.int64)

    score = verdict


_NO_QUESTION: Final = _NoQuestion()


class FastPlugin(PlainPlugin):
    """Plugin with questions. At points that its questions do not answer, the plugin itself is called node by node."""

    _asking = "asking plugin"
    _keyed_by = ("ask", "the key of its question is")

    def __init__(self, plugin: Any, handle: Any, turn: Turn, at: Container[str]) -> None:
        super().__init__(plugin)
        asks = self.asks = plugin.asks
        self.is_local = asks.is_local
        self._handle = handle
        self._turn = turn
        self._state_key = question_key(self.name)
        self.points = asked_points(asks)
        self.reads, self.by_spec, self.may_fail = asks.reads, asks.by_spec, asks.may_fail
        self.follows, self.has_what_if = defines(asks, "follow"), self.has_what_if or defines(asks, "assuming")
        #: Pod, attempt and question of the last call of ask.
        self._last: tuple[PodInfo | None, int, Question | None] = (None, 0, None)
        # Point to its preparing method, for points that the profile has without the preparing point.
        lacking = {point: f"pre_{point}" for point, before in _PREPARED_AT.items() if point in at and before not in at}
        #: Point to True if the plugin answers there only after the preparing method was called.
        self._prepared = {
            point: defines(asks, f"pre_{point}") and point not in asks.stands_alone for point in _PREPARED_AT
        }
        #: Point to True if the plugin needs the preparing method there, but the profile does not have the plugin at the
        #: preparing point.
        self._lacks = {point: before not in at and self._prepared[point] for point, before in _PREPARED_AT.items()}
        #: True if the profile has the plugin at Filter without its PreFilter, or at Score without its PreScore. Such a
        #: plugin is called for every pod, because it may fail without the preparation.
        self._lacks_preparation = any(hasattr(plugin, method) or defines(asks, method) for method in lacking.values())
        #: True if questions name the rows that change with other nodes; only then can such answers be kept.
        self._names_rows = defines(asks, "changed") or defines(asks, "rescored")

    # -- at the start of an attempt -------------------------------------------------------------------------------

    def ask(self, pod: PodInfo) -> Question | None:
        """Return the pod's question of this attempt; the first call in an attempt asks the plugin."""
        last, turn, question = self._last
        if last is pod and turn == self._turn.number:
            return question
        question = self.plugin.ask(pod, self._handle.snapshot.table)
        if question is not None and not isinstance(question, Question):
            raise WrongAnswerError(self.plugin, "ask", f"ask returned {question!r}; expected a Question or None")
        self._last = pod, self._turn.number, question
        return question

    def _key(self, pod: PodInfo) -> Key:
        question = self.ask(pod)
        if question is None:
            return None if self._lacks_preparation else ABSENT
        key = question.key
        if key is None:
            return None
        if question.is_local:
            return (key,)
        return (key, True) if self._names_rows and not self._lacks_preparation else None

    def keeps(self, pod: PodInfo) -> bool:
        question = self.ask(pod) if self.by_spec else None
        return self.by_spec if question is None else question.by_spec

    def _take(self, pod: PodInfo) -> Question:
        """Return the pod's question for a cycle state, and forget it here: the state's owner may change it."""
        question = self.ask(pod)
        self._last = (None, 0, None)
        return question if question is not None else _NO_QUESTION

    # -- the question of an attempt --------------------------------------------------------------------------------

    def begin(self, state: CycleState, pod: PodInfo) -> Question:
        """Write the pod's question into the state, and return it."""
        question = self._take(pod)
        state.write(self._state_key, question)
        return question

    def follow(self, state: CycleState, pod: PodInfo) -> None:
        """Let the question's method ``follow`` choose between the pod's question and the kept one in ``state``.

        Without a kept question nothing happens.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        kept: Question | None = state.get(self._state_key)
        if kept is not None:
            state.write(self._state_key, called(_PRE_FILTER, self.name, self._following, pod, kept))

    def _following(self, pod: PodInfo, kept: Question) -> Question:
        question: Any = self._take(pod).follow(kept)
        if not isinstance(question, Question):
            problem = f"follow returned {question!r}; expected one of the two questions"
            raise WrongAnswerError(self.plugin, "follow", problem)
        return question

    def question(self, state: CycleState, pod: PodInfo, point: str) -> Question:
        """Return the question that answers at a point, ``filter`` or ``score``.

        Raises:
            KeyError: when the point needs PreFilter or PreScore before it, which was not called.
        """
        question: Question | None = state.get(self._state_key)
        if question is not None and not self._lacks[point]:
            return question
        if question is not None or self._prepared[point]:
            raise KeyError("not found")
        return self.begin(state, pod)

    def changed(self, state: CycleState, size: int) -> RowArray | None:
        """Return the rows to filter again because of changes elsewhere; None if every row may have changed.

        ``size`` is the number of rows.

        Raises:
            PluginFailedError: when the plugin fails, or returns anything but rows below ``size``.
        """
        question: Question | None = state.get(self._state_key)
        if question is None:
            return None
        rows: RowArray | None = called(_PRE_FILTER, self.name, self._named, question, "changed", size, {})
        return rows

    def rescored(self, state: CycleState, size: int, *, same: bool) -> RowArray | None:
        """Return the rows to score again; see :meth:`changed`. ``same``: the feasible nodes are unchanged."""
        question: Question | None = state.get(self._state_key)
        if question is None:
            return None
        rows: RowArray | None = called(_PRE_SCORE, self.name, self._named, question, "rescored", size, {"same": same})
        return rows

    def _named(self, question: Question, method: str, size: int, how: Mapping[str, bool]) -> RowArray | None:
        rows: RowArray | None = getattr(question, method)(**how)
        if rows is not None and not (type(rows) is np.ndarray and rows.shape == _NONE):
            problem = _wrong_rows(rows, size)
            if problem:
                raise WrongAnswerError(self.plugin, method, f"{method} returned {problem}")
        return rows

    # -- points --------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> frozenset[str] | Status | None:
        return self.begin(state, pod).pre_filter(nodes)

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        self._assume(state, node, (added,), ())

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        self._assume(state, node, (), (removed,))

    def _assume(
        self, state: CycleState, node: NodeInfo, added: tuple[PodInfo, ...], removed: tuple[PodInfo, ...]
    ) -> None:
        question = state.read(self._state_key).assuming(node, added, removed)
        if not isinstance(question, Question):
            raise WrongAnswerError(self.plugin, "assuming", f"assuming returned {question!r}; expected a Question")
        state.write(self._state_key, question)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        question: Question | None = state.get(self._state_key)
        return (question if question is not None else self.begin(state, pod)).pre_score(nodes)


def _wrong_rows(rows: Any, size: int) -> str:
    """Return a message if ``rows`` is not an array of row numbers below ``size``; "" if it is."""
    if not isinstance(rows, np.ndarray) or rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "ui"):
        return f"{shape_of(rows)}; expected an array of row numbers or None"
    if len(rows) <= _FEW:
        few = rows.tolist()
        outside = bool(few) and (min(few) < 0 or max(few) >= size)
    else:
        # Read as unsigned, negative numbers are greater than every row.
        outside = int(np.maximum.reduce(rows.astype(np.intp, copy=False).view(np.uintp))) >= size
    if not outside:
        return ""
    row = next(row for row in rows.tolist() if not 0 <= row < size)
    return f"row {row}; there are {size} rows"

"""Plugins as the decision core asks them: :class:`FastPlugin` has questions, :class:`PlainPlugin` is called node by node.

One of them is made per profile and plugin. It says what a pod's answers from the plugin depend on, so that they can be kept,
and keeps the question of an attempt in the cycle state. Made by :class:`~.runtime.Framework`.
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

#: Value that a pod's answers from a plugin depend on besides the nodes: ``ABSENT``, (key,) where they change with a row's own node alone,
#: (key, True) where the question names the rows that change with something else, None where they cannot be kept.
Key = tuple[Hashable, ...] | None
#: The key of a pod that does not concern a plugin.
ABSENT: Final[tuple[Hashable, ...]] = ()
#: Points, and the ones that prepare them.
_PREPARED_AT: Final = {"filter": "preFilter", "score": "preScore"}
#: Up to this many rows plain Python beats NumPy.
_FEW: Final = 8
#: The shape of an array that names no rows.
_NONE: Final = (0,)
#: Beginnings of the texts of failures.
_PRE_FILTER: Final = "running PreFilter plugin"
_PRE_SCORE: Final = "running PreScore plugin"


def question_key(plugin: str) -> str:
    """The key in the cycle state of the question to a plugin."""
    return f"Question{plugin}"


def is_prepared(plugin: Plugin) -> bool:
    """Whether the plugin's profile has it at PreFilter. Where it has not, what comes later may fail for every pod."""
    return any(name == plugin.name for name, _ in plugin.handle.framework.points["preFilter"])


class Turn:
    """Counts the attempts of a profile: a question that was asked in one is not used in another."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


def answering(plugin: Any, handle: Any, turn: Turn | None = None, at: Container[str] | None = None) -> PlainPlugin:
    """A plugin as the decision core asks it. ``at``: keys of the points that the profile has it at; None for all."""
    if not hasattr(plugin, "ask"):
        return PlainPlugin(plugin)
    return FastPlugin(plugin, handle, turn or Turn(), at if at is not None else {*_PREPARED_AT, *_PREPARED_AT.values()})


class PlainPlugin:
    """A plugin that is called node by node.

    Attributes:
        asks: the class of its questions.
        points: keys of the points that its questions answer.
        reads: which changes of a row's own node make an answer stale.
        by_spec: ``ask`` reads nothing of a pod but its spec and namespace.
        is_local: answers change with a row's own node alone, for pods that have a key.
        may_fail: verdicts may fail for a node because of what users wrote.
        follows: kept questions are replaced by those of the current pod.
    """

    points: frozenset[str] = frozenset()
    asks: type[Question] = Question
    reads = Reads.NODE | Reads.PODS
    by_spec = may_fail = follows = False
    #: How the text of a failure begins when pods' keys are asked for; the method that gives them, and how its answer is named.
    _asking: ClassVar = "signing pod with plugin"
    _keyed_by: ClassVar = ("sign", "sign returned")

    def __init__(self, plugin: Any) -> None:
        self.plugin = plugin
        self.name: str = plugin.name
        self._sign: Callable[[PodInfo], Hashable | None] | None = getattr(plugin, "sign", None)
        self.is_local = self._sign is not None
        self.has_what_if = hasattr(plugin, "add_pod")

    def at(self, point: str) -> Any:
        """The object whose methods a point calls."""
        return self if point in self.points else self.plugin

    def question(self, state: CycleState, pod: PodInfo, point: str) -> Question:
        """The question that answers at a point; for points in ``points`` only."""
        raise AssertionError("a plain plugin has no questions")

    def keeps(self, pod: PodInfo) -> bool:
        """Whether the key that was given for the pod depends on nothing but its spec."""
        return self.by_spec

    def key(self, pod: PodInfo) -> Key:
        """Value that the pod's answers depend on.

        Raises:
            PluginFailedError: when the plugin raises, or gives a key that has no hash.
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
    """The question of a pod that does not concern the plugin."""

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
    """A plugin with questions. Of what its class of questions does not answer, the plugin itself is called node by node."""

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
        #: The pod of the last question, the attempt, and the question.
        self._last: tuple[PodInfo | None, int, Question | None] = (None, 0, None)
        #: Points that answer only after what prepares them was called; and those where the profile lacks that.
        lacking = {point: f"pre_{point}" for point, before in _PREPARED_AT.items() if point in at and before not in at}
        self._prepared = {
            point: defines(asks, f"pre_{point}") and point not in asks.stands_alone for point in _PREPARED_AT
        }
        self._lacks = {point: before not in at and self._prepared[point] for point, before in _PREPARED_AT.items()}
        #: One that the profile has at Filter without its PreFilter, or at Score without its PreScore, is called for every pod: it
        #: may fail for the lack of what that prepares.
        self._lacks_preparation = any(hasattr(plugin, method) or defines(asks, method) for method in lacking.values())
        #: Answers that change with other nodes are kept only if the question names the rows.
        self._names_rows = defines(asks, "changed") or defines(asks, "rescored")

    # -- at the start of an attempt -------------------------------------------------------------------------------

    def ask(self, pod: PodInfo) -> Question | None:
        """The question asked for the pod in this attempt, else a new one."""
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
        """The question for a state, which may change it: nothing else uses it from then on."""
        question = self.ask(pod)
        self._last = (None, 0, None)
        return question if question is not None else _NO_QUESTION

    # -- the question of an attempt --------------------------------------------------------------------------------

    def begin(self, state: CycleState, pod: PodInfo) -> Question:
        """Put the pod's question in the state."""
        question = self._take(pod)
        state.write(self._state_key, question)
        return question

    def follow(self, state: CycleState, pod: PodInfo) -> None:
        """Let the question of the pod or the one kept for pods like it go on, as its class says; nothing without a kept one.

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
        """The question that answers at a point, ``filter`` or ``score``.

        Raises:
            KeyError: when the point needs another before it, which was not called.
        """
        question: Question | None = state.get(self._state_key)
        if question is not None and not self._lacks[point]:
            return question
        if question is not None or self._prepared[point]:
            raise KeyError("not found")
        return self.begin(state, pod)

    def changed(self, state: CycleState, size: int) -> RowArray | None:
        """The rows to filter again because of changes elsewhere; ``size`` rows are kept. None: every row may have changed.

        Raises:
            PluginFailedError: when the plugin fails, or names something else than rows of the table.
        """
        question: Question | None = state.get(self._state_key)
        if question is None:
            return None
        rows: RowArray | None = called(_PRE_FILTER, self.name, self._named, question, "changed", size, {})
        return rows

    def rescored(self, state: CycleState, size: int, *, same: bool) -> RowArray | None:
        """Like :meth:`changed`, for scores; ``same`` when the feasible nodes are those of the last time."""
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
    """Words for what is no array of row numbers below ``size``; empty when it is one."""
    if not isinstance(rows, np.ndarray) or rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "ui"):
        return f"{shape_of(rows)}; expected an array of row numbers or None"
    if len(rows) <= _FEW:
        few = rows.tolist()
        outside = bool(few) and (min(few) < 0 or max(few) >= size)
    else:
        # As unsigned numbers, negative ones are beyond every table.
        outside = int(np.maximum.reduce(rows.astype(np.intp, copy=False).view(np.uintp))) >= size
    if not outside:
        return ""
    row = next(row for row in rows.tolist() if not 0 <= row < size)
    return f"row {row}; there are {size} rows"

"""Plugins that ask questions, as the decision core calls them: by extension point, with the question kept in the cycle state.

Made once per profile and plugin by :class:`~.runtime.Framework`. A method exists here if the plugin's question class defines
what it calls, so a plugin extends just the points that its questions answer.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .cycle_state import CycleState
from .interface import Handle
from .nodeinfo import NodeInfo
from .podinfo import PodInfo
from .question import IntArray, Question, RowArray, VerdictArray, defines
from .status import Status
from .wrong_answer import WrongAnswerError

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["Asking", "Turn", "answering", "question_key"]

#: A method of :class:`Question` to the methods here that call it.
_CALLED: dict[str, tuple[str, ...]] = {
    "pre_filter": ("pre_filter",),
    "verdicts": ("filter_rows", "verdict_status", "refresh_filter"),
    "verdict": ("filter_row",),
    "follow": ("follow_question",),
    "assuming": ("add_pod", "remove_pod"),
    "amounts": ("fit_amounts",),
    "pre_score": ("pre_score",),
    "scores": ("score_rows", "refresh_scores"),
    "score": ("score_row",),
    "normalized": ("normalize_within",),
}
_ALL_POINTS: Final = frozenset({"preFilter", "filter", "preScore", "score"})
#: The key of a plugin whose pod does not concern it.
_NOTHING_ASKED = ("nothing asked",)


def question_key(plugin: str) -> str:
    """The key in the cycle state of the question to a plugin."""
    return f"Question{plugin}"


class Turn:
    """Counts the attempts of a profile: a question that was asked in one is not used in another."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


def answering(plugin: Any, handle: Handle, turn: Turn | None = None, at: Container[str] = _ALL_POINTS) -> Any:
    """The object whose methods the decision core calls for a plugin: itself, or one that asks its questions.

    ``at``: keys of the points that the profile has the plugin at.
    """
    return Asking(plugin, handle, turn or Turn(), at) if hasattr(plugin, "ask") else plugin


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


class Asking:
    """One plugin's questions."""

    def __init__(self, plugin: Any, handle: Handle, turn: Turn, at: Container[str]) -> None:
        self._plugin = plugin
        self._handle = handle
        self._turn = turn
        self.name: str = plugin.name
        asks: type[Question] = plugin.asks
        self._key = question_key(self.name)
        self.reads, self.normalize = asks.reads, asks.normalize
        self.signs_spec, self.may_fail = asks.by_spec, asks.may_fail
        #: The pod of the last question, the attempt, and the question.
        self._last: tuple[PodInfo | None, int, Question | None] = (None, 0, None)
        #: Points that answer only after what prepares them was called; and those where the profile lacks that.
        self._prepared = {"filter": defines(asks, "pre_filter"), "score": defines(asks, "pre_score")}
        for point in asks.stands_alone:
            self._prepared[point] = False
        self._lacks_pre_filter = "preFilter" not in at and self._prepared["filter"]
        self._lacks_pre_score = "preScore" not in at and self._prepared["score"]
        for called, methods in _CALLED.items():
            for method in methods if defines(asks, called) else ():
                setattr(self, method, getattr(self, f"_{method}"))
        #: Answers that change with other nodes are kept only if the question names the rows.
        self._names_rows = defines(asks, "changed") or defines(asks, "rescored")
        if not asks.is_local or self._names_rows:
            self.skips = self._skips
        if asks.is_local:
            # A signature is kept with the pod; whether pods elsewhere make it concern the plugin is asked at every attempt.
            self.sign = self._sign
        if hasattr(plugin, "concerns"):
            self.concerns = plugin.concerns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plugin, name)  # a plugin may have questions for Score only, and filter node by node

    # -- at the start of an attempt -------------------------------------------------------------------------------

    def _asked(self, pod: PodInfo) -> Question | None:
        """The question asked for the pod in this attempt, else a new one."""
        last, turn, question = self._last
        if last is pod and turn == self._turn.number:
            return question
        question = self._plugin.ask(pod, self._handle.snapshot.table)
        if question is not None and not isinstance(question, Question):
            raise WrongAnswerError(self._plugin, "ask", f"ask returned {question!r}; expected a Question or None")
        self._last = pod, self._turn.number, question
        return question

    def _take(self, pod: PodInfo) -> Question:
        """The same for a state, which may change the question: nothing else uses it from then on."""
        question = self._asked(pod)
        self._last = (None, 0, None)
        return question if question is not None else _NO_QUESTION

    def _sign(self, pod: PodInfo) -> Hashable | None:
        question = self._asked(pod)
        if question is None:
            return _NOTHING_ASKED
        return (question.key,) if question.is_local and question.key is not None else None

    def _skips(self, pod: PodInfo) -> bool:
        return self._asked(pod) is None

    def interaction_key(self, pod: PodInfo) -> Hashable | None:
        question = self._asked(pod)
        if question is None:
            return _NOTHING_ASKED
        return (question.key,) if question.key is not None and (question.is_local or self._names_rows) else None

    def _follow_question(self, state: CycleState, pod: PodInfo) -> Question | None:
        """Let the question of the pod or the one kept for pods like it go on, as the class says; None without a kept one."""
        kept: Question | None = state.get(self._key)
        if kept is None:
            return None
        question = self._take(pod).follow(kept)
        state.write(self._key, question)
        return question

    # -- Filter ----------------------------------------------------------------------------------------

    def _begin(self, state: CycleState, pod: PodInfo) -> Question:
        question = self._take(pod)
        state.write(self._key, question)
        return question

    def _at_filter(self, state: CycleState, pod: PodInfo) -> Question:
        question: Question | None = state.get(self._key)
        if question is None or self._lacks_pre_filter:
            return self._unprepared(question, state, pod, "filter")
        return question

    def _at_score(self, state: CycleState, pod: PodInfo) -> Question:
        question: Question | None = state.get(self._key)
        if question is None or self._lacks_pre_score:
            return self._unprepared(question, state, pod, "score")
        return question

    def _unprepared(self, question: Question | None, state: CycleState, pod: PodInfo, point: str) -> Question:
        if question is not None or self._prepared[point]:
            raise KeyError("not found")
        return self._begin(state, pod)

    def _pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> frozenset[str] | Status | None:
        return self._begin(state, pod).pre_filter(nodes)

    def _filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        return self._at_filter(state, pod).verdicts(rows)

    def _filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        return self._at_filter(state, pod).verdict(node)

    def _verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        return self._at_filter(state, pod).why(verdict)

    def _refresh_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> RowArray | None:
        question = self._follow_question(state, pod)
        return question.changed() if question is not None else None

    def _add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        state.write(self._key, state.read(self._key).assuming(node, (added,), ()))

    def _remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        state.write(self._key, state.read(self._key).assuming(node, (), (removed,)))

    def _fit_amounts(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Sequence[tuple[int, int]] | None:
        return self._at_filter(state, pod).amounts()

    # -- Score -----------------------------------------------------------------------------------------

    def _pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        question: Question | None = state.get(self._key)
        return (question if question is not None else self._begin(state, pod)).pre_score(nodes)

    def _score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        return self._at_score(state, pod).scores(rows)

    def _score_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        return self._at_score(state, pod).score(node)

    def _refresh_scores(self, state: CycleState, pod: PodInfo, nodes: NodeTable, same: bool) -> RowArray | None:
        question: Question = state.read(self._key)
        return question.rescored(same=same)

    def _normalize_within(self, scores: IntArray, low: int, high: int) -> IntArray:
        return self._plugin.asks.normalized(scores, low, high)  # type: ignore[no-any-return]

"""TEMPORARY: the older column methods, answered by questions. Goes when the decision core asks questions itself."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from .cycle_state import CycleState
from .interface import Plugin
from .nodeinfo import NodeInfo
from .podinfo import PodInfo
from .question import Question
from .status import Status

if TYPE_CHECKING:
    from kubesched.cache import NodeTable


def _defines(question: type[Question], name: str) -> bool:
    return getattr(question, name) is not getattr(Question, name)


class AskedPlugin(Plugin):
    """Base of plugins that define ``asks`` (their question class) and ``ask``."""

    asks: ClassVar[type[Question]]
    #: Whether Filter works in a profile without the plugin's PreFilter, and Score without its PreScore.
    alone: ClassVar[frozenset[str]] = frozenset()

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        raise NotImplementedError

    def _asked(self, pod: PodInfo) -> Question | None:
        """The question of the last pod, asked once."""
        last: tuple[PodInfo, Question | None] | None = getattr(self, "_last_asked", None)
        question = self.ask(pod, self.handle.snapshot.table)
        if (
            last is not None
            and last[0] is pod
            and last[1] is not None
            and question is not None
            and last[1].key == question.key
        ):
            return last[1]
        self._last_asked = (pod, question)
        return question

    def _question(self, state: CycleState, pod: PodInfo, point: str) -> Any:
        found = state.get(("question", self.name))
        if found is None:
            prepare = "pre_filter" if point == "filter" else "pre_score"
            if _defines(self.asks, prepare) and point not in self.alone:
                raise KeyError("not found")
            found = self.ask(pod, self.handle.snapshot.table)
            if found is not None:
                state.write(("question", self.name), found)
        return found

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        asks: type[Question] | None = getattr(cls, "asks", None)
        if asks is None:
            return
        cls.reads = asks.reads  # type: ignore[attr-defined]
        cls.signs_spec = asks.by_spec  # type: ignore[attr-defined]
        cls.normalize = asks.normalize  # type: ignore[attr-defined]
        cls.may_fail = asks.may_fail  # type: ignore[attr-defined]

        def sign(self: Any, pod: PodInfo) -> Hashable | None:
            question = self.ask(pod, self.handle.snapshot.table)
            if question is None:
                return ("none",)
            return ("key", question.key) if question.is_local and question.key is not None else None

        def skips(self: Any, pod: PodInfo) -> bool:
            return self.ask(pod, self.handle.snapshot.table) is None

        def interaction_key(self: Any, pod: PodInfo) -> Hashable | None:
            question = self._asked(pod)
            return ("none",) if question is None else question.key

        def pre_filter(self: Any, state: CycleState, pod: PodInfo, nodes: Any) -> Any:
            question = self._asked(pod)
            if question is None:
                return Status.skip()
            state.write(("question", self.name), question)
            return question.pre_filter(nodes)

        def pre_score(self: Any, state: CycleState, pod: PodInfo, nodes: Any) -> Any:
            question = state.get(("question", self.name)) or self._asked(pod)
            if question is None:
                return Status.skip()
            state.write(("question", self.name), question)
            return question.pre_score(nodes)

        def shifted(self: Any, state: CycleState, node: NodeInfo, added: Any, removed: Any) -> None:
            question = state.get(("question", self.name))
            if question is not None:
                state.write(("question", self.name), question.assuming(node, added, removed))

        def add_pod(self: Any, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
            shifted(self, state, node, (added,), ())

        def remove_pod(self: Any, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
            shifted(self, state, node, (), (removed,))

        def filter_rows(self: Any, state: CycleState, pod: PodInfo, nodes: Any, rows: Any) -> Any:
            return self._question(state, pod, "filter").verdicts(rows)

        def filter_row(self: Any, state: CycleState, pod: PodInfo, nodes: Any, node: NodeInfo) -> int:
            answer: int = self._question(state, pod, "filter").verdict(node)
            return answer

        def verdict_status(self: Any, state: CycleState, pod: PodInfo, verdict: int) -> Status:
            status: Status = self._question(state, pod, "filter").why(verdict)
            return status

        def fit_amounts(self: Any, state: CycleState, pod: PodInfo, nodes: Any) -> Sequence[tuple[int, int]] | None:
            amounts: Sequence[tuple[int, int]] | None = self._question(state, pod, "filter").amounts()
            return amounts

        def refresh_filter(self: Any, state: CycleState, pod: PodInfo, nodes: Any) -> Any:
            kept, question = state.get(("question", self.name)), self._asked(pod)
            if kept is None or question is None:
                return None
            state.write(("question", self.name), now := question.follow(kept))
            return now.changed()

        def refresh_scores(self: Any, state: CycleState, pod: PodInfo, nodes: Any, same: bool) -> Any:
            return state.read(("question", self.name)).rescored(same=same)

        def score_rows(self: Any, state: CycleState, pod: PodInfo, nodes: Any, rows: Any) -> Any:
            return self._question(state, pod, "score").scores(rows)

        def score_row(self: Any, state: CycleState, pod: PodInfo, nodes: Any, node: NodeInfo) -> int:
            answer: int = self._question(state, pod, "score").score(node)
            return answer

        def normalize_within(self: Any, scores: Any, low: int, high: int) -> Any:
            return asks.normalized(scores, low, high)

        methods: dict[str, list[Any]] = {
            "pre_filter": [pre_filter],
            "verdicts": [filter_rows, verdict_status, refresh_filter, fit_amounts],
            "verdict": [filter_row],
            "assuming": [add_pod, remove_pod],
            "pre_score": [pre_score],
            "scores": [score_rows, refresh_scores],
            "score": [score_row],
            "normalized": [normalize_within],
        }
        cls.sign = sign
        cls.interaction_key = interaction_key
        if not asks.is_local:
            cls.skips = skips
        for name, made in methods.items():
            for each in made if _defines(asks, name) else ():
                setattr(cls, each.__name__, each)

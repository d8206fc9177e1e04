"""Entries: Filter and Score plugins of both styles, plain and fast, behind one interface.

The decision core calls an entry for one row or for many, and need not know the plugin's style. The entry determines the
style once, when the profile is built. It checks every answer, for one row and for many.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import numpy as np
import numpy.typing as npt

from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo
from .asking import PlainPlugin
from .cycle_state import CycleState
from .failures import PluginFailedError, called, failed, shape_of
from .interface import MAX_NODE_SCORE, NOT_SCORED, IntArray, Normalize, Reads, RowArray
from .metrics import CounterValue
from .normalize import bounds, scaled
from .plugin_times import Stopwatch
from .question import defines
from .status import Code, Status, is_success
from .wrong_answer import WrongAnswerError

if TYPE_CHECKING:
    from ..nodes import NodeList, NodeTable

__all__ = ["FilterEntry", "ScoreEntry", "most_statuses"]

_FILTER: Final = "running {} filter plugin"
_SCORE: Final = "running Score plugins: plugin {} failed with"
_NORMALIZE: Final = "running Normalize on Score plugins: plugin {} failed with"
#: Kind and item size of a dtype to its least and greatest value.
_LIMITS: Final = {
    ("b", 1): (0, 1),
    **{("u", size): (0, (1 << 8 * size) - 1) for size in (1, 2, 4, 8)},
    **{("i", size): (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) for size in (1, 2, 4, 8)},
}
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1


class _Entry:
    """Base of Filter and Score entries: calls a plugin of either style, and checks its answers.

    Attributes:
        plugin, name, index: the plugin, its name, its place in the profile's order of the extension point.
        reads_pods: True if a change of a node's pods can change the answer about the node.
        reads_images: True if a change of the image table can change answers.
        is_plain: True if the plugin is called node by node, False if its questions answer.
        is_local: True if answers change only with a row's own node, for pods that have a key.
        has_row_form: True if the plugin can evaluate one node without columns.
        evaluations: counter of the nodes that the plugin evaluated; remembered answers are not counted.
    """

    #: Key of the extension point, and its name in metrics.
    _point: ClassVar[str]
    _label: ClassVar[str]
    #: Beginning of the text of a failure.
    _prefix: ClassVar[str]
    #: Dtype of the answers for many rows.
    _dtype: ClassVar[str]
    #: Methods of the plugin's question for one row and for many.
    _one: ClassVar[str]
    _many: ClassVar[str]
    #: Least and greatest answer that is allowed.
    _least: int
    _most: int

    def __init__(
        self,
        asked: PlainPlugin,
        index: int,
        stopwatch: Stopwatch,
        evaluations: CounterValue | None = None,
    ) -> None:
        self._asked = asked
        self._stopwatch = stopwatch
        self.plugin = asked.plugin
        self.index = index
        self.evaluations = evaluations or CounterValue()
        self.name = asked.name
        self.is_plain = self._point not in asked.points
        reads = PlainPlugin.reads if self.is_plain else asked.reads
        self.reads_pods, self.reads_images = bool(reads & Reads.PODS), bool(reads & Reads.IMAGES)
        self.is_local = asked.is_local
        self.has_row_form = self.is_plain or defines(asked.asks, self._one)

    def one(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        """Return one node's verdict or raw score, computed in plain Python if the plugin can do that.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        if not self.has_row_form:
            return int(self.many(state, pod, nodes, np.array([node.row], np.int32))[0])
        if not self._stopwatch.is_on:
            return self._one_answer(state, pod, node)
        start = self._stopwatch.now()
        answer = self._one_answer(state, pod, node)
        self._stopwatch.asked(self.name, self._label, start)
        return answer

    def _one_answer(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        self.evaluations.value += 1
        if self.is_plain:
            answer = self._plain(state, pod, node)
        else:
            answer = self._answer(self._one, state, pod, node)
            if type(answer) is not int:
                if not isinstance(answer, bool | np.bool_ | np.integer):
                    raise self._wrong(self._one, f"{self._one} returned {answer!r}; expected an int")
                answer = int(answer)
        if not self._least <= answer <= self._most:
            self._refuse(answer, self._one)
        return answer

    def many(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> Any:
        """Return the answers for many rows: uint64[len(rows)] verdicts, or int64[len(rows)] raw scores.

        Raises:
            PluginFailedError: when the plugin fails on any of the rows.
        """
        if not self._stopwatch.is_on:
            return self._many_answers(state, pod, nodes, rows)
        start = self._stopwatch.now()
        answer = self._many_answers(state, pod, nodes, rows)
        self._stopwatch.asked(self.name, self._label, start)
        return answer

    def _many_answers(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> Any:
        if self.is_plain:
            answer: Any = np.array([self._counted(state, pod, nodes.info(row)) for row in rows.tolist()], self._dtype)
            if len(rows):
                self._check(answer)
            return answer
        self.evaluations.value += len(rows)
        rows.flags.writeable = False  # the caller goes on to use the array
        answer = self._answer(self._many, state, pod, rows)
        if not isinstance(answer, np.ndarray) or answer.shape != (len(rows),) or answer.dtype.kind not in "uib":
            problem = f"{self._many} returned {shape_of(answer)}; expected {self._dtype}[{len(rows)}]"
            raise self._wrong(self._many, problem)
        if len(rows):
            self._check(answer)
        return answer.astype(self._dtype, copy=False)

    def _counted(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        # Counted one by one, so that the watch for slow plugins sees how far a long call has come.
        self.evaluations.value += 1
        return self._plain(state, pod, node)

    def _answer(self, method: str, state: CycleState, pod: PodInfo, *about: Any) -> Any:
        """Call a method of the pod's question and return its answer.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        try:
            return getattr(self._asked.question(state, pod, self._point), method)(*about)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(error) from error

    def _check(self, answer: Any) -> None:
        """Fail if one of many answers is out of range. A bound that the dtype cannot exceed is not checked."""
        limits = _LIMITS[answer.dtype.kind, answer.dtype.itemsize]
        if limits[0] < self._least and (least := int(answer.min())) < self._least:
            self._refuse(least, self._many)
        if limits[1] > self._most and (most := int(answer.max())) > self._most:
            self._refuse(most, self._many)

    def _refuse(self, answer: int, method: str) -> NoReturn:
        raise self._wrong(method, f"{method} returned {answer}, which is beyond {self._dtype}")

    def _failed(self, error: BaseException) -> PluginFailedError:
        return PluginFailedError(self.name, failed(self._prefix, self.name, error))

    def _wrong(self, method: str, problem: str) -> PluginFailedError:
        return self._failed(WrongAnswerError(self.plugin, method, problem))

    def _plain(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        raise AssertionError("each kind of entry has its own")


def most_statuses(rows: int) -> int:
    """Return the most distinct rejections to keep for this number of rows.

    There has to be a bound, because a reason that contains a number may be new at every attempt.
    """
    return 2 * rows + (1 << 10)


class _NumberedStatuses:
    """Rejections of a plain plugin, numbered from 1 in the order in which they first occurred."""

    __slots__ = ("_numbers", "statuses")

    def __init__(self) -> None:
        self.statuses: list[Status] = []
        self._numbers: dict[Status, int] = {}

    def number(self, status: Status) -> int:
        number = self._numbers.setdefault(status, len(self.statuses) + 1)
        if number > len(self.statuses):
            self.statuses.append(status)
        return number


class FilterEntry(_Entry):
    """Entry of a Filter plugin."""

    _point = "filter"
    _label = "Filter"
    _prefix = _FILTER
    _dtype = "uint64"
    _one = "verdict"
    _many = "verdicts"
    _least = 0
    _most = (1 << 64) - 1

    def status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        """Return the status that a verdict other than 0 stands for.

        Raises:
            PluginFailedError: when the plugin fails, or the status is not a rejection.
        """
        if self.is_plain:
            numbered: _NumberedStatuses = state.read(("statuses", self.name))
            return numbered.statuses[verdict - 1]
        status = self._answer("why", state, pod, verdict)
        if not isinstance(status, Status):
            raise self._wrong("why", f"why returned {status!r}; expected a Status")
        if not status.is_rejected:
            raise self._failed(_as_error(status))
        return status.with_plugin(self.name)

    def _plain(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Call a plain plugin for a node. Return 0 if the node passes, else the number of the rejection, from 1."""
        status = called(self._prefix, self.name, self.plugin.filter, state, pod, node)
        if status is None:
            return 0
        if not isinstance(status, Status):
            raise self._wrong("filter", f"filter returned {status!r}; expected None or a Status")
        if status.code is Code.SUCCESS:
            return 0
        if not status.is_rejected:
            raise self._failed(_as_error(status))
        numbered: _NumberedStatuses | None = state.get(("statuses", self.name))
        if numbered is None:
            numbered = _NumberedStatuses()
            state.write(("statuses", self.name), numbered)
        return numbered.number(status.with_plugin(self.name))

    def amounts(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Sequence[tuple[int, int]] | None:
        """Return the amounts that alone decide about the pod; None if the verdict depends on more.

        See ``amounts`` of :class:`.question.Question`.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        if self.is_plain or not defines(self._asked.asks, "amounts"):
            return None
        answer = self._answer("amounts", state, pod)
        if answer is None:
            return None
        resources = range(len(nodes.allocatable))
        try:
            amounts = tuple([(operator.index(at), operator.index(amount)) for at, amount in answer])
        except (TypeError, ValueError):
            amounts = ((-1, 0),)
        if not all(at in resources for at, _ in amounts):
            problem = f"amounts returned {answer!r}; expected (index, amount) pairs, the index from resource_index of the node table"
            raise self._wrong("amounts", problem)
        return amounts

    def distinct_statuses(self, state: CycleState) -> int:
        """Return the number of distinct rejections of a plain plugin that ``state`` keeps."""
        numbered: _NumberedStatuses | None = state.get(("statuses", self.name))
        return len(numbered.statuses) if numbered is not None else 0


class ScoreEntry(_Entry):
    """Entry of a Score plugin: calls it, and normalises and weights its raw scores.

    Attributes:
        weight: factor of the final score.
        normalize: ready-made normalisation, if the plugin names one.
        has_within: True if the question normalises scores by their bounds (``normalized``).
        needs_all: True if the plugin normalises the scores of all feasible nodes together (``normalize_score``).
        is_raw: True if raw scores are final, and nothing is normalised.
    """

    _point = "score"
    _label = "Score"
    _prefix = _SCORE
    _dtype = "int64"
    _one = "score"
    _many = "scores"

    def __init__(
        self,
        asked: PlainPlugin,
        weight: int,
        stopwatch: Stopwatch,
        index: int = 0,
        evaluations: CounterValue | None = None,
    ) -> None:
        super().__init__(asked, index, stopwatch, evaluations)
        self.weight = weight
        by: Any = self.plugin if self.is_plain else asked.asks
        self.has_within = not self.is_plain and defines(by, "normalized")
        self.needs_all = hasattr(self.plugin, "normalize_score") and not self.has_within
        own = self.has_within or self.needs_all
        self.normalize: Normalize | None = None if own else getattr(by, "normalize", None)
        self.is_raw = not own and self.normalize is None
        self._least = _INT64_MIN if own else 0
        self._most = MAX_NODE_SCORE if self.is_raw else _INT64_MAX

    def bounds(self, raw: npt.NDArray[np.signedinteger]) -> tuple[int, int]:
        """Return the bounds by which raw scores are normalised: the least and the greatest of them.

        Ready-made normalisation has 0 as its lower bound. ``raw`` is int64 or int32.
        """
        low, high = bounds(raw)
        return (low, high) if self.normalize is None else (0, max(0, high))

    def final(self, raw: IntArray, low: int, high: int) -> IntArray:
        """Normalise raw scores within :meth:`bounds`, check and weight them: int64[len(raw)].

        The result for a score does not depend on the other scores in ``raw``, which must not contain NOT_SCORED. Do not
        call this method for a plugin that ``needs_all`` scores.

        Raises:
            PluginFailedError: when the plugin fails, or a normalised score is outside 0…100.
        """
        if self.is_raw:
            return raw * self.weight  # checked when the plugin answered
        if self.normalize is not None:
            return self._weighted(scaled(self.normalize, raw, high))
        raw = raw.view()
        raw.flags.writeable = False  # a layer may keep this array
        scores = called(_NORMALIZE, self.name, self._asked.asks.normalized, raw, low, high)
        return self._weighted(self._checked("normalized", scores, len(raw)))

    def final_or_zero(self, raw: IntArray, low: int, high: int) -> IntArray:
        """Like :meth:`final`, with 0 for NOT_SCORED."""
        if self.is_raw or not len(raw) or int(raw.min()) != NOT_SCORED:
            return self.final(raw, low, high)
        final, scored = np.zeros(len(raw), np.int64), raw != NOT_SCORED
        if scored.any():
            final[scored] = self.final(raw[scored], low, high)
        return final

    def final_of_all(self, state: CycleState, pod: PodInfo, nodes: NodeList, raw: IntArray) -> IntArray:
        """Like :meth:`final_or_zero`, but for the raw scores of all feasible ``nodes`` (one or more), and for any
        plugin.

        Raises:
            PluginFailedError: when the plugin fails, or a normalised score is outside 0…100.
        """
        if not self.needs_all:
            return self.final_or_zero(raw, *self.bounds(raw))
        answer = called(_NORMALIZE, self.name, self.plugin.normalize_score, state, pod, nodes, raw)
        if isinstance(answer, Status):
            if not is_success(answer):
                raise self._normalizing_failed(_as_error(answer))
            answer = raw
        return self._weighted(self._checked("normalize_score", answer, len(raw)))

    def _checked(self, method: str, answer: Any, size: int) -> IntArray:
        if not isinstance(answer, np.ndarray) or answer.shape != (size,) or answer.dtype.kind not in "ui":
            problem = f"{method} returned {shape_of(answer)}; expected int64[{size}]"
            raise self._normalizing_failed(WrongAnswerError(self.plugin, method, problem))
        return answer

    def _weighted(self, scores: IntArray) -> IntArray:
        if len(scores):
            least, most = int(np.minimum.reduce(scores)), int(np.maximum.reduce(scores))
            if least < 0 or most > MAX_NODE_SCORE:
                raise self._out_of_range(least if least < 0 else most)
        weighted: IntArray = scores.astype(np.int64, copy=False) * self.weight
        return weighted

    def _refuse(self, answer: int, method: str) -> NoReturn:
        if self._least == 0:
            raise self._out_of_range(answer)
        super()._refuse(answer, method)

    def _out_of_range(self, score: int) -> PluginFailedError:
        text = (
            f'applying score defaultWeights on Score plugins: plugin "{self.name}" returns an invalid score {score}, '
            "it should in the range of [0, 100] after normalizing"
        )
        error = RuntimeError(text)
        method = self._one if self.is_plain else self._many
        if self.has_within or self.needs_all:
            method = "normalized" if self.has_within else "normalize_score"
        error.__cause__ = WrongAnswerError(self.plugin, method, text)
        return PluginFailedError(self.name, error)

    def _normalizing_failed(self, error: BaseException) -> PluginFailedError:
        return PluginFailedError(self.name, failed(_NORMALIZE, self.name, error))

    def _plain(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        score = called(self._prefix, self.name, self.plugin.score, state, pod, node)
        if isinstance(score, Status):
            raise self._failed(_as_error(score))
        if isinstance(score, bool) or not isinstance(score, int | np.integer):
            raise self._wrong("score", f"score returned {score!r}; expected an int")
        if not _INT64_MIN <= score <= _INT64_MAX:
            raise self._wrong("score", f"score returned {score}, which is beyond 64 bits")
        return int(score)


def _as_error(status: Status) -> BaseException:
    return status.as_error() or RuntimeError(f"unexpected status {status.code.label}")

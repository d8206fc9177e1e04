"""Filter and Score plugins of both styles behind one interface.

The decision core calls an entry for many rows or for one; whether the plugin is plain or works on columns
is settled here, once, when the profile is built. Every answer is checked, that for one row as that for many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import numpy as np
import numpy.typing as npt

from .cycle_state import CycleState
from .interface import MAX_NODE_SCORE, NOT_SCORED, IntArray, Normalize, Reads, RowArray
from .metrics import CounterValue
from .nodeinfo import NodeInfo
from .normalize import bounds, scaled
from .podinfo import PodInfo
from .status import Code, Status, is_success
from .wrong_answer import WrongAnswerError

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["FilterEntry", "PluginFailedError", "ScoreEntry", "called", "failed", "most_statuses", "shape_of"]


class PluginFailedError(Exception):
    """A plugin raised, or answered what it must not: the attempt fails with code Error naming it."""

    def __init__(self, plugin: str, error: BaseException) -> None:
        super().__init__(str(error))
        self.plugin = plugin
        self.error = error

    @classmethod
    def of(cls, status: Status) -> PluginFailedError:
        """A status other than success, where only success continues the attempt."""
        return cls(status.plugin, status.as_error() or RuntimeError(status.message()))


def failed(prefix: str, plugin: str, error: BaseException | None) -> RuntimeError:
    """An error in upstream's words: ``running PreFilter plugin "X": what happened``. Its cause is ``error``."""
    text = str(error) or type(error).__name__
    place = prefix.format(_quoted(plugin)) if "{}" in prefix else f"{prefix} {_quoted(plugin)}"
    found = RuntimeError(f"{place}: {text}")
    found.__cause__ = error
    return found


def called(prefix: str, plugin: str, method: Callable[..., Any], *args: Any) -> Any:
    """What a plugin's method returns; ``prefix`` as for :func:`failed`.

    Raises:
        PluginFailedError: when it raises.
    """
    try:
        return method(*args)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginFailedError(plugin, failed(prefix, plugin, error)) from error


def _quoted(name: str) -> str:
    return f'"{name}"'


_FILTER: Final = "running {} filter plugin"
_SCORE: Final = "running Score plugins: plugin {} failed with"
_NORMALIZE: Final = "running Normalize on Score plugins: plugin {} failed with"
#: (kind, item size) of a type to the least and the greatest value.
_LIMITS: Final = {
    ("b", 1): (0, 1),
    **{("u", size): (0, (1 << 8 * size) - 1) for size in (1, 2, 4, 8)},
    **{("i", size): (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) for size in (1, 2, 4, 8)},
}
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1


class _Entry:
    """What Filter and Score entries have in common: signatures, and calling a plugin of either style.

    Attributes:
        index: its place in the profile's order of the extension point.
        reads_pods: whether a change of a node's pods can change the answers about the node.
        reads_images: whether a change of the image table can.
        signs_spec: the signature depends on nothing of the pod but its spec.
        can_be_absent: some pods do not concern the plugin.
        has_row_form: the plugin can evaluate one node without columns.
        evaluations: counts nodes evaluated by the plugin; what a layer remembers is no evaluation.
    """

    #: How the text of a failure begins; the plugin's methods for one row and for many; what the latter returns.
    _prefix: ClassVar[str]
    _row_method: ClassVar[str]
    _rows_method: ClassVar[str]
    _dtype: ClassVar[str]
    #: The methods of the plugin's question that these call, which messages name.
    _one: ClassVar[str]
    _many: ClassVar[str]
    #: What an answer may be.
    _least: int
    _most: int

    def __init__(self, plugin: Any, index: int, evaluations: CounterValue | None = None) -> None:
        self.plugin = plugin
        self.index = index
        self.evaluations = evaluations or CounterValue()
        self.name: str = plugin.name
        reads: Reads = getattr(plugin, "reads", Reads.NODE | Reads.PODS)
        self.reads_pods = bool(reads & Reads.PODS)
        self.reads_images = bool(reads & Reads.IMAGES)
        self._sign: Callable[[PodInfo], Hashable | None] | None = getattr(plugin, "sign", None)
        self.signs_spec: bool = getattr(plugin, "signs_spec", False)
        self.can_be_absent = hasattr(plugin, "concerns")
        self.is_plain = not hasattr(plugin, self._rows_method)
        self._row: Callable[..., int] | None = getattr(plugin, self._row_method, None)
        self.has_row_form = self.is_plain or self._row is not None

    @property
    def can_sign(self) -> bool:
        return self._sign is not None

    def sign(self, pod: PodInfo) -> Hashable | None:
        """The plugin's signature of a pod, None when it has none.

        Raises:
            PluginFailedError: when the plugin raises, or signs with something that has no hash.
        """
        if self._sign is None:
            return None
        try:
            signature = self._sign(pod)
            hash(signature)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise PluginFailedError(self.name, failed("signing pod with plugin", self.name, error)) from error
        return signature

    def one(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        """The verdict on, or raw score of, one node; in plain Python where the plugin offers it.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        if self._row is not None:
            self.evaluations.value += 1
            try:
                answer = self._row(state, pod, nodes, node)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise self._failed(error) from error
            if type(answer) is not int:
                if not isinstance(answer, bool | np.bool_ | np.integer):
                    raise self._wrong(self._one, f"{self._one} returned {answer!r}; expected an int")
                answer = int(answer)
        elif self.is_plain:
            self.evaluations.value += 1
            answer = self._plain(state, pod, node)
        else:
            return int(self.many(state, pod, nodes, np.array([node.row], np.int32))[0])
        if not self._least <= answer <= self._most:
            self._refuse(answer, self._one)
        return answer

    def many(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> Any:
        """The answers for many rows: uint64[len(rows)] verdicts, or int64[len(rows)] raw scores.

        Raises:
            PluginFailedError: when the plugin fails on any of the rows.
        """
        self.evaluations.value += len(rows)
        if self.is_plain:
            info = nodes.info
            answer: Any = np.array([self._plain(state, pod, info(row)) for row in rows.tolist()], self._dtype)
            if len(rows):
                self._check(answer)
            return answer
        rows.flags.writeable = False  # the caller uses them afterwards
        answer = called(self._prefix, self.name, getattr(self.plugin, self._rows_method), state, pod, nodes, rows)
        if not isinstance(answer, np.ndarray) or answer.shape != (len(rows),) or answer.dtype.kind not in "uib":
            problem = f"{self._many} returned {shape_of(answer)}; expected {self._dtype}[{len(rows)}]"
            raise self._wrong(self._many, problem)
        if len(rows):
            self._check(answer)
        return answer.astype(self._dtype, copy=False)

    def _check(self, answer: Any) -> None:
        """Fail when an answer of a method for many rows is out of range. Looks only where the type allows that."""
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
    """Most distinct rejections to keep for so many rows: a reason that says a number may be new at every attempt."""
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
    """A Filter plugin."""

    _prefix = _FILTER
    _row_method = "filter_row"
    _rows_method = "filter_rows"
    _dtype = "uint64"
    _one = "verdict"
    _many = "verdicts"
    _least = 0
    _most = (1 << 64) - 1

    def status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        """What a non-zero verdict means.

        Raises:
            PluginFailedError: when the plugin fails, or the status is not a rejection.
        """
        if self.is_plain:
            numbered: _NumberedStatuses = state.read(("statuses", self.name))
            return numbered.statuses[verdict - 1]
        status = called(_FILTER, self.name, self.plugin.verdict_status, state, pod, verdict)
        if not isinstance(status, Status):
            raise self._wrong("why", f"why returned {status!r}; expected a Status")
        if not status.is_rejected:
            raise self._failed(_as_error(status))
        return status.with_plugin(self.name)

    def _plain(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Call a plain plugin; distinct rejections are numbered from 1 in the order they first occur."""
        try:
            status = self.plugin.filter(state, pod, node)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(error) from error
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

    def distinct_statuses(self, state: CycleState) -> int:
        """Number of different rejections of a plain plugin that ``state`` keeps."""
        numbered: _NumberedStatuses | None = state.get(("statuses", self.name))
        return len(numbered.statuses) if numbered is not None else 0


class ScoreEntry(_Entry):
    """A Score plugin, its weight, and how its raw scores are normalised.

    Attributes:
        normalize: ready-made normalisation, if the plugin names one.
        needs_all: the plugin has ``normalize_score`` only, which needs the scores of all feasible nodes at a time.
        is_raw: raw scores are final: nothing is normalised.
    """

    _prefix = _SCORE
    _row_method = "score_row"
    _rows_method = "score_rows"
    _dtype = "int64"
    _one = "score"
    _many = "scores"

    def __init__(self, plugin: Any, weight: int, index: int = 0, evaluations: CounterValue | None = None) -> None:
        super().__init__(plugin, index, evaluations)
        self.weight = weight
        self.has_within = hasattr(plugin, "normalize_within")
        self.needs_all = hasattr(plugin, "normalize_score") and not self.has_within
        own = self.has_within or self.needs_all
        self.normalize: Normalize | None = None if own else getattr(plugin, "normalize", None)
        self.is_raw = not own and self.normalize is None
        self._least = _INT64_MIN if own else 0
        self._most = MAX_NODE_SCORE if self.is_raw else _INT64_MAX

    def bounds(self, raw: npt.NDArray[np.signedinteger]) -> tuple[int, int]:
        """What raw scores, int64 or int32, are normalised by: the least and the greatest of them (ready-made: 0 and the greatest)."""
        low, high = bounds(raw)
        return (low, high) if self.normalize is None else (0, max(0, high))

    def final(self, raw: IntArray, low: int, high: int) -> IntArray:
        """int64[len(raw)]: raw scores normalised within :meth:`bounds`, checked and weighted.

        The same for one row as for many. NOT_SCORED must not be among them. Not for plugins that need all scores.

        Raises:
            PluginFailedError: when the plugin fails, or a normalised score is outside 0…100.
        """
        if self.is_raw:
            return raw * self.weight  # checked when the plugin answered
        if self.normalize is not None:
            return self._weighted(scaled(self.normalize, raw, high))
        raw = raw.view()
        raw.flags.writeable = False  # they may be the remembered ones
        scores = called(_NORMALIZE, self.name, self.plugin.normalize_within, raw, low, high)
        return self._weighted(self._checked("normalized", scores, len(raw)))

    def final_or_zero(self, raw: IntArray, low: int, high: int) -> IntArray:
        """The same, and 0 for NOT_SCORED."""
        if self.is_raw or not len(raw) or int(raw.min()) != NOT_SCORED:
            return self.final(raw, low, high)
        final, scored = np.zeros(len(raw), np.int64), raw != NOT_SCORED
        if scored.any():
            final[scored] = self.final(raw[scored], low, high)
        return final

    def final_of_all(self, state: CycleState, pod: PodInfo, nodes: NodeList, raw: IntArray) -> IntArray:
        """The same for the raw scores of all feasible ``nodes``, which may be one.

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
        try:
            score = self.plugin.score(state, pod, node)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(error) from error
        if isinstance(score, Status):
            raise self._failed(_as_error(score))
        if isinstance(score, bool) or not isinstance(score, int | np.integer):
            raise self._wrong("score", f"score returned {score!r}; expected an int")
        if not _INT64_MIN <= score <= _INT64_MAX:
            raise self._wrong("score", f"score returned {score}, which is beyond 64 bits")
        return int(score)


def shape_of(answer: Any) -> str:
    """What a plugin returned, for a message: type and shape of an array, anything else as it is."""
    if isinstance(answer, np.ndarray):
        return f"{answer.dtype}{list(answer.shape)}"
    return repr(answer)


def _as_error(status: Status) -> BaseException:
    return status.as_error() or RuntimeError(f"unexpected status {status.code.label}")

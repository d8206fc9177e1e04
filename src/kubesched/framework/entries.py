"""Filter and Score plugins of both styles behind one face.

The decision core asks an entry for many rows or for one; whether the plugin is plain or works on columns
is settled here, once, when the profile is built.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from .cycle_state import CycleState
from .interface import IntArray, Normalize, Reads, RowArray, VerdictArray
from .nodeinfo import NodeInfo
from .podinfo import PodInfo
from .status import Code, Status

if TYPE_CHECKING:
    from kubesched.cache import NodeTable

__all__ = ["FilterEntry", "PluginFailedError", "ScoreEntry", "failed"]


class PluginFailedError(Exception):
    """A plugin raised, or answered what it must not: the attempt fails with code Error naming it."""

    def __init__(self, plugin: str, error: BaseException) -> None:
        super().__init__(str(error))
        self.plugin = plugin
        self.error = error

    @classmethod
    def of(cls, status: Status) -> PluginFailedError:
        """A status other than success, where only success lets the attempt go on."""
        return cls(status.plugin, status.as_error() or RuntimeError(status.message()))


def failed(prefix: str, plugin: str, error: BaseException | None) -> RuntimeError:
    """An error in upstream's words: ``running PreFilter plugin "X": what happened``."""
    text = str(error) or type(error).__name__
    if "{}" in prefix:
        return RuntimeError(f"{prefix.format(_quoted(plugin))}: {text}")
    return RuntimeError(f"{prefix} {_quoted(plugin)}: {text}")


def _quoted(name: str) -> str:
    return f'"{name}"'


_FILTER: Final = "running {} filter plugin"
_SCORE: Final = "running Score plugins: plugin {} failed with"


class _Signing:
    """How an entry's answers may be remembered."""

    def __init__(self, plugin: Any) -> None:
        self.plugin = plugin
        self.name: str = plugin.name
        self.reads: Reads = getattr(plugin, "reads", Reads.NODE | Reads.PODS)
        self._sign: Callable[[PodInfo], Hashable | None] | None = getattr(plugin, "sign", None)

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
        except (Exception, SystemExit) as error:
            raise PluginFailedError(self.name, failed("signing pod with plugin", self.name, error)) from error
        return signature


class _Entry(_Signing):
    """What Filter and Score entries have in common: asking a plugin of either style about one row.

    ``prefix`` begins the text of a failure.
    """

    prefix: ClassVar[str]
    is_plain: bool
    _row: Callable[..., int] | None

    def one(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        """The verdict on, or raw score of, one node; in plain Python where the plugin offers it.

        Raises:
            PluginFailedError: when the plugin fails.
        """
        if self._row is not None:
            try:
                return self._row(state, pod, nodes, node)
            except (Exception, SystemExit) as error:
                raise PluginFailedError(self.name, failed(self.prefix, self.name, error)) from error
        if self.is_plain:
            return self._plain(state, pod, node)
        return int(self.many(state, pod, nodes, np.array([node.row], np.int32))[0])

    def many(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> Any:
        """The answers for many rows, as the kind of entry encodes them."""
        raise AssertionError("each kind of entry has its own")

    def _plain(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        raise AssertionError("each kind of entry has its own")


class FilterEntry(_Entry):
    """A Filter plugin; ``index`` is its place in the profile's order."""

    prefix = _FILTER

    def __init__(self, plugin: Any, index: int) -> None:
        super().__init__(plugin)
        self.index = index
        self.is_plain = not hasattr(plugin, "filter_rows")
        #: True when one call per node is all there is: what makes looking at every node expensive.
        self.expensive = self.is_plain and not self.can_sign
        self._row: Callable[..., int] | None = getattr(plugin, "filter_row", None)

    def many(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        """uint64[len(rows)]: 0 where the node passes.

        Raises:
            PluginFailedError: when the plugin fails on any of the rows.
        """
        if self.is_plain:
            info = nodes.info
            verdicts = [self._plain(state, pod, info(row)) for row in rows.tolist()]
            return np.array(verdicts, np.uint64)
        try:
            answer = self.plugin.filter_rows(state, pod, nodes, rows)
        except (Exception, SystemExit) as error:
            raise PluginFailedError(self.name, failed(_FILTER, self.name, error)) from error
        if not isinstance(answer, np.ndarray) or answer.shape != (len(rows),) or answer.dtype.kind not in "uib":
            problem = f"filter_rows returned {_shape(answer)}; expected uint64[{len(rows)}]"
            raise PluginFailedError(self.name, failed(_FILTER, self.name, TypeError(problem)))
        return answer.astype(np.uint64, copy=False)

    def status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        """What a non-zero verdict means."""
        if self.is_plain:
            interned: Sequence[Status] = state.read(("statuses", self.name))
            return interned[verdict - 1]
        status: Status = self.plugin.verdict_status(state, pod, verdict)
        return status.with_plugin(self.name)

    def _plain(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Ask a plain plugin; distinct rejections are numbered from 1 in the order they first occur."""
        try:
            status = self.plugin.filter(state, pod, node)
        except (Exception, SystemExit) as error:
            raise PluginFailedError(self.name, failed(_FILTER, self.name, error)) from error
        if status is None:
            return 0
        if not isinstance(status, Status):
            problem = f"filter returned {status!r}; expected None or a Status"
            raise PluginFailedError(self.name, failed(_FILTER, self.name, TypeError(problem)))
        if status.code is Code.SUCCESS:
            return 0
        if not status.is_rejected:
            raise PluginFailedError(self.name, failed(_FILTER, self.name, _as_error(status)))
        interned: list[Status] | None = state.get(("statuses", self.name))
        if interned is None:
            interned = []
            state.write(("statuses", self.name), interned)
        named = status.with_plugin(self.name)
        if named not in interned:
            interned.append(named)
        return interned.index(named) + 1


class ScoreEntry(_Entry):
    """A Score plugin and its weight."""

    prefix = _SCORE

    def __init__(self, plugin: Any, weight: int) -> None:
        super().__init__(plugin)
        self.weight = weight
        self.is_plain = not hasattr(plugin, "score_rows")
        self.expensive = self.is_plain and not self.can_sign
        self.normalize: Normalize | None = getattr(plugin, "normalize", None)
        self.has_own_normalize = hasattr(plugin, "normalize_score")
        self._row: Callable[..., int] | None = getattr(plugin, "score_row", None)

    def many(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        """int64[len(rows)]: raw scores.

        Raises:
            PluginFailedError: when the plugin fails on any of the rows.
        """
        if self.is_plain:
            info = nodes.info
            return np.array([self._plain(state, pod, info(row)) for row in rows.tolist()], np.int64)
        try:
            answer = self.plugin.score_rows(state, pod, nodes, rows)
        except (Exception, SystemExit) as error:
            raise PluginFailedError(self.name, failed(_SCORE, self.name, error)) from error
        if not isinstance(answer, np.ndarray) or answer.shape != (len(rows),) or answer.dtype.kind not in "uib":
            problem = f"score_rows returned {_shape(answer)}; expected int64[{len(rows)}]"
            raise PluginFailedError(self.name, failed(_SCORE, self.name, TypeError(problem)))
        return answer.astype(np.int64, copy=False)

    def _plain(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        try:
            score = self.plugin.score(state, pod, node)
        except (Exception, SystemExit) as error:
            raise PluginFailedError(self.name, failed(_SCORE, self.name, error)) from error
        if isinstance(score, Status):
            raise PluginFailedError(self.name, failed(_SCORE, self.name, _as_error(score)))
        if isinstance(score, bool) or not isinstance(score, int | np.integer):
            problem = f"score returned {score!r}; expected an int"
            raise PluginFailedError(self.name, failed(_SCORE, self.name, TypeError(problem)))
        if not -(1 << 63) <= score < 1 << 63:
            problem = f"score returned {score}, which is beyond 64 bits"
            raise PluginFailedError(self.name, failed(_SCORE, self.name, ValueError(problem)))
        return int(score)


def _shape(answer: Any) -> str:
    if isinstance(answer, np.ndarray):
        return f"{answer.dtype}{list(answer.shape)}"
    return repr(answer)


def _as_error(status: Status) -> BaseException:
    return status.as_error() or RuntimeError(f"unexpected status {status.code.label}")

"""Watch for slow plugins: it names a plugin that holds the event loop, with one long call or with many short ones.

A thread samples the stack of the thread that schedules. It recognises plugins by the code objects of their methods, so
calls cost nothing. Work that a plugin awaits is not seen, but it holds up nothing. Callers: the commands and
:mod:`kubesched.lab.simulate`.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FrameType
from typing import Any, Final

from .interface import Contract
from .question import Question, defines

__all__ = ["SLOW_SECONDS", "Work", "loop_progress", "plugins_of", "watching_plugins", "work_of"]

#: Function from a plugin's name and method to the number of nodes that it has evaluated so far, 0 at points other than
#: Filter and Score, and the key of the pod that is searched a node for.
Work = Callable[[str, str], tuple[int, str]]

#: Duration in seconds above which a call is reported as slow.
SLOW_SECONDS: Final = 1.0
#: Samples of the stack during that time.
_SAMPLES: Final = 4

_METHODS: Final = tuple(name for name, member in vars(Contract).items() if inspect.isfunction(member))
#: Methods at Filter and at Score: those of plugins, and those of their questions.
_FILTERING: Final = frozenset({"filter", "verdict", "verdicts"})
_SCORING: Final = frozenset({"score", "scores"})
_ASKED: Final = tuple(name for name, member in vars(Question).items() if callable(member) and name[0] != "_")


def _codes(plugins: Iterable[object]) -> dict[CodeType, tuple[str, str]]:
    """Return (plugin name, method) by code object, for all interface methods of the plugins and their questions."""
    found: dict[CodeType, tuple[str, str]] = {}
    for plugin in plugins:
        asks = getattr(plugin, "asks", Question)
        methods = [(name, getattr(plugin, name, None)) for name in _METHODS]
        methods += [(name, getattr(asks, name)) for name in _ASKED if defines(asks, name)]
        for name, method in methods:
            code = getattr(inspect.unwrap(method), "__code__", None) if method is not None else None
            if isinstance(code, CodeType):
                found.setdefault(code, (str(getattr(plugin, "name", "")), name))
    return found


@contextmanager
def watching_plugins(
    plugins: Iterable[object],
    report: Callable[[str], None],
    *,
    seconds: float = SLOW_SECONDS,
    thread: Callable[[], int | None] | None = None,
    progress: Callable[[], object] | None = None,
    work: Work | None = None,
) -> Iterator[None]:
    """Watch for slow plugins while the context lasts.

    ``report`` is called with a text when one call of a plugin's method takes longer than ``seconds``, or when many
    calls together do. Calls count together while ``progress`` returns the same value, which means that nothing else is
    done between them. Without ``progress``, calls count together while every sample finds a plugin. ``report`` is
    called in a thread of its own, once for each method of a plugin. ``work`` adds which pod it is about and the time
    for each node; see :func:`work_of`.

    The watched thread is the one that enters the context, or the one that ``thread`` returns at the time. While
    ``progress`` returns a new value each time, no call is slow, and the stack is not sampled: reading the frames of a
    thread that goes on to run has ended in a segmentation fault (Python 3.11).
    """
    own = threading.get_ident()
    watch = _Watch(_codes(plugins), thread or (lambda: own), report, seconds, progress, work)
    watching = threading.Thread(target=watch.run, name="plugin-watch", daemon=True)
    watching.start()
    try:
        yield
    finally:
        watch.stop.set()
        watching.join()


def loop_progress(loop: asyncio.AbstractEventLoop) -> Callable[[], object]:
    """Return a ``progress`` for :func:`watching_plugins` that follows an event loop in real time.

    Each call schedules a step in the loop; the value grows when the loop has run it.
    """
    count = 0

    def add() -> None:
        nonlocal count
        count += 1

    def progress() -> int:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(add)
        return count

    return progress


class _Watch:
    def __init__(
        self,
        codes: dict[CodeType, tuple[str, str]],
        thread: Callable[[], int | None],
        report: Callable[[str], None],
        seconds: float,
        progress: Callable[[], object] | None,
        work: Work | None,
    ) -> None:
        self._work = work
        self.stop = threading.Event()
        self._codes = codes
        self._thread = thread
        self._report = report
        self._seconds = seconds
        self._progress = progress
        self._reported: set[tuple[str, str]] = set()

    def run(self) -> None:
        """Sample until stopped. A call is slow when it is seen in more than ``_SAMPLES`` samples in a row."""
        call: FrameType | None = None
        seen = 0
        reached: object = None
        # Number of samples of each method since the last progress, and the nodes it had evaluated at the first of them.
        held: Counter[tuple[str, str]] = Counter()
        begun: dict[tuple[str, str], int] = {}
        while not self.stop.wait(self._seconds / _SAMPLES):
            before, reached = reached, self._progress() if self._progress is not None else None
            frame = self._call() if before == reached else None
            if before != reached or (frame is None and self._progress is None):
                self._end(held, begun)
                held.clear()
                begun.clear()
            seen = seen + 1 if frame is call and frame is not None else 1
            call = frame
            if frame is not None:
                which = self._codes[frame.f_code]
                held[which] += 1
                if which not in begun and self._work is not None:
                    begun[which] = self._work(*which)[0]
                if seen > _SAMPLES:
                    self._name(frame)
                self._end(held, begun)
        self._end(held, begun)

    def _end(self, held: Counter[tuple[str, str]], begun: dict[tuple[str, str], int]) -> None:
        """Report the methods that were seen in more than ``_SAMPLES`` samples."""
        for which, count in held.items():
            if count > _SAMPLES and which not in self._reported:
                self._reported.add(which)
                total = count * self._seconds / _SAMPLES
                since = (count - 1) * self._seconds / _SAMPLES  # since the first sample, from which nodes are counted
                said = self._about(which, since, begun.get(which, 0))
                self._report(
                    f"plugin {which[0]} has taken about {total:.3g} s in {which[1]}, in many calls{said}; "
                    "nothing else was done meanwhile"
                )

    def _about(self, which: tuple[str, str], since: float, begun: int) -> str:
        """Return the pod of a plugin's calls and the seconds for each node, as far as they are known."""
        if self._work is None:
            return ""
        nodes, pod = self._work(*which)
        each = f", about {since / (nodes - begun):.2g} s for each of {nodes - begun:,} nodes" if nodes > begun else ""
        return f"{each}, for pod {pod}" if pod else each

    def _call(self) -> FrameType | None:
        """Return the frame of the plugin's method that runs now, or None. If plugins call one another, return the
        outermost.
        """
        thread = self._thread()
        frame = sys._current_frames().get(thread) if thread is not None else None
        found: FrameType | None = None
        while frame is not None:
            if frame.f_code in self._codes:
                found = frame
            frame = frame.f_back
        return found

    def _name(self, frame: FrameType) -> None:
        which = self._codes[frame.f_code]
        if which in self._reported:
            return
        self._reported.add(which)
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self._report(
            f"plugin {which[0]} has been in {which[1]} for more than {self._seconds:g} s, at {place}; nothing else is done meanwhile"
        )


def work_of(frameworks: Iterable[Any]) -> Work:
    """Return a ``work`` for :func:`watching_plugins` that follows some profiles."""
    profiles = list(frameworks)

    def work(plugin: str, method: str) -> tuple[int, str]:
        at_filter = method in _FILTERING
        nodes, pod = 0, ""
        for framework in profiles:
            pod = framework.stopwatch.pod or pod
            entries = framework.filters if at_filter else framework.scores if method in _SCORING else ()
            nodes += sum(entry.evaluations.value for entry in entries if entry.name == plugin)
        return int(nodes), pod

    return work


def plugins_of(frameworks: Iterable[Any]) -> list[object]:
    """Return all plugins of some profiles."""
    return [plugin for framework in frameworks for plugin in framework.plugins.values()]

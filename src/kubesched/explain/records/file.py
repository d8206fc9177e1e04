"""File of decisions: objects that the scheduler reads, as they come and change, and decisions between them, in order.

From these a replay makes the state of every decision again (``kubesched decisions replay``). The hot path makes lines of
what is at hand; encoding, compression and writing are done in turns of :meth:`DecisionFile.run`, each of a few milliseconds.

A file begins with a header and all objects. When it has half of its size it becomes ``FILE.1``, and a new file begins.
A disk that is full is reported once; recording goes on with a new file when there is room.

Caller: :mod:`.recorder`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubesched.api.tombstone import final_state

from .compressed import CompressedFile
from .entry import Entry
from .lines import LEFT_OUT, ObjectLines
from .reading import is_decision_file
from .schema import FORMAT, FORMAT_VERSION, Bound, Decided, Header, Line, Nominated, Plugins

if TYPE_CHECKING:
    from kubesched.scheduler.scheduler import Scheduler

__all__ = ["DecisionFile", "FileInUseError"]

_log = logging.getLogger("kubesched.decisions")

#: Bytes of the file and of the one before it together, by default.
_MOST_BYTES: Final = 512 << 20
#: Seconds between two writes.
_PAUSE: Final = 0.5
#: Lines that are written in one turn of the event loop.
_TURN: Final = 1000
#: Lines that wait before they are written at once: nobody runs :meth:`DecisionFile.run`, or the loop is late.
_MOST_WAITING: Final = 20_000
#: Seconds between attempts to write after a failure.
_RETRY: Final = 30.0
_encode_lines: Final = msgspec.json.Encoder().encode_lines


class FileInUseError(OSError):
    """File exists and holds something else, which is not overwritten."""


class DecisionFile:
    """File of decisions that is being written."""

    def __init__(self, path: str | Path, *, most_bytes: int = _MOST_BYTES) -> None:
        """Create the file; an earlier file of decisions becomes ``FILE.1``. ``most_bytes`` bounds both together.

        Raises:
            FileInUseError: if the file holds something else.
            OSError: if the file cannot be written.
        """
        self._path = Path(path)
        self._now: Callable[[], float] = lambda: 0.0
        self._most = most_bytes // 2
        self._scheduler: Scheduler | None = None
        #: Lines with which the file begins, made when they are written; and those that came since.
        self._first: Iterator[object] = iter(())
        self._waiting: list[object] = []
        #: Number of the lines that came and do not wait any more.
        self._passed = 0
        self._lines = ObjectLines()
        #: Names of score plugins by number, as the file has them.
        self._plugins: dict[int, tuple[str, ...]] = {0: ()}
        #: Number of files that were begun.
        self._number = 0
        self._failed_at: float | None = None
        self._closed = False
        #: True while nothing is recorded, after a failure or at the end.
        self._is_off = False
        self._file = self._create()

    def _create(self) -> CompressedFile:
        path = self._path
        if path.exists() and path.stat().st_size:
            if path.is_file() and not is_decision_file(path):
                raise FileInUseError(None, "exists and is no file of decisions; give another name", str(path))
            if path.is_file():
                path.replace(self.older)
        return CompressedFile(path)

    @property
    def older(self) -> Path:
        """Path of the file before this one."""
        return self._path.with_name(f"{self._path.name}.1")

    # -- what is recorded ------------------------------------------------------------------------------

    def attach(self, scheduler: Scheduler) -> None:
        """Record the objects of a scheduler's informers from now on. Call it before the scheduler starts."""
        self._scheduler = scheduler
        self._now = scheduler.clock.now
        for plural, informer in scheduler.informers.items():
            if plural not in LEFT_OUT:
                informer.add_handler(_Tap(self, plural))
        self._begin()

    def put(self, plural: str, old: Any, new: Any) -> None:
        if not self._is_off:
            line = self._lines.put(plural, old, new)
            if line is not None:
                self._add(line, between=True)

    def gone(self, plural: str, obj: Any) -> None:
        if not self._is_off:
            self._add(self._lines.gone(plural, obj), between=True)

    def decided(self, entry: Entry) -> None:
        if self._is_off:
            return
        row = entry.row
        if self._plugins.get(row.plugins) != entry.plugins:
            self._plugins[row.plugins] = entry.plugins
            self._add(Plugins(row.plugins, entry.plugins))
        entry.file, entry.line = self._number, self._passed + len(self._waiting) + 1
        self._add(row)

    def ended(self, entry: Entry) -> None:
        row, end = entry.row, entry.end
        if self._is_off or (end is None and entry.line > self._passed):
            return  # the row that waits has the end of the binding
        if entry.file != self._number:
            self._add(entry.record())
        else:
            self._add(end if end is not None else Bound(row.seq, row.bound or 0))

    def _add(self, line: object, *, between: bool = False) -> None:
        """Add a line. ``between``: the scheduler is between two attempts or ends of attempts, so a new file may begin."""
        self._waiting.append(line)
        if len(self._waiting) >= _MOST_WAITING:
            self._write_all(between=between)

    # -- writing ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what waits, every half second, until cancelled."""
        while True:
            await asyncio.sleep(_PAUSE)
            if self._failed_at is not None and self._now() - self._failed_at >= _RETRY:
                self._try_again()
            more = self._write(_TURN)
            while more:
                await asyncio.sleep(0)
                more = self._write(_TURN)

    def close(self) -> None:
        """Write what waits and close the file."""
        self._write_all()
        self._closed = self._is_off = True
        self._scheduler = None
        try:
            self._file.close()
        except OSError as error:
            self._fail(error)

    def _write(self, most: int, *, between: bool = True) -> bool:
        """Write some of the lines that wait; True if more wait."""
        if self._is_off:
            return False
        try:
            more = self._write_next(most)
            if between and self._file.size >= self._most and (not more or self._file.size >= 2 * self._most):
                self._rotate()
        except OSError as error:
            self._fail(error)
            return False
        return more

    def _write_all(self, *, between: bool = True) -> None:
        while self._write(_TURN, between=between):
            pass

    def _write_next(self, most: int) -> bool:
        """Write at most so many lines; True if more may wait."""
        lines, waiting = list(islice(self._first, most)), self._waiting
        taken = min(most - len(lines), len(waiting))
        lines += waiting[:taken]
        del waiting[:taken]
        self._passed += taken
        if lines:
            self._file.write(_encode_lines(lines))
        return len(lines) == most

    def _rotate(self) -> None:
        """Begin a new file with the objects as they are now. Lines that wait still belong to the old file."""
        while self._write_next(_TURN):
            pass
        if self._scheduler is None:
            return
        self._file.close()
        self._file = self._create()
        self._begin()

    def _fail(self, error: OSError) -> None:
        self._drop()
        if self._failed_at is None:
            _log.error(
                "decisions cannot be written to %s: %s; scheduling goes on, and writing is tried again",
                self._path,
                error.strerror or error,
            )
        self._failed_at = self._now()

    def _drop(self) -> None:
        self._is_off = True
        self._first = iter(())
        self._passed += len(self._waiting)
        self._waiting.clear()

    def _try_again(self) -> None:
        """Begin a new file after a failure."""
        try:
            self._file = self._create()
            self._failed_at, self._is_off = None, False
            self._begin()
            self._write_all()
        except OSError as error:
            self._failed_at = self._now()
            self._drop()
            _log.debug("decisions still cannot be written to %s: %s", self._path, error)
            return
        if self._failed_at is None:
            _log.info("decisions are written to %s again", self._path)

    # -- the beginning of a file -----------------------------------------------------------------------

    def _begin(self) -> None:
        self._lines, self._plugins = ObjectLines(), {0: ()}
        self._number += 1
        scheduler = self._scheduler
        assert scheduler is not None
        kinds = sorted(plural for plural in scheduler.informers if plural not in LEFT_OUT)
        header = Header(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            at=self._now(),
            profiles=sorted(scheduler.profiles),
            kinds=kinds,
        )
        objects = list(_objects(scheduler, kinds))  # as they are now; their lines are made one by one
        puts = (ObjectLines.whole(plural, obj) for plural, obj in objects)
        self._first = chain([header], puts, list(_memories(scheduler, self._now())))


def _objects(scheduler: Scheduler, kinds: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield all objects: nodes in the order of the node list, and pods last."""
    for plural in sorted(kinds, key=lambda plural: (plural == "pods", plural != "nodes", plural)):
        informer = scheduler.informers[plural]
        if plural == "nodes":
            table = scheduler.cache.table
            first = [table.info(row).name for row in table.order().tolist()]
            keys = list(dict.fromkeys((*first, *informer.keys())))
        else:
            keys = informer.keys()
        for key in keys:
            obj = informer.get_by_key(key)
            if obj is not None:
                yield plural, obj


def _memories(scheduler: Scheduler, now: float) -> Iterator[Line]:
    """Yield lines for what only the scheduler knows: pods that it has assumed, and nominations."""
    for uid in sorted(scheduler.cache.assumed):
        known = scheduler.cache.get_pod(uid)
        if known is not None:
            yield Decided(0, now, known.key, uid, known.pod.spec.node_name)
    nominator = scheduler.queue.nominator
    for node in list(nominator.nominated_nodes()):
        for key in nominator.nominated_keys(node):
            yield Nominated(key, node)


class _Tap:
    """Handler of an informer that records each change."""

    def __init__(self, file: DecisionFile, plural: str) -> None:
        self._file = file
        self._plural = plural

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self._file.put(self._plural, None, obj)

    def on_update(self, old: Any, new: Any) -> None:
        self._file.put(self._plural, old, new)

    def on_delete(self, obj: Any) -> None:
        self._file.gone(self._plural, final_state(obj))

    def on_delete_all(self, objs: list[Any]) -> None:
        for obj in objs:
            self.on_delete(obj)

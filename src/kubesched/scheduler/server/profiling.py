"""Profiles of the process for ``/debug/pprof``: stacks, objects and CPU.

Caller: :mod:`.endpoints`, only when profiling is enabled. A CPU profile samples the stack of the main thread, which does
nearly all of the work; a sample counts for the CPU time since the last one. ``go tool pprof URL`` reads the answer. Profiles without a counterpart
here (block, mutex and execution traces) are answered with 501 and the reason.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gzip
import io
import re
import selectors
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from types import FrameType
from typing import Final

from kubesched.base.collector import all_objects
from kubesched.base.main_stack import MainStack

__all__ = [
    "NOT_OFFERED",
    "PROFILES",
    "ProfileBusyError",
    "Profiler",
    "encode_profile",
    "index_page",
    "objects_text",
    "tasks_text",
    "threads_text",
]

#: Descriptions of the profiles for the index page, by name.
PROFILES: Final[Mapping[str, str]] = {
    "allocs": "live objects by type, the same as heap",
    "goroutine": "stacks of all asyncio tasks and threads",
    "heap": "live objects by type",
    "profile": "CPU profile of the main thread for ?seconds=N (30), for go tool pprof",
    "symbol": "answers that this program has no symbols to look up",
    "threadcreate": "stacks of all threads",
}
#: Profiles of Go's runtime for which an interpreter with one event loop has no data.
NOT_OFFERED: Final = ("block", "mutex", "trace")

_HERTZ: Final = 100
_SECONDS: Final = 30
_MAX_SECONDS: Final = 300
_TOP: Final = 100
_NANO: Final = 10**9

#: Patterns of faulthandler's output: the line of a thread, and of each frame, innermost first.
_THREAD: Final = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+).*:$", re.MULTILINE)
_PLACE: Final = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)

#: Frame: function, file, line.
Place = tuple[str, str, int]
Stack = tuple[Place, ...]


class ProfileBusyError(RuntimeError):
    """A CPU profile is being taken already."""


def index_page() -> str:
    """Make the answer of ``/debug/pprof/``."""
    lines = [f"{name}\t{text}" for name, text in PROFILES.items()]
    lines += [f"{name}\tnot offered" for name in NOT_OFFERED]
    return "\n".join(["/debug/pprof/", "", *sorted(lines), ""])


class Profiler:
    """Profiler of the CPU, for one profile at a time."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._busy = False

    async def cpu(self, seconds: int = _SECONDS) -> bytes:
        """Profile the next ``seconds`` (at most 300), as gzip of pprof's protobuf.

        Raises:
            ProfileBusyError: when another profile is under way.
        """
        if self._busy:
            raise ProfileBusyError("Could not enable CPU profiling: cpu profiling already in use")
        seconds = max(1, min(seconds, _MAX_SECONDS))
        samples = _Samples()
        stack = MainStack(samples.note)
        self._busy = True
        try:
            await asyncio.to_thread(self._sample, stack, seconds)
        finally:
            stack.stop()
            self._busy = False
        return encode_profile(samples.counts, seconds)

    def close(self) -> None:
        """End a profile under way; it is answered with the samples taken so far."""
        self._stop.set()

    def _sample(self, stack: MainStack, seconds: int) -> None:
        for _ in range(seconds * _HERTZ):
            if self._stop.wait(1 / _HERTZ):
                break
            stack.request()


class _Samples:
    """Stacks of the main thread, each with the CPU time of that thread since the last one, in periods.

    A thread that waits is sampled when it wakes, in the loop's selector. That sample is left out, and the CPU time
    before it goes to the next one.
    """

    def __init__(self) -> None:
        self.counts: Counter[Stack] = Counter()
        self._counted = time.thread_time()

    def note(self, frame: FrameType) -> None:
        """Count a stack. Call it in the main thread."""
        if frame.f_code.co_filename == selectors.__file__:
            return
        periods = int((time.thread_time() - self._counted) * _HERTZ)
        if periods:
            self._counted += periods / _HERTZ
            self.counts[_stack(frame)] += periods


def _stack(frame: FrameType | None) -> Stack:
    """Return the places of a stack, innermost first."""
    places = []
    while frame is not None:
        code = frame.f_code
        # The line is None between two lines of a function.
        places.append((code.co_qualname, code.co_filename, frame.f_lineno or code.co_firstlineno))
        frame = frame.f_back
    return tuple(places)


def threads_text() -> str:
    """Return the stacks of all threads. :mod:`faulthandler` is used because it makes no objects of frames in use."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        dump = file.read()
    parts = []
    for heading, text in zip(*[iter(_THREAD.split(dump)[1:])] * 2, strict=True):
        ident = int(heading, 16)
        places = [(path, int(line), name, None) for path, line, name in _PLACE.findall(text)]
        stack = "".join(traceback.format_list(places[::-1]))
        parts.append(f"thread {names.get(ident, ident)}:\n{stack}")
    return "\n".join(parts)


def tasks_text() -> str:
    """Return the stacks of all tasks of the running event loop, and of all threads."""
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    out = io.StringIO()
    out.write(f"goroutine profile: total {len(tasks)}\n")
    for task in tasks:
        out.write(f"\ntask {task.get_name()}:\n")
        task.print_stack(file=out)
    return f"{out.getvalue()}\n{threads_text()}"


def objects_text() -> str:
    """Return the types with the most live objects that the garbage collector knows. Takes a while."""
    counts = Counter(map(type, all_objects()))
    lines = [f"{count:>10} {kind.__module__}.{kind.__qualname__}" for kind, count in counts.most_common(_TOP)]
    return "\n".join([f"heap profile: {counts.total()} objects", *lines, ""])


# -- pprof's protobuf --------------------------------------------------------------------------------------


def encode_profile(samples: Mapping[Stack, int], seconds: int) -> bytes:
    """Encode counted stacks as gzipped ``perftools.profiles.Profile``: a count and its nanoseconds per sample."""
    strings: dict[str, int] = {"": 0}
    functions: dict[tuple[str, str], int] = {}
    locations: dict[Place, int] = {}

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings))

    period = _NANO // _HERTZ
    out = bytearray()
    for kind, unit in (("samples", "count"), ("cpu", "nanoseconds")):
        out += _message(1, _value(1, text(kind)) + _value(2, text(unit)))
    for stack, count in samples.items():
        ids = b"".join(_varint(locations.setdefault(place, len(locations) + 1)) for place in stack)
        out += _message(2, _message(1, ids) + _message(2, _varint(count) + _varint(count * period)))
    for (function, file, line), number in locations.items():
        owner = functions.setdefault((function, file), len(functions) + 1)
        out += _message(4, _value(1, number) + _message(4, _value(1, owner) + _value(2, line)))
    for (function, file), number in functions.items():
        name = text(function)
        out += _message(5, _value(1, number) + _value(2, name) + _value(3, name) + _value(4, text(file)))
    period_type = _message(11, _value(1, text("cpu")) + _value(2, text("nanoseconds")))
    out += b"".join(_message(6, item.encode("utf-8", "replace")) for item in strings)
    out += _value(10, seconds * _NANO) + period_type + _value(12, period)
    return gzip.compress(bytes(out), mtime=0)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _value(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(body)) + body

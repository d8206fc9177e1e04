"""Executor of runs in processes. A run that kills its process harms no other run.

It has the interface of :mod:`concurrent.futures`. Unlike ``ProcessPoolExecutor`` it survives the death of a worker
(killed for lack of memory, a crash in a C library): the current run of that worker fails, and the next one gets a new
process. A run that takes too long can be ended.

    submit ──▶ queue ──▶ a thread per worker ──pipe──▶ its process

Caller: :mod:`.running`.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final, ParamSpec, TypeVar

__all__ = ["Processes", "WorkerEndedError", "WorkerStartError"]

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds a process is given to end after SIGTERM.
_GRACE: Final = 2.0
#: Held where multiprocessing reads how a process ended. It does so for all processes when one is started. The second of
#: two threads that read the end of one process finds nothing, which counts as exit code 255.
_ENDINGS: Final = threading.Lock()

_Job = tuple[Future[Any], bytes]


class WorkerEndedError(RuntimeError):
    """The process of a call ended before it had an answer."""


class WorkerStartError(RuntimeError):
    """A process could not be started: no call can be made."""


class Processes(Executor):
    """Executor with ``count`` processes of this machine, started when needed.

    ``timeout`` is in seconds for each call.
    """

    def __init__(self, count: int, timeout: float | None = None) -> None:
        self._timeout = timeout
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        # A forked process may hang if its parent has threads or an event loop (a notebook, a test). A fresh process
        # does not.
        self._context = multiprocessing.get_context("forkserver")
        self._workers: dict[int, BaseProcess] = {}
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._serve, args=(number,), daemon=True) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call for a process.

        Raises:
            TypeError, AttributeError, pickle.PicklingError: when the call cannot be sent to a process.
        """
        future: Future[T] = Future()
        self._jobs.put((future, pickle.dumps((fn, args, kwargs))))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop taking calls. Without ``wait``, running calls end now, with their processes."""
        if cancel_futures or not wait:
            with suppress(queue.Empty):
                while True:
                    job = self._jobs.get_nowait()
                    if job is not None:
                        job[0].cancel()
        for _ in self._threads:
            self._jobs.put(None)
        if not wait:
            self._closed.set()
            with self._lock:
                running = list(self._workers.values())
            for process in running:
                process.terminate()
        for thread in self._threads:
            thread.join()

    # -- one thread per worker ---------------------------------------------------------------------------

    def _serve(self, number: int) -> None:
        pipe: Connection | None = None
        while (job := self._jobs.get()) is not None:
            future, call = job
            if self._closed.is_set() or not future.set_running_or_notify_cancel():
                continue
            try:
                pipe = pipe or self._start(number)
                future.set_result(self._call(number, pipe, call))
            except BaseException as error:
                if isinstance(error, WorkerEndedError | WorkerStartError | TimeoutError | OSError):
                    self._end(number, pipe)
                    pipe = None
                future.set_exception(error)
        self._end(number, pipe)

    def _start(self, number: int) -> Connection:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs,), daemon=True, name=f"kubesched-sweep-{number}")
        try:
            with _ENDINGS:
                process.start()
        except (OSError, RuntimeError) as error:
            ours.close()
            theirs.close()
            raise WorkerStartError(f"a process for runs could not be started: {str(error).strip()}") from None
        theirs.close()
        with self._lock:
            self._workers[number] = process
        if self._closed.is_set():
            process.terminate()
        try:
            ours.recv_bytes()  # the process is ready; the time of its imports does not count for a call
        except (EOFError, ConnectionError):
            ours.close()
            raise WorkerStartError(f"a process for runs could not be started: {self._how_it_ended(number)}") from None
        return ours

    def _call(self, number: int, pipe: Connection, call: bytes) -> Any:
        try:
            pipe.send_bytes(call)
            if not pipe.poll(self._timeout):
                raise TimeoutError(f"took longer than {self._timeout:g} s")
            answer, error = pickle.loads(pipe.recv_bytes())
        except (EOFError, ConnectionError):
            raise WorkerEndedError(self._how_it_ended(number)) from None
        if error is not None:
            raise error
        return answer

    def _how_it_ended(self, number: int) -> str:
        process = self._workers[number]
        with _ENDINGS:
            process.join(_GRACE)
            code = process.exitcode
        if code is not None and code < 0:
            with suppress(ValueError):
                name = signal.Signals(-code).name
                hint = "; out of memory?" if name == "SIGKILL" else ""
                return f"its process was ended by {name}{hint}"
        return f"its process ended with exit code {code}"

    def _end(self, number: int, pipe: Connection | None) -> None:
        with self._lock:
            process = self._workers.pop(number, None)
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.terminate()
            with _ENDINGS:
                process.join(_GRACE)
                if process.exitcode is None:
                    process.kill()
                    process.join()
                process.close()


def _work(pipe: Connection) -> None:
    """Work as a process: one call after the other, until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers
    # Output of a run must not mix with the command's own.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    pipe.send_bytes(b"ready")
    while True:
        try:
            call = pipe.recv_bytes()
        except (EOFError, ConnectionError):
            return
        answer: tuple[Any, BaseException | None]
        try:
            function, args, kwargs = pickle.loads(call)
            answer = function(*args, **kwargs), None
        except BaseException as error:
            answer = None, error
        try:
            encoded = pickle.dumps(answer)
        except Exception as error:
            encoded = pickle.dumps((None, RuntimeError(f"{answer[1] or answer[0]!r} cannot be sent: {error}")))
        pipe.send_bytes(encoded)

"""Run of a sweep: every run of the plan that has no result yet, on processes or on any executor, into one table.

    grid, runs ──plan──▶ Runs ──executor──▶ Outcomes ──▶ results file, SweepTable

Callers: ``kubesched sweep``, and programs by :func:`sweep`.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from .functions import Function, Outcome, load_function, name_of, perform, qualified
from .inputs import Digests
from .plan import Run, SweepError, make_runs
from .processes import Processes, WorkerStartError
from .ray_engine import RayExecutor
from .results_file import ResultsFile
from .simulated import check_arguments, simulated
from .table import ERROR, SweepTable

__all__ = ["SIMULATE", "Progress", "Submits", "execute", "sweep"]

#: Function of a run unless another is given.
SIMULATE: Final = "kubesched.lab.sweeps.simulated:simulated"

#: Calls handed to an executor at a time, unless it names its ``width``: enough to keep a cluster busy.
_WIDTH: Final = 1_000

#: Function called with (runs that ended, runs of the sweep, runs that failed).
Progress = Callable[[int, int, int], None]


class Submits(Protocol):
    """Executor, reduced to the methods that a sweep calls. Executors of concurrent.futures and joblib fit, and Dask's
    client.

    The future needs ``add_done_callback``, ``result`` and ``cancel``.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any: ...


def sweep(
    grid: Mapping[str, Any] | None = None,
    *,
    runs: Iterable[Mapping[str, Any]] = (),
    arguments: Mapping[str, Any] | None = None,
    function: str | Function = SIMULATE,
    results: str | Path | None = None,
    processes: int | None = None,
    timeout: float | None = None,
    executor: Submits | None = None,
    ray: str | None = None,
    on_progress: Progress = lambda done, total, failed: None,
) -> SweepTable:
    """Run every combination of the grid's values and every run of the list, and return all results as one table.

    ``grid``, ``runs`` and ``arguments``: see :func:`~.plan.make_runs`. ``function`` is called with the arguments of
    each run and returns its figures by name; without it, runs are simulations (:func:`~.simulated.simulated`). It is
    given as text (``package.module:name``, ``path/file.py:name``) or as a function of an importable module.

    ``results`` is a file that every result is appended to. Runs that have a result there are not made again, unless
    they failed or their inputs have changed (:mod:`.inputs`).

    Runs are made by ``processes`` processes, by ``executor``, or by the Ray cluster at the address ``ray``. The default
    is one process per CPU; with 0, runs are made in this process, one after the other. With processes, a run is ended
    after ``timeout`` seconds. A run that fails has its error in the table, and harms no other.

    Raises:
        SweepError: when the sweep cannot be run as it is given.
        OSError: when the results file cannot be used.
    """
    plan = make_runs(grid, runs, arguments)
    return execute(
        plan,
        function,
        results=results,
        processes=processes,
        timeout=timeout,
        executor=executor,
        ray=ray,
        on_progress=on_progress,
    )


def execute(
    plan: list[Run],
    function: str | Function = SIMULATE,
    *,
    results: str | Path | None = None,
    processes: int | None = None,
    timeout: float | None = None,
    executor: Submits | None = None,
    ray: str | None = None,
    on_progress: Progress = lambda done, total, failed: None,
) -> SweepTable:
    """Run a plan, as :func:`sweep` does."""
    called = function
    if isinstance(function, str):
        function = qualified(function, Path.cwd())
        called = load_function(function)
    _check_arguments(called, plan)  # checked here, so that a mistake is reported once and not by every run
    _check_engine(processes, timeout, executor, ray)
    digests = Digests(function if isinstance(function, str) else name_of(function))
    outcomes: dict[str, Outcome] = {}
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(ResultsFile(results, name_of(function))) if results is not None else None
        digest = {run.key: digests.of(run) for run in plan} if file is not None else {}
        if file is not None:
            for run in plan:
                known = file.known.get(run.key)
                if known is not None and known.error is None and known.digest == digest[run.key]:
                    outcomes[run.key] = known.outcome
        failed = 0
        columns = {ERROR, *(name for run in plan for name in run.names)}
        on_progress(len(outcomes), len(plan), failed)
        missing = [run for run in plan if run.key not in outcomes]
        if missing:
            engine = stack.enter_context(_engine(len(missing), processes, timeout, executor, ray))
            for run, outcome in _outcomes(engine, function, missing):
                kept = outcomes[run.key] = _without_clash(outcome, columns)
                if file is not None:
                    file.append(run, digest[run.key], kept)
                failed += kept.error is not None
                on_progress(len(outcomes), len(plan), failed)
    return SweepTable.of([(run, outcomes[run.key]) for run in plan])


def _check_arguments(function: Any, plan: list[Run]) -> None:
    if function is simulated:
        for run in plan:
            check_arguments(**run.arguments)
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # not every callable has a signature
        return
    for run in plan:
        try:
            signature.bind(**run.arguments)
        except TypeError as error:
            text = f"function {name_of(function)}{signature} cannot be called for run {run.key}: {error}"
            raise SweepError(text) from None


def _check_engine(processes: int | None, timeout: float | None, executor: object, ray: str | None) -> None:
    if executor is not None and ray is not None:
        raise SweepError("both an executor and a Ray address were given; expected one of the two")
    if executor is not None and processes is not None:
        raise SweepError("both an executor and a number of processes were given; expected one of the two")
    if ray is not None and processes == 0:
        raise SweepError("Ray and processes 0, which is this process, were both given; expected one of the two")
    if processes is not None and processes < 0:
        raise SweepError(f"processes {processes}; expected 0 or more")
    if timeout is not None and (executor is not None or ray is not None or processes == 0):
        raise SweepError("a timeout needs processes of this machine; an executor, Ray and this process have none")
    if timeout is not None and not timeout > 0:
        raise SweepError(f"timeout {timeout:g}; expected a number of seconds above 0")


@contextlib.contextmanager
def _engine(
    runs: int, processes: int | None, timeout: float | None, executor: Submits | None, ray: str | None
) -> Iterator[Submits | None]:
    """Context with the executor of the runs; None stands for this process.

    An executor that was started here is shut down, at once after an exception.
    """
    if executor is not None or processes == 0:
        yield executor
        return
    started: RayExecutor | Processes
    if ray is not None:
        started = RayExecutor(ray, processes)
    else:
        started = Processes(min(runs, processes or len(os.sched_getaffinity(0))), timeout)
    try:
        yield started
    except BaseException:
        started.shutdown(wait=False, cancel_futures=True)
        raise
    started.shutdown()


def _outcomes(engine: Submits | None, function: str | Function, runs: list[Run]) -> Iterator[tuple[Run, Outcome]]:
    """Yield runs with their outcomes, as they end."""
    if engine is None:
        for run in runs:
            yield run, perform(function, run.arguments)
        return
    ended: queue.SimpleQueue[tuple[Run, Any]] = queue.SimpleQueue()
    waiting = iter(runs)
    submitted: dict[str, Any] = {}
    width = 2 * engine.width if isinstance(engine, RayExecutor) else _WIDTH
    try:
        for run in itertools.islice(waiting, width):
            submitted[run.key] = _submit(engine, function, run, ended)
        for _ in runs:
            run, future = ended.get()
            del submitted[run.key]
            yield run, _outcome_of(future)
            for following in itertools.islice(waiting, 1):
                submitted[following.key] = _submit(engine, function, following, ended)
    finally:
        # After an interruption, an executor that keeps running must not begin further runs.
        for future in submitted.values():
            future.cancel()


def _without_clash(outcome: Outcome, columns: set[str]) -> Outcome:
    """Return an error for an outcome with a figure named as a parameter, so that only this run fails, not the table."""
    clash = sorted(outcome.figures.keys() & columns)
    return Outcome(error=f"SweepError: the figure {clash[0]} has the name of a parameter") if clash else outcome


def _submit(engine: Submits, function: str | Function, run: Run, ended: queue.SimpleQueue[tuple[Run, Any]]) -> Any:
    try:
        future = engine.submit(perform, function, run.arguments)
    except Exception as error:
        raise SweepError(
            f"the function {name_of(function)} and the arguments of run {run.key} cannot be sent to another process "
            f"({type(error).__name__}: {error}); give a function of an importable module, or processes=0"
        ) from error
    future.add_done_callback(lambda done: ended.put((run, done)))
    return future


def _outcome_of(future: Any) -> Outcome:
    try:
        outcome: Outcome = future.result()
    except WorkerStartError as error:
        hint = "in a script, what calls it must be below: if __name__ == '__main__':"
        raise SweepError(f"{error}; {hint}") from None
    except Exception as error:  # an error of the engine: a worker that ended, a timeout, a lost connection
        return Outcome(error=f"{type(error).__name__}: {error}")
    return outcome

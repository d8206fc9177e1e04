"""Sweeps run to the end, are interrupted and continued, and isolate failures; on processes and on other executors."""

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kubesched.lab.sweeps import SweepError, SweepTable, sweep
from kubesched.lab.sweeps.results_file import read_results

HERE = Path(__file__).parent


def call(name: str) -> str:
    return f"{HERE / 'sweep_functions.py'}:{name}"


#: 200 cheap runs.
GRID = {"x": list(range(20)), "seed": "0-9"}


def uninterrupted() -> SweepTable:
    return sweep(GRID, function=call("square"), processes=0)


class _StopError(Exception):
    pass


def stop_after(count: int) -> Callable[[int, int, int], None]:
    def progress(done: int, total: int, failed: int) -> None:
        if done >= count:
            raise _StopError

    return progress


def test_200_runs_interrupted_twice_and_continued_give_the_same_table(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    for count in (60, 130):
        with pytest.raises(_StopError):
            sweep(GRID, function=call("square"), results=results, processes=2, on_progress=stop_after(count))
        # As if the process had been killed while it wrote.
        with results.open("ab") as file:
            file.write(b'{"run":{"x":19,"seed":9},"dig')
    known = len(read_results(results))
    assert 130 <= known < 200
    made: list[int] = []
    table = sweep(
        GRID, function=call("square"), results=results, processes=2, on_progress=lambda done, *_: made.append(done)
    )
    assert made[0] == known
    assert table == uninterrupted()
    assert table.to_csv() == uninterrupted().to_csv()
    assert len(table.rows) == 200
    assert len(read_results(results)) == 200


def test_an_interrupted_sweep_on_ray_is_continued_with_the_same_table(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    results = tmp_path / "results.jsonl"
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        with pytest.raises(_StopError):
            sweep(GRID, function=call("square"), results=results, ray="local", on_progress=stop_after(60))
        assert 60 <= len(read_results(results)) < 200
        assert sweep(GRID, function=call("square"), results=results, ray="local") == uninterrupted()
        broken = sweep({"x": [0, 1, 2]}, function=call("fragile"), ray="local")
        assert [row["value"] for row in broken.rows] == [0, None, None]
        assert "one is not accepted" in str(broken.rows[1]["error"])
        assert "Worker" in str(broken.rows[2]["error"])
    finally:
        ray.shutdown()


def test_a_killed_sweep_leaves_no_process_and_is_continued(tmp_path: Path) -> None:
    """A process is sent SIGTERM while two runs wait for a file."""
    results, gate = tmp_path / "results.jsonl", tmp_path / "gate"
    command = [sys.executable, "-m", "kubesched.cli", "sweep", "--function", call("gated"), "--processes", "2"]
    command += ["--grid", f"x={list(range(22))}", "--set", f"gate={gate}", "--results", str(results)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while not (results.exists() and results.read_bytes().count(b"\n") == 21):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)  # a worker that lived on would keep the pipe open
    assert process.returncode == 130
    assert err == "kubesched: interrupted\n"
    gate.touch()
    done = subprocess.run([*command, "-o", "csv"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "x,value,error\n" + "".join(f"{x},{x},\n" for x in range(22))


def test_each_failure_is_of_one_run(tmp_path: Path) -> None:
    table = sweep({"x": list(range(10))}, function=call("fragile"), processes=2, results=tmp_path / "r.jsonl")
    errors = [row["error"] for row in table.rows]
    assert [row["value"] for row in table.rows] == [0, None, None, None, None, None, None, 7, 8, 9]
    assert str(errors[1]).startswith("ValueError: one is not accepted (sweep_functions.py:")
    assert errors[2] == "WorkerEndedError: its process ended with exit code 7"
    assert errors[3] == "WorkerEndedError: its process was ended by SIGKILL; out of memory?"
    assert errors[4] == "SweepError: figure value is a list; expected a number, a text or None"
    assert errors[5] == "SweepError: figure value is nan; expected a finite number, or None"
    assert str(errors[6]).startswith("SystemExit: 0")
    assert [error for index, error in enumerate(errors) if not 1 <= index <= 6] == [None] * 4
    assert len(table.failed) == 6


def test_failed_runs_are_made_again_and_others_are_not(tmp_path: Path) -> None:
    results = tmp_path / "r.jsonl"
    first = sweep({"x": [0, 1, 7]}, function=call("fragile"), processes=0, results=results)
    made: list[int] = []
    again = sweep({"x": [0, 1, 7]}, function=call("fragile"), processes=0, results=results,
                  on_progress=lambda done, *_: made.append(done))  # fmt: skip
    assert first == again
    assert made == [2, 3]
    assert len(read_results(results)) == 4


def test_a_run_that_takes_too_long_is_ended() -> None:
    table = sweep({"x": [0, 1, 2]}, function=call("slow"), processes=1, timeout=4.0)
    assert [row["value"] for row in table.rows] == [0, None, 2]
    assert table.rows[1]["error"] == "TimeoutError: took longer than 4 s"


def test_a_script_without_a_main_guard_is_refused_with_the_reason(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import kubesched\nkubesched.sweep({{'x': [1]}}, function={call('square')!r})\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("in a script, what calls it must be below: if __name__ == '__main__':")


def test_a_sweep_that_grows_makes_the_new_runs_only(tmp_path: Path) -> None:
    arguments = {"log": str(tmp_path / "log")}
    Path(arguments["log"]).mkdir()
    results = tmp_path / "r.jsonl"

    def calls() -> int:
        found = len(list(Path(arguments["log"]).iterdir()))
        for file in Path(arguments["log"]).iterdir():
            file.unlink()
        return found

    for runs, expected in (([1, 2], 2), ([1, 2, 3], 1), ([3, 2], 0)):
        table = sweep({"x": runs}, function=call("traced"), arguments=arguments, results=results, processes=0)
        assert [row["value"] for row in table.rows] == [2 * x for x in runs]
        assert calls() == expected


def test_runs_whose_input_changed_are_made_again(tmp_path: Path) -> None:
    log, results, data = tmp_path / "log", tmp_path / "r.jsonl", tmp_path / "functions.py"
    log.mkdir()
    data.write_text("def size(file):\n    return {'size': len(open(file).read())}\n")
    file = tmp_path / "input.txt"
    sizes = []
    for content in ("a", "a", "abc"):
        file.write_text(content)
        made: list[int] = []
        table = sweep({"file": [str(file)]}, function=f"{data}:size", results=results, processes=1,
                      on_progress=lambda done, *_, made=made: made.append(done))  # fmt: skip
        sizes.append((table.rows[0]["size"], made[0]))
    assert sizes == [(1, 0), (1, 1), (3, 0)]


class _OnlySubmit(Executor):
    """The least an executor is: what Dask's client offers, with futures of its own kind."""

    class Later:
        def __init__(self, future: Future[Any]) -> None:
            self.add_done_callback = future.add_done_callback
            self.result = future.result
            self.cancel = future.cancel

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[str] = queue.SimpleQueue()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self.calls.put(str(args[0]))
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return self.Later(future)


def test_executors_of_others_are_used_as_they_are() -> None:
    with ThreadPoolExecutor(2) as threads:
        assert sweep(GRID, function=call("square"), executor=threads) == uninterrupted()
        threads.submit(int)  # still open
    own = _OnlySubmit()
    assert sweep(GRID, function=call("square"), executor=own) == uninterrupted()
    assert own.calls.qsize() == 200


def test_an_interruption_cancels_what_has_not_begun_on_an_executor_of_others() -> None:
    class Late(Executor):
        """Makes the first call, and no other."""

        def __init__(self) -> None:
            self.futures: list[Future[Any]] = []

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            self.futures.append(Future())
            if len(self.futures) == 1:
                self.futures[0].set_result(fn(*args, **kwargs))
            return self.futures[-1]

    late = Late()
    with pytest.raises(_StopError):
        sweep(GRID, function=call("square"), executor=late, on_progress=stop_after(1))
    assert [future.cancelled() for future in late.futures] == [False] + [True] * 199


def test_a_figure_named_as_a_parameter_fails_its_run() -> None:
    rows = sweep({"x": [1, 2]}, function=lambda x: {"x": x} if x == 1 else {"y": x}, processes=0).rows
    assert rows == (
        {"x": 1, "y": None, "error": "SweepError: the figure x has the name of a parameter"},
        {"x": 2, "y": 2, "error": None},
    )


def test_functions_are_given_as_objects_too() -> None:
    sys.path.insert(0, str(HERE))
    try:
        from sweep_functions import square

        assert sweep(GRID, function=square, processes=2) == uninterrupted()
        assert sweep({"x": [3]}, function=lambda x: {"y": x}, processes=0).rows[0]["y"] == 3
        with pytest.raises(SweepError, match="give a function of an importable module, or processes=0"):
            sweep({"x": [3]}, function=lambda x: {"y": x}, processes=1)
    finally:
        sys.path.remove(str(HERE))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": _OnlySubmit(), "ray": "local"}, "both an executor and a Ray address"),
        ({"executor": _OnlySubmit(), "processes": 2}, "both an executor and a number of processes"),
        ({"ray": "local", "processes": 0}, "Ray and processes 0, which is this process, were both given"),
        ({"processes": -1}, "processes -1; expected 0 or more"),
        ({"processes": 0, "timeout": 1.0}, "a timeout needs processes"),
        ({"timeout": 0.0}, "timeout 0; expected a number of seconds above 0"),
        ({"function": "square"}, "function 'square'; expected package.module:name or path/file.py:name"),
        ({"function": "nowhere.py:f"}, "there is no file"),
        ({"function": "kubesched.lab.sweeps:nothing"}, "module kubesched.lab.sweeps has no function nothing"),
        ({"function": "no_such_module:f"}, "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_run_is_refused_before_it_begins(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SweepError, match=message):
        sweep({"x": [1]}, **{"function": call("square"), **options})


def test_a_missing_ray_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SweepError, match=r"pip install 'kubesched\[ray\]'"):
        sweep({"x": [1]}, function=call("square"), ray="auto")


def test_a_results_file_has_one_writer_and_holds_nothing_else(tmp_path: Path) -> None:
    results = tmp_path / "r.jsonl"

    def second(done: int, total: int, failed: int) -> None:
        with pytest.raises(SweepError, match="another sweep is writing to it"):
            sweep({"x": [1]}, function=call("square"), results=results, processes=0)

    sweep({"x": [1]}, function=call("square"), results=results, processes=0, on_progress=second)
    for content in ("x", "{}\n", '{"apiVersion": "v1", "kind": "Pod"}\n'):
        other = tmp_path / "other"
        other.write_text(content)
        with pytest.raises(SweepError, match="holds no results of a sweep"):
            sweep({"x": [1]}, function=call("square"), results=other, processes=0)
        assert other.read_text() == content
    with results.open("a") as file:
        file.write("{}\n")
    with pytest.raises(SweepError, match=r"r\.jsonl:3: is no result of a run: .*`run`"):
        sweep({"x": [1]}, function=call("square"), results=results, processes=0)


def test_workers_print_nothing(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    module = tmp_path / "printing.py"
    module.write_text("def printed(x):\n    print('noise', flush=True)\n    return {'y': x}\n")
    assert sweep({"x": [1]}, function=f"{module}:printed", processes=1).rows[0]["y"] == 1
    assert os.linesep not in capfd.readouterr().out

"""Readers of batch traces: the published example lines, bad input by line and column, sampling, and the command."""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import kubesched
from kubesched.cli.main import main
from kubesched.cli.trace_command import READERS
from kubesched.lab.simulate import run_simulation
from kubesched.lab.simulate.inputs.workload_table import parse_table
from kubesched.lab.traces import (
    Trace,
    TraceError,
    TraceTask,
    inflated,
    read_alibaba_2018,
    read_alibaba_2020,
    read_alibaba_2023,
    read_google_2019,
    read_philly,
    read_pods,
    table_text,
)


def written(folder: Path, text: str | bytes, name: str = "trace") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# -- Alibaba ---------------------------------------------------------------------------------------------------

TASKS_2018 = """\
M1,2,j_1,1,Terminated,100,160,50.0,0.5
R2_1,1,j_1,1,Failed,160,200,100,
M1,1,j_2,1,Running,300,0,,
M2,3,j_2,1,Waiting,,,100,0.2
"""


def test_alibaba_2018(tmp_path: Path) -> None:
    found = read_alibaba_2018(written(tmp_path, TASKS_2018), memory_mib=100_000)
    assert found.tasks == (
        TraceTask("j-1-m1", 0, 60, instances=2, cpu_milli=500, memory_mib=500),
        TraceTask("j-1-r2-1", 60, 40, cpu_milli=1000, failed=True),
        TraceTask("j-2-m1", 200, None),
    )
    assert (found.left_out, found.pods) == ({"never started": 1}, 4)
    assert len(read_alibaba_2018(written(tmp_path, TASKS_2018), limit=1).tasks) == 1


def test_alibaba_2020_reads_the_published_example_line(tmp_path: Path) -> None:
    head = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    line = "4f057009a5d481acec67b088,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,50.0,MISC\n"
    more = (
        "a,worker,2,Terminated,1739170,1739180,400,,200,V100\nb,ps,1,Running,1739171,,600,1,,\nc,ps,,Waiting,1,,1,1,,\n"
    )
    expected = (
        TraceTask("4f057009a5d481acec67b088-tensorflow", 0, 38, 1, 6000, 30_000, 1, 500, "MISC"),
        TraceTask("a-worker", 8, 10, 2, 4000, 0, 2, 1000, "V100"),
        TraceTask("b-ps", 9, None, 1, 6000, 1024, 0),
    )
    for text in (line + more, head + line + more):
        found = read_alibaba_2020(written(tmp_path, text))
        assert found.tasks == expected
        assert found.left_out == {"no instances": 1}


def test_alibaba_2023_has_times(tmp_path: Path) -> None:
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    text = head + (
        "openb-pod-0017,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437497\n"
        "openb-pod-0022,4000,15258,1,220,,BE,Running,9679175,,9679175\nlate,1,1,0,0,,BE,Pending,,,\n"
    )
    found = read_alibaba_2023(written(tmp_path, text))
    assert found.tasks == (
        TraceTask("openb-pod-0017", 0, 1332357, 1, 88000, 327680, 8),
        TraceTask("openb-pod-0022", 241678, None, 1, 4000, 15258, 1, 220),
    )
    assert found.left_out == {"no time of creation": 1}


# -- Google ----------------------------------------------------------------------------------------------------


def event(time: float, kind: Any, index: Any = 0, collection: Any = "1", **more: Any) -> dict[str, Any]:
    """An event as BigQuery writes it; the time in seconds of the trace."""
    return {
        "time": str(int(time * 1e6)),
        "type": kind,
        "collection_id": collection,
        "instance_index": str(index),
        **more,
    }


REQUEST = {"resource_request": {"cpus": 0.25, "memory": 0.5}}


def lines(*events: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(one)}\n" for one in events)


def test_google_2019(tmp_path: Path) -> None:
    text = lines(
        event(0, "SUBMIT", **REQUEST),
        event(610, 3),
        event(650, "EVICT"),
        event(650, "SUBMIT"),
        event(660, "SCHEDULE", **REQUEST),
        event(700.5, 6),
        event(620, "SUBMIT", 1),
        event(630, "SUBMIT", 2, **REQUEST),
        event(640, "SCHEDULE", 2),
        event(645, "FAIL", 2),
        event(650, "SUBMIT", 3),
        event(651, "SCHEDULE", 3),
        event((1 << 63) / 1e6, "FINISH", 3) | {"time": str((1 << 63) - 1)},
        event(600, "SUBMIT", 0, "9", collection_type="1"),
    )
    expected = (
        TraceTask("1-0", 0, 40.5, 1, 2500, 50),
        TraceTask("1-2", 30, 5, 1, 2500, 50, failed=True),
        TraceTask("1-3", 50, None),
    )
    for content in (text, gzip.compress(text.encode())):
        found = read_google_2019(written(tmp_path, content), cpu_milli=10_000, memory_mib=100)
        assert found.tasks == expected
        assert found.left_out == {"alloc set": 1, "never scheduled": 1}


def test_google_2019_as_csv_and_in_several_files(tmp_path: Path) -> None:
    head = "time,type,collection_id,instance_index,resource_request.cpus,resource_request.memory\n"
    first = written(tmp_path, head + "600000000,0,7,0,0.5,0.25\n", "a")
    second = written(tmp_path, head + "601000000,3,7,0,,\n603000000,6,7,0,,\n", "b")
    (task,) = read_google_2019([first, second]).tasks
    assert (task.arrival, task.duration, task.cpu_milli, task.memory_mib) == (0, 2, 32_000, 65_536)
    assert read_google_2019([first, second], limit=2).tasks[0].duration is None


# -- Philly ----------------------------------------------------------------------------------------------------


def attempt(start: str | None, end: str | None, *machines: int) -> dict[str, Any]:
    detail = [
        {"ip": f"m{index}", "gpus": [f"gpu{one}" for one in range(count)]} for index, count in enumerate(machines)
    ]
    return {"start_time": start, "end_time": end, "detail": detail}


#: The example of the README.
JOB = {
    "status": "Pass",
    "vc": "ee9e8c",
    "jobid": "application_1506638472019_14199",
    "attempts": [
        attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8),
        attempt("2017-10-07 01:13:30", "2017-10-09 06:53:12", 8),
    ],
    "submitted_time": "2017-10-07 01:11:39",
    "user": "ce2f4c",
}


def test_philly_reads_the_published_example(tmp_path: Path) -> None:
    wide = {**JOB, "jobid": "b", "status": "Failed", "submitted_time": "2017-10-07 01:10:39"}
    wide["attempts"] = [attempt("2017-10-07 02:00:00", "2017-10-07 02:00:10", 8, 4, 8)]
    never = {**JOB, "jobid": "c", "attempts": []}
    running = {**JOB, "jobid": "d", "attempts": [attempt("2017-10-07 02:00:00", None, 1)]}
    path = written(tmp_path, json.dumps([JOB, wide, never, running]))
    found = read_philly(path, cpu_milli_per_gpu=1000, memory_mib_per_gpu=10)
    seconds = 74 + (2 * 86_400 + 5 * 3600 + 39 * 60 + 42)
    assert found.tasks == (
        TraceTask("b", 0, 10, 2, 8000, 80, 8, failed=True, job="b", members=3),
        TraceTask("b-part-2", 0, 10, 1, 4000, 40, 4, failed=True, job="b", members=3),
        TraceTask("application-1506638472019-14199", 60, seconds, 1, 8000, 80, 8),
    )
    assert found.left_out == {"never started": 1, "unknown times": 1}


# -- bad input ---------------------------------------------------------------------------------------------------

BAD: list[tuple[Callable[..., Trace], str, list[str]]] = [
    (
        read_alibaba_2018,
        "M1,1,j,1,T,1,2,many,0\nM1,1,j,1,T,5,2,1,0\nM1,1,j\nM1,1.5,j,1,T,-1,2,1,nan\n",
        [
            "{}:1: column plan_cpu: 'many'; expected a number of 0 or more",
            "{}:2: column end_time: '2'; expected a time that is not before start_time, 5",
            "{}:3: has 3 values; expected 9: task_name, instance_num, job_name, task_type, status, start_time, end_time, "
            "plan_cpu, plan_mem",
            "{}:4: column start_time: '-1'; expected a number of 0 or more",
            "{}:4: column plan_mem: 'nan'; expected a number of 0 or more",
            "{}:4: column instance_num: '1.5'; expected a whole number",
        ],
    ),
    (read_alibaba_2020, "", ["{}: is empty"]),
    (
        read_google_2019,
        '{"time": "1", "type": 3, "collection_id": "1", "instance_index": 0}\n{"time": "x"}\n[1]\n{"time":\n'
        '{"time": 1, "type": "GO", "collection_id": 1, "instance_index": -1, "resource_request": {"cpus": "much"}}\n'
        '{"time": "0", "type": "KILL", "collection_id": "1", "instance_index": "0"}\n',
        [
            "{}:2: field time: 'x'; expected a whole number of 0 or more",
            "{}:2: field type: None; expected one of SUBMIT, QUEUE, ENABLE, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST, "
            "UPDATE_PENDING, UPDATE_RUNNING, or their numbers from 0",
            "{}:2: field collection_id: None; expected a whole number of 0 or more",
            "{}:2: field instance_index: None; expected a whole number of 0 or more",
            "{}:3: is no JSON object: Expected `object`, got `array`",
            "{}:4: is no JSON object: Input data was truncated",
            "{}:5: field type: 'GO'; expected one of SUBMIT, QUEUE, ENABLE, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST, "
            "UPDATE_PENDING, UPDATE_RUNNING, or their numbers from 0",
            "{}:5: field instance_index: -1; expected a whole number of 0 or more",
            "{}:5: field resource_request.cpus: 'much'; expected a number of 0 or more",
            "{}:6: field time: 0; expected a time that is not before that of SCHEDULE, 1",
        ],
    ),
    (
        read_google_2019,
        "time,type,collection_id\n1,2,3\n",
        ["{}:1: the header lacks instance_index; it has time, type, collection_id"],
    ),
    (
        read_google_2019,
        "time,type,collection_id,instance_index\n1,0,1\n",
        ["{}:2: has 3 values, where the header has 4"],
    ),
    (read_google_2019, "", ["{}:1: the header lacks time, type, collection_id, instance_index; it has nothing"]),
    (read_philly, "{}", ["{}: is no list of jobs in JSON: Expected `array`, got `object`"]),
    (read_philly, '[{"jobid": "a"},\n {"jobid"', ["{}:2:10: is no list of jobs in JSON: Input data was truncated"]),
    (
        read_philly,
        "[1,\n\n 2}",
        ["{}:3:3: is no list of jobs in JSON: JSON is malformed: expected ',' or ']' (byte 7)"],
    ),
    (read_philly, "[]", ["{}: holds no job"]),
    (
        read_philly,
        "[" * 100_000,
        ["{}: is no list of jobs in JSON: maximum recursion depth exceeded while deserializing an object"],
    ),
    (
        read_google_2019,
        '{"a":' + "[" * 100_000 + "\n",
        ["{}:1: is no JSON object: maximum recursion depth exceeded while deserializing an object"],
    ),
    (
        read_philly,
        json.dumps(
            [
                3,
                {**JOB, "jobid": "", "status": "Maybe"},
                {**JOB, "submitted_time": "yesterday"},
                {**JOB, "attempts": [attempt("2017-10-07 01:12:09", "2017-10-07 01:00:00", 1), {"detail": [{}]}]},
                {**JOB, "attempts": [{"detail": [{"ip": 1}]}]},
            ]
        ),
        [
            "{}: [0]: 3; expected a job with jobid, submitted_time and attempts",
            "{}: [1].jobid: ''; expected the id of the job",
            "{}: [1].status: 'Maybe'; expected one of Pass, Killed, Failed",
            "{}: [2].submitted_time: 'yesterday'; expected a time such as 2017-10-07 01:12:09",
            "{}: [3].attempts[0].end_time: '2017-10-07 01:00:00'; expected a time that is not before start_time",
            "{}: [4].attempts[0].detail: [{{'ip': 1}}]; expected machines, each with a list gpus",
        ],
    ),
]


@pytest.mark.parametrize(("reader", "text", "problems"), BAD)
def test_every_bad_value_is_named_with_its_place(
    tmp_path: Path, reader: Callable[..., Trace], text: str, problems: list[str]
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        reader(path)
    assert caught.value.problems == [problem.format(path) for problem in problems]


@pytest.mark.parametrize("reader", [reader for reader, _ in READERS.values()])
def test_files_that_cannot_be_read_are_named(tmp_path: Path, reader: Callable[..., Trace]) -> None:
    with pytest.raises(TraceError, match="missing: cannot be read: No such file or directory"):
        reader(tmp_path / "missing")
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        reader(tmp_path)
    # Not gzip, cut off, and damaged.
    for content in (b"\x1f\x8bno gzip", gzip.compress(b"a,b\n" * 1000)[:40], gzip.compress(b"a" * 99)[:-9] + b"\0" * 9):
        with pytest.raises(TraceError, match=r"trace(:1)?: "):
            reader(written(tmp_path, content))
    for content, message in (
        (b"a,b\nc,\xff\n", "trace:2: is no text in UTF-8: byte 0xff at column 3"),
        (gzip.compress(b"\xef\xbb\xbf\xff"), "trace:1: is no text in UTF-8: byte 0xff at column 4"),
        (b"\xff\xfea\x00\x00", "trace: is no text in UTF-16-LE: "),
    ):
        with pytest.raises(TraceError, match=message):
            reader(written(tmp_path, content))


def test_names_and_numbers_that_kubernetes_does_not_know_are_named(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    lines = (
        "a\0b,1,1,0,0,",
        "ok,1,1,1,500,V100|x\x01",
        "Up,1,1,0,0,",
        f"long,{'9' * 5000},1,0,0,",
        "two words,1,1,0,0,",
    )
    path.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "\n".join(lines))
    with pytest.raises(TraceError) as caught:
        read_pods(path)
    assert [problem.removeprefix(f"{path}:").partition("; expected ")[0] for problem in caught.value.problems] == [
        "2: column name: 'a\\x00b'",
        "3: column gpu_spec: 'x\\x01'",
        "4: column name: 'Up'",
        f"5: column cpu_milli: '{'9' * 60}…'",
        "6: column name: 'two words'",
    ]


def test_tables_in_utf_16_are_read_plain_and_gzipped(tmp_path: Path) -> None:
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\na,1,1,0,0,\n".encode("utf-16")
    assert read_pods(written(tmp_path, text)) == read_pods(written(tmp_path, gzip.compress(text)))


# -- tasks -----------------------------------------------------------------------------------------------------

TRACE = Trace(tuple(TraceTask(f"t{index}", 10.0 * index, 5.0, cpu_milli=100 * index) for index in range(10)), {"x": 1})


def test_inflation_draws_tasks_and_arrivals_by_seed() -> None:
    more = inflated(TRACE, 1.5, seed=3)
    assert more == inflated(TRACE, 1.5, seed=3)
    assert more != inflated(TRACE, 1.5, seed=4)
    assert len(more.tasks) == 15
    assert len({task.name for task in more.tasks}) == 15
    assert set(TRACE.tasks) <= set(more.tasks)
    assert [task.arrival for task in more.tasks] == sorted(task.arrival for task in more.tasks)
    originals = {task.name: task for task in TRACE.tasks}
    for task in set(more.tasks) - set(TRACE.tasks):
        origin = originals[task.name.split("-copy-")[0]]
        assert (task.cpu_milli, task.duration) == (origin.cpu_milli, origin.duration)
        assert task.arrival in {one.arrival for one in TRACE.tasks}
    fewer = inflated(TRACE, 0.5, seed=1)
    assert len(fewer.tasks) == 5
    assert set(fewer.tasks) < set(TRACE.tasks)
    assert inflated(TRACE, 1, seed=9) == TRACE
    for factor in (0, -1, 0.01, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="expected a number above 0"):
            inflated(TRACE, factor, seed=1)


def test_names_are_such_that_kubernetes_accepts_them_and_none_occurs_twice(tmp_path: Path) -> None:
    text = "".join(
        f"{task},1,{job},1,T,1,2,1,1\n" for task, job in (("A_b", "J"), ("a-B", "j"), ("a", "J__"), ("é", "x" * 99))
    )
    names = [task.name for task in read_alibaba_2018(written(tmp_path, text)).tasks]
    assert names == ["j-a-b", "j-a-b-again-2", "j-a", "x" * 44]


def test_pods_of_a_task() -> None:
    task = TraceTask("t", 1.5, 90, 2, 1500, 64, 1, 250, failed=True)
    first, second = task.as_pods()
    assert [first["metadata"]["name"], second["metadata"]["name"]] == ["t-0", "t-1"]
    assert first["metadata"]["annotations"] == {
        "kubesched.io/arrival": "1.5s", "kubesched.io/duration": "90s", "kubesched.io/exit": "Failed",
    }  # fmt: skip
    resources = first["spec"]["containers"][0]["resources"]
    assert resources == {
        "requests": {"cpu": "1500m", "memory": "64Mi", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }
    shared = next(task.as_pods(shared_gpus=True, gang="labels"))
    assert shared["metadata"]["annotations"]["alibabacloud.com/gpu-milli"] == "250"
    assert shared["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io/min-available"] == "2"
    assert "limits" not in shared["spec"]["containers"][0]["resources"]


def test_a_trace_is_simulated(tmp_path: Path) -> None:
    from kubesched.scheduler.plugins import in_tree_registry

    pods = [pod for task in read_alibaba_2018(written(tmp_path, TASKS_2018)).tasks for pod in task.as_pods()]
    result = run_simulation(pods, registry=in_tree_registry(), nodes=1)
    assert (result.totals.succeeded, result.totals.failed, result.totals.pods) == (2, 1, 4)
    assert {placement.name: placement.bound_at for placement in result.placements} == {
        "j-1-m1-0": 0, "j-1-m1-1": 0, "j-1-r2-1": 60, "j-2-m1": 200,
    }  # fmt: skip


def gangs(objects: Iterable[dict[str, Any]]) -> tuple[dict[str, int], Counter[str]]:
    """Return ``minCount`` of each group, and the number of pods that name it."""
    counts, members = {}, Counter[str]()
    for each in objects:
        if each["kind"] == "PodGroup":
            counts[each["metadata"]["name"]] = each["spec"]["schedulingPolicy"]["gang"]["minCount"]
        elif "schedulingGroup" in each["spec"]:
            members[each["spec"]["schedulingGroup"]["podGroupName"]] += 1
    return counts, members


#: Job "wide" had machines with different numbers of GPUs.
WIDE = {
    **JOB,
    "jobid": "wide",
    "attempts": [attempt("2017-10-07 02:00:00", "2017-10-07 02:00:10", 8, 4, 8)],
}
#: Job "pai" has two tasks.
PAI = "pai,ps,1,Terminated,10,60,600,1,,\npai,worker,3,Terminated,10,60,600,1,100,T4\nalone,w,1,Terminated,20,60,600,1,100,T4\n"


@pytest.mark.parametrize(
    ("reader", "text", "expected"),
    [
        (read_philly, json.dumps([JOB, WIDE]), {"wide": 3}),
        (read_alibaba_2020, PAI, {"pai-ps": 4}),
        (read_alibaba_2018, TASKS_2018, {"j-1-m1": 2}),
    ],
)
def test_a_job_of_several_pods_is_a_gang_also_in_copies(
    tmp_path: Path, reader: Callable[..., Trace], text: str, expected: dict[str, int]
) -> None:
    trace = reader(written(tmp_path, text))
    counts, members = gangs(each for task in trace.tasks for each in task.as_objects(gang="PodGroup"))
    assert counts == members == expected
    assert gangs(pod for task in trace.tasks for pod in task.as_pods()) == ({}, {})
    for factor in (0.5, 3):
        drawn = inflated(trace, factor, seed=5)
        counts, members = gangs(each for task in drawn.tasks for each in task.as_objects(gang="PodGroup"))
        assert counts == members
        assert all(task.arrival >= 0 for task in drawn.tasks)
    assert len(counts) > 1
    in_table = gangs(item.data for item in parse_table(table_text(drawn, gang=True), "table"))
    assert in_table == (counts, members)


def test_a_gang_of_a_trace_waits_until_all_of_it_fits(tmp_path: Path) -> None:
    table = "arrival,name,count,duration,cpu,gang\n0,first,1,100,2,\n10,ps,1,60,1,job\n10,worker,2,60,1,job\n"
    objects = [item.data for item in parse_table(table, "table")]
    result = kubesched.simulate(objects, nodes=1, node_resources={"cpu": 4}, gates="AllPodGroups=true")
    bound = {each.name: each.bound_at or 0.0 for each in result.placements}
    assert bound.pop("first") == 0
    assert sorted(bound) == ["ps", "worker-0", "worker-1"]
    assert len(set(bound.values())) == 1, "all are bound in one moment"
    assert 100 <= bound["ps"] < 110


def test_the_table(tmp_path: Path) -> None:
    header, first, *_ = table_text(read_alibaba_2018(written(tmp_path, TASKS_2018))).splitlines()
    assert header == "arrival,name,count,duration,exit,cpu,memory,nvidia.com/gpu"
    assert first == "0,j-1-m1,2,60,,500m,492Mi,0"


# -- the command -------------------------------------------------------------------------------------------------


def traced(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    try:
        code = main(["trace", *map(str, argv)])
    except SystemExit as error:
        code = int(str(error.code))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_writes_a_table_or_manifests(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = written(tmp_path, TASKS_2018)
    code, out, err = traced(capsys, "alibaba-2018", path, "--inflate", "2", "--set", "memory_mib=1000")
    assert (code, err) == (0, "kubesched: 1 left out: never started\n")
    assert len(out.splitlines()) == 7
    code, out, _ = traced(capsys, "alibaba-2018", path, "-o", "yaml", "--gang-labels")
    assert code == 0
    assert out.count("kind: Pod\n") == 4
    assert out.count("pod-group.scheduling.sigs.k8s.io/name: j-1-m1\n") == 2
    code, out, _ = traced(capsys, "alibaba-2018", path, "-o", "yaml", "--gang")
    assert (code, out.count("kind: PodGroup\n"), out.count("podGroupName: j-1-m1\n")) == (0, 1, 2)
    code, out, err = traced(capsys, "alibaba-2018", path, "--gang-labels")
    assert (code, out) == (2, "")
    assert "give -o yaml, too, or --gang" in err


def test_parts_of_gpus_are_remarked_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = written(tmp_path, "a,w,1,T,1,2,100,1,50,\n")
    code, out, err = traced(capsys, "alibaba-2020", path)
    assert (code, out.splitlines()[1]) == (0, "0,a-w,1,1,,1000m,1024Mi,1")
    assert "1 tasks request a part of a GPU, which counts as a whole one in a table" in err


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["alibaba-2017", "x"], 2, "invalid choice: 'alibaba-2017'"),
        (["philly", "nowhere"], 1, "nowhere: cannot be read: No such file or directory"),
        (["philly", "a", "b"], 2, "a trace of the format philly is one file; got 2"),
        (
            ["philly", "a", "--limit", "3"],
            2,
            "philly has no option limit; there are: cpu_milli_per_gpu, memory_mib_per_gpu",
        ),
        (["alibaba-2018", "a", "--set", "memory_mib=1G"], 2, "memory_mib: '1G'; expected a whole number of 0 or more"),
        (["alibaba-2018", "a", "--inflate", "0"], 2, "argument --inflate: must be a number above 0"),
    ],
)
def test_mistakes_are_one_message(capsys: pytest.CaptureFixture[str], argv: list[str], code: int, message: str) -> None:
    ended, out, err = traced(capsys, *argv)
    assert (ended, out) == (code, "")
    assert message in err
    assert "Traceback" not in err

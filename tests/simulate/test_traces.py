"""The openb reader and workloads sampled from it."""

import random
from pathlib import Path

import pytest

from kubesched.lab.traces import (
    GPU_COUNT,
    GPU_MILLI,
    GPU_MODEL,
    OpenbPod,
    TraceError,
    read_nodes,
    read_pods,
    typical_pods,
    with_load,
)

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"


def written(folder: Path, text: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_nodes_are_read_and_become_objects(tmp_path: Path) -> None:
    path = written(tmp_path, NODES + "n0,32000,262144,0,\nn1,96000,393216,8,G2\n")
    plain, with_gpus = (node.as_node() for node in read_nodes(path))
    assert dict(plain.status.allocatable) == {"cpu": "32000m", "memory": "262144Mi", "pods": "1000"}
    assert GPU_MODEL not in plain.metadata.labels
    assert with_gpus.status.allocatable[GPU_COUNT] == "8"
    assert with_gpus.metadata.labels[GPU_MODEL] == "G2"


def test_pods_are_read_and_become_objects(tmp_path: Path) -> None:
    rows = "a,6000,12288,1,460,V100M16|V100M32,LS,Running,1,2,1\nb,4000,1024,0,0,,BE,Failed,1,2,\n"
    shared, plain = (pod.as_pod() for pod in read_pods(written(tmp_path, PODS + rows)))
    assert dict(shared.metadata.annotations) == {GPU_MILLI: "460", GPU_COUNT: "1"}
    assert dict(shared.spec.containers[0].resources.requests) == {"cpu": "6000m", "memory": "12288Mi"}
    affinity = shared.spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert required is not None
    (requirement,) = required.node_selector_terms[0].match_expressions
    assert (requirement.key, requirement.values) == (GPU_MODEL, ("V100M16", "V100M32"))
    assert not plain.metadata.annotations
    assert plain.spec.affinity is None


def test_all_bad_values_are_reported_with_line_and_column(tmp_path: Path) -> None:
    rows = "a,x,1,1,460,,LS,R,1,2,1\na,1,1,1,1200,,LS,R,1,2,1\n,1,-1,2,500,,LS,R,1,2,1\nb,1,1,0,7,,LS,R,1,2,1\nc,1\n"
    path = written(tmp_path, PODS + rows)
    with pytest.raises(TraceError) as caught:
        read_pods(path)
    assert caught.value.problems == [
        f"{path}:2: column cpu_milli: 'x'; expected a whole number of 0 or more",
        f"{path}:3: column gpu_milli: '1200'; expected 1 to 1000 thousandths of the GPU",
        f"{path}:3: column name: 'a'; expected a name that no earlier line has",
        f"{path}:4: column gpu_milli: '500'; expected 1000: 2 GPUs are requested whole",
        f"{path}:4: column memory_mib: '-1'; expected a whole number of 0 or more",
        f"{path}:4: column name: ''; expected a name",
        f"{path}:5: column gpu_milli: '7'; expected 0, as num_gpu is 0",
        f"{path}:6: has fewer values than the header",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: the header lacks sn, cpu_milli, memory_mib, gpu, model; it has nothing"),
        ("sn,cpu_milli,gpu,model\n", ":1: the header lacks memory_mib; it has sn, cpu_milli, gpu, model"),
        (NODES, ": holds no line below the header"),
        (NODES + "n0,1,1,0,,7\n", ":2: has more values than the header"),
        (NODES + "n0,1,1,0,G2\n", ":2: column gpu: '0'; expected a number of G2 GPUs, as the model is given"),
        (b"\xff\xfe\x00", ": is no text in UTF-16-LE: "),
        (NODES + "x" * 200_000, ":2: is no table in CSV: field larger than field limit"),
    ],
)
def test_a_table_that_cannot_be_used(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        read_nodes(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_missing_file_and_many_problems(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"gone\.csv: cannot be read: No such file or directory"):
        read_nodes(tmp_path / "gone.csv")
    path = written(tmp_path, NODES + "".join(f"n{index},x,1,0,\n" for index in range(30)))
    with pytest.raises(TraceError) as caught:
        read_nodes(path)
    assert len(caught.value.problems) == 30
    assert str(caught.value).endswith("\nand 10 more")


def some_pods(count: int) -> list[OpenbPod]:
    rng = random.Random(1)
    shapes = [(4000, 1, 500), (8000, 1, 1000), (2000, 0, 0), (64000, 8, 1000)]
    return [
        OpenbPod(f"p{index}", cpu, 1024, gpus, milli)
        for index, (cpu, gpus, milli) in enumerate(rng.choices(shapes, (5, 3, 2, 1), k=count))
    ]


def test_pods_are_drawn_until_the_load_is_reached() -> None:
    pods = some_pods(50)
    capacity = sum(pod.total_gpu_milli for pod in pods)
    drawn = with_load(pods, capacity, 1.3, seed=7)
    assert sorted(pod.name for pod in drawn[:50]) == sorted(pod.name for pod in pods)
    assert drawn[:50] != pods
    assert set(drawn[50:]) <= set(pods)
    total = sum(pod.total_gpu_milli for pod in drawn)
    # The next pod drawn was one too many, and the last may have had eight GPUs.
    assert 1.3 * capacity - 1000 < total <= 1.3 * capacity + 7000
    assert with_load(pods, capacity, 1.3, seed=7) == drawn
    assert with_load(pods, capacity, 1.3, seed=8) != drawn


def test_pods_are_dropped_down_to_the_load() -> None:
    pods = some_pods(50)
    capacity = sum(pod.total_gpu_milli for pod in pods)
    left = with_load(pods, capacity, 0.5, seed=7)
    assert set(left) < set(pods)
    assert len(set(left)) == len(left)
    assert sum(pod.total_gpu_milli for pod in left) <= 0.5 * capacity


def test_a_load_that_cannot_be_reached() -> None:
    with pytest.raises(ValueError, match="no pod requests a GPU"):
        with_load([OpenbPod("p", 1000, 1, 0, 0)], 1000, 1.3, 1)
    with pytest.raises(ValueError, match="load 0: expected a number above 0"):
        with_load(some_pods(3), 1000, 0, 1)


def test_typical_pods_are_the_most_frequent() -> None:
    pods = [OpenbPod(f"a{index}", 1000, 1, 1, 500) for index in range(6)]
    pods += [OpenbPod(f"b{index}", 2000, 1, 1, 1000) for index in range(3)]
    pods += [OpenbPod("c", 3000, 1, 0, 0)]
    assert typical_pods(pods, 80) == [
        {"cpuMilli": 1000, "gpuMilli": 500, "gpus": 1, "share": 6 / 9},
        {"cpuMilli": 2000, "gpuMilli": 1000, "gpus": 1, "share": 3 / 9},
    ]
    assert sum(pod["share"] for pod in typical_pods(pods, 100)) == pytest.approx(1)

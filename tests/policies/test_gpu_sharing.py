"""GPUs that pods use: requests, the ledger, Filter and Reserve of the example policies."""

import random
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from policy_kit import gpu_node, gpu_pod, load, placement, random_cluster

from builders import a_pod
from kubesched.api.types import Pod
from kubesched.lab.simulate.trials.placement import Placement, Ties
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.nodes.podinfo import PodInfo

gpu_sharing = load("gpu_sharing")
request = load("gpu_sharing.request")
POLICIES = [getattr(gpu_sharing, name) for name in gpu_sharing.__all__]


def annotated(name: str = "p", on: str = "", phase: str = "", **annotations: str) -> Pod:
    """A pod with annotations, by the last part of their names with ``_`` for ``-``."""
    pod = a_pod(name, on=on, cpu="1")
    names = {f"alibabacloud.com/{key.replace('_', '-')}": value for key, value in annotations.items()}

    metadata = msgspec.structs.replace(pod.metadata, annotations=names)
    status = msgspec.structs.replace(pod.status, phase=phase) if phase else pod.status
    return msgspec.structs.replace(pod, metadata=metadata, status=status)


def ledger_of(cluster: Placement) -> Any:
    (plugin,) = (one for one in cluster.framework.plugins.values() if hasattr(one, "ledger"))
    return plugin.ledger


def free_on(cluster: Placement, node_name: str) -> list[int]:
    table = cluster.cache.snapshot().table
    row = table.row_of(node_name)
    free: list[int] = ledger_of(cluster).free(table, np.array([row]))[0].tolist()
    return free


def test_requests_are_read_from_annotations() -> None:
    assert request.gpu_request(annotated(gpu_milli="460")) == (460, 1)
    assert request.gpu_request(annotated(gpu_milli="1000", gpu_count="4")).total == 4000
    assert request.gpu_request(annotated(gpu_milli="0", gpu_count="4")) == (0, 0)
    assert request.gpu_request(a_pod()) == (0, 0)
    assert request.gpu_indexes(annotated(gpu_index="0-3")) == [0, 3]


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"gpu_milli": "half"}, "gpu-milli: 'half'; expected a whole number of 0 or more"),
        ({"gpu_milli": "1200"}, "gpu-milli: 1200; expected at most 1000 thousandths of each GPU"),
        ({"gpu_milli": "500", "gpu_count": "-1"}, "gpu-count: '-1'; expected a whole number of 0 or more"),
    ],
)
def test_a_request_that_cannot_be_read_fails_the_attempt(annotations: dict[str, str], message: str) -> None:
    cluster = placement(gpu_sharing.GpuBestFit, [gpu_node("n", 2)])
    with pytest.raises(PluginFailedError) as caught:
        cluster.place(annotated(**annotations))
    assert message in str(caught.value.error)


def test_typical_pods_that_cannot_be_used_are_refused() -> None:
    typical = load("gpu_sharing.typical").TypicalPods
    with pytest.raises(ValueError, match="typicalPods: None; expected a list of pods with cpuMilli"):
        typical(None)
    with pytest.raises(ValueError, match=r"typicalPods\[0\]: \{'cpuMilli': 1\}; expected cpuMilli, gpuMilli"):
        typical([{"cpuMilli": 1}])
    with pytest.raises(ValueError, match="none requests a GPU"):
        typical([{"cpuMilli": 1, "gpuMilli": 0, "gpus": 0, "share": 1.0}])


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: str(policy.name))
def test_gpus_are_never_given_twice_and_all_that_fits_is_placed(policy: type) -> None:
    """The ledger against the sum over the pods on the nodes, and every rejection against each node by itself."""
    for seed in range(4):
        nodes, pods = random_cluster(random.Random(seed))
        cluster = placement(policy, nodes, seed=seed, ties=Ties.RANDOM)
        ledger = ledger_of(cluster)
        table = cluster.cache.snapshot().table
        rejected = 0
        for pod in pods:
            where = cluster.place(pod)
            wanted = request.gpu_request(pod)
            if where is None:
                rejected += 1
                for node in cluster.cache.snapshot().nodes():
                    cpu_left = node.allocatable.milli_cpu - node.requested.milli_cpu
                    fitting = sum(amount >= wanted.milli for amount in free_on(cluster, node.name))
                    assert cpu_left < PodInfo(pod).requests.milli_cpu or fitting < wanted.count
            elif wanted.count:
                node_name, milli, devices = ledger.held[pod.uid]
                assert (node_name, milli) == (where, wanted.milli)
                assert len(set(devices)) == wanted.count
        assert rejected
        for node in cluster.cache.snapshot().nodes():
            free = free_on(cluster, node.name)
            used = [0] * len(free)
            for uid in node.pods:
                _, milli, devices = ledger.held.get(uid, ("", 0, ()))
                for device in devices:
                    used[device] += milli
            count = node.allocatable.scalars.get(request.GPU_COUNT, 0)
            assert free == [1000 - used[index] if index < count else 0 for index in range(len(free))]
            assert max(used) <= 1000
        assert len(table) == len(nodes)


def test_a_fraction_uses_the_fullest_gpu_and_whole_ones_the_first_that_are_free() -> None:
    cluster = placement(gpu_sharing.GpuBestFit, [gpu_node("n", 4)])
    for name, milli, gpus in (("a", 400, 1), ("b", 700, 1), ("c", 300, 1), ("d", 1000, 2)):
        assert cluster.place(gpu_pod(name, milli, gpus)) == "n"
    held = {uid: devices for uid, (_, _, devices) in ledger_of(cluster).held.items()}
    assert held == {"a": (0,), "b": (1,), "c": (1,), "d": (2, 3)}
    assert cluster.place(gpu_pod("e", 1000)) is None
    assert cluster.place(gpu_pod("f", 600)) == "n"


def test_pods_that_run_already_and_pods_that_end_are_counted() -> None:
    cluster = placement(gpu_sharing.GpuBestFit, [gpu_node("n", 2)])
    plugin = cluster.framework.plugins["GpuBestFit"]
    running = annotated("r", on="n", gpu_milli="600", gpu_index="1")
    plugin.on_add(running, True)
    plugin.on_update(running, running)
    assert free_on(cluster, "n") == [1000, 400]
    assert cluster.place(gpu_pod("a", 1000, 2)) is None
    plugin.on_update(running, annotated("r", on="n", phase="Succeeded", gpu_milli="600", gpu_index="1"))
    assert free_on(cluster, "n") == [1000, 1000]
    # The change journal names the node, so what was remembered of it is evaluated again.
    assert cluster.place(gpu_pod("a", 1000, 2)) == "n"
    plugin.on_delete(SimpleNamespace(obj=gpu_pod("a", 1000, 2)))
    assert free_on(cluster, "n") == [1000, 1000]
    plugin.on_delete(gpu_pod("never placed", 500))


def test_unreserve_gives_gpus_back_and_new_nodes_are_noticed() -> None:
    cluster = placement(gpu_sharing.GpuBestFit, [gpu_node("n", 2)])
    plugin = cluster.framework.plugins["GpuBestFit"]
    assert cluster.place(gpu_pod("a", 500)) == "n"
    cluster.cache.set_node(gpu_node("big", 16))
    assert free_on(cluster, "n") == [500, 1000]
    assert free_on(cluster, "big")[:17] == [1000] * 16
    assert cluster.place(gpu_pod("b", 1000, 12)) == "big"
    plugin.unreserve(None, PodInfo(gpu_pod("b")), "big")
    assert free_on(cluster, "big") == [1000] * 16
    cluster.cache.remove_node("big")
    assert free_on(cluster, "n")[:2] == [500, 1000]

"""Annotations with the keys of kube-scheduler-simulator: their content, their size, their history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from builders import create_nodes
from kubesched.api.kinds import PODS
from kubesched.base.tasks import Supervisor
from kubesched.base.times import RealClock
from kubesched.cluster.kubelets import node_template
from kubesched.cluster.store import Store
from kubesched.explain.annotations import CollectedAnnotations, SimulatorResults, collected
from kubesched.explain.annotations.simulator import CUT, key, texts
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

Read = Callable[[str, str], Any]


def _pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container], **spec}}


def _cluster(check: Callable[[Embedded, Read], Awaitable[None]]) -> None:
    async def run() -> None:
        results, tasks = SimulatorResults(), Supervisor("test")
        clock = VirtualClock(asyncio.get_running_loop())
        embedded = Embedded(default_config(), in_tree_registry(), clock=clock, observers=[results])
        create_nodes(embedded.store, 2, node_template(cpu="4"))

        def read(pod: str, name: str) -> Any:
            text = embedded.store.get(PODS, "default", pod).data()["metadata"]["annotations"][key(name)]
            return text if name == "selected-node" else json.loads(text)

        results.attach(embedded.scheduler, embedded.port)
        async with embedded.running():
            tasks.spawn(results.run(), "results")
            await check(embedded, read)
        await tasks.stop()

    run_virtual(run())


def test_a_bound_pod_has_the_results_of_every_point() -> None:
    async def check(embedded: Embedded, read: Read) -> None:
        embedded.store.create(PODS, "default", _pod("runs", "1"))
        await asyncio.sleep(5)
        node = embedded.store.get(PODS, "default", "runs").data()["spec"]["nodeName"]
        assert read("runs", "selected-node") == node
        verdicts = read("runs", "filter-result")
        assert len(verdicts) == 2
        assert verdicts[node]["NodeResourcesFit"] == "passed"
        raw, final = read("runs", "score-result"), read("runs", "finalscore-result")
        assert raw.keys() == final.keys() == verdicts.keys()
        assert int(final[node]["TaintToleration"]) == 300  # 100 times the weight 3
        assert read("runs", "prefilter-result-status")["NodeResourcesFit"] == "success"
        assert read("runs", "prescore-result")["NodeResourcesFit"] == "success"
        assert read("runs", "bind-result") == {"DefaultBinder": "success"}
        assert read("runs", "postfilter-result") == {}
        [attempt] = read("runs", "result-history")
        assert json.loads(attempt[key("filter-result")]) == verdicts

    _cluster(check)


def test_collected_annotations_are_written_at_the_end_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collected, "_MOST_BYTES", 100)
    store = Store(clock=RealClock(), random=Random(1))
    pods = [store.create(PODS, "default", _pod(f"p{number}", "1")).typed for number in range(4)]
    notes = CollectedAnnotations()
    for text in ("a" * 90, "b" * 30):
        notes.wish(pods[0], {"k": text, "gone": None})
    notes.wish(pods[1], {"k": "c" * 40})
    notes.wish(pods[2], {"k": "d" * 40})  # more than is kept
    notes.wish(pods[3], {"k": "e" * 10})
    store.delete(PODS, "default", "p1")
    store.create(PODS, "default", _pod("p1", "1"))  # another pod of this name
    assert notes.write(store) == ["1 pods have no annotations: together they would have more than 0 MiB"]
    written = [store.get(PODS, "default", f"p{number}").data()["metadata"].get("annotations") for number in range(4)]
    assert written == [{"k": "b" * 30}, None, None, {"k": "e" * 10}]


def test_a_rejected_pod_has_the_first_rejection_of_each_node() -> None:
    async def check(embedded: Embedded, read: Read) -> None:
        embedded.store.create(PODS, "default", _pod("waits", "9"))
        await asyncio.sleep(5)
        for verdicts in read("waits", "filter-result").values():
            assert verdicts["NodeResourcesFit"] == "Insufficient cpu"
            assert verdicts["NodeUnschedulable"] == "passed"
        assert read("waits", "score-result") == {}
        assert read("waits", "selected-node") == ""
        assert read("waits", "bind-result") == {}
        await asyncio.sleep(200)  # the writes themselves do not wake it
        assert len(read("waits", "result-history")) == 1

    _cluster(check)


def test_only_the_nodes_that_prefilter_allows_are_filtered() -> None:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["hollow-00001"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}

    async def check(embedded: Embedded, read: Read) -> None:
        embedded.store.create(PODS, "default", _pod("named", "1", affinity=affinity))
        await asyncio.sleep(5)
        assert read("named", "prefilter-result") == {"NodeAffinity": ["hollow-00001"]}
        assert list(read("named", "filter-result")) == ["hollow-00001"]
        assert read("named", "selected-node") == "hollow-00001"

    _cluster(check)


def test_results_of_many_nodes_are_cut_and_keep_the_chosen_one() -> None:
    nodes = {f"node-{number:05}": {"NodeResourcesFit": "passed" * 10} for number in range(5000)}
    result = texts({"filter-result": nodes}, "node-04999")
    kept = json.loads(result[key("filter-result")] or "")
    assert "node-04999" in kept
    assert result[CUT] == f"{len(kept)} of 5000 nodes are shown"
    assert sum(len(text) for text in result.values() if text) <= 96 << 10
    assert texts({"filter-result": {"a": {}}}, "a")[CUT] is None

"""Pages of a live scheduler: what is answered, what is refused, and how little of the loop they take."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import json as wire

from builders import create_nodes
from kubesched.api.kinds import PODS
from kubesched.base.pages import Answer
from kubesched.base.turns import Steps
from kubesched.cluster.kubelets import node_template
from kubesched.explain.live import LivePages
from kubesched.explain.preemptions import PreemptionMemory
from kubesched.explain.records import Recorder
from kubesched.explain.report import Explanation
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.scheduler import Scheduler


def pod(name: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container], **spec}}


Query = dict[str, Sequence[str]]


class Live:
    """A running scheduler over two nodes of four cpus, with its pages."""

    def __init__(self) -> None:
        self.recorder, self.memory = Recorder(), PreemptionMemory()
        clock = VirtualClock(asyncio.get_running_loop())
        observers = [self.recorder, self.memory]
        self.embedded = Embedded(
            default_config(), in_tree_registry(), clock=clock, observers=observers, believe_priority=True
        )
        self.recorder.attach(self.embedded.scheduler)
        self.memory.attach(self.embedded.scheduler)
        create_nodes(self.embedded.store, 2, node_template(cpu="4"))
        self.ready = True
        self.pages = LivePages(
            self.embedded.scheduler,
            ready=lambda: self.ready,
            preemptions=self.memory,
            decisions=self.recorder.ring,
        )

    def create(self, *pods: dict[str, Any]) -> None:
        for one in pods:
            self.embedded.store.create(PODS, "default", one)

    async def get(self, path: str, query: Query | None = None, accept: str = "application/json") -> Answer:
        return await self.pages.answer(path, query or {}, accept)

    async def document(self, path: str, query: Query | None = None) -> Explanation:
        answer = await self.get(path, query)
        assert (answer.status, answer.content_type) == (200, "application/json"), answer.body
        return wire.decode(answer.body, type=Explanation)


def live(check: Any) -> None:
    async def run() -> None:
        cluster = Live()
        async with cluster.embedded.running():
            cluster.create(pod("runs"), pod("waits", "9"))
            await asyncio.sleep(20)
            await check(cluster)

    run_virtual(run())


def test_pods_are_explained_with_their_place_in_the_queue_and_their_recorded_decision() -> None:
    async def check(cluster: Live) -> None:
        pending = (await cluster.document("/explain/pods/default/waits")).pending
        assert [(group.pods, group.reason) for group in pending] == [(["default/waits"], "Unschedulable")]
        assert pending[0].queue is not None
        assert (pending[0].queue.place, pending[0].queue.rejected_by) == ("Unschedulable", ["NodeResourcesFit"])
        (placed,) = (await cluster.document("/explain/pods/default/runs")).placed
        assert placed.decision is not None
        assert (placed.decision.outcome, placed.decision.node) == ("bound", placed.node)
        assert placed.decision.ties == placed.tied == 2

    live(check)


def test_all_pending_pods_and_one_node_are_asked_for() -> None:
    async def check(cluster: Live) -> None:
        assert [group.pods for group in (await cluster.document("/explain/pending")).pending] == [["default/waits"]]
        assert not (await cluster.document("/explain/pending", {"namespace": ["other"]})).pending
        (group,) = (await cluster.document("/explain/nodes/hollow-00000")).pending
        assert [(other.node, other.fits) for other in group.alternatives] == [("hollow-00000", False)]
        text = await cluster.get("/explain/pending", accept="text/plain")
        assert text.content_type == "text/plain"
        assert text.body.decode().startswith("Pending\ndefault/waits: Unschedulable\n")

    live(check)


def test_an_evicted_pod_is_explained_after_it_has_gone() -> None:
    async def check(cluster: Live) -> None:
        cluster.create(pod("urgent-1", "4", priority=9), pod("urgent-2", "4", priority=9))
        await asyncio.sleep(60)
        assert cluster.embedded.scheduler.informers.live_pod("default", "runs") is None
        (report,) = (await cluster.document("/explain/pods/default/runs")).evicted
        assert (report.victims, report.pod.startswith("default/urgent-")) == (["default/runs"], True)
        assert report.criteria is not None
        assert report.criteria.victims == 1

    live(check)


def test_a_pod_that_is_gone_has_its_last_recorded_decision() -> None:
    async def check(cluster: Live) -> None:
        for name in ("runs", "waits"):
            cluster.embedded.store.delete(PODS, "default", name)
        await asyncio.sleep(60)
        (runs,) = (await cluster.document("/explain/pods/default/runs")).notes
        assert re.fullmatch(r"default/runs is gone; its attempt 1 at \S+ ended bound on hollow-\d+(: .+)?", runs), runs
        (waits,) = (await cluster.document("/explain/pods/default/waits")).notes
        assert "ended unschedulable: 0/2 nodes are available: 2 Insufficient cpu." in waits
        assert (await cluster.get("/explain/pods/default/moon")).status == 404

    live(check)


def test_decisions_are_filtered() -> None:
    async def check(cluster: Live) -> None:
        answer = await cluster.get("/decisions")
        records = [json.loads(line) for line in answer.body.splitlines()]
        assert {record["pod"]["name"]: record["outcome"] for record in records} == {
            "runs": "bound",
            "waits": "unschedulable",
        }
        only = await cluster.get("/decisions", {"pod": ["waits"], "limit": ["1"]})
        assert [json.loads(line)["pod"]["name"] for line in only.body.splitlines()] == ["waits"]
        none = await cluster.get("/decisions", {"since": ["99999999999"]})
        assert (none.status, none.body) == (200, b"")

    live(check)


@pytest.mark.parametrize(
    ("path", "query", "status", "text"),
    [
        ("/explain/pods/default/moon", {}, 404, "no pod is named default/moon"),
        ("/explain/nodes/moon", {}, 404, "no node is named moon"),
        ("/explain/pods/default/runs", {"node": ["moon"]}, 404, "no node is named moon"),
        ("/explain/pods/default/runs", {"node": [f"n{number}" for number in range(17)]}, 400, "at most 16 nodes"),
        ("/explain/pending", {"namespace": ["a", "b"]}, 400, "namespace: expected once, given 2 times"),
        ("/explain/pending", {"name-space": ["a"]}, 400, "'name-space': no such parameter; known are namespace, node"),
        ("/explain/pods/default/runs", {"nodes": ["a"]}, 400, "'nodes': no such parameter; known are node"),
        ("/explain/nodes/hollow-00000", {"node": ["a"]}, 400, "'node': no such parameter; this page has none"),
        (
            "/decisions",
            {"from": ["1"]},
            400,
            "'from': no such parameter; known are pod, node, plugin, outcome, since, ",
        ),
        ("/explain", {}, 404, "404 page not found"),
        ("/explain/pods/a/b/c", {}, 404, "404 page not found"),
        ("/decisions", {"limit": ["0"]}, 400, "limit: expected a number from 1 to 1000, got '0'"),
        ("/decisions", {"limit": ["nan"]}, 400, "limit: expected a number"),
        ("/decisions", {"since": ["yesterday"]}, 400, "since: expected a number"),
        ("/decisions/x", {}, 404, "404 page not found"),
    ],
)
def test_a_wrong_question_is_refused_with_what_would_be_right(path: str, query: Query, status: int, text: str) -> None:
    async def check(cluster: Live) -> None:
        answer = await cluster.get(path, query)
        assert answer.status == status
        assert text in answer.body.decode()

    live(check)


def test_nothing_is_explained_before_the_cluster_is_read() -> None:
    async def check(cluster: Live) -> None:
        cluster.ready = False
        answer = await cluster.get("/explain/pending")
        assert (answer.status, answer.retry_after) == (503, 1)

    live(check)


def test_only_some_questions_wait_for_their_turn() -> None:
    async def check(cluster: Live) -> None:
        answers = await asyncio.gather(*(cluster.get("/explain/pending") for _ in range(12)))
        assert [answer.status for answer in answers] == [200] * 8 + [429] * 4
        assert answers[-1].retry_after == 5
        assert (await cluster.get("/explain/pending")).status == 200

    live(check)


def test_explanations_rest_while_the_scheduler_has_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(cluster: Live) -> None:
        loop, spent = asyncio.get_running_loop(), 0.0

        def working() -> Steps[None]:
            nonlocal spent
            for _ in range(3):
                spent += 1.0  # a second of this loop's time, which virtual time does not see
                yield

        pages = LivePages(cluster.embedded.scheduler, time=lambda: loop.time() + spent)
        start = loop.time()
        await pages.paced(working())
        assert loop.time() == start, "an idle scheduler leaves the loop to the explanation"
        monkeypatch.setattr(Scheduler, "is_idle", property(lambda self: False))
        await pages.paced(working())
        assert loop.time() - start >= 3 * 19, "a busy scheduler keeps nineteen of twenty seconds"

    live(check)


@pytest.mark.parametrize(("path", "name"), [("/explain/pending", "large_json"), ("/decisions", "json_lines")])
def test_the_text_of_an_answer_counts_as_time_taken(path: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(cluster: Live) -> None:
        loop, spent = asyncio.get_running_loop(), 0.0

        def writing(*given: Any, **more: Any) -> Any:
            nonlocal spent
            spent += 1.0
            return []

        monkeypatch.setattr(f"kubesched.explain.live.{name}", writing)
        monkeypatch.setattr(Scheduler, "is_idle", property(lambda self: False))
        ring = cluster.recorder.ring
        pages = LivePages(cluster.embedded.scheduler, decisions=ring, time=lambda: loop.time() + spent)
        start = loop.time()
        answers = await asyncio.gather(*(pages.answer(path, {}, "") for _ in range(3)))
        assert [answer.status for answer in answers] == [200] * 3
        assert loop.time() - start >= 2 * 19, "the next answer begins when the scheduler had its share"

    live(check)

"""Live scheduler on the dashboard: every document over a real cluster in one process, and what is done while nobody looks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from page_kit import Page

from builders import create_nodes, info
from kubesched.api.kinds import DEPLOYMENTS, DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubesched.api.wire import MERGE_PATCH
from kubesched.cluster.kubelets import node_template
from kubesched.dashboard import queue_groups
from kubesched.dashboard.live import Live
from kubesched.dashboard.node_map import NodeMap
from kubesched.dashboard.schema import Change, PodPage, QueuePlace, State
from kubesched.dashboard.schema_what_if import WhatIf
from kubesched.dashboard.shared import MOST_ANSWERS
from kubesched.dashboard.source import PodQuery, Refused
from kubesched.explain.records import Recorder
from kubesched.explain.watchers import Watchers
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

JSON = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"


def pod(name: str, cpu: str = "1", metadata: JSON | None = None, **spec: Any) -> JSON:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": name, "namespace": "default", **(metadata or {})}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def deployment(name: str, replicas: int, cpu: str) -> JSON:
    labels = {"app": name}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


class Cluster:
    """A cluster of four nodes with four cpus each, in two zones, its scheduler and its source."""

    def __init__(self, recorder: Recorder | None = None, *, watched_only: bool = False) -> None:
        """``watched_only``: read the objects that the scheduler watches, and no others, as on a real cluster."""
        self._watched_only = watched_only
        clock = VirtualClock(asyncio.get_running_loop())
        self.watchers = Watchers(recorder, annotate_why=False, event_why=False, simulator_results=False)
        self.live = Live("test", "embedded")
        self.embedded = Embedded(
            default_config(),
            in_tree_registry(),
            clock=clock,
            observers=[*self.watchers.observers, self.live.observer],
            controllers=True,
            believe_priority=True,
        )
        self.attach()
        self.live.attach(lambda: self.embedded.scheduler, self.watchers, replaced=lambda scheduler: self.attach())
        create_nodes(self.embedded.store, 4, node_template(cpu="4"), zones=("a", "b"))

    def attach(self) -> None:
        objects = None if self._watched_only else self.embedded.objects
        self.watchers.attach(self.embedded.scheduler, self.embedded.port, objects=objects)

    def create(self, *pods: JSON) -> None:
        for one in pods:
            self.embedded.store.create(PODS, "default", one)

    async def state(self) -> State:
        return await self.live.state(None)

    async def page(self, name: str) -> PodPage:
        return await self.live.pod("default", name, None)

    async def place(self, name: str) -> QueuePlace:
        return next(one for one in (await self.live.queues(None)).places if one.place == name)


def run(check: Callable[[Cluster], Coroutine[Any, Any, None]], recorder: Recorder | None = None, **how: Any) -> None:
    async def main() -> None:
        cluster = Cluster(recorder, **how)
        async with cluster.embedded.running():
            for name, task in cluster.live.tasks():
                cluster.embedded.tasks.spawn(task, name)
            await asyncio.sleep(5)
            await check(cluster)

    run_virtual(main())


class Follower:
    """A page: it reads its stream in a task, and asks for the state when it is told to."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.changes: list[Change] = []
        self.resyncs = 0
        self._page: Page | None = None
        self.task = asyncio.create_task(self.follow())

    @property
    def page(self) -> Page:
        assert self._page is not None
        return self._page

    async def _ask_anew(self) -> None:
        """Ask for the state until there is one, as a page does when the server has failed."""
        while True:
            try:
                self._page = Page(await self._cluster.state())
                return
            except ZeroDivisionError:
                await asyncio.sleep(1)

    async def follow(self) -> None:
        state = await self._cluster.state()
        self._page = Page(state)
        async for event in self._cluster.live.changes(state.version):
            kind, _, rest = event.decode().partition("\n")
            if kind == "event: resync":
                self.resyncs += 1
                await self._ask_anew()
            elif kind == "event: change":
                change = msgspec.json.decode(rest.partition("data: ")[2], type=Change)
                self.changes.append(change)
                if change.version > self.page.version:
                    self.page.apply(change)


def test_the_state_is_the_cluster() -> None:
    async def check(cluster: Cluster) -> None:
        cluster.create(pod("runs"))
        cluster.embedded.store.create(NODES, "", {"metadata": {"name": "cordoned"}, "spec": {"unschedulable": True}})
        await asyncio.sleep(5)
        state = await cluster.state()
        assert state == msgspec.json.decode(msgspec.json.encode(state), type=State)
        page = Page(state)
        zones = {one["name"]: one["labels"].get(ZONE) for one in page.nodes.values()}
        assert zones == {**{f"hollow-0000{number}": "ab"[number % 2] for number in range(4)}, "cordoned": None}
        assert sorted(one["requested"].get("cpu", 0) for one in page.nodes.values()) == [0, 0, 0, 0, 1000]
        assert {one["status"] for one in page.nodes.values()} == {"Ready", "Cordoned"}
        assert state.sample.on_nodes == 1
        weights = {one.plugin: one.weight for one in state.profiles[0].scores}
        assert (state.profiles[0].name, weights["TaintToleration"]) == ("default-scheduler", 3)

    run(check)


def test_a_page_that_follows_shows_what_a_new_page_shows() -> None:
    async def check(cluster: Cluster) -> None:
        follower = Follower(cluster)
        await asyncio.sleep(1)
        cluster.create(*(pod(f"p{number}", "500m") for number in range(12)))
        await asyncio.sleep(2)
        cluster.embedded.store.delete(NODES, "", "hollow-00003")
        await asyncio.sleep(2)
        cluster.embedded.store.delete(PODS, "default", "p3")
        await asyncio.sleep(30)
        assert (follower.page.nodes, follower.resyncs) == (Page(await cluster.state()).nodes, 0)
        assert sum(change.bound_count for change in follower.changes) == 12
        bound = {one.pod for change in follower.changes for one in change.bound}
        assert bound == {f"default/p{number}" for number in range(12)}
        follower.task.cancel()

    run(check)


def test_nothing_is_read_while_nobody_looks_and_a_page_that_comes_later_has_a_past() -> None:
    async def check(cluster: Cluster) -> None:
        cluster.create(pod("early"))
        await asyncio.sleep(20)
        live = cluster.live
        assert live._map is None
        samples = (await live.series()).samples
        assert len(samples) >= 20
        assert sum(sample.bound for sample in samples) == 1
        assert all(later.at > earlier.at for earlier, later in pairwise(samples))
        version = (await cluster.state()).version
        cluster.create(pod("late"))
        await asyncio.sleep(20)
        assert live._streams.version == version
        assert live.observer.take_listed() == ([], 0, [], 0)

    run(check)


def test_preemptions_are_seen_as_they_happen() -> None:
    async def check(cluster: Cluster) -> None:
        cluster.create(*(pod(f"low-{number}", "4") for number in range(4)))
        await asyncio.sleep(5)
        follower = Follower(cluster)
        await asyncio.sleep(1)
        cluster.create(pod("high", "4", priority=100))
        await asyncio.sleep(60)
        ((row, victims),) = [(one.row, one.victims) for change in follower.changes for one in change.preempted]
        page = await cluster.page("high")
        assert page.pod.node == (await cluster.state()).nodes.names[row]
        whats = [moment.what for moment in page.life]
        assert whats.index("created") < whats.index("nominated") < whats.index("bound")
        assert [(link.kind, link.name) for link in page.links] == [("Node", page.pod.node)]
        with pytest.raises(Refused, match="no pod is named default/low"):
            await cluster.page(victims[0].partition("/")[2])
        follower.task.cancel()
        # A page that is opened later can ask for them.
        preempted, bound = page.life[whats.index("nominated")].at, page.life[whats.index("bound")].at
        past = (await cluster.live.played(preempted, bound, 100)).changes
        assert [(one.pod, one.row, one.victims) for change in past for one in change.preempted] == [
            ("default/high", row, victims)
        ]
        assert [(one.pod, one.row) for change in past for one in change.bound] == [("default/high", row)]
        (last,) = (await cluster.live.played(0, bound, 1)).changes
        assert (last.at, last.bound[0].pod) == (bound, "default/high")
        assert len((await cluster.live.played(0, preempted - 1, 100)).changes) == 4
        assert (await cluster.live.played(bound + 1, bound + 99, 100)).changes == []

    run(check)


def test_the_queue_is_shown_in_groups_with_reasons() -> None:
    async def check(cluster: Cluster) -> None:
        cluster.embedded.store.create(DEPLOYMENTS, "default", deployment("huge", 3, "50"))
        cluster.create(pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
        await asyncio.sleep(20)
        waiting, gated = await cluster.place("Unschedulable"), await cluster.place("Gated")
        ((group,), (held,)) = waiting.groups, gated.groups
        assert (group.workload, group.count, waiting.count, waiting.left_out) == ("Deployment/huge", 3, 3, 0)
        assert "Insufficient cpu" in group.why
        assert group.rejected_by == ["NodeResourcesFit"]
        assert group.waited is not None
        assert 10 < group.waited < 25
        assert group.until is not None
        assert group.until > (await cluster.live.queues(None)).at
        assert (held.pod, held.why, held.rejected_by) == (
            "default/gated",
            "gates: example.com/wait",
            ["SchedulingGates"],
        )
        sample = (await cluster.state()).sample
        # No free cpu is of use to pods of 50 cpus.
        assert (sample.fragmentation, sample.utilisation["cpu"]) == ({"cpu": 1.0}, 0.0)
        counts = sample.queue
        assert (counts.unschedulable, counts.gated, counts.active) == (3, 1, 0)
        assert sum(sample.failed for sample in (await cluster.live.series()).samples) == 3

    run(check)


def test_pods_are_found_and_bounded() -> None:
    async def check(cluster: Cluster) -> None:
        cluster.embedded.store.create(DEPLOYMENTS, "default", deployment("web", 3, "100m"))
        cluster.create(pod("huge", "50"), pod("small", "100m"))
        await asyncio.sleep(20)

        async def names(**query: Any) -> tuple[list[str], int]:
            found = await cluster.live.pods(PodQuery(**query), None)
            return [one.name.partition("-")[0] for one in found.pods], found.total

        assert await names() == (["huge", "small", "web", "web", "web"], 5)
        assert await names(limit=2) == (["huge", "small"], 5)
        assert await names(limit=0) == ([], 5)
        assert await names(text="eb-") == (["web"] * 3, 3)
        assert await names(workload="Deployment/web") == (["web"] * 3, 3)
        assert await names(state="Unschedulable") == (["huge"], 1)
        assert await names(state="Running", text="small") == (["small"], 1)
        assert await names(namespace="other") == ([], 0)
        node = (await cluster.page("small")).pod.node
        found = await cluster.live.pods(PodQuery(node=node), None)
        assert "small" in [one.name for one in found.pods]
        page = await cluster.live.node(node, None)
        assert {one.name for one in page.pods} == {one.name for one in found.pods}
        assert page.requested["cpu"] == sum(one.requests["cpu"] for one in page.pods)
        assert page.requested["pods"] == len(page.pods)

    run(check)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_life_is_told_from_its_beginning(recorded: bool) -> None:
    async def check(cluster: Cluster) -> None:
        cluster.create(pod("grows", "50"))
        await asyncio.sleep(20)
        before = await cluster.page("grows")
        assert before.message.startswith("0/4 nodes are available: 4 Insufficient cpu.")
        assert [moment.what for moment in before.life] == ["created", "tried", "rejected"]
        cluster.embedded.store.create(NODES, "", {**node_template(cpu="64"), "metadata": {"name": "big"}})
        await asyncio.sleep(400)
        after = await cluster.page("grows")
        assert (after.pod.node, after.complete, after.message) == ("big", True, "")
        whats = [moment.what for moment in after.life]
        assert whats[0] == "created"
        assert whats.index("rejected") < whats.index("bound") < whats.index("started")
        assert [moment.at for moment in after.life] == sorted(moment.at for moment in after.life)
        assert [moment.node for moment in after.life if moment.what == "bound"] == ["big"]

    run(check, Recorder() if recorded else None)


def test_very_long_texts_are_cut() -> None:
    """Texts that anyone may have written: a condition of a node, a message of a pod, the name of an owner."""

    async def check(cluster: Cluster) -> None:
        store, long = cluster.embedded.store, "x" * 100_000
        owner = {"apiVersion": "v1", "kind": long, "name": long, "uid": "1", "controller": True}
        cluster.create(pod("theirs", metadata={"ownerReferences": [owner]}, schedulerName="another"))
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": long}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        store.patch(
            PODS,
            "default",
            "theirs",
            {"status": {"conditions": [condition]}},
            patch_type=MERGE_PATCH,
            subresource="status",
        )
        odd = [{"type": f"{index}{long}", "status": "True", "reason": long} for index in range(3)]
        store.create(NODES, "", {**node_template(cpu="4"), "metadata": {"name": "odd"}, "status": {"conditions": odd}})
        await asyncio.sleep(5)
        page = await cluster.page("theirs")
        assert page.message.startswith("xxx")
        assert len(msgspec.json.encode(page)) < 20_000
        node = await cluster.live.node("odd", None)
        assert any(one.type.startswith("2xxx") for one in node.conditions)
        assert len(msgspec.json.encode(node)) < 30_000

    run(check)


def test_verdicts_are_those_of_the_scheduler() -> None:
    async def check(cluster: Cluster) -> None:
        for name in ("here", "there", "full"):
            cluster.create(pod(name, "3", nodeSelector={ZONE: "a"}))
            await asyncio.sleep(5)
        nodes = Page(await cluster.state()).nodes
        zones = [nodes[row]["labels"][ZONE] for row in range(4)]
        full = await cluster.live.verdicts("default", "full", None)
        assert sorted((one.plugin, one.text, one.nodes) for one in full.reasons) == [
            ("NodeAffinity", "node(s) didn't match Pod's node affinity/selector", 2),
            ("NodeResourcesFit", "Insufficient cpu", 2),
        ]
        by_zone = {zone: full.reasons[place].plugin for zone, place in zip(zones, full.verdict, strict=True)}
        assert (by_zone, full.own, full.scores) == ({"a": "NodeResourcesFit", "b": "NodeAffinity"}, None, [])
        # A pod with a node is judged as if it had none: its own node still fits.
        here = await cluster.live.verdicts("default", "here", None)
        assert here.own is not None
        assert [row for row, place in enumerate(here.verdict) if place == -1] == [here.own]
        scores = {one.plugin: (one.weight, one.scores[here.own]) for one in here.scores}
        assert scores["TaintToleration"] == (3, 300)
        assert all(not one.scores[row] for one in here.scores for row in range(4) if row != here.own)
        explained = await cluster.live.explain("/explain/pods/default/here", {}, None)
        best = json.loads(explained.body)["placed"][0]["best"][0]
        assert best["total"] == sum(score for _, score in scores.values())

    run(check)


def test_what_is_not_there_or_not_possible_is_refused_in_words() -> None:
    async def check(cluster: Cluster) -> None:
        live = cluster.live
        refusals: list[tuple[Coroutine[Any, Any, Any], int, str]] = [
            (live.state(1.0), 400, "the present only"),
            (live.pod("default", "nope", None), 404, "no pod is named default/nope"),
            (live.node("nope", None), 404, "no node is named nope"),
            (live.verdicts("default", "nope", None), 404, "no pod"),
            (live.choices(), 403, "read-only"),
            (live.what_if(WhatIf(changes=[])), 403, "read-only"),
            (live.apply(WhatIf(changes=[])), 403, "read-only"),
        ]
        for asked, status, words in refusals:
            with pytest.raises(Refused, match=words) as refused:
                await asked
            assert refused.value.status == status
        cluster.create(pod("foreign", schedulerName="other"))
        await asyncio.sleep(5)
        with pytest.raises(Refused, match='no profile is named "other"'):
            await live.verdicts("default", "foreign", None)
        assert (await cluster.page("foreign")).pod.state == "Pending"
        assert (await live.explain("/explain/pods/default/nope", {}, None)).status == 404
        assert (live.info.what_if, live.info.writable, live.info.end) == (False, False, None)

    run(check)


def test_texts_of_users_stay_texts() -> None:
    script = "<script>alert(1)</script>"

    async def check(cluster: Cluster) -> None:
        marks = {"annotations": {"kubesched.io/workload": f"Job/{script}", "note": script}, "labels": {"a": "b"}}
        cluster.create(pod("odd", "99", marks))
        cluster.create(pod("long", "1", {"annotations": {"kubesched.io/workload": "x" * 200_000}}))
        await asyncio.sleep(10)
        (group,) = (await cluster.place("Unschedulable")).groups
        assert group.workload == f"Job/{script}"
        found = await cluster.live.pods(PodQuery(workload=f"Job/{script}"), None)
        assert (found.total, found.pods[0].name) == (1, "odd")
        assert json.loads(msgspec.json.encode(found))["pods"][0]["workload"] == f"Job/{script}"
        assert len(msgspec.json.encode(await cluster.live.pods(PodQuery(text="long"), None))) < 1000

    run(check)


def test_a_scheduler_that_takes_the_place_of_another_is_followed() -> None:
    async def check(cluster: Cluster) -> None:
        follower = Follower(cluster)
        cluster.create(pod("one"))
        await asyncio.sleep(5)
        old = cluster.embedded.scheduler
        await cluster.embedded.restart_scheduler(default_config())
        assert cluster.embedded.scheduler is not old
        cluster.create(pod("two"))
        await asyncio.sleep(10)
        assert (follower.page.nodes, follower.resyncs) == (Page(await cluster.state()).nodes, 1)
        assert sum(one["requested"].get("pods", 0) for one in follower.page.nodes.values()) == 2
        assert (await cluster.live.verdicts("default", "two", None)).own is not None
        follower.task.cancel()

    run(check)


def test_memory_is_bounded() -> None:
    async def check(cluster: Cluster) -> None:
        live, samples = cluster.live, cluster.live._samples
        live.observer.listed = True
        queued = SimpleNamespace(pod_info=info(), timestamp=0.0, initial_attempt_timestamp=None, attempts=1)
        attempt: Any = SimpleNamespace(queued=queued, node_name="n")
        for _ in range(30_000):
            live.observer.ended(attempt, None, None)
        bindings, count, _, _ = live.observer.take_listed()
        assert (len(bindings), count, len(live.observer.take_waits())) == (100, 30_000, 2000)
        assert len(live.observer.events_of("p-uid")) == 20_000
        for _ in range(9000):
            samples.take(cluster.embedded.scheduler)
        assert (len(samples._seconds), len(samples._minutes)) == (3600, 90)
        series = (await live.series()).samples
        assert len(series) == 1200
        assert sum(sample.bound for sample in series) == 30_000

    run(check)


def test_pages_that_ask_for_the_same_at_the_same_time_share_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(cluster: Cluster) -> None:
        made: list[str] = []
        places = queue_groups.finding_places

        def counted(*arguments: Any) -> Any:
            made.append("queues")
            return places(*arguments)

        monkeypatch.setattr("kubesched.dashboard.live.finding_places", counted)
        states = await asyncio.gather(*(cluster.state() for _ in range(10)))
        assert all(state is states[0] for state in states)
        leaving = asyncio.create_task(cluster.live.queues(None))
        asking = [asyncio.create_task(cluster.live.queues(None)) for _ in range(9)]
        await asyncio.sleep(0)
        leaving.cancel()
        answers = await asyncio.gather(*asking)
        assert (len(made), len({id(answer.places) for answer in answers})) == (1, 1)
        await cluster.live.queues(None)
        assert len(made) == 2

    run(check)


def test_more_different_questions_than_are_answered_at_a_time_are_refused() -> None:
    async def check(cluster: Cluster) -> None:
        asked = [cluster.live.pods(PodQuery(text=str(number)), None) for number in range(MOST_ANSWERS + 4)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, Refused)]
        assert ([answer.status for answer in refused], len(answers) - len(refused)) == ([503] * 4, MOST_ANSWERS)

    run(check)


def test_a_defect_of_the_dashboard_is_logged_once_and_the_scheduler_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(cluster: Cluster) -> None:
        follower = Follower(cluster)
        await asyncio.sleep(2)

        def fails(self: NodeMap) -> None:
            raise ZeroDivisionError("a defect")

        with monkeypatch.context() as patch:
            patch.setattr(NodeMap, "changes", fails)
            cluster.create(pod("one"))
            await asyncio.sleep(30)
        assert cluster.embedded.scheduler.informers.live_pod("default", "one").spec.node_name  # type: ignore[union-attr]
        await asyncio.sleep(10)
        assert follower.page.nodes == Page(await cluster.state()).nodes
        assert 1 <= follower.resyncs <= 10
        follower.task.cancel()

    run(check)
    assert [record.message for record in caplog.records] == ["the dashboard failed, and starts anew"]


def test_devices_and_claims_are_followed() -> None:
    gpu, driver = "gpu", "gpu.example.com"

    async def check(cluster: Cluster) -> None:
        store = cluster.embedded.store
        store.create(DEVICE_CLASSES, "", {"metadata": {"name": gpu}, "spec": {}})
        there = {
            "driver": driver,
            "nodeName": "hollow-00001",
            "devices": [{"name": f"d{number}"} for number in range(4)],
        }
        pool = {"name": "hollow-00001", "generation": 1, "resourceSliceCount": 1}
        store.create(RESOURCE_SLICES, "", {"metadata": {"name": "slice"}, "spec": {**there, "pool": pool}})
        follower = Follower(cluster)
        await asyncio.sleep(2)
        request = {"name": "r", "exactly": {"deviceClassName": gpu, "count": 3}}
        claim = {"metadata": {"name": "claim", "namespace": "default"}, "spec": {"devices": {"requests": [request]}}}
        store.create(RESOURCE_CLAIMS, "default", claim)
        cluster.create(pod("trains", resourceClaims=[{"name": "c", "resourceClaimName": "claim"}]))
        cluster.create(pod("lacks", resourceClaims=[{"name": "c", "resourceClaimName": "absent"}]))
        await asyncio.sleep(20)
        name = f"devices of {driver}"
        (row,) = [row for row, one in follower.page.nodes.items() if one["name"] == "hollow-00001"]
        state = await cluster.state()
        assert follower.page.nodes == Page(state).nodes
        assert follower.page.nodes[row]["requested"][name] == 3
        assert follower.page.nodes[row]["allocatable"][name] == 4
        assert [one.name for one in state.nodes.resources if one.devices] == [name]
        node = await cluster.live.node("hollow-00001", None)
        assert (node.allocatable[name], node.requested[name]) == (4, 3)
        claims = {
            link.name: link.state for link in (await cluster.page("trains")).links if link.kind == "ResourceClaim"
        }
        assert claims == {"claim": "allocated"}
        (missing,) = (await cluster.page("lacks")).links
        assert (missing.kind, missing.name, missing.state) == ("ResourceClaim", "absent", "does not exist")
        store.delete(PODS, "default", "trains")
        await asyncio.sleep(90)
        assert name not in follower.page.nodes[row]["requested"]
        follower.task.cancel()

    run(check)


def test_on_a_real_cluster_only_what_the_scheduler_watches_is_shown() -> None:
    async def check(cluster: Cluster) -> None:
        cluster.embedded.store.create(DEPLOYMENTS, "default", deployment("web", 2, "100m"))
        cluster.create(pod("once", restartPolicy="Never"))
        await asyncio.sleep(10)
        found = (await cluster.live.pods(PodQuery(workload="Deployment/web"), None)).pods
        assert len(found) == 2
        page = await cluster.page(found[0].name)
        assert [link.kind for link in page.links] == ["Node", "Deployment", "ReplicaSet"]
        ended = {"status": {"phase": "Succeeded"}}
        cluster.embedded.store.patch(PODS, "default", "once", ended, subresource="status")
        await asyncio.sleep(5)
        with pytest.raises(Refused, match="it may have finished"):
            await cluster.page("once")
        assert (await cluster.live.explain("/explain/pending", {}, None)).status == 200

    run(check, watched_only=True)

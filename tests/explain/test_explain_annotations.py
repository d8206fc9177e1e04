"""Annotations and events of pending pods: what is written, how often, and when it goes."""

from __future__ import annotations

import asyncio
from typing import Any

from builders import create_nodes
from kubesched.api.decode import from_builtins
from kubesched.api.kinds import EVENTS, NODES, POD_GROUPS, PODS
from kubesched.api.types import Pod
from kubesched.base.tasks import Supervisor
from kubesched.cluster.kubelets import make_nodes, node_template
from kubesched.explain.annotations import PodWriter, WhyPending
from kubesched.explain.annotations.why import WHY_PENDING, why_line
from kubesched.explain.live import LivePages
from kubesched.explain.report import Pending
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import FeatureGates, default_config
from kubesched.scheduler.plugins import in_tree_registry


def _pod(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}


def test_a_pending_pod_says_why_until_it_has_a_node() -> None:
    async def run() -> None:
        why = WhyPending()
        clock = VirtualClock(asyncio.get_running_loop())
        embedded = Embedded(default_config(), in_tree_registry(), clock=clock, observers=[why])
        create_nodes(embedded.store, 2, node_template(cpu="4"))
        live = LivePages(embedded.scheduler)
        why.attach(embedded.scheduler, embedded.port)

        def annotation() -> str | None:
            found: dict[str, str] = (
                embedded.store.get(PODS, "default", "waits").data()["metadata"].get("annotations", {})
            )
            return found.get(WHY_PENDING)

        tasks = Supervisor("test")
        async with embedded.running():
            tasks.spawn(why.run(live.explain), "why")
            tasks.spawn(why.write(), "writes")
            embedded.store.create(PODS, "default", _pod("waits", "9"))
            await asyncio.sleep(10)
            assert annotation() == (
                "0/2 nodes are available: 2 Insufficient cpu. What would help: ask for 5 less cpu: 2 nodes would fit"
            )
            version = embedded.store.get(PODS, "default", "waits").data()["metadata"]["resourceVersion"]
            await asyncio.sleep(900)  # tried again, with the same result
            assert embedded.store.get(PODS, "default", "waits").data()["metadata"]["resourceVersion"] == version
            [node] = make_nodes(1, node_template(cpu="16"), now=embedded.store.now())
            node["metadata"]["name"] = "large"
            embedded.store.create(NODES, "", node)
            await asyncio.sleep(60)
            assert annotation() is None
        await tasks.stop()

    run_virtual(run())


def test_a_pending_pod_has_one_event_for_each_text() -> None:
    async def run() -> None:
        why = WhyPending(annotate=False, event=True)
        clock = VirtualClock(asyncio.get_running_loop())
        embedded = Embedded(default_config(), in_tree_registry(), clock=clock, observers=[why])
        create_nodes(embedded.store, 2, node_template(cpu="4"))
        live = LivePages(embedded.scheduler)
        why.attach(embedded.scheduler, embedded.port)

        def events() -> list[dict[str, Any]]:
            found = [item.data() for item in embedded.store.list(EVENTS).items]
            return [event for event in found if event["reason"] == "WhyPending"]

        tasks = Supervisor("test")
        async with embedded.running():
            tasks.spawn(why.run(live.explain), "why")
            tasks.spawn(why.write(), "writes")
            embedded.store.create(PODS, "default", _pod("waits", "9"))
            await asyncio.sleep(10)
            (event,) = events()
            assert event["note"] == (
                "0/2 nodes are available: 2 Insufficient cpu. What would help: ask for 5 less cpu: 2 nodes would fit"
            )
            assert (event["type"], event["action"], event["regarding"]["name"]) == ("Normal", "Explaining", "waits")
            assert event["reportingController"] == "default-scheduler"
            assert "annotations" not in embedded.store.get(PODS, "default", "waits").data()["metadata"]
            version = event["metadata"]["resourceVersion"]
            await asyncio.sleep(900)  # tried again, with the same result
            assert [one["metadata"]["resourceVersion"] for one in events()] == [version]
            await asyncio.sleep(1200)  # an old event is confirmed, before the server removes it
            (event,) = events()
            assert event["series"]["count"] == 2
            [node] = make_nodes(1, node_template(cpu="6"), now=embedded.store.now())
            node["metadata"]["name"] = "larger"
            embedded.store.create(NODES, "", node)
            await asyncio.sleep(400)  # the node is too small to wake the pod
            assert sorted(one["note"].rpartition("What would help: ")[2] for one in events()) == [
                "ask for 3 less cpu: 1 node would fit",
                "ask for 5 less cpu: 2 nodes would fit",
            ]
        await tasks.stop()

    run_virtual(run())


def test_all_members_of_a_pod_group_have_the_line_of_their_group() -> None:
    async def run() -> None:
        why = WhyPending(annotate=True, event=True)
        clock = VirtualClock(asyncio.get_running_loop())
        gates = FeatureGates.of(dict.fromkeys(("GenericWorkload", "GangScheduling"), True))
        config = default_config(gates=gates)
        embedded = Embedded(config, in_tree_registry(), clock=clock, gates=gates, observers=[why])
        create_nodes(embedded.store, 2, node_template(cpu="4"))
        live = LivePages(embedded.scheduler)
        why.attach(embedded.scheduler, embedded.port)

        def annotations() -> dict[str, str | None]:
            pods = [item.data()["metadata"] for item in embedded.store.list(PODS).items]
            return {pod["name"]: pod.get("annotations", {}).get(WHY_PENDING) for pod in pods}

        tasks = Supervisor("test")
        async with embedded.running():
            tasks.spawn(why.run(live.explain), "why")
            tasks.spawn(why.write(), "writes")
            spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
            embedded.store.create(POD_GROUPS, "default", {"metadata": {"name": "g"}, "spec": spec})
            for number in range(3):
                pod = _pod(f"g-{number}", "3")
                pod["metadata"]["labels"] = {"index": str(number)}
                pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
                embedded.store.create(PODS, "default", pod)
            embedded.store.create(PODS, "default", _pod("single", "9"))
            await asyncio.sleep(60)
            lines = annotations()
            single = lines.pop("single")
            assert single is not None
            assert single.startswith("0/2 nodes are available: 2 Insufficient cpu.")
            assert len(set(lines.values())) == 1
            line = lines["g-0"]
            assert line is not None
            assert line.startswith("pod group default/g: gang of 3 waits: 2 fit, 1 lacks cpu")
            notes = [item.data() for item in embedded.store.list(EVENTS).items]
            said = {one["regarding"]["name"] for one in notes if one["reason"] == "WhyPending" and one["note"] == line}
            assert said == {"g-0", "g-1", "g-2"}
            [node] = make_nodes(1, node_template(cpu="32"), now=embedded.store.now())
            node["metadata"]["name"] = "large"
            embedded.store.create(NODES, "", node)
            await asyncio.sleep(60)
            assert set(annotations().values()) == {None}
        await tasks.stop()

    run_virtual(run())


def test_an_event_has_the_size_that_servers_take() -> None:
    async def run() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        embedded = Embedded(default_config(), in_tree_registry(), clock=clock)
        item = embedded.store.create(PODS, "default", _pod("waits", "9"))
        writer = PodWriter(embedded.port, clock)
        task = asyncio.create_task(writer.run())
        writer.wish(item.typed, {}, "é" * 1000)
        await asyncio.sleep(1)
        (event,) = embedded.store.list(EVENTS).items
        note = event.data()["note"]
        assert len(note.encode()) <= 1024
        assert note.endswith("é ...")
        task.cancel()

    run_virtual(run())


class _Port:
    event_transport = None

    def __init__(self, clock: VirtualClock) -> None:
        self.written: list[tuple[float, str, Any]] = []
        self._clock = clock

    async def patch_object(self, kind: Any, namespace: str, name: str, patch: Any) -> None:
        self.written.append((self._clock.now(), name, patch["metadata"]))


def test_writes_are_limited_for_each_pod_and_in_total() -> None:
    async def run() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        port = _Port(clock)
        writer = PodWriter(port, clock)  # type: ignore[arg-type]
        task = asyncio.create_task(writer.run())
        pods = [from_builtins({"metadata": {"name": f"p{n}", "uid": f"u{n}"}}, Pod) for n in range(3)]
        for text in ("a", "b"):
            for one in pods:
                writer.wish(one, {"k": text})
        await asyncio.sleep(1)
        assert [(name, meta["annotations"]) for _, name, meta in port.written] == [
            (f"p{n}", {"k": "b"}) for n in range(3)
        ]
        assert port.written[0][2]["uid"] == "u0"
        assert port.written[2][0] - port.written[0][0] >= 0.2
        first = port.written[0][0]
        writer.wish(pods[0], {"k": None})
        await asyncio.sleep(40)
        assert port.written[3][1:] == ("p0", {"uid": "u0", "annotations": {"k": None}})
        assert port.written[3][0] - first >= 30
        task.cancel()

    run_virtual(run())


def test_a_line_is_bounded_and_has_no_line_breaks() -> None:
    group = Pending(
        reason="Unschedulable",
        message="no\nnode \x1b[2J" + "x" * 5000,
        workload="",
        count=1,
        pods=["default/p"],
        scheduler_name="default-scheduler",
        hints=["add nodes"],
    )
    line = why_line(group)
    assert len(line) == 1000
    assert line.startswith("no node \\x1b[2Jxxx")
    assert line.endswith("…")

"""What-if: answers are those of a simulation of the same changes, proposals are checked, and `apply` does what it says."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

import kubesched
from kubesched.api.kinds import DEPLOYMENTS, NODES, PODS
from kubesched.cluster.controllers import ALL
from kubesched.cluster.files import save
from kubesched.dashboard.schema_what_if import AddNodes, Drain, Failure, Outcome, Proposal, Scale, Weight, WhatIf
from kubesched.dashboard.source import Refused
from kubesched.dashboard.trials import trials
from kubesched.dashboard.trials.compared import Seen, SeenPod, compared
from kubesched.dashboard.trials.deeds import with_weight
from kubesched.dashboard.trials.run import run_question
from kubesched.dashboard.trials.trials import ClusterTrials
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import DEFAULT_GATES, KubeSchedulerConfiguration, default_config
from kubesched.scheduler.loading import load_configuration
from kubesched.scheduler.plugins import in_tree_registry
from recording_kit import node, pod

JSON = dict[str, Any]
T = TypeVar("T")
PROFILE = "default-scheduler"


def deployment(name: str, replicas: int, cpu: str) -> JSON:
    labels = {"app": name}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def budget(name: str, minimum: int) -> JSON:
    spec = {"minAvailable": minimum, "selector": {"matchLabels": {"app": name}}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


async def settled(embedded: Embedded) -> None:
    """Let virtual time pass until nothing moves."""
    for _ in range(200):
        await asyncio.sleep(1.0)
        if embedded.is_settled:
            return


def objects() -> list[JSON]:
    bare = pod("bare", 250, 0, 0)
    del bare["metadata"]["annotations"]
    bare["metadata"]["namespace"] = "default"
    return [
        *(node(f"n{index}", "abc"[index % 3]) for index in range(6)),
        deployment("web", 6, "1"),
        deployment("big", 2, "3"),
        bare,
    ]


def in_cluster(work: Callable[[Embedded], Awaitable[T]], given: list[JSON]) -> T:
    """Do some work on a settled embedded cluster in virtual time."""

    async def run() -> T:
        clock = VirtualClock(asyncio.get_running_loop())
        embedded = Embedded(default_config(), in_tree_registry(), clock=clock, controllers=ALL)
        kinds = {"Node": NODES, "Deployment": DEPLOYMENTS, "Pod": PODS}
        async with embedded.running():
            for one in given:
                kind = kinds.get(one["kind"]) or next(k for k in embedded.store.tables if k.kind == one["kind"])
                embedded.store.create(kind, "" if kind is NODES else "default", one)
            await settled(embedded)
            return await work(embedded)

    return run_virtual(run())


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a saved cluster."""
    path = tmp_path_factory.mktemp("trials") / "cluster.jsonl"

    async def work(embedded: Embedded) -> None:
        save(embedded.store, path)

    in_cluster(work, objects())
    return path


def asked(path: Path, *changes: Proposal, config: KubeSchedulerConfiguration | None = None) -> Outcome:
    config = config if config is not None else default_config()
    question = WhatIf(changes=list(changes))
    return run_question(path, question, ["words"], in_tree_registry(), config, DEFAULT_GATES)


@pytest.fixture(scope="module")
def simulated(saved: Path) -> Iterator[Callable[[], kubesched.Simulation]]:
    """Return simulations of the saved cluster that have settled."""
    open_: list[kubesched.Simulation] = []

    def make() -> kubesched.Simulation:
        simulation = kubesched.Simulation(str(saved), controllers=True)
        simulation.run()
        open_.append(simulation)
        return simulation

    yield make
    for one in open_:
        one.close()


def places(simulation: kubesched.Simulation) -> dict[str, str]:
    return {one.key: one.spec.node_name for one in simulation.pods}


def check(outcome: Outcome, before: dict[str, str], simulation: kubesched.Simulation) -> None:
    """Compare an answer with a simulation of the same changes."""
    after = places(simulation)
    nodes = {one.name: {use.name: use.requested for use in one.resources} for one in simulation.nodes}
    for row, name in enumerate(outcome.nodes.names):
        if name:
            for column in outcome.nodes.resources:
                assert column.requested[row] == nodes[name].get(column.name, 0), (name, column.name)
    assert {name for name in outcome.nodes.names if name} == nodes.keys()
    failed = {one.name for one in simulation.nodes if "NotReady" in one.status}
    assert outcome.after.placed == sum(bool(one) and one not in failed for one in after.values())
    assert outcome.after.pending == sum(not one for one in after.values())
    stayed = {key for key in before.keys() & after.keys() if before[key] == after[key] and after[key] not in failed}
    assert outcome.counts["moved"] + outcome.counts["lost"] + len(stayed) <= len(before)


def test_a_drain_is_that_of_a_simulation(saved: Path, simulated: Callable[[], kubesched.Simulation]) -> None:
    simulation = simulated()
    before = places(simulation)
    victim = next(node for key, node in before.items() if key.startswith("default/big"))
    outcome = asked(saved, Drain(node=victim))
    simulation.drain([victim])
    simulation.run(simulation.now + 3600)
    check(outcome, before, simulation)
    moved = [one for one in outcome.moved if f": {victim} → " in one]
    assert len(moved) == len([key for key, place in before.items() if place == victim and key != "default/bare"])
    assert (outcome.counts["lost"], outcome.before.nodes, outcome.after.nodes) == (0, 6, 6)


def test_a_failed_zone_is_that_of_a_simulation(saved: Path, simulated: Callable[[], kubesched.Simulation]) -> None:
    simulation = simulated()
    before = places(simulation)
    outcome = asked(saved, Failure(selector="topology.kubernetes.io/zone=a"))
    simulation.fail({"zone": "a"})
    simulation.run(simulation.now + 3600)
    check(outcome, before, simulation)
    assert (outcome.before.nodes, outcome.after.nodes) == (6, 4)
    status = outcome.nodes.status
    shown = {name: status.values[index] for name, index in zip(outcome.nodes.names, status.index, strict=True)}
    assert {name for name, text in shown.items() if text in ("NotReady", "Failed")} == {"n0", "n3"}
    assert 340 <= outcome.seconds < 3600


def test_a_scaled_workload_says_what_is_pending_and_why(saved: Path) -> None:
    outcome = asked(saved, Scale(workload="Deployment/default/big", replicas=9))
    assert outcome.counts["placed"] + outcome.counts["pending"] == 7
    assert len(outcome.newly_pending) == outcome.counts["pending"] > 0
    assert set(outcome.newly_pending) == {"new pod of Deployment big in namespace default"}
    assert "of Deployment/big" in outcome.why[0]
    assert "Insufficient cpu" in outcome.why[0]
    fewer = asked(saved, Scale(workload="Deployment/default/web", replicas=1))
    assert (fewer.before.placed - fewer.after.placed, fewer.counts["lost"], fewer.counts["evicted"]) == (5, 0, 0)


def test_added_nodes_take_the_pods_that_wait(saved: Path) -> None:
    changes = Scale(workload="Deployment/default/big", replicas=9), AddNodes(like="n0", count=20)
    outcome = asked(saved, *changes)
    assert (outcome.after.nodes, outcome.after.pending, outcome.counts["placed"]) == (26, 0, 7)
    assert "n0-more-0" in outcome.nodes.names


def test_very_large_amounts_do_not_overflow(tmp_path: Path) -> None:
    huge = node("huge", "a")
    huge["status"]["allocatable"]["cpu"] = str(9 * 10**15)

    async def work(embedded: Embedded) -> None:
        save(embedded.store, tmp_path / "cluster.jsonl")

    in_cluster(work, [huge, {**huge, "metadata": {**huge["metadata"], "name": "other"}}, deployment("web", 1, "1")])
    outcome = asked(tmp_path / "cluster.jsonl", Scale(workload="Deployment/default/web", replicas=2))
    assert outcome.after.utilisation["cpu"] == 0.0
    assert str(outcome.after.utilisation["cpu"]) == "0.0"


def test_a_weight_alone_places_the_pods_anew(saved: Path) -> None:
    """With most-allocated scoring far above all others, pods are on fewer nodes."""
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  plugins: {score: {enabled: [{name: NodeResourcesBalancedAllocation, weight: 50}]}}
"""
    path = saved.parent / "config.yaml"
    path.write_text(text)
    registry = in_tree_registry()
    config, _ = load_configuration(str(path), registry, [])
    given = Weight(profile=PROFILE, plugin="NodeResourcesFit", weight=10_000)
    outcome = asked(saved, given, config=config)
    assert "placed anew" in outcome.remarks[0]
    assert "NodeResourcesFit, weight: 10000" in outcome.remarks[1]

    def used(found: Outcome) -> int:
        cpu = next(one for one in found.nodes.resources if one.name == "cpu")
        return sum(amount > 0 for amount in cpu.requested)

    assert used(outcome) < used(
        asked(saved, Weight(profile=PROFILE, plugin="NodeResourcesFit", weight=1), config=config)
    )
    weights = {one.name: one.weight for one in with_weight(config, given).profiles[0].plugins.score.enabled}
    assert weights == {"NodeResourcesBalancedAllocation": 50, "NodeResourcesFit": 10_000}


# -- comparison --------------------------------------------------------------------------------------------


def seen(**pods: tuple[str, str, str]) -> Seen:
    from kubesched.dashboard.schema_what_if import Totals

    found = {f"d/{name}": SeenPod(uid, node, "d", workload) for name, (uid, node, workload) in pods.items()}
    return Seen(found, Totals(nodes=0, placed=0, pending=0))


def test_pods_are_matched_by_name_then_by_node_then_by_workload() -> None:
    before = seen(
        a=("1", "n1", "R/w"),
        b=("2", "n2", "R/w"),
        c=("3", "n3", "R/w"),
        s=("4", "n1", "S/s"),
        x=("5", "n1", ""),
        p=("6", "", ""),
    )
    after = seen(
        d=("7", "n2", "R/w"),
        e=("8", "n9", "R/w"),
        f=("9", "", "R/w"),
        s=("10", "n5", "S/s"),
        p=("6", "n4", ""),
        q=("11", "", ""),
    )
    outcome, pending = compared(before, after)
    assert outcome.moved == ["d/s: n1 → n5", "new pod of R w in namespace d: n3 → n9"]
    assert outcome.newly_placed == ["d/p"]
    assert sorted(outcome.newly_pending) == ["d/q", "new pod of R w in namespace d"]
    assert sorted(pending) == ["d/f", "d/q"]
    assert outcome.counts == {"moved": 2, "placed": 1, "pending": 2, "evicted": 5, "lost": 1}
    fewer, _ = compared(seen(a=("1", "n1", "R/w"), b=("2", "n2", "R/w")), seen(a=("1", "n1", "R/w")), {("d", "R/w")})
    assert (fewer.counts["lost"], fewer.counts["evicted"]) == (0, 0)


# -- questions ---------------------------------------------------------------------------------------------

REFUSED: list[tuple[list[Proposal], str]] = [
    ([], "there are 0; expected 1 to 20"),
    ([Drain(node="n0")] * 21, "there are 21"),
    ([Drain()], r"changes\[0\].node, selector: give one of them"),
    ([Drain(node="n0", selector="a=b")], "give one of them"),
    ([Drain(node="<script>")], "node: '<script>': there is no such node"),
    ([Failure(selector="zone in (")], "selector: 'zone in"),
    ([Failure(selector="zone=z")], "no node has these labels"),
    ([AddNodes(like="n0", count=0)], "count: 0: expected 1 to 10,000"),
    ([AddNodes(like="n0", count=10**30)], "expected 1 to 10,000"),
    ([AddNodes(like="n0", count=9000)] * 2, "18,000 nodes are added together"),
    ([AddNodes(like="nx", count=1)], "like: 'nx': there is no such node"),
    ([Scale(workload="Deployment/default/web", replicas=-1)], "replicas: -1"),
    ([Scale(workload="Deployment/default/web", replicas=1_000_000)], "expected 0 to 100,000"),
    ([Scale(workload="Deployment/default/nope", replicas=1)], "there is no such workload"),
    ([Scale(workload="DaemonSet/default/web", replicas=1)], "expected Kind/namespace/name"),
    ([Scale(workload="web", replicas=1)], "expected Kind/namespace/name"),
    ([Weight(profile="x", plugin="NodeAffinity", weight=1)], "profile: 'x': there is no such profile; there are default-scheduler"),
    ([Weight(profile=PROFILE, plugin="NodeName", weight=1)], "plugin: 'NodeName': scores nothing"),
    ([Weight(profile=PROFILE, plugin="NodeAffinity", weight=0)], "weight: 0: expected 1 to 1,000,000"),
]  # fmt: skip


def test_impossible_proposals_are_refused_in_words() -> None:
    async def work(embedded: Embedded) -> None:
        mine = ClusterTrials(embedded)
        for changes, message in REFUSED:
            for ask in (mine.what_if, mine.apply):
                with pytest.raises(Refused, match=message) as refused:
                    await ask(WhatIf(changes=changes))
                assert refused.value.status == 400
        with pytest.raises(Refused, match="NodeAffinity, weight: 3") as refused:
            await mine.apply(WhatIf(changes=[Weight(profile=PROFILE, plugin="NodeAffinity", weight=3)]))
        assert refused.value.status == 409

    in_cluster(work, objects())


def test_choices_are_what_the_cluster_has() -> None:
    async def work(embedded: Embedded) -> None:
        choices = await ClusterTrials(embedded).choices()
        assert [(one.workload, one.replicas) for one in choices.workloads] == [
            ("Deployment/default/big", 2),
            ("Deployment/default/web", 6),
        ]
        assert choices.kinds == ["weight", "drain", "fail", "add-nodes", "scale"]
        assert choices.applicable == ["drain", "fail", "add-nodes", "scale"]
        assert "NodeResourcesFit" in [one.plugin for one in choices.profiles[0].scores]

    in_cluster(work, objects())


# -- carrying out ------------------------------------------------------------------------------------------


def test_changes_are_carried_out_and_budgets_are_kept() -> None:
    async def work(embedded: Embedded) -> None:
        mine = ClusterTrials(embedded)

        def nodes_of(name: str) -> list[str]:
            return sorted(pod.spec.node_name for pod in embedded.pods() if pod.name.startswith(name))

        first = nodes_of("web")[0]
        done = await mine.apply(WhatIf(changes=[Drain(node=first)]))
        assert "cordoned, and 0 pods are evicted" in done.done[0] or "cordoned, and 1 pod is evicted" in done.done[0]
        assert any("disruption budget" in one for one in done.remarks), done.remarks
        assert done.remarks[-1] == "To go on with the drain later, carry it out again."
        assert first in nodes_of("web")
        changes: list[Proposal] = [
            Scale(workload="Deployment/default/web", replicas=8),
            AddNodes(like="n0", count=2),
            Failure(node="n5"),
        ]
        done = await mine.apply(WhatIf(changes=changes))
        assert done.done == [
            "Deployment/default/web has 8 replicas",
            "added n0-more-0, n0-more-1",
            "n5: the kubelet has stopped; NotReady follows after 40 s",
        ]
        await settled(embedded)
        await asyncio.sleep(60)
        assert len(nodes_of("web")) == 8
        assert {"n0-more-0", "n0-more-1"} <= {one.name for one in embedded.nodes()}
        ready = {c.type: c.status for one in embedded.nodes() if one.name == "n5" for c in one.status.conditions}
        assert ready["Ready"] == "Unknown"
        again = await mine.apply(WhatIf(changes=[AddNodes(like="n0", count=1)]))
        assert again.done == ["added n0-more-2"]

    in_cluster(work, [*objects(), budget("web", 6)])


def test_bare_pods_keep_their_node() -> None:
    async def work(embedded: Embedded) -> None:
        place = next(pod.spec.node_name for pod in embedded.pods() if pod.name == "bare")
        done = await ClusterTrials(embedded).apply(WhatIf(changes=[Drain(node=place)]))
        assert any("default/bare: it has no controller" in one for one in done.remarks)
        assert any(pod.name == "bare" for pod in embedded.pods())

    in_cluster(work, objects())


# -- the process -------------------------------------------------------------------------------------------


def on_a_real_loop(work: Callable[[ClusterTrials], Awaitable[T]]) -> T:
    """Do some work on a small cluster on an ordinary event loop."""

    async def run() -> T:
        clock = VirtualClock(asyncio.get_running_loop())
        embedded = Embedded(default_config(), in_tree_registry(), clock=clock, kubelets=False)
        for one in objects()[:7]:
            embedded.store.create(
                NODES if one["kind"] == "Node" else DEPLOYMENTS, "" if one["kind"] == "Node" else "default", one
            )
        return await work(ClusterTrials(embedded))

    return asyncio.run(run())


def test_a_question_is_answered_by_another_process_one_at_a_time() -> None:
    async def work(mine: ClusterTrials) -> Outcome:
        question = WhatIf(changes=[Scale(workload="Deployment/default/web", replicas=2)])
        first = asyncio.create_task(mine.what_if(question))
        ticks = 0
        while not first.done():
            await asyncio.sleep(0.01)
            ticks += 1
            if ticks == 3:
                with pytest.raises(Refused, match="another question") as refused:
                    await mine.what_if(question)
                assert refused.value.status == 429
        assert ticks > 3, "the loop goes on meanwhile"
        return await first

    outcome = on_a_real_loop(work)
    assert outcome.changes == ["Deployment/default/web has 2 replicas"]
    assert (outcome.before.placed, outcome.after.placed) == (6, 2)


def test_an_answer_that_takes_too_long_and_a_failed_process_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    question = WhatIf(changes=[Drain(node="n0")])

    async def work(mine: ClusterTrials) -> str:
        with pytest.raises(Refused) as refused:
            await mine.what_if(question)
        return f"{refused.value.status} {refused.value}"

    monkeypatch.setattr(trials, "_SECONDS", 0.01)
    assert on_a_real_loop(work).startswith("503 the answer takes more than 0.01 s")
    monkeypatch.setattr(trials, "_SECONDS", 60.0)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert on_a_real_loop(work) == "500 the trial failed: exit code 1"


def test_a_cancelled_question_ends_its_process_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = trials._start

    async def work(mine: ClusterTrials) -> int | None:
        started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def noted() -> Any:
            process = start()
            started.set_result(process)
            return process

        monkeypatch.setattr(trials, "_start", noted)
        task = asyncio.create_task(mine.what_if(WhatIf(changes=[Drain(node="n0")])))
        process = await started
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        code: int | None = await asyncio.to_thread(process.wait, 10)
        return code

    assert on_a_real_loop(work) == -9
    assert not caplog.records


def test_changes_are_carried_out_whole_when_the_page_goes() -> None:
    async def work(mine: ClusterTrials) -> int:
        question = WhatIf(changes=[AddNodes(like="n0", count=120), AddNodes(like="n1", count=3)])
        task = asyncio.create_task(mine.apply(question))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(Refused, match="other changes are being carried out"):
            await mine.apply(question)
        for _ in range(20):
            await asyncio.sleep(0)
        await mine.apply(WhatIf(changes=[AddNodes(like="n2", count=1)]))
        return len(mine._embedded.nodes())

    assert on_a_real_loop(work) == 6 + 123 + 1


def test_documents_of_proposals_are_read_strictly() -> None:
    for text in (
        b'{"changes":[{"kind":"explode"}]}',
        b'{"changes":[{"kind":"scale","workload":1,"replicas":2}]}',
        b'{"changes":{}}',
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(text, type=WhatIf)

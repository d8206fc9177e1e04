"""Recordings of simulations on the dashboard: each moment is what the lives of pods and nodes say, counted one by one."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

import kubesched
from kubesched.dashboard.recordings.of_result import recording_of_result
from kubesched.dashboard.recordings.source import RecordingSource
from kubesched.dashboard.recordings.timeline import MOST_NODES, RecordingError
from kubesched.dashboard.schema import Played
from kubesched.dashboard.schema_what_if import WhatIf
from kubesched.dashboard.source import PodQuery, Refused
from kubesched.lab.simulate.results.result import NodeTimes, PodTimes, Result, Series
from recording_kit import EVENTS, applied, columns, objects


@pytest.fixture(scope="module")
def result() -> Result:
    found = kubesched.simulate(objects(), events=EVENTS)
    assert found.preemptions, "the scenario has preemptions"
    assert any(one.gone for one in found.node_times), "and a node that goes"
    text = msgspec.json.encode(found)
    return msgspec.json.decode(text, type=Result)


@pytest.fixture(scope="module")
def source(result: Result) -> RecordingSource:
    return RecordingSource(recording_of_result(result, "run.json"), 0)


def there(one: NodeTimes, at: float) -> bool:
    return one.since <= at and (one.until is None or at < one.until)


def on_node(one: PodTimes, at: float) -> bool:
    begin = one.created if one.bound is None else one.bound
    ends = [end for end in (one.finished, one.removed) if end is not None]
    return bool(one.node) and begin <= at and all(at < end for end in ends)


def moments(result: Result) -> list[float]:
    """Return moments of the run: those at which things happen, and others."""
    times = {0.0, result.virtual_seconds, 19.5, 20.0, 36.0, 61.25, 100.1}
    times |= {one.since for one in result.node_times}
    times |= {one.bound for one in result.pods[::7] if one.bound is not None}
    times |= {one.finished for one in result.pods[::5] if one.finished is not None}
    return sorted(times)


def test_each_moment_is_the_sum_over_the_pods(result: Result, source: RecordingSource) -> None:
    for at in moments(result):
        state = asyncio.run(source.state(at))
        found = columns(state.nodes)
        expected = {one.name: one for one in result.node_times if there(one, at)}
        assert found.keys() == expected.keys(), at
        for name, one in expected.items():
            here = [pod for pod in result.pods if pod.node == name and on_node(pod, at)]
            sums: Counter[str] = Counter()
            for pod_ in here:
                sums.update({**pod_.requests, "pods": 1})
            assert found[name]["requested"] == {key: sums[key] for key in ("cpu", "memory", "pods")}, (at, name)
            assert found[name]["allocatable"] == one.allocatable
            assert found[name]["labels"] == one.labels
            assert found[name]["taints"] == ", ".join(one.taints)
        assert state.sample.on_nodes == sum(on_node(one, at) for one in result.pods)


def test_the_end_is_what_the_result_says_of_its_nodes(result: Result, source: RecordingSource) -> None:
    found = columns(asyncio.run(source.state(None)).nodes)
    assert {one.name for one in result.nodes} == found.keys()
    for one in result.nodes:
        assert {use.name: use.requested for use in one.resources} == found[one.name]["requested"]
        assert one.status.replace("Ready,SchedulingDisabled", "Cordoned") == found[one.name]["status"]


def test_status_follows_drain_failure_and_recovery(source: RecordingSource) -> None:
    def status(name: str, at: float) -> str:
        found: str = columns(asyncio.run(source.state(at)).nodes)[name]["status"]
        return found

    assert [status("n1", at) for at in (19, 20, 59, 60)] == ["Ready", "Cordoned", "Cordoned", "Ready"]
    assert [status("n3", at) for at in (44, 46)] == ["Ready", "NotReady"]
    with pytest.raises(Refused, match="node n2 is not there at this moment"):
        asyncio.run(source.node("n2", 40.0))


@pytest.mark.parametrize("most", [1, 3, 17, 2000])
def test_a_state_and_what_is_played_lead_to_the_later_state(result: Result, source: RecordingSource, most: int) -> None:
    chance = random.Random(most)
    end = result.virtual_seconds
    for start, stop in [
        (0.0, end),
        (0.0, 0.0),
        *(sorted((chance.uniform(0, end), chance.uniform(0, end))) for _ in range(4)),
    ]:
        before, played = asyncio.run(source.state(start)), asyncio.run(source.played(start, stop, most))
        assert len(played.changes) <= most
        assert [one.version for one in played.changes] == list(range(1, len(played.changes) + 1))
        assert applied(before, played) == columns(asyncio.run(source.state(stop)).nodes), (start, stop)


def test_what_is_played_counts_every_binding_and_preemption(result: Result, source: RecordingSource) -> None:
    def total(played: Played, of: str) -> int:
        return sum(getattr(one, of) for one in played.changes)

    known = {one.name for one in result.node_times}
    bound = sum(one.bound is not None and one.bound > 0 and one.node in known for one in result.pods)
    for most in (2, 5000):
        played = asyncio.run(source.played(0.0, result.virtual_seconds, most))
        assert total(played, "bound_count") == bound
        assert total(played, "preempted_count") == len([one for one in result.preemptions if one.at > 0])
    listed = [one for change in played.changes for one in change.bound]
    names = asyncio.run(source.state(0.0)).nodes.names
    where = {f"{one.namespace}/{one.name}": one.node for one in result.pods}
    assert all(names[one.row] in ("", where[one.pod]) for one in listed)


def test_bindings_at_the_very_start_are_played_from_before_it(result: Result) -> None:
    """A scheduler takes no virtual time: all may be bound at the first moment, which may be the last one, too."""
    nodes = [NodeTimes(name="n", allocatable={"cpu": 4000})]
    pods = [
        PodTimes(namespace="a", name=str(number), workload="", node="n", phase="", created=0.0, queued=0.0, bound=0.0)
        for number in range(3)
    ]
    short = changed(result, pods=pods, node_times=nodes, virtual_seconds=0, pending=[], preemptions=[], series=Series())
    source = RecordingSource(recording_of_result(short, "x"), 0)
    played = asyncio.run(source.played(-1.0, 0.0, 10)).changes
    assert [(one.at, one.bound_count, one.nodes) for one in played] == [(0.0, 3, [])]
    assert asyncio.run(source.played(0.0, 0.0, 10)).changes == []
    assert [one.at for one in asyncio.run(source.series()).samples] == [0.0]


def test_queues_hold_the_pods_that_wait(result: Result, source: RecordingSource) -> None:
    for at in moments(result):
        places = {one.place: one for one in asyncio.run(source.queues(at)).places}
        waiting = [
            one
            for one in result.pods
            if one.created <= at
            and not on_node(one, at)
            and (one.bound is None or at < one.bound)
            and (one.removed is None or at < one.removed)
        ]
        assert sum(one.count for one in places.values()) == len(waiting), at
        assert all(sum(group.count for group in one.groups) + one.left_out == one.count for one in places.values())
        assert places["Gated"].count == sum(one.queued is None or one.queued > at for one in waiting)
    [gated] = places["Gated"].groups
    assert (gated.pod, gated.why[:11]) == ("default/gated", "at the end:")
    giant = next(group for group in places["Unschedulable"].groups if group.pod == "default/giant")
    assert "Insufficient cpu" in giant.why
    assert "NodeResourcesFit" in giant.rejected_by


def test_a_pod_has_its_life_and_its_node(result: Result, source: RecordingSource) -> None:
    preemption = result.preemptions[0]
    victim = asyncio.run(source.pod("default", preemption.victims[0].removeprefix("default/"), preemption.at))
    assert f"made room for {preemption.pod}" in [one.text for one in victim.life]
    preemptor = asyncio.run(source.pod("default", preemption.pod.removeprefix("default/"), None))
    what = [one.what for one in preemptor.life]
    assert what[0] == "created"
    assert "nominated" in what
    assert [one.at for one in preemptor.life] == sorted(one.at for one in preemptor.life)
    with pytest.raises(Refused, match="no pod is named default/nobody"):
        asyncio.run(source.pod("default", "nobody", None))
    with pytest.raises(Refused, match="comes 30 s later"):
        asyncio.run(source.pod("default", "giant", 0.0))


def test_lists_of_pods_are_filtered(result: Result, source: RecordingSource) -> None:
    at = 50.0
    on_n0 = asyncio.run(source.pods(PodQuery(node="n0", state="Running"), at))
    assert {one.name for one in on_n0.pods} == {
        one.name for one in result.pods if one.node == "n0" and on_node(one, at)
    }
    page = asyncio.run(source.node("n0", at))
    assert {one.name for one in page.pods} == {one.name for one in on_n0.pods}
    assert asyncio.run(source.pods(PodQuery(text="giant"), at)).pods[0].state == "Unschedulable"
    few = asyncio.run(source.pods(PodQuery(limit=2), at))
    assert (len(few.pods), few.total > 2) == (2, True)
    assert asyncio.run(source.pods(PodQuery(node="nowhere"), at)).total == 0


def test_explanations_are_those_of_the_result(source: RecordingSource) -> None:
    answer = asyncio.run(source.explain("/explain/pods/default/giant", {}, None))
    document = msgspec.json.decode(answer.body)
    assert document["kind"] == "Explanation"
    assert document["pending"][0]["pods"] == ["default/giant"]
    assert len(msgspec.json.decode(asyncio.run(source.explain("/explain/pending", {}, None)).body)["pending"]) >= 2
    for path in ("/explain/pods/default/p1", "/explain/nodes/n1", "/explain/podgroups/default/none"):
        with pytest.raises(Refused, match="has no"):
            asyncio.run(source.explain(path, {}, None))
    with pytest.raises(Refused, match="--decisions FILE"):
        asyncio.run(source.verdicts("default", "giant", None))


def test_a_series_has_the_figures_of_the_result(result: Result, source: RecordingSource) -> None:
    samples = asyncio.run(source.series()).samples
    assert [one.at for one in samples] == result.series.times
    assert sum(one.bound for one in samples) == sum(one.bound is not None for one in result.pods)
    for index, one in enumerate(samples):
        total = result.series.allocatable["cpu"][index]
        assert one.utilisation.get("cpu", 0.0) == pytest.approx(result.series.requested["cpu"][index] / total, abs=1e-6)
        assert one.queue.gated == result.series.gated[index]


def test_requests_for_other_moments_are_held_within_the_recording(source: RecordingSource) -> None:
    assert asyncio.run(source.state(-5.0)).at == 0.0
    assert asyncio.run(source.state(1e300)).at == source.info.end
    for at in (float("nan"), float("inf")):
        with pytest.raises(Refused, match="is no time"):
            asyncio.run(source.state(at))
    with pytest.raises(Refused, match="first moment is the later one"):
        asyncio.run(source.played(9.0, 3.0, 10))
    with pytest.raises(Refused, match="no objects to try changes on"):
        asyncio.run(source.what_if(msgspec.json.decode(b'{"changes":[]}', type=WhatIf)))


# -- hostile results ---------------------------------------------------------------------------------------


def changed(result: Result, **fields: Any) -> Result:
    return msgspec.structs.replace(result, **fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: {"virtual_seconds": 1e300}, "end: 1e\\+300 is no time"),
        (lambda r: {"virtual_seconds": -5}, "end: -5 is before the start, 0"),
        (
            lambda r: {"pods": [PodTimes(namespace="a", name="b", workload="", node="", phase="", created=-1e13)]},
            "pod a/b: created",
        ),
        (
            lambda r: {
                "pods": [
                    PodTimes(
                        namespace="a", name="b", workload="", node="n0", phase="", created=0, requests={"cpu": 1 << 70}
                    )
                ]
            },
            "pods: requests: cpu: the amounts add up to more than",
        ),
        (
            lambda r: {"node_times": [NodeTimes(name="n", allocatable={"cpu": -5})]},
            "nodes: allocatable: cpu: -5 is negative",
        ),
        (lambda r: {"node_times": [NodeTimes(name="n", since=5, until=4)]}, "node n: until 4 is before since 5"),
        (
            lambda r: {"node_times": [NodeTimes(name=f"n{i}") for i in range(MOST_NODES + 1)]},
            "has 200,001 nodes; at most 200,000",
        ),
        (lambda r: {"series": msgspec.structs.replace(r.series, active=[1])}, "series.active: has 1 entries"),
    ],
)
def test_results_that_cannot_be_are_refused_in_words(result: Result, change: Any, message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        recording_of_result(changed(result, **change(result)), "x")


def test_odd_results_are_shown(result: Result) -> None:
    """Nothing at all, very many resources and labels, a name like a script tag, and ends before beginnings."""
    said = recording_of_result(changed(result, warnings=["x" * 1_000_000] * 50), "x").remarks
    assert sum(map(len, said)) <= 40_000
    empty = changed(result, pods=[], node_times=[], nodes=[], pending=[], preemptions=[], series=Series())
    assert asyncio.run(RecordingSource(recording_of_result(empty, "x"), 0).state(None)).nodes.names == []
    many = {f"example.com/r{i}": 1 for i in range(500)}
    labels = {f"l{i}": "v" for i in range(500)}
    script = "<script>alert(1)</script>"
    odd = changed(
        empty,
        node_times=[NodeTimes(name=script, labels=labels, allocatable=many)],
        pods=[
            PodTimes(namespace="a", name=script, workload="", node=script, phase="", created=0, requests=many),
            PodTimes(
                namespace="a",
                name="back",
                workload="",
                node=script,
                phase="",
                created=9,
                bound=7,
                finished=3,
                removed=1,
            ),
        ],
    )
    source = RecordingSource(recording_of_result(odd, "x"), 0)
    state = asyncio.run(source.state(None))
    assert len(state.nodes.resources) <= 32
    assert len(state.nodes.labels) <= 32
    assert asyncio.run(source.node(script, None)).pods[0].name == script
    assert isinstance(asyncio.run(source.played(0, 99, 5)).changes, list)


def test_checkpoints_change_nothing(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubesched.dashboard.recordings import timeline

    plain = RecordingSource(recording_of_result(result, "x"), 0)
    monkeypatch.setattr(timeline, "_STEP", 7)
    many = RecordingSource(recording_of_result(result, "x"), 0)
    for at in moments(result):
        assert asyncio.run(many.state(at)) == asyncio.run(plain.state(at))


# -- lives of any kind -------------------------------------------------------------------------------------


def lives(seed: int) -> tuple[list[NodeTimes], list[PodTimes]]:
    """Return lives by chance: names that come again, nodes that change often, and times in any order."""
    chance = random.Random(seed)
    nodes = []
    for name in "abcd":
        at = float(chance.randint(0, 5))
        while at < 40 and chance.random() < 0.9:
            until = at + chance.randint(1, 15)
            gone = chance.random() < 0.4
            status = chance.choice(("Ready", "NotReady", "Ready,SchedulingDisabled"))
            labels = {"zone": chance.choice("xy")} if chance.random() < 0.7 else {}
            amounts = {"cpu": chance.randint(1, 9), "memory": 5, "pods": 9}
            is_last = chance.random() < 0.3
            nodes.append(
                NodeTimes(
                    name=name,
                    since=at,
                    until=None if is_last else until,
                    gone=gone,
                    status=status,
                    labels=labels,
                    allocatable=amounts,
                )
            )
            if is_last:
                break
            at = until + (chance.randint(1, 5) if gone else 0)
    pods = []

    def maybe() -> float | None:
        return float(chance.randint(0, 40)) if chance.random() < 0.6 else None

    for number in range(60):
        times: dict[str, Any] = {name: maybe() for name in ("queued", "bound", "started", "finished", "removed")}
        requests = chance.choice(({"cpu": 1}, {"cpu": 2, "memory": 3}, {}, {"gpu": 1}))
        name, place = f"p{number % 40}", chance.choice(("a", "b", "c", "d", "elsewhere", ""))
        created = float(chance.randint(0, 30))
        pods.append(
            PodTimes(
                namespace="d",
                name=name,
                workload="",
                node=place,
                phase="Running",
                created=created,
                requests=requests,
                **times,
            )
        )
    return nodes, pods


@pytest.mark.parametrize("seed", range(25))
def test_any_lives_are_summed_up_and_played(result: Result, seed: int) -> None:
    nodes, pods = lives(seed)
    odd = changed(
        result, node_times=nodes, nodes=[], pods=pods, pending=[], preemptions=[], series=Series(), virtual_seconds=45.0
    )
    source = RecordingSource(recording_of_result(odd, "x"), 0)
    chance = random.Random(seed)
    for at in [0.0, 45.0, *(float(chance.randint(0, 45)) for _ in range(6)), chance.uniform(0, 45)]:
        shown = columns(asyncio.run(source.state(at)).nodes)
        expected = {one.name: one for one in nodes if there(one, at)}
        assert shown.keys() == expected.keys()
        for name, one in expected.items():
            sums: Counter[str] = Counter()
            for pod_ in pods:
                if pod_.node == name and on_node(pod_, at):
                    sums.update({**pod_.requests, "pods": 1})
            assert {key: amount for key, amount in shown[name]["requested"].items() if amount} == dict(sums)
            assert shown[name]["labels"] == one.labels
    start, stop = sorted((chance.uniform(0, 45), chance.uniform(0, 45)))
    played = asyncio.run(source.played(start, stop, chance.choice((1, 4, 500))))
    assert applied(asyncio.run(source.state(start)), played) == columns(asyncio.run(source.state(stop)).nodes)
    asyncio.run(source.series())
    asyncio.run(source.queues(stop))
    assert asyncio.run(source.pods(PodQuery(), stop)).total >= 0

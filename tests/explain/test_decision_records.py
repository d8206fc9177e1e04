"""Truth of decision records: what is recorded equals what an independent evaluation finds, and what events say."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from decisions_kit import record

from kubesched.explain.records import Record, RecordFilter, Ring, json_lines
from kubesched.explain.records.entry import Entry
from kubesched.explain.records.schema import Ended, PodRef, Preempted, RankedNode, Tried, Verdict
from kubesched.scheduler.config import KubeSchedulerConfiguration, load_config_data
from kubesched.scheduler.core.attempt import Attempt
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.full_scan import Evaluation
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.core.search import Decision, prepared
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.fit_error import fit_error_text
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nominating import NominatingInfo


class Witness(AttemptObserver):
    """Observer that evaluates every decision anew, with nothing remembered, and keeps the texts of failures."""

    def __init__(self) -> None:
        self.found: list[tuple[str, dict[str, dict[str, int]], dict[str, int]]] = []
        self.texts: list[str] = []

    def decided(self, attempt: Attempt, outcome: Decision | Rejection) -> None:
        search, pod = attempt.profile.search, attempt.queued.pod_info
        found = search.evaluate(prepared(CycleState(), record_plugin_metrics=False), pod)
        scores: dict[str, dict[str, int]] = {}
        totals: dict[str, int] = {}
        if isinstance(found, Evaluation):
            names = [search.table.info(row).name for row in found.feasible.tolist()]
            sums = found.totals if found.totals is not None else np.zeros(len(names), np.int64)
            totals = dict(zip(names, sums.tolist(), strict=True))
            for plugin, values in (found.scores or {}).items():
                for name, value in zip(names, values.tolist(), strict=True):
                    scores.setdefault(name, {})[plugin] = value
        self.found.append((pod.uid, scores, totals))

    def ended(self, attempt: Attempt, failure: Status | Rejection | None, nominating: NominatingInfo | None) -> None:
        self.texts.append(failure.message() if failure is not None else "")


@pytest.fixture(scope="module", params=[11, 12])
def witnessed(request: pytest.FixtureRequest) -> tuple[list[Record], Witness]:
    witness = Witness()
    return record(None, request.param, observers=(witness,)).ring.records(), witness


def by_seq(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda one: one.seq)


def test_the_best_nodes_their_scores_and_the_tie_set_are_those_of_an_independent_evaluation(
    witnessed: tuple[list[Record], Witness],
) -> None:
    records, witness = witnessed
    compared = Counter[str]()
    for one, (uid, scores, totals) in zip(by_seq(records), witness.found, strict=True):
        assert one.pod.uid == uid
        if not one.node:
            assert not totals
            continue
        assert one.feasible == len(totals)
        if one.feasible == 1:
            assert (one.ties, one.top) == (1, [RankedNode(one.node)])
            continue
        best = sorted(totals.values(), reverse=True)
        assert one.ties == best.count(best[0])
        assert one.top[0].node == one.node
        assert [ranked.total for ranked in one.top] == best[:2]
        for ranked in one.top:
            assert ranked.total == totals[ranked.node]
            assert {name: score for name, score in ranked.scores.items() if score} == {
                name: score for name, score in scores[ranked.node].items() if score
            }
            assert sum(ranked.scores.values()) == ranked.total
        compared[one.path] += 1
    assert compared["signature layer"] >= 3
    assert compared["full scan"] + compared["interaction layer"] >= 5


def test_verdicts_count_as_the_event_says(witnessed: tuple[list[Record], Witness]) -> None:
    records, witness = witnessed
    seen = 0
    for one, text in zip(records, witness.texts, strict=True):
        assert one.message == text
        if one.outcome == "unschedulable":
            reasons = Counter[str]()
            for verdict in one.verdicts:
                reasons.update(dict.fromkeys(verdict.reasons, verdict.nodes))
            if not text.startswith(fit_error_text(one.nodes, {})):
                assert text.startswith(fit_error_text(one.nodes, reasons))
            assert sum(verdict.nodes for verdict in one.verdicts) == one.nodes
            seen += 1
    assert seen >= 10


def test_attempts_are_counted_and_timed(witnessed: tuple[list[Record], Witness]) -> None:
    records, _ = witnessed
    assert sorted(one.seq for one in records) == list(range(1, len(records) + 1))
    attempts: dict[str, int] = {}
    for one in by_seq(records):
        assert one.attempt == attempts.get(one.pod.uid, 0) + 1
        attempts[one.pod.uid] = one.attempt
        assert min(one.queue_seconds, one.search_seconds, one.binding_seconds) >= 0
    assert {one.outcome for one in records} >= {"bound", "unschedulable"}
    assert any(one.queue_seconds > 0 for one in records)
    assert all(one.profile == "default-scheduler" for one in records)


def test_a_preemption_is_recorded_with_its_victims() -> None:
    found = [one for one in record(None, 1, pods=60).ring.records() if one.preemption is not None]
    assert found
    for one in found:
        assert one.preemption is not None
        assert one.outcome == "unschedulable"
        assert one.nominated_node == one.preemption.node
        assert one.preemption.victims
        assert one.preemption.lost is not None


class Picky:
    """Plugin that rejects at the stage that a pod's name asks for."""

    name = "Picky"

    def __init__(self, args: Any, handle: Any) -> None:
        self.done: set[tuple[str, str]] = set()

    def _once(self, stage: str, pod: Any) -> Status | None:
        if pod.pod.name.endswith(("1", "5")) and (stage, pod.uid) not in self.done:
            self.done.add((stage, pod.uid))
            return Status.unschedulable(f"not at {stage}")
        return None

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return self._once("Reserve", pod)

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        return

    def permit(self, state: Any, pod: Any, node_name: str) -> tuple[Status | None, float]:
        return self._once("Permit", pod), 0.0

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return self._once("PreBind", pod)


def picky() -> KubeSchedulerConfiguration:
    plugins = {"multiPoint": {"enabled": [{"name": "Picky"}]}}
    profile = {"schedulerName": "default-scheduler", "plugins": plugins}
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return load_config_data({**head, "profiles": [profile]})


def test_a_rejection_of_the_chosen_node_names_the_stage_and_the_plugin() -> None:
    from kubesched.scheduler.plugins import in_tree_registry

    registry = in_tree_registry()
    registry.register(Picky)
    records = record(None, 3, config=picky(), registry=registry, pods=30).ring.records()
    stages = {one.stage: one for one in records if one.outcome == "rejected"}
    assert stages.keys() == {"Reserve", "Permit", "PreBind"}
    for stage, one in stages.items():
        assert one.node
        assert [(verdict.plugin, verdict.reasons, verdict.nodes) for verdict in one.verdicts] == [
            ("Picky", [f"not at {stage}"], 1)
        ]


# -- the ring --------------------------------------------------------------------------------------------------


def entry(number: int, message: str = "") -> Entry:
    where = "default", f"p{number}", f"uid-{number}", ""
    made = Entry(Tried("", 0, "", 0, 0, 0, None, 0, number, float(number), *where, 0, 0, 0))
    made.finish(Ended(number, 0, "error", "", message, [], None, ""))
    return made


def test_a_ring_is_bounded_in_number_and_in_bytes() -> None:
    ring = Ring(100)
    for number in range(250):
        ring.add(entry(number))
    assert [one.seq for one in ring.records()] == list(range(150, 250))
    small = Ring(1000, most_bytes=20_000)
    for number in range(300):
        small.add(entry(number, "x" * 3000))
        assert small.nbytes <= 20_000
    assert 1 <= len(small) <= 6
    assert small.records()[-1].seq == 299
    small.add(entry(300, "x" * 50_000))
    assert (len(small), small.nbytes) == (0, 0)
    with pytest.raises(ValueError, match="expected no negative number"):
        Ring(-1)


RECORD = Record(
    seq=1,
    at=100.0,
    pod=PodRef("shop", "web", "uid"),
    outcome="bound",
    node="n1",
    top=[RankedNode("n1", 5, {"A": 3, "B": 2}), RankedNode("n2", 4, {"A": 2, "B": 2})],
    verdicts=[Verdict("Taints", "Unschedulable", ["tainted"], 3)],
)
CASES = [
    (RecordFilter(), True),
    (RecordFilter(pod="web"), True),
    (RecordFilter(pod="shop/web"), True),
    (RecordFilter(pod="uid"), True),
    (RecordFilter(pod="other/web"), False),
    (RecordFilter(node="n2"), True),
    (RecordFilter(node="n3"), False),
    (RecordFilter(plugin="A"), True),
    (RecordFilter(plugin="B"), False),
    (RecordFilter(plugin="Taints"), True),
    (RecordFilter(outcome="error"), False),
    (RecordFilter(since=100.0), True),
    (RecordFilter(until=100.0), False),
]


@pytest.mark.parametrize(("wanted", "passes"), CASES)
def test_filters(wanted: RecordFilter, passes: bool) -> None:
    assert wanted.accepts(RECORD) is passes


def test_records_of_a_ring_are_filtered_and_written_as_lines() -> None:
    ring = Ring(10)
    for number in range(5):
        ring.add(entry(number))
    found = ring.records(RecordFilter(since=2.0), most=2)
    assert [one.seq for one in found] == [3, 4]
    lines = list(json_lines(found))
    assert all(line.endswith(b"\n") and line.startswith(b'{"type":"record","seq":') for line in lines)


def test_the_names_of_the_json_form_stay() -> None:
    """Programs read these names; a later version may add some."""
    full = Record(
        seq=1,
        at=2.0,
        pod=PodRef("ns", "p", "u", "7"),
        outcome="rejected",
        profile="s",
        attempt=1,
        stage="Permit",
        node="n",
        message="m",
        path="full scan",
        nodes=3,
        evaluated=3,
        feasible=2,
        ties=1,
        top=[RankedNode("n", 5, {"A": 5})],
        verdicts=[Verdict("B", "Unschedulable", ["r"], 1)],
        preemption=Preempted("n", ["ns/v"], 1, {"more victims": 2}, {"no": 1}),
        nominated_node="n",
        queue_seconds=1.0,
        search_seconds=1.0,
        binding_seconds=1.0,
    )
    data = json.loads(next(json_lines([full])))
    assert list(data) == [
        *("type", "seq", "at", "pod", "outcome", "profile", "attempt", "stage", "node", "message", "path", "nodes"),
        *("evaluated", "feasible", "ties", "top", "verdicts", "preemption", "nominatedNode", "queueSeconds"),
        *("searchSeconds", "bindingSeconds"),
    ]
    assert list(data["pod"]) == ["namespace", "name", "uid", "resourceVersion"]
    assert list(data["top"][0]) == ["node", "total", "scores"]
    assert list(data["verdicts"][0]) == ["plugin", "code", "reasons", "nodes"]
    assert list(data["preemption"]) == ["node", "victims", "budgetViolations", "lost", "notHelpful"]

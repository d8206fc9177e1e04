"""Replay of decisions: nothing differs by the same configuration, and what differs by another one is explained."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from decisions_kit import record

from kubesched.explain.records import DecisionsError, read_lines
from kubesched.explain.records.schema import Decided, Put
from kubesched.lab.decisions.replay import Replayed, replay
from kubesched.lab.decisions.table import decisions
from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.config import KubeSchedulerConfiguration, default_config, load_config_data
from kubesched.scheduler.framework import Plugin
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.plugins import in_tree_registry

SEEDS = range(100, 100 + int(os.environ.get("KUBESCHED_SEEDS", "3")))


def again(path: Path, config: KubeSchedulerConfiguration | None = None, registry: Registry | None = None) -> Replayed:
    return run_virtual(replay(path, config or default_config(), registry or in_tree_registry()))


def a_config(percentage: int = 0, **profile: Any) -> KubeSchedulerConfiguration:
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    more = {"percentageOfNodesToScore": percentage} if percentage else {}
    return load_config_data({**head, "profiles": [{"schedulerName": "default-scheduler", **profile}], **more})


@pytest.mark.parametrize("seed", SEEDS)
def test_by_the_same_configuration_no_decision_differs(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "decisions.gz"
    recorder = record(path, seed)
    found = again(path)
    assert [(one.seq, one.pod, one.why) for one in found.differences] == []
    assert found.decisions == len([one for one in recorder.ring.records() if one.path]) >= 40
    assert (found.skipped, found.warnings) == ({}, [])


def test_files_that_took_turns_are_each_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.explain.records.file._MOST_WAITING", 40)
    path = tmp_path / "decisions.gz"
    record(path, 7, most_bytes=14_000)
    older = tmp_path / "decisions.gz.1"
    assert path.stat().st_size < 14_000
    assert older.stat().st_size < 14_000
    firsts, found_in = [], []
    for one in (older, path):
        found = again(one)
        assert (found.differing, found.skipped) == (0, {})
        found_in.append(found.decisions)
        firsts.append(
            next((line.seq for _, line in read_lines(one) if isinstance(line, Decided) and line.seq), 1 << 30)
        )
    assert 1 < firsts[0] < firsts[1]
    assert found_in[0] >= 5


def test_sampled_decisions_are_made_again_on_the_nodes_that_were_sampled(tmp_path: Path) -> None:
    path, config = tmp_path / "decisions.gz", a_config(percentage=5)
    recorder = record(path, 5, config=config, nodes=130, pods=30)
    assert any(0 < one.evaluated < one.nodes for one in recorder.ring.records() if one.outcome == "bound")
    assert again(path, config).differing == 0


def test_a_changed_weight_is_found_and_the_scores_that_decide_are_named(tmp_path: Path) -> None:
    path = tmp_path / "decisions.gz"
    record(path, 22)
    heavy = {"multiPoint": {"enabled": [{"name": "ImageLocality", "weight": 100}]}}
    found = again(path, a_config(plugins=heavy))
    moved = [one for one in found.differences if one.kind == "otherNode"]
    assert moved
    assert found.differing == len(found.differences)
    for one in moved:
        assert one.plugin == "ImageLocality"
        best = one.now[0]
        assert one.recorded not in one.now
        assert sum(one.scores[best].values()) > sum(one.scores[one.recorded].values())
        assert "ImageLocality +" in one.why
    known = {one.seq: one for one in decisions(path)}
    for one in moved:
        assert one.before[one.recorded] == known[one.seq].top[0].scores


class Curfew(Plugin):
    """Plugin that closes every node with an even number."""

    name = "Curfew"

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return Status.unschedulable("closed") if int(node.name[1:]) % 2 == 0 else None


def test_a_new_plugin_rejects_recorded_nodes(tmp_path: Path) -> None:
    path = tmp_path / "decisions.gz"
    recorder = record(path, 22)
    registry = in_tree_registry()
    registry.register(Curfew)
    found = again(path, a_config(plugins={"multiPoint": {"enabled": [{"name": "Curfew"}]}}), registry)
    closed = {one.seq for one in recorder.ring.records() if one.node and int(one.node[1:]) % 2 == 0}
    by_curfew = {one.seq for one in found.differences if one.plugin == "Curfew"}
    assert by_curfew == closed != set()
    rejected = next(one for one in found.differences if one.kind == "rejected")
    assert rejected.why == f"{rejected.recorded} is rejected by Curfew: closed"
    assert all(int(name[1:]) % 2 for one in found.differences for name in one.now)


def test_pods_that_were_unschedulable_may_fit(tmp_path: Path) -> None:
    path = tmp_path / "decisions.gz"
    record(path, 23)
    lenient = {"multiPoint": {"disabled": [{"name": "TaintToleration"}, {"name": "NodeResourcesFit"}]}}
    found = again(path, a_config(plugins=lenient))
    assert any(one.kind == "fits" and one.recorded == "" and one.now for one in found.differences)


class Breaks(Plugin):
    """Plugin with a defect: it fails for every node."""

    name = "Breaks"

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        raise ValueError("a defect")


def test_attempts_whose_search_failed_are_recorded_and_not_made_again(tmp_path: Path) -> None:
    path, registry = tmp_path / "decisions.gz", in_tree_registry()
    registry.register(Breaks)
    config = a_config(plugins={"multiPoint": {"enabled": [{"name": "Breaks"}]}})
    ring = record(path, 25, config=config, registry=registry, pods=5).ring.records()
    failed = [one for one in ring if one.outcome == "error"]
    assert len(failed) >= 5
    assert {(one.path, one.stage, one.node) for one in failed} == {("", "", "")}
    assert sorted(decisions(path), key=lambda one: one.seq) == sorted(ring, key=lambda one: one.seq)
    assert again(path).decisions == len(ring) - len(failed)


def test_a_configuration_without_the_profile_is_said(tmp_path: Path) -> None:
    path = tmp_path / "decisions.gz"
    record(path, 24, pods=10)
    found = again(path, a_config(schedulerName="other"))
    assert found.decisions == 0
    assert found.warnings == ["the configuration has no profile default-scheduler"]
    assert list(found.skipped) == ["the configuration has no profile of this name"]


def test_secrets_and_applied_manifests_are_not_in_the_file(tmp_path: Path) -> None:
    from kubesched.explain.records.lines import ObjectLines

    applied = "kubectl.kubernetes.io/last-applied-configuration"
    secret = {"metadata": {"name": "s", "annotations": {applied: "hunter2", "a": "b"}}}
    line = msgspec.json.encode(ObjectLines().put("services", None, secret))
    assert b"hunter2" not in line
    assert b'"a":"b"' in line
    path = tmp_path / "decisions.gz"
    record(path, 25, pods=5)
    kinds = {line.kind for _, line in read_lines(path) if isinstance(line, Put)}
    assert "pods" in kinds
    assert "secrets" not in kinds


def test_lines_that_cannot_belong_to_the_state_are_errors(tmp_path: Path) -> None:
    header = '{"type":"header","format":"kubesched.io/decisions","formatVersion":1,"kinds":["pods"]}\n'
    for line, text in (
        ('{"type":"change","kind":"pods","key":"a/b","version":"1"}', "line 2: key: there is no pods a/b"),
        ('{"type":"put","kind":"pods","object":{"metadata":{"name":"a"}},"spec":5000}', "line 2: spec: 5000 is not"),
        ('{"type":"put","kind":"pods","object":{"metadata":{"name":"a"}},"spec":7}', "line 2: spec: no earlier line"),
        ('{"type":"put","kind":"pods","object":{"metadata":{"name":3}}}', "line 2: object: "),
        ('{"type":"put","kind":"services","object":{"spec":{}}}', "line 2: object: needs metadata with a name"),
    ):
        path = tmp_path / "decisions"
        path.write_text(f"{header}{line}\n")
        with pytest.raises(DecisionsError, match=text):
            again(path)

"""Manifests from files, what is said about bad ones, and workloads turned into pods."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from cluster_world import a_store

from kubesched.api.kinds import PODS
from kubesched.base.times import micro_time, parse_duration, parse_time, timestamp
from kubesched.cluster.files import ManifestError, Manifests, expand_workloads, load_manifests, parse_manifests

TWO = """\
# a comment
---
apiVersion: v1
kind: Node
metadata: {name: n1, creationTimestamp: 2026-01-02T03:04:05Z, labels: {port: "22:22"}}
---
---
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations: {when: 10:30}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: 1, memory: 1e3}}}]
"""


def parse(text: str, name: str = "f.yaml") -> Manifests:
    return parse_manifests(dedent(text), name)


def names(found: Manifests) -> list[tuple[str, str]]:
    return [(item.kind.kind, item.name) for item in found.objects]


def test_documents_are_read_as_kubernetes_reads_them() -> None:
    found = parse(TWO)
    assert names(found) == [("Node", "n1"), ("Pod", "p")]
    node, pod = found.objects
    assert node.data["metadata"]["creationTimestamp"] == "2026-01-02T03:04:05Z"
    assert pod.data["metadata"]["annotations"]["when"] == "10:30"
    assert (node.namespace, pod.namespace) == ("", "default")
    assert pod.source == "f.yaml: document 3, line 8"


def test_directories_json_and_lists(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: x}}\n"
    )
    (tmp_path / "a.json").write_text(
        '{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"p"},"spec":{}}]}'
    )
    (tmp_path / "notes.txt").write_text("not: [a manifest")
    assert names(load_manifests([tmp_path])) == [("Pod", "p"), ("Node", "x")]
    with pytest.raises(ManifestError, match="there is no such file or directory"):
        load_manifests([tmp_path / "missing.yaml"])


def test_unknown_kinds_are_left_out_with_a_hint() -> None:
    found = parse(
        """\
        {apiVersion: policy/v1beta1, kind: PodDisruptionBudget, metadata: {name: a}}
        ---
        {apiVersion: apps/v1, kind: Deploymnt, metadata: {name: a}}
        """
    )
    assert found.objects == []
    assert "did you mean apiVersion policy/v1?" in found.warnings[0]
    assert (
        found.warnings[1]
        == "f.yaml: document 2, line 3: left out: apps/v1 Deploymnt is not known here; did you mean Deployment?"
    )


#: A few lines that expand to 9 to the power of 12 values.
ALIASES = "a0: &a0 [l, l, l, l, l, l, l, l, l]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)

BAD = [
    ("a: [1", r"f.yaml: document 1, line \d+: not valid YAML"),
    ("- 1", "f.yaml: document 1, line 1: expected an object with apiVersion and kind, found a list"),
    ("kind: Pod", "apiVersion is missing; write for example `apiVersion: v1`"),
    ("apiVersion: v1\nmetadata: {name: a}", "kind is missing"),
    ("apiVersion: v1\nkind: Pod", "metadata is missing"),
    ("apiVersion: v1\nkind: Pod\nmetadata: 7", "line 3: metadata: found 7; write `metadata:` with a `name:`"),
    (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels:\n    app: a\n    tier: 7",
        r"line 7: metadata.labels\['tier'\]: expected `str`, got `int`: 7$",
    ),
    ("apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {}", "line 4: metadata.name is missing; give the Pod a name"),
    ("apiVersion: v1\nkind: Pod\nmetadata:\n  name: 5", "line 4: metadata.name: must be a string, write it in quotes"),
    ("apiVersion: v1\nkind: Pod\nmetadata:\n  name: n", "line 4: metadata.name: must be a string, write it in quotes"),
    ("apiVersion: v1\nkind: Pod\nkind: Node", "f.yaml: document 1, line 3: key 'kind' is given twice"),
    ("a: &a [*a]", "f.yaml: document 1, line 1: anchor 'a' value contains itself"),
    ("[" * 200_000, "f.yaml: document 1, line 1: nested more than 200 levels deep"),
    ("- " * 200_000, "f.yaml: document 1, line 1: nested more than 200 levels deep"),
    ("-  " * 200_000, "f.yaml: document 1, line 1: nested more than 200 levels deep"),
    ("- " * 201 + "a", "f.yaml: document 1, line 1: nested more than 200 levels deep"),
    (ALIASES, r"f.yaml: document 1, line \d+: document contains excessive aliasing"),
    (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: a\n  - name: b\n    ports: {}\n",
        r"f.yaml: document 1, line 8: spec.containers\[1\].ports: expected `array`, got `object`",
    ),
    (
        TWO + "---\n{apiVersion: v1, kind: Pod, metadata: {name: p}}\n",
        r"f.yaml: document 4, line 16: Pod default/p was defined already in f.yaml: document 3, line 8",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_bad_manifest_is_refused_with_place_and_remedy(text: str, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        parse_manifests(text, "f.yaml")


def test_the_same_object_in_two_files_names_both(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("{apiVersion: v1, kind: Node, metadata: {name: node}}")
    with pytest.raises(ManifestError, match=r"b.yaml: .*Node node was defined already in .*a.yaml: document 1"):
        load_manifests([tmp_path])


def test_bad_json_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"x.json: not valid JSON"):
        parse_manifests("{", "x.json")
    with pytest.raises(ManifestError, match=r"x.json: nested more than 200 levels deep"):
        parse_manifests('{"a":' * 200_000, "x.json")


def test_an_alias_expands_to_what_it_names() -> None:
    found = parse("{apiVersion: v1, kind: Node, metadata: {name: node, labels: &l {a: b}, annotations: *l}}")
    assert found.objects[0].data["metadata"]["annotations"] == {"a": "b"}


# -- workloads ---------------------------------------------------------------------------------------------


def workload(kind: str, version: str, **spec: Any) -> Manifests:
    found = Manifests()
    template = {
        "metadata": {"labels": {"app": "w"}},
        "spec": {"restartPolicy": "Never" if kind == "Job" else "Always", "containers": [{"name": "c", "image": "i"}]},
    }
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": "w"}}}
    import msgspec

    data = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "w"},
        "spec": {**selector, "template": template, **spec},
    }
    found.objects = parse_manifests(msgspec.json.encode(data).decode(), "w.json").objects
    return found


def pods_of(found: Manifests) -> list[dict[str, Any]]:
    return [item.data for item in found.objects if item.kind == PODS]


def test_a_deployment_makes_a_replica_set_and_its_pods() -> None:
    expanded = expand_workloads(workload("Deployment", "apps/v1", replicas=3).objects)
    assert [item.kind.kind for item in expanded.objects] == ["Deployment", "ReplicaSet", "Pod", "Pod", "Pod"]
    deployment, replica_set, *pods = (item.data for item in expanded.objects)
    digest = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"w-{digest}"
    assert replica_set["metadata"]["ownerReferences"][0]["uid"] == deployment["metadata"]["uid"]
    for pod in pods:
        assert pod["metadata"]["labels"] == {"app": "w", "pod-template-hash": digest}
        assert pod["metadata"]["name"].startswith(f"w-{digest}-")
        assert pod["metadata"]["ownerReferences"][0]["uid"] == replica_set["metadata"]["uid"]
    assert len({pod["metadata"]["name"] for pod in pods}) == 3
    again = expand_workloads(workload("Deployment", "apps/v1", replicas=3).objects)
    assert [item.data for item in again.objects] == [item.data for item in expanded.objects]


def test_what_is_expanded_can_be_stored_and_its_owners_count() -> None:
    store = a_store()
    for item in expand_workloads(workload("Deployment", "apps/v1", replicas=2).objects).objects:
        store.create(item.kind, item.namespace, item.data, restore=True)
    assert len(store.list(PODS, label_selector="app=w").items) == 2
    deployment = expand_workloads(workload("Deployment", "apps/v1").objects).objects[0]
    store.delete(deployment.kind, "default", "w")
    assert store.list(PODS).items == []


def test_a_stateful_set_makes_numbered_pods_with_claims() -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    expanded = expand_workloads(workload("StatefulSet", "apps/v1", replicas=2, volumeClaimTemplates=claims).objects)
    assert [item.name for item in expanded.objects] == ["w", "data-w-0", "w-0", "data-w-1", "w-1"]
    pod = pods_of(expanded)[1]
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-w-1"}}]
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"


COUNTS = [
    ({}, 1),
    ({"parallelism": 4}, 4),
    ({"parallelism": 4, "completions": 2}, 2),
    ({"completions": 9}, 1),
    ({"parallelism": 3, "completions": 9, "completionMode": "Indexed"}, 3),
    ({"parallelism": 4, "suspend": True}, 0),
]


@pytest.mark.parametrize(("spec", "count"), COUNTS)
def test_a_job_makes_as_many_pods_as_may_run_at_once(spec: dict[str, Any], count: int) -> None:
    pods = pods_of(expand_workloads(workload("Job", "batch/v1", **spec).objects))
    assert len(pods) == count
    assert all(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "w" for pod in pods)


def test_a_daemon_set_makes_one_pod_for_each_node_named() -> None:
    pods = pods_of(expand_workloads(workload("DaemonSet", "apps/v1").objects, node_names=["n1", "n2"]))
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    fields = [pod["spec"]["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"][0]["matchFields"] for pod in pods]
    assert fields == [[{"key": "metadata.name", "operator": "In", "values": [name]}] for name in ("n1", "n2")]
    assert {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"} in pods[0]["spec"][
        "tolerations"
    ]


def test_a_cron_job_is_carried_with_a_warning_and_bad_workloads_are_refused() -> None:
    cron = parse("{apiVersion: batch/v1, kind: CronJob, metadata: {name: c}, spec: {}}")
    expanded = expand_workloads(cron.objects)
    assert len(expanded.objects) == 1
    assert "CronJob c makes no pods here" in expanded.warnings[0]
    with pytest.raises(ManifestError, match=r"w.json: spec.replicas: must be a number that is not negative"):
        expand_workloads(workload("ReplicaSet", "apps/v1", replicas=-1).objects)
    with pytest.raises(ManifestError, match=r"spec\.template\.spec is missing"):
        expand_workloads(workload("ReplicaSet", "apps/v1", template={}).objects)


# -- times -------------------------------------------------------------------------------------------------

DURATIONS = [
    ("1m30s", 90.0),
    ("250ms", 0.25),
    ("2h", 7200.0),
    ("0", 0.0),
    ("1.5s", 1.5),
    ("-5s", -5.0),
    ("1h2m3s", 3723.0),
]


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "1m 30s", "1d", "1m30", "--1s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write numbers with units"):
        parse_duration(text)


def test_timestamps_go_there_and_back() -> None:
    assert timestamp(1_750_000_000.9) == "2025-06-15T15:06:40Z"
    assert micro_time(1_750_000_000.25) == "2025-06-15T15:06:40.250000Z"
    assert parse_time("2025-06-15T15:06:40Z") == 1_750_000_000
    assert parse_time("2025-06-15T17:06:40+02:00") == 1_750_000_000
    with pytest.raises(ValueError, match="has no time zone"):
        parse_time("2025-06-15T15:06:40")

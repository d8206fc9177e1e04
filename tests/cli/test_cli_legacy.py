"""Commands with files of older versions: convert, check and simulate, retired plugins included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_kit import run

from kubesched.api.yamltext import to_yaml
from kubesched.retired.config import load_any_file
from kubesched.scheduler.config import load_config_file

JSON = dict[str, Any]
GROUP = "kubescheduler.config.k8s.io"
V1BETA1 = f"""\
apiVersion: {GROUP}/v1beta1
kind: KubeSchedulerConfiguration
healthzBindAddress: 0.0.0.0:10251
profiles:
- plugins:
    filter:
      enabled:
      - name: NodeLabel
  pluginConfig:
  - name: NodeLabel
    args:
      presentLabels: [ssd]
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def node(name: str, annotations: JSON | None = None, **labels: str) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations or {}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }


def pod(name: str, **spec: Any) -> JSON:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]
    meta = {"name": name, "namespace": "default", "labels": {"app": "web"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}}


SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
}


def placements(
    capsys: pytest.CaptureFixture[str], folder: Path, config: Path, objects: list[JSON], *more: object
) -> dict[str, str]:
    """Pod to node, after a simulation with this configuration."""
    manifests = written(folder, "objects.yaml", "---\n".join(to_yaml(item) for item in objects))
    ran = run(capsys, "simulate", "-f", manifests, "--config", config, "-o", "json", "--wide", "-q", *more)
    assert ran.code == 0, ran.err
    return {item["name"]: item["node"] for item in json.loads(ran.out)["placements"]}


# -- convert -----------------------------------------------------------------------------------------------------


def test_convert_prints_v1_with_the_warnings_on_stderr(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    old = written(tmp_path, "old.yaml", V1BETA1)
    ran = run(capsys, "config", "convert", old)
    assert ran.code == 0
    assert ran.out.startswith(
        "# Uses retired plugins (NodeLabel, NodePreferAvoidPods, NodeResourcesLeastAllocated): "
        "needs --plugin-module kubesched.retired.plugins\n"
        f"apiVersion: {GROUP}/v1\n"
    )
    new = written(tmp_path, "new.yaml", ran.out)
    assert load_config_file(new) == load_any_file(old).config
    for text in ("was removed in Kubernetes 1.23", "retired plugins in use", "healthzBindAddress is ignored"):
        assert f"kubesched: {old}: " in ran.err
        assert text in ran.err


def test_convert_writes_a_file_even_in_the_place_of_its_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = written(tmp_path, "c.yaml", V1BETA1)
    wanted = load_any_file(path).config
    ran = run(capsys, "config", "convert", path, "-o", path, "--overwrite")
    assert (ran.code, ran.out) == (0, "")
    assert load_config_file(path) == wanted
    assert [item.name for item in tmp_path.iterdir()] == ["c.yaml"]
    again = run(capsys, "config", "convert", path)
    assert again.err == ""
    assert again.out == "".join(path.read_text().partition("apiVersion: kube")[1:])


def test_convert_leaves_the_target_alone_when_the_input_is_bad(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad = written(tmp_path, "bad.yaml", V1BETA1.replace("presentLabels", "presentLabel"))
    target = written(tmp_path, "out.yaml", "keep me")
    ran = run(capsys, "config", "convert", bad, "-o", target)
    assert ran.code == 1
    assert ran.err.startswith(f"kubesched: {bad}: strict decoding error: decoding .profiles[0].pluginConfig[0]")
    assert "profiles[0].pluginConfig[0].args.presentLabel: no such field; did you mean presentLabels?" in ran.err
    assert target.read_text() == "keep me"
    nowhere = run(capsys, "config", "convert", written(tmp_path, "ok.yaml", V1BETA1), "-o", tmp_path / "no" / "x.yaml")
    assert nowhere.code == 1
    assert "Traceback" not in nowhere.err


# -- check -------------------------------------------------------------------------------------------------------


def test_check_shows_the_plugins_of_an_older_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ran = run(capsys, "config", "check", written(tmp_path, "old.yaml", V1BETA1), "--json")
    assert ran.code == 0
    points = json.loads(ran.out)["profiles"]["default-scheduler"]
    assert points["filter"][-1] == {"name": "NodeLabel"}
    assert {"name": "NodePreferAvoidPods", "weight": 10000} in points["score"]


def test_a_v1_file_with_a_retired_plugin_needs_its_module(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = f"apiVersion: {GROUP}/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- plugins:\n    filter:\n      enabled:\n      - name: NodeLabel\n"
    path = written(tmp_path, "v1.yaml", text)
    ran = run(capsys, "config", "check", path)
    assert ran.code == 1
    assert 'FilterPlugin "NodeLabel" does not exist' in ran.err
    assert "--plugin-module kubesched.retired.plugins" in ran.err
    assert run(capsys, "config", "check", path, "--plugin-module", "kubesched.retired.plugins").code == 0


# -- simulate ----------------------------------------------------------------------------------------------------


def test_an_older_file_schedules_with_its_retired_filter(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    objects = [node("a"), node("b", ssd="yes"), node("c"), *(pod(f"p{index}") for index in range(4))]
    found = placements(capsys, tmp_path, written(tmp_path, "old.yaml", V1BETA1), objects)
    assert set(found.values()) == {"b"}
    assert len(found) == 4


def policy(folder: Path, **fields: Any) -> Path:
    return written(folder, "policy.json", json.dumps({"apiVersion": "v1", "kind": "Policy", **fields}))


def test_service_affinity_keeps_a_service_in_one_zone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nodes = [node(f"n{index}", zone="ab"[index % 2]) for index in range(6)]
    affinity = {"name": "x", "argument": {"serviceAffinity": {"labels": ["zone"]}}}
    config = policy(tmp_path, predicates=[affinity, {"name": "GeneralPredicates"}], priorities=[])
    zone = {item["metadata"]["name"]: item["metadata"]["labels"]["zone"] for item in nodes}
    for seed in range(3):
        found = placements(
            capsys, tmp_path, config, [*nodes, SERVICE, *(pod(f"p{index}") for index in range(9))], "--seed", seed
        )
        assert len(found) == 9
        assert len({zone[place] for place in found.values()}) == 1


@pytest.mark.parametrize(
    "priority",
    [
        {"name": "SelectorSpreadPriority", "weight": 1},
        {"name": "spread", "weight": 1, "argument": {"serviceAntiAffinity": {"label": "rack"}}},
    ],
)
def test_spreading_priorities_spread_a_service(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, priority: JSON
) -> None:
    nodes = [node(f"n{index}", rack=f"r{index}") for index in range(4)]
    config = policy(tmp_path, priorities=[priority])
    found = placements(capsys, tmp_path, config, [*nodes, SERVICE, *(pod(f"p{index}") for index in range(8))])
    assert sorted(found.values()) == sorted([item["metadata"]["name"] for item in nodes] * 2)


def test_resource_priorities_pack_and_spread(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    objects = [*(node(f"n{index}") for index in range(4)), *(pod(f"p{index}") for index in range(4))]
    full = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
    for priority, count in (
        ({"name": "MostRequestedPriority", "weight": 1}, 1),
        ({"name": "LeastRequestedPriority", "weight": 1}, 4),
        ({"name": "x", "weight": 1, "argument": {"requestedToCapacityRatioArguments": full}}, 1),
    ):
        found = placements(capsys, tmp_path, policy(tmp_path, priorities=[priority]), objects)
        assert len(set(found.values())) == count, priority


def test_avoided_controllers_go_elsewhere(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
    avoid = {"preferAvoidPods": [{"podSignature": {"podController": owner}}]}
    shunned = {"scheduler.alpha.kubernetes.io/preferAvoidPods": json.dumps(avoid)}
    objects = [node("a", shunned), node("b", shunned), node("c")]
    for index in range(3):
        made = pod(f"p{index}")
        made["metadata"]["ownerReferences"] = [owner]
        objects.append(made)
    config = policy(tmp_path, priorities=[{"name": "NodePreferAvoidPodsPriority", "weight": 10}])
    assert set(placements(capsys, tmp_path, config, objects).values()) == {"c"}

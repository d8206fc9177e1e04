"""Devices on the command line: the example, what the report says of pods that wait, and input that cannot be used."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cli_kit import EXAMPLES, run

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 9}}
---
"""
CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
---
"""
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
---
"""


def a_pod(name: str, **claim: str) -> str:
    reference = json.dumps({"name": "r", **claim})
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n"
        f"spec: {{containers: [{{name: a, image: b}}], resourceClaims: [{reference}]}}\n---\n"
    )


def a_slice(name: str, *devices: str, count: int = 1, generation: int = 1, node: str = "n1") -> str:
    pool = json.dumps({"name": node, "generation": generation, "resourceSliceCount": count})
    listed = json.dumps([{"name": device} for device in devices])
    return (
        f"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: {name}}}\n"
        f"spec: {{driver: d.example.com, nodeName: {node}, pool: {pool}, devices: {listed}}}\n---\n"
    )


def simulate(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> Any:
    ran = run(capsys, "simulate", "-f", path, "-o", "json", *options)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def pending(result: Any) -> dict[str, str]:
    return {group["pods"][0]: json.dumps(group) for group in result["pending"]}


def test_the_example_gives_out_whole_gpus_parts_and_second_choices(capsys: pytest.CaptureFixture[str]) -> None:
    result = simulate(capsys, EXAMPLES / "gpu-dra")
    nodes: dict[str, Counter[str]] = {}
    for item in result["placements"]:
        nodes.setdefault(item["workload"], Counter())[item["node"]] += 1
    training = nodes["Job/training"]
    assert set(training) == {"big-1", "big-2"}
    assert sum(training.values()) == 5
    assert nodes["Deployment/inference"] == {"split": 6}
    assert nodes["Deployment/notebooks"] == {"split": 2, "small": 2}
    # Four pairs of GPUs for five pods: the last one waits until another has ended.
    late = [item["boundAt"] for item in result["placements"] if item["workload"] == "Job/training"]
    assert sorted(late)[:4] == [0, 0, 0, 0]
    assert max(late) > 7200
    ((name, text),) = pending(result).items()
    assert name == "default/too-large"
    assert "asks for 6 devices of class gpu with 40Gi; big-1 has 4 that match, 4 free" in text


def test_gpus_in_use_as_a_whole_block_their_parts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    whole = CLAIM.replace(
        "name: r, exactly: {deviceClassName: gpu}", "name: r, exactly: {deviceClassName: gpu, count: 2}"
    )
    (tmp_path / "a.yaml").write_text(a_pod("whole", resourceClaimName="c") + whole)
    files = [EXAMPLES / "gpu-dra" / name for name in ("classes.yaml", "training.yaml", "inference.yaml")]
    split = (EXAMPLES / "gpu-dra" / "nodes.yaml").read_text().split("---\n")[-1]
    (tmp_path / "node.yaml").write_text(split)
    ran = run(capsys, "simulate", "-f", *files, tmp_path, "-o", "json")
    placed = Counter(item["workload"] or item["name"] for item in json.loads(ran.out)["placements"])
    assert placed == {"whole": 1}


def test_what_does_not_exist_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pods = (
        a_pod("no-claim", resourceClaimName="absent")
        + a_pod("no-template", resourceClaimTemplateName="absent")
        + a_pod("no-class", resourceClaimName="c")
    )
    (tmp_path / "a.yaml").write_text(NODE + CLAIM + CLASS.replace("name: gpu", "name: nic") + pods)
    found = pending(simulate(capsys, tmp_path))
    assert 'could not find ResourceClaim \\"default/absent\\"' in found["default/no-claim"]
    assert "resource claim absent does not exist" in found["default/no-claim"]
    assert "resource claim template absent does not exist" in found["default/no-template"]
    assert "request r: device class gpu does not exist" in found["default/no-class"]
    assert "the device class gpu does not exist (there is nic)" in found["default/no-class"]


def test_a_shared_claim_ties_its_pods_to_its_devices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = NODE.replace("name: n1", "name: n2").replace("pods: 9", "pods: 0")
    small = NODE.replace("pods: 9", "pods: 1")
    pods = a_pod("first", resourceClaimName="c") + a_pod("second", resourceClaimName="c")
    (tmp_path / "a.yaml").write_text(small + other + CLASS + CLAIM + a_slice("s", "a") + pods)
    (text,) = pending(simulate(capsys, tmp_path)).values()
    assert "resource claim c has a of pool n1 already, used by first" in text


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        (a_slice("s", "a", count=2) + a_slice("t", "a", count=2), "invalid resource pools were encountered"),
        (a_slice("s", "a", count=2), "cannot allocate all claims"),  # a slice of the pool is missing
        (a_slice("s", "a") + a_slice("t", generation=2, count=3), "cannot allocate all claims"),
    ],
)
def test_slices_that_contradict_each_other_are_not_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, slices: str, reason: str
) -> None:
    (tmp_path / "a.yaml").write_text(NODE + CLASS + CLAIM + slices + a_pod("p", resourceClaimName="c"))
    (text,) = pending(simulate(capsys, tmp_path)).values()
    assert reason in text


def test_an_expression_that_fails_at_run_time_is_reported_for_the_pod(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    selector = 'spec: {selectors: [{cel: {expression: \'device.attributes["d.example.com"].absent == "x"\'}}]}\n---'
    failing = CLASS.replace("---", selector)
    (tmp_path / "a.yaml").write_text(NODE + failing + CLAIM + a_slice("s", "a") + a_pod("p", resourceClaimName="c"))
    (text,) = pending(simulate(capsys, tmp_path)).values()
    assert "class gpu: selector #0: CEL runtime error: no such key: absent" in text


REFUSED = [
    (
        CLASS.replace("---", "spec: {selectors: [{cel: {expression: device.drivr}}]}\n---"),
        "spec.selectors[0].cel.expression: Invalid value",
    ),
    (
        CLAIM.replace("deviceClassName: gpu", "deviceClassName: gpu, count: -1"),
        "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
    ),
    (
        NODE.replace("{name: n1}", "{name: n1, annotations: {kubesched.io/devices: '[{driver: d}]'}}"),
        "Node n1: annotation kubesched.io/devices: [0].devices: must be a list, got None",
    ),
    (a_slice("s", "a", "a"), 'spec.devices[1].name: Duplicate value: "a"'),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
@pytest.mark.parametrize("command", ["simulate", "up"])
def test_input_that_cannot_be_used_is_refused_with_its_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, text: str, message: str
) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    options = ["--kubeconfig-out", str(tmp_path / "kubeconfig")] if command == "up" else []
    ran = run(capsys, command, "-f", tmp_path / "bad.yaml", *options)
    assert ran.code == 1
    assert f"{tmp_path / 'bad.yaml'}: document 1, line" in ran.err
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_hollow_nodes_of_a_template_have_its_devices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    node = NODE.replace(
        "{name: n1}",
        "{name: t, annotations: {kubesched.io/devices: '[{driver: d.example.com, devices: [{name: a, count: 2}]}]'}}",
    )
    (tmp_path / "template.yaml").write_text(node)
    (tmp_path / "pods").mkdir()
    template = CLAIM.replace("kind: ResourceClaim", "kind: ResourceClaimTemplate").replace(
        "spec: {devices", "spec: {spec: {devices"
    )
    template = template.replace("]}}\n", "]}}}\n")
    pods = "".join(a_pod(f"p{number}", resourceClaimTemplateName="c") for number in range(7))
    (tmp_path / "pods" / "a.yaml").write_text(CLASS + template + pods)
    result = simulate(capsys, tmp_path / "pods", "--nodes", "3", "--node-template", str(tmp_path / "template.yaml"))
    assert Counter(item["node"] for item in result["placements"]) == {f"hollow-0000{n}": 2 for n in range(3)}
    assert result["totals"]["pending"] == 1
    (tmp_path / "template.yaml").write_text(node.replace("count: 2", "count: two"))
    ran = run(
        capsys, "simulate", "-f", tmp_path / "pods", "--nodes", "3", "--node-template", tmp_path / "template.yaml"
    )
    assert ran.code == 1
    assert "count: must be an integer that is not negative, got 'two'" in ran.err

"""Everything that is wrong with an input is in one error, whichever step finds it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import run

import kubesched
from kubesched.cluster.files import ManifestError

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: i}]}\n"
WORKLOAD = (
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s}\nspec: {replicas: 3, selector: {matchLabels: {a: %s}}, "
    "template: {metadata: {labels: {a: b}}, spec: {containers: %s}}}\n"
)
DOCUMENTS = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: wrong-type}\nspec: {containers: [], priority: high}\n",
    "apiVersion: v1\nkind: Pod\nmetadata: {name: not-yaml\nspec: {}\n",
    WORKLOAD % ("bad-template", "b", "5"),
    WORKLOAD % ("bad-selector", "other", "[{name: c, image: i}]"),
    POD % "Refused_Name",
    WORKLOAD % ("refused-pods", "b", "[{name: c, image: i, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]"),
    POD % "good",
    "apiVersion: batch/v1\nkind: Job\nmetadata: {name: no-template}\nspec: {parallelism: 2}\n",
)
#: One piece of the message about each bad document; each must occur in one line only.
SAID = (
    "f.yaml: document 1, line 4: spec.priority: expected",
    "f.yaml: document 2, line 9: not valid YAML: did not find expected ',' or '}'",
    "f.yaml: document 3, line 11: Deployment bad-template was refused: ",
    "f.yaml: document 4, line 16: Deployment bad-selector was refused: ",
    'Refused_Name" is invalid: metadata.name',
    "f.yaml: document 6, line 26: Deployment refused-pods was refused: ",
    "f.yaml: document 8, line 36: ",
)


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    path = tmp_path / "f.yaml"
    path.write_text("---\n".join(DOCUMENTS))
    return path


def check(message: str) -> None:
    lines = message.strip().splitlines()
    assert [sum(text in line for line in lines) for text in SAID] == [1] * len(SAID), message
    assert len(lines) == len(SAID)
    assert "good" not in message


def test_simulate_names_all_bad_objects_once(manifests: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "simulate", "-f", manifests, "--nodes", 2)
    assert (done.code, done.out) == (1, "")
    check(done.err)


def test_up_names_all_bad_objects_once(manifests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "up", "-f", manifests, "--nodes", 2, "--kubeconfig-out", tmp_path / "config")
    assert (done.code, done.out) == (1, "")
    lines = done.err.strip().splitlines()
    assert [sum(text in line for line in lines) for text in SAID[:5]] == [1] * 5, done.err
    assert not (tmp_path / "config").exists()


def test_python_names_all_bad_objects_of_all_arguments_once(manifests: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": 5}}
    with pytest.raises(ManifestError) as caught:
        kubesched.simulate([manifests, "\n", manifests.parent / "missing.yaml"], nodes=[node])
    lines = str(caught.value).splitlines()
    check("\n".join(line for line in lines if "f.yaml" in line))
    assert [line for line in lines if "f.yaml" not in line and "missing.yaml" not in line] == [
        "manifests[1]: is an empty text; expected a path, a text of YAML or JSON, an object as a dict, or a list of these",
        "nodes[0]: metadata.name: must be a string, write it in quotes",
    ]


def test_options_files_and_tables_are_reported_with_the_manifests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pods.csv").write_text("name,cpu\na,much\n")
    (tmp_path / "dump.yaml").write_text("kind: Pod\n")
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {}\n")
    given = ("--trace", tmp_path / "pods.csv", "--from", tmp_path / "dump.yaml", "-f", tmp_path / "pod.yaml")
    done = run(capsys, "simulate", *given, "--node-resource", "cpu=x")
    assert done.code == 1
    for text in ("pods.csv:2: column cpu: 'much'", "dump.yaml: ", "metadata.name is missing", "cpu=x: 'x' is not"):
        assert sum(text in line for line in done.err.splitlines()) == 1, done.err


def test_a_template_that_was_not_rendered_is_recognised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("metadata:\n  labels:\n    {{- include 'labels' . }}\nkind: x\n")
    (tmp_path / "b.yaml").write_text(POD % '"{{ .Release.Name }}"')
    done = run(capsys, "simulate", "-f", tmp_path)
    assert done.code == 1
    assert [line.endswith("for example by `helm template`") for line in done.err.splitlines()] == [True, True]

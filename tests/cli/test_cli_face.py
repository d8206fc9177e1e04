"""Input and output of commands: starts, files of other forms, node resources, -o, completion, and the examples."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_kit import EXAMPLES, run

import kubesched
from kubesched.api.kinds import PODS
from kubesched.api.yamltext import read_documents
from kubesched.cli.main import build_parser
from kubesched.cluster.files import ManifestError, load_manifests, read
from kubesched.lab.simulate.results.report import render_table
from kubesched.lab.simulate.results.result import Result

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: one}\nstatus: {allocatable: {cpu: '4', memory: 8Gi, pods: '9'}}\n"
JSON = dict[str, Any]


def result(ran: Any) -> Result:
    assert ran.code == 0, ran.err
    return msgspec.json.decode(ran.out, type=Result)


# -- files -----------------------------------------------------------------------------------------------------


def test_files_may_be_gzipped_or_utf_16(tmp_path: Path) -> None:
    (tmp_path / "a.yaml.gz").write_bytes(gzip.compress(POD.encode()))
    (tmp_path / "b.yaml").write_bytes(NODE.encode("utf-16"))
    (tmp_path / "c.yaml").write_bytes(POD.replace("name: p", "name: q").encode("utf-8-sig"))
    assert [item.name for item in load_manifests([tmp_path]).objects] == ["p", "one", "q"]
    (tmp_path / "d.yaml.gz").write_bytes(gzip.compress(POD.encode())[:-9])
    with pytest.raises(ManifestError, match=r"d\.yaml\.gz: cannot be read: "):
        load_manifests([tmp_path])


def test_other_files_of_a_directory_are_left_out_and_said(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "values.yaml").write_text("replicas: 3\nimage: {tag: latest}\n")
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: shop\nversion: 0.1.0\n")
    (tmp_path / "README.md").write_text("not read")
    loaded = load_manifests([tmp_path])
    assert [item.name for item in loaded.objects] == ["p"]
    assert [text.removeprefix(f"{tmp_path}/") for text in loaded.warnings] == [
        f"{name}: left out: it holds no Kubernetes objects" for name in ("Chart.yaml", "list.json", "values.yaml")
    ]
    with pytest.raises(ManifestError, match=r"values\.yaml: .*apiVersion is missing"):
        load_manifests([tmp_path / "values.yaml"])
    (tmp_path / "slip.yaml").write_text("kind: Pod\nmetadata: {name: x}\n")
    with pytest.raises(ManifestError, match=r"slip\.yaml: .*apiVersion is missing"):
        load_manifests([tmp_path])


def test_the_output_of_helm_template_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    parts = ["# Source: shop/templates/empty.yaml", f"# Source: shop/templates/pod.yaml\n{POD}", ""]
    hook = POD.replace("{name: p}", "{name: hook, annotations: {helm.sh/hook: test}}")
    (tmp_path / "all.yaml").write_text("---\n" + "\n---\n".join([*parts, hook, NODE]))
    assert result(run(capsys, "simulate", "-f", tmp_path, "-o", "json")).totals.placed == 2


# -- a cluster to start from -----------------------------------------------------------------------------------


@pytest.fixture
def saved(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    """A saved cluster: a node, and a pod that runs there."""
    dump = tmp_path / "dump.yaml"
    dump.write_text(f"{NODE}---\n{POD.replace('spec: {', 'spec: {nodeName: one, ')}status: {{phase: Running}}\n")
    path = tmp_path / "cluster.jsonl.gz"
    assert run(capsys, "import", dump, "-o", path).code == 0
    return path


@pytest.mark.parametrize("form", ["saved", "dump", "gzipped", "wide"])
def test_simulations_start_from_a_cluster_without_writing_to_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, saved: Path, form: str
) -> None:
    text = (tmp_path / "dump.yaml").read_text()
    start = saved if form == "saved" else tmp_path / "start.yaml"
    if form != "saved":
        raw = {"dump": text.encode(), "gzipped": gzip.compress(text.encode()), "wide": text.encode("utf-16")}[form]
        start.write_bytes(raw)
    before = start.read_bytes()
    new = tmp_path / "new.yaml"
    new.write_text(POD.replace("name: p", "name: new"))
    found = result(run(capsys, "simulate", "--from", start, "-f", new, "-o", "json"))
    assert {(item.name, item.node, item.bound_at) for item in found.placements} == {
        ("p", "one", None),
        ("new", "one", 0.0),
    }
    assert start.read_bytes() == before
    assert result(run(capsys, "simulate", "--from", start, "-o", "json")).totals.pods == 1
    if form == "saved":
        assert kubesched.simulate([start, new]).totals.placed == 2


def test_without_manifests_or_a_start_the_usage_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ran = run(capsys, "simulate", "--nodes", 1)
    assert (ran.code, "give manifests with -f, a cluster with --from" in ran.err) == (2, True)
    ran = run(capsys, "simulate", "--from", tmp_path / "nothing")
    assert (ran.code, "nothing" in ran.err) == (1, True)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"format": "kubesched.io/cluster", "version": 99, "resourceVersion": 1, "objects": 0}\n')
    ran = run(capsys, "simulate", "--from", broken)
    assert (ran.code, "format version 99" in ran.err) == (1, True)


# -- options ---------------------------------------------------------------------------------------------------


def test_hollow_nodes_have_the_resources_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    given = ("simulate", "-f", tmp_path, "--nodes", 2, "-o", "json")
    found = result(run(capsys, *given, "--node-resource", "nvidia.com/gpu=8", "--node-resource", "cpu=64"))
    assert {use.name: use.allocatable for use in found.resources}["nvidia.com/gpu"] == 16
    assert found.resources[0].allocatable == 128_000
    ran = run(capsys, *given, "--node-resource", "cpu=much")
    assert (ran.code, ran.err.startswith("kubesched: node resource cpu=much: ")) == (1, True)
    assert run(capsys, *given, "--node-resource", "cpu").code == 2


@pytest.mark.parametrize(
    "argv", [("version",), ("plugins",), ("config", "check", EXAMPLES / "config" / "packing.yaml")]
)
def test_documents_are_asked_for_in_the_same_way_everywhere(capsys: pytest.CaptureFixture[str], argv: Any) -> None:
    given = (*argv, "--plugin-module", EXAMPLES / "plugins" / "gpu_last.py") if argv[0] == "config" else argv
    for option in (("-o", "json"), ("--output", "json"), ("--json",)):
        assert msgspec.json.decode(run(capsys, *given, *option).out)
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(run(capsys, *given).out)


def test_tables_are_shortened_to_the_width_of_a_terminal() -> None:
    long = [f"{'very-' * 10}long-{number}" for number in range(3)]
    objects = [
        NODE.replace("name: one", f"name: {long[0]}"),
        *(POD.replace("name: p", f"name: {name}") for name in long),
    ]
    found = kubesched.simulate(objects)
    assert found.totals.placed == 3
    whole = [line.text for line in render_table(found)]
    assert max(map(len, whole)) > 120
    fitted = [line.text for line in render_table(found, width=80)]
    assert len(fitted) == len(whole)
    assert max(map(len, fitted)) <= 80
    for name in long:
        assert any(name in text for text in whole)
        assert any(text.split()[1:2] and "…" in text and f"long-{name[-1]}" in text for text in fitted)
    assert max(len(line.text) for line in render_table(found, width=10)) < 80  # numbers and some of each text stay


# -- completion ------------------------------------------------------------------------------------------------


def _completed(script: Path, *words: str) -> list[str]:
    typed = " ".join(f"'{word}'" for word in words)
    code = f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _kubesched; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_and_choices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(run(capsys, "completion", "bash").out)
    assert _completed(script, "kubesched", "sim") == ["simulate"]
    assert {"up", "run", "sweep", "--version"} <= set(_completed(script, "kubesched", ""))
    assert _completed(script, "kubesched", "config", "")[:2] == ["check", "convert"]
    assert _completed(script, "kubesched", "simulate", "-f", "x.yaml", "--node-r") == ["--node-resource"]
    assert _completed(script, "kubesched", "simulate", "-f", "x.yaml", "-o", "y") == ["yaml"]
    assert "--enable-plugin" in _completed(script, "kubesched", "config", "check", "--e")
    assert _completed(script, "kubesched", "completion", "z") == ["zsh"]


def test_every_option_of_every_command_is_in_every_script(capsys: pytest.CaptureFixture[str]) -> None:
    texts = {shell: run(capsys, "completion", shell).out for shell in ("bash", "zsh", "fish")}
    commands = next(each for each in build_parser()._actions if isinstance(each.choices, dict))
    assert commands.choices is not None
    for name, parser in dict(commands.choices).items():
        for option in parser._option_string_actions:
            assert option in texts["bash"]
            assert option in texts["zsh"]
            assert f"__fish_seen_subcommand_from {name}" in texts["fish"]
            assert (f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}") in texts["fish"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(capsys: pytest.CaptureFixture[str], tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(run(capsys, "completion", shell).out)
    subprocess.run([shell, "-n", str(script)], check=True, env=dict(os.environ))


# -- examples --------------------------------------------------------------------------------------------------


def _applied(folder: Path) -> list[JSON]:
    """The objects of a folder in the order in which ``kubectl apply -f`` sends them."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml", ".json"))
    documents = (one.data for file in files for one in read_documents(file.read_text(), file.name))
    return [one for one in documents if one is not None]


FOLDERS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir() and list(path.glob("*.yaml")))


@pytest.mark.parametrize("folder", [path for path in FOLDERS if path.name not in ("config", "policies", "extender")],
                         ids=lambda path: path.name)  # fmt: skip
def test_an_example_folder_applies_in_one_go(folder: Path) -> None:
    there: set[tuple[str, str]] = {("Namespace", "default"), ("Namespace", "kube-system")}
    there |= {("PriorityClass", name) for name in ("system-cluster-critical", "system-node-critical")}
    for item in _applied(folder):
        metadata, spec = item["metadata"], item.get("spec") or {}
        # An API server refuses an object in a namespace that is not there, and a pod of a class that is not there.
        needs = {("Namespace", metadata["namespace"])} if metadata.get("namespace") else set()
        if item["kind"] == "Pod" and spec.get("priorityClassName"):
            needs.add(("PriorityClass", spec["priorityClassName"]))
        if isinstance(spec.get("template"), dict) and (spec["template"].get("spec") or {}).get("priorityClassName"):
            needs.add(("PriorityClass", spec["template"]["spec"]["priorityClassName"]))
        assert needs <= there, f"{item['kind']} {metadata['name']} comes before {needs - there}"
        there.add((item["kind"], metadata["name"]))


@pytest.mark.parametrize("form", ["saved", "dump"])
def test_a_cluster_starts_from_one_file_and_saves_to_another(tmp_path: Path, saved: Path, form: str) -> None:
    start, target = saved if form == "saved" else tmp_path / "dump.yaml", tmp_path / "target.jsonl"
    before = start.read_bytes()
    (tmp_path / "new.yaml").write_text(POD.replace("{name: p}", "{name: new, namespace: made}"))
    argv = ("up", "--from", start, "--snapshot", target, "-f", tmp_path / "new.yaml")
    command = [sys.executable, "-m", "kubesched.cli", *map(str, argv), "--kubeconfig-out", str(tmp_path / "config")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any("stop with Ctrl-C" in line for line in process.stdout)
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert start.read_bytes() == before
    found = {(item.namespace, item.name) for item in read(target).items if item.kind == PODS}
    assert found == {("default", "p"), ("made", "new")}

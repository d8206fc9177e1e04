"""The other commands: conformance, bench, demo, config check, plugins; and every file in ``examples/`` and ``bench/``."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_kit import BENCH, EXAMPLES, GOLDEN, run

from kubesched.cli.arguments.measurements import SHAPES
from kubesched.lab.bench import decisions, measure
from kubesched.lab.bench.workloads import load_workloads

# -- conformance -----------------------------------------------------------------------------------------------


HEAD = "AREA              VECTORS  PASSED  PARTLY  EXPLAINED  DECLARED  FAILED  NOT COMPARED\n"


def test_conformance_counts_vectors_per_area(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "conformance", GOLDEN / "nodename.jsonl.gz", GOLDEN / "declaredfeatures.jsonl.gz")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert f"{lines[0]}\n" == HEAD
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["declaredfeatures", "100"],
        ["nodename", "250"],
        ["all", "350"],
    ]
    assert "RECORD                PASSED  FAILED  NOT COMPARED" in lines


def test_conformance_counts_records_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "conformance", GOLDEN, "--area", "config")
    assert ran.code == 0
    table = [line.split() for line in ran.out.splitlines()]
    assert ["stage", "300", "0", "0"] in table
    assert ["errors", "102", "0", "57"] in table
    assert "the wording of decoding errors is that of a particular parser       57" in ran.out


def test_area_picks_one_file_of_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(run(capsys, "conformance", GOLDEN, "--area", "config2", "--json").out)
    assert [(area["area"], area["total"], area["failures"]) for area in data["areas"]] == [("config2", 63, [])]
    assert (data["total"], data["failed"], data["passed"], data["partly"]) == (63, 0, 60, 3)
    assert data["records"]["stage"] == {"passed": 63, "failed": 0, "notCompared": 0}
    assert data["notComparedByReason"] == {"the wording of decoding errors is that of a particular parser": 3}
    assert "coverage" not in data


def nodename(number: int) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / "nodename.jsonl.gz", "rt") as lines:
        return [json.loads(next(lines)) for _ in range(number)]


def save(path: Path, *vectors: dict[str, Any]) -> None:
    with gzip.open(path, "wt") as out:
        out.writelines(json.dumps(vector) + "\n" for vector in vectors)


def test_coverage_shows_paths_and_forms(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save(tmp_path / "nodename.jsonl.gz", *nodename(10))
    ran = run(capsys, "conformance", tmp_path, "--coverage")
    lines = ran.out.splitlines()
    assert "PATH OF FIND       ATTEMPTS" in lines
    assert {"signature layer", "interaction layer", "full scan"} <= {line.rsplit("  ", 1)[0].strip() for line in lines}
    assert any(line.startswith("CALLS DURING FIND") and line.endswith("VECTOR  ROW") for line in lines)
    coverage = json.loads(run(capsys, "conformance", tmp_path, "--coverage", "--json").out)["coverage"]
    assert coverage["paths"]["signature layer"] > 0
    fit = next(item for item in coverage["calls"] if (item["point"], item["plugin"]) == ("Filter", "NodeResourcesFit"))
    assert fit["vector"] > 0


def test_explained_and_declared_vectors_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with gzip.open(GOLDEN / "balanced.jsonl.gz", "rt") as lines:
        save(
            tmp_path / "balanced.jsonl.gz",
            *(each for line in lines if (each := json.loads(line))["name"] == "balanced-0065"),
        )
    with gzip.open(GOLDEN / "combined.jsonl.gz", "rt") as lines:
        save(
            tmp_path / "combined.jsonl.gz",
            *(each for line in lines if (each := json.loads(line))["name"] == "combined-0170"),
        )
    ran = run(capsys, "conformance", tmp_path)
    assert ran.code == 0
    assert (
        "EXPLAINED\n  balanced-0065: decimal drift: upstream counted the overhead of default/pod-njzv (memory)"
        in ran.out
    )
    assert "DECLARED\n  combined-0170: A-Q1: upstream applies the term to every namespace\n" in ran.out


def test_a_sabotaged_golden_file_fails_and_says_where(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    vectors = nodename(5)
    broken = next(vector for vector in vectors if vector["expected"].get("pods"))
    broken["expected"]["pods"][0]["outcome"] = "error"
    save(tmp_path / "nodename.jsonl.gz", *vectors, {})
    ran = run(capsys, "conformance", tmp_path)
    assert ran.code == 1
    assert f"nodename: {broken['name']}" in ran.out
    assert "outcome: expected" in ran.out
    assert "nodename: line 6\n  the replay stopped: RecordError: vector: member 'name' is missing" in ran.out
    data = json.loads(run(capsys, "conformance", tmp_path, "--json").out)
    assert (data["failed"], data["total"]) == (2, 6)


@pytest.mark.parametrize(
    ("line", "message"), [(b"[1]\n", "line 1: not a JSON object"), (b"{}\n", "vector: member 'name' is missing")]
)
def test_a_file_of_bad_lines_only_is_a_failure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: bytes, message: str
) -> None:
    (tmp_path / "odd.jsonl.gz").write_bytes(gzip.compress(line, mtime=0))
    ran = run(capsys, "conformance", tmp_path)
    assert ran.code == 1
    assert message in ran.out


def test_a_file_of_which_nothing_can_be_compared_is_a_failure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("kubesched.cluster.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    save(
        tmp_path / "protobuf.jsonl.gz",
        {"name": "x", "area": "protobuf", "mode": "body", "scenario": {"body": ""}, "expected": {}},
    )
    ran = run(capsys, "conformance", tmp_path)
    assert ran.code == 1
    assert "needs the package aiohttp, which is not installed: pip install 'kubesched[server]'" in ran.out
    assert "nothing was compared: see the reasons above" in ran.out


@pytest.mark.parametrize(
    ("content", "argv", "message"),
    [
        (None, ["."], "no golden files"),
        (None, ["gone"], "gone: no such file or directory"),
        (b"not gzip", ["."], "not a gzipped file of JSON lines"),
        (gzip.compress(b"", mtime=0), [".", "--area", "fit"], "no golden file of area fit"),
    ],
)
def test_conformance_with_nothing_to_compare_is_a_failure(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | None,
    argv: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "odd.jsonl.gz").write_bytes(content)
    ran = run(capsys, "conformance", *argv)
    assert ran.code == 1
    assert message in ran.err
    assert "internal error" not in ran.err


def test_an_empty_golden_file_is_a_failure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl.gz").write_bytes(gzip.compress(b"", mtime=0))
    ran = run(capsys, "conformance", tmp_path)
    assert ran.code == 1
    assert "nothing was compared" in ran.out


# -- bench -----------------------------------------------------------------------------------------------------


def _cases() -> list[tuple[str, str]]:
    return [(shape, item.case) for shape in SHAPES for item in load_workloads(BENCH / f"{shape}.yaml")]


@pytest.fixture
def collector_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs do not settle the collector: that is a full pass over all tests, four times, and takes longer than the runs."""
    for module in (decisions, measure):
        monkeypatch.setattr(module, "settle_collector", lambda: lambda: None)


@pytest.mark.usefixtures("collector_as_it_is")
@pytest.mark.parametrize(("shape", "case"), _cases())
def test_every_shape_runs_small(capsys: pytest.CaptureFixture[str], shape: str, case: str) -> None:
    options = "--nodes 40 --pods 12 --runs 2 --decisions --json"
    argv = ["bench", "--shape", shape, "--case", case, *options.split()]
    ran = run(capsys, *argv)
    assert (ran.code, ran.err) == (0, "")
    data = json.loads(ran.out)
    assert (data["apiVersion"], data["kind"], len(data["runs"]), len(data["decisions"])) == (
        "kubesched.io/v1alpha1",
        "BenchmarkResult",
        2,
        2,
    )
    [summary] = data["summary"]
    assert (summary["pods"], summary["bound"]) == (12, 12)
    assert summary["podsPerSecond"]["best"] >= summary["podsPerSecond"]["median"] > 0
    assert summary["latencyP99Ms"]["best"] >= summary["latencyP50Ms"]["best"] > 0
    assert data["decisions"][0]["decisions"] == 12
    assert data["runs"][0]["peakRssMib"] > 0
    assert data["runs"][0]["eventsRecorded"] >= 12


def test_the_bench_table_and_a_profile(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile = tmp_path / "bench.prof"
    ran = run(capsys, "bench", "--nodes", "5", "--pods", "10", "--runs", "1", "--profile-to", profile)
    assert ran.code == 0
    for text in ("Basic/default: 5 nodes, 1 run", "throughput", "create to bound, p99", "CPU per pod", "peak memory"):
        assert text in ran.out
    assert profile.stat().st_size > 0
    assert str(profile) in ran.err


def test_one_parameter_is_set_and_the_others_stay(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--set initNodes=30 --set initPods=7 --set measurePods=3 --runs 1 --quiet"
    argv = ["bench", "--shape", "topology", "--case", "TopologySpreading", *options.split()]
    data = json.loads(run(capsys, *argv, "--json").out)
    assert data["params"] == {"initNodes": 30, "initPods": 7, "measurePods": 3}
    assert (data["nodes"], data["summary"][0]["bound"]) == (30, 3)
    assert "initNodes=30, initPods=7, measurePods=3" in run(capsys, *argv).out


def test_a_parameter_that_is_set_is_not_scaled(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--nodes 20 --pods 50 --set initPods=4 --runs 1 --quiet --json"
    data = json.loads(run(capsys, "bench", "--shape", "mixed", *options.split()).out)
    assert data["params"] == {"initNodes": 20, "initPods": 4, "measurePods": 50}


def test_a_parameter_keeps_its_kind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        """
- name: Own
  workloadTemplate:
    - {opcode: createNodes, countParam: $nodes}
    - {opcode: createPods, count: 1, skipWaitToCompletionParam: $rush}
    - {opcode: createPods, count: 1, namespaceParam: $where, collectMetrics: true}
  workloads:
    - {name: only, params: {nodes: 2, rush: false, where: here}}
"""
    )
    argv = ["bench", path, "--runs", "1", "--quiet", "--json"]
    data = json.loads(run(capsys, *argv, "--set", "rush=true", "--set", "where=7", "--set", "nodes=0003").out)
    assert data["params"] == {"nodes": 3, "rush": True, "where": "7"}
    for setting, problem in (("rush=1", "must be true or false"), ("nodes=x", "must be a whole number, 0 or more")):
        ran = run(capsys, *argv, "--set", setting)
        assert (ran.code, ran.out) == (1, "")
        assert f"--set {setting}: {problem}" in ran.err


def test_the_shapes_are_the_files_in_bench() -> None:
    assert {path.stem for path in BENCH.glob("*.yaml")} == set(SHAPES)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["gone.yaml"], "gone.yaml: No such file or directory"),
        (
            [BENCH / "basic.yaml", "--case", "Other"],
            "no such workload; choose one of\n  --case Basic --workload default",
        ),
        ([EXAMPLES / "nodes" / "nodes.yaml"], "line 17: a second document starts here"),
        ([EXAMPLES / "config" / "packing.yaml"], "not a workload file"),
        (
            ["--set", "initPod=5"],
            "--set initPod=5: Basic/default has no parameter initPod (there are: initNodes, initPods, measurePods)",
        ),
        (["--set", "initPods=-1"], "--set initPods=-1: must be a whole number, 0 or more"),
        (["--set", "initPods=1e3"], "--set initPods=1e3: must be a whole number, 0 or more"),
        (["--set", "initPods=1", "--set", "initPods=2"], "--set initPods=2: initPods is set twice"),
        (["--nodes", "5", "--set", "initNodes=6"], "--set initNodes=6: --nodes sets initNodes, too; give one of them"),
    ],
)
def test_bench_says_what_is_wrong(capsys: pytest.CaptureFixture[str], argv: list[object], message: str) -> None:
    ran = run(capsys, "bench", *argv)
    assert ran.code == 1
    assert message in ran.err


def test_a_setting_needs_a_name_and_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("initPods", "=5"):
        ran = run(capsys, "bench", "--set", text)
        assert ran.code == 2
        assert f"argument --set: must be NAME=VALUE: {text!r}" in ran.err


# -- demo ------------------------------------------------------------------------------------------------------


def test_the_demo_runs_to_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "demo", "--nodes", "60", "--fast")
    assert (ran.code, ran.err) == (0, "")
    for text in (
        "60 nodes in 3 zones",
        "pods/s",
        "2. Where the pods went",
        "Deployment/frontend",
        "default/too-large: Unschedulable",
        "memory: asks for 512Gi, but the largest of these nodes has",
        "what would help: ask for",
        "default/waits-for-quota: SchedulingGated",
        "class ZoneMaintenance(Plugin):",
        "node(s) were in a zone under maintenance",
        "kubesched --help",
    ):
        assert text in ran.out, text
    rows = {
        line.split()[0]: line.split() for line in ran.out.splitlines() if line.strip().startswith(("without", "with "))
    }
    assert int(rows["without"][4].replace(",", "")) > 0
    assert rows["with"][4] == "0"


# -- config and plugins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    sorted(
        path
        for path in (EXAMPLES / "config").glob("*.yaml")
        if "kind: KubeSchedulerConfiguration" in path.read_text(encoding="utf-8")
    ),
    ids=lambda path: path.stem,
)
def test_every_example_configuration_is_valid(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    ran = run(capsys, "config", "check", path, "--plugin-module", EXAMPLES / "plugins" / "gpu_last.py")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{path} is valid\n\nprofile default-scheduler\n")


def test_config_check_shows_what_is_in_effect(capsys: pytest.CaptureFixture[str]) -> None:
    path = EXAMPLES / "config" / "gpu-last.yaml"
    ran = run(capsys, "config", "check", path, "--json", "--plugin-module", EXAMPLES / "plugins" / "gpu_last.py")
    score = json.loads(ran.out)["profiles"]["default-scheduler"]["score"]
    assert {"name": "GpuLast", "weight": 5} in score
    missing = run(capsys, "config", "check", path)
    assert missing.code == 1
    assert "no plugin is named GpuLast; load its module with --plugin-module" in missing.err


def test_plugins_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "plugins", "--plugin-module", EXAMPLES / "plugins" / "zone_maintenance.py")
    assert any(line.split() == ["SchedulingGates", "in-tree", "yes", "preEnqueue"] for line in ran.out.splitlines())
    assert any(line.split() == ["ZoneMaintenance", "module", "no", "filter"] for line in ran.out.splitlines())
    data = json.loads(run(capsys, "plugins", "--json").out)
    assert {"name": "NodeName", "source": "in-tree", "default": True, "points": ["filter"]} in data


# -- examples --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "placed", "pending"), [("web-shop", 26, 0), ("gpu-batch", 5, 0), ("gates-and-taints", 1, 3)]
)
def test_every_folder_of_examples_runs(
    capsys: pytest.CaptureFixture[str], folder: str, placed: int, pending: int
) -> None:
    ran = run(capsys, "simulate", "-f", EXAMPLES / folder, EXAMPLES / "nodes", "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    totals = json.loads(ran.out)["totals"]
    assert (totals["placed"], totals["pending"]) == (placed, pending)


def test_the_plain_example_plugin_keeps_a_zone_free(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["simulate", "-f", EXAMPLES / "web-shop", EXAMPLES / "nodes", "-o", "json"]
    ran = run(capsys, *argv, "--plugin-module", EXAMPLES / "plugins" / "zone_maintenance.py")
    result = json.loads(ran.out)
    assert not any(item["node"].endswith("-c") for item in result["placements"])
    assert any(item["node"].endswith("-c") for item in json.loads(run(capsys, *argv).out)["placements"])


def test_the_column_example_plugin_changes_the_choice(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: x}]}\n---\n"
        "apiVersion: v1\nkind: Node\nmetadata: {name: small}\nstatus: {allocatable: {cpu: 1, memory: 1Gi, pods: 9}}\n---\n"
        "apiVersion: v1\nkind: Node\nmetadata: {name: gpu}\n"
        "status: {allocatable: {cpu: 64, memory: 512Gi, pods: 9, nvidia.com/gpu: 8}}\n"
    )
    argv = ["simulate", "-f", tmp_path, "-o", "json"]
    assert json.loads(run(capsys, *argv).out)["placements"][0]["node"] == "gpu"
    plugin = [
        "--plugin-module",
        EXAMPLES / "plugins" / "gpu_last.py",
        "--config",
        EXAMPLES / "config" / "gpu-last.yaml",
    ]
    assert json.loads(run(capsys, *argv, *plugin).out)["placements"][0]["node"] == "small"


def test_a_plugin_that_no_profile_enables_is_remarked_on(capsys: pytest.CaptureFixture[str]) -> None:
    plugin = ["--plugin-module", EXAMPLES / "plugins" / "gpu_last.py", "--config", EXAMPLES / "config" / "packing.yaml"]
    ran = run(capsys, "simulate", "-f", EXAMPLES / "nodes", "-o", "json", *plugin)
    assert "plugin GpuLast was loaded, but no profile of" in ran.err

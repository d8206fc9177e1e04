"""Golden decisions, recorded from Kubernetes 1.36: every one of them must come out the same here."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kubesched.framework.interface import IntArray, RowArray, VerdictArray
from kubesched.framework.registry import Registry
from kubesched.framework.status import Status
from kubesched.plugins import in_tree_registry
from kubesched.plugins.image_locality import ImageLocality
from kubesched.plugins.node_name import NodeName
from kubesched.simulate.conformance import AreaResult, golden_files, replay_file, replay_vector

GOLDEN = Path(__file__).parent / "golden"

#: Area to number of vectors. A file that is missing, cut short or new makes a test fail: it must be listed here.
COUNTS = {
    "balanced": 250,
    "config": 300,
    "declaredfeatures": 100,
    "fit": 250,
    "hints": 1000,
    "imagelocality": 250,
    "interpodaffinity": 250,
    "nodeaffinity": 250,
    "nodename": 250,
    "ports": 250,
    "taints": 250,
    "topologyspread": 250,
    "unschedulable": 250,
}


def expect_all_pass(result: AreaResult) -> None:
    shown = [f"{failure.vector}\n    " + "\n    ".join(failure.differences) for failure in result.failures[:5]]
    assert not result.failures, f"{len(result.failures)} of {result.total} vectors differ:\n" + "\n".join(shown)


def test_the_golden_files_are_the_ones_counted_here() -> None:
    assert [path.name.split(".", 1)[0] for path in golden_files([GOLDEN])] == sorted(COUNTS)


@pytest.mark.parametrize("area", sorted(COUNTS))
def test_every_recorded_decision_comes_out_the_same(area: str) -> None:
    (path,) = golden_files([GOLDEN], area)
    steps: list[None] = []
    result = replay_file(path, in_tree_registry(), lambda: steps.append(None))
    assert (result.area, result.total, len(steps)) == (area, COUNTS[area], COUNTS[area])
    expect_all_pass(result)
    assert result.passed == COUNTS[area]


# -- a wrong answer is seen --------------------------------------------------------------------------------


class BlindNodeName(NodeName):
    """Passes every node: too kind."""

    def filter_rows(self, state: Any, pod: Any, nodes: Any, rows: RowArray) -> VerdictArray:
        return np.zeros(len(rows), np.uint64)

    def filter_row(self, state: Any, pod: Any, nodes: Any, node: Any) -> int:
        return 0


class WordyNodeName(NodeName):
    """Right verdicts, wrong text."""

    def verdict_status(self, state: Any, pod: Any, verdict: int) -> Status:
        return Status.unresolvable("the node has another name")


class OffByOneImages(ImageLocality):
    """Scores one too many where there is a score."""

    def score_rows(self, state: Any, pod: Any, nodes: Any, rows: RowArray) -> IntArray:
        scores = super().score_rows(state, pod, nodes, rows)
        return np.where((scores > 0) & (scores < 100), scores + 1, scores)


def registry_with(plugin: type) -> Registry:
    registry = in_tree_registry()
    registry.unregister(plugin.name)  # type: ignore[attr-defined]
    registry.register(plugin)
    return registry


def failures_with(plugin: type, area: str) -> AreaResult:
    return replay_file(GOLDEN / f"{area}.jsonl.gz", registry_with(plugin))


def test_a_filter_that_lets_too_much_through_is_reported_with_what_was_expected() -> None:
    result = failures_with(BlindNodeName, "nodename")
    assert result.passed < result.total
    assert result.failures
    for failure in result.failures:
        assert failure.vector.startswith("nodename")
        assert all("expected " in line and ", got " in line for line in failure.differences)
    lines = [line for failure in result.failures for line in failure.differences]
    assert any(": feasible: expected " in line for line in lines)
    assert any(line.startswith("pod default/") for line in lines)


def test_a_wrong_reason_is_reported_though_the_verdict_is_right() -> None:
    result = failures_with(WordyNodeName, "nodename")
    lines = [line for failure in result.failures for line in failure.differences]
    assert any("filters" in line and "the node has another name" in line for line in lines)
    assert any("message" in line for line in lines)
    assert not any(": feasible: " in line for line in lines)


def test_a_score_that_is_off_by_one_is_reported_under_its_plugin() -> None:
    result = failures_with(OffByOneImages, "imagelocality")
    lines = [line for failure in result.failures for line in failure.differences]
    assert any(": scores of ImageLocality: expected " in line for line in lines)
    assert any(": totals: expected " in line for line in lines)


def test_a_wrong_hint_is_reported() -> None:
    vectors = read("hints")
    wrong = 0
    for vector in vectors[:40]:
        answer = vector["expected"].get("hint")
        vector["expected"]["hint"] = "Queue" if answer == "QueueSkip" else "QueueSkip"
        differences = replay_vector(vector, in_tree_registry())
        if vector["scenario"]["plugin"] in in_tree_registry():
            assert any(line.startswith("hint: expected ") for line in differences)
            wrong += 1
    assert wrong > 10


def test_a_wrong_configuration_outcome_is_reported() -> None:
    vector = read("config")[0]
    vector["expected"]["stage"] = "no such stage"
    differences = replay_vector(vector, in_tree_registry())
    assert any(line.startswith("stage: expected no such stage, got ") for line in differences)


# -- files that cannot be read -----------------------------------------------------------------------------


def read(area: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / f"{area}.jsonl.gz") as lines:
        return [msgspec.json.decode(line) for line in lines]


def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such file or directory"):
        golden_files([tmp_path / "nowhere"])


def test_a_file_that_is_not_gzipped_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fit.jsonl.gz"
    path.write_text("{}\n")
    with pytest.raises(ValueError, match=r"fit\.jsonl\.gz: not a gzipped file of JSON lines"):
        replay_file(path, in_tree_registry())


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fit.jsonl.gz"
    path.write_bytes((GOLDEN / "fit.jsonl.gz").read_bytes()[:200])
    with pytest.raises(ValueError, match=r"fit\.jsonl\.gz: not a gzipped file of JSON lines"):
        replay_file(path, in_tree_registry())


@pytest.mark.parametrize(("name", "text"), [("no JSON", "nonsense"), ("no object", "[1]"), ("empty line", "")])
def test_the_line_that_is_not_an_object_is_named(name: str, text: str, tmp_path: Path) -> None:
    vector = msgspec.json.encode(read("nodename")[0]).decode()
    path = tmp_path / "nodename.jsonl.gz"
    path.write_bytes(gzip.compress(f"{vector}\n{text}\n".encode()))
    with pytest.raises(ValueError, match=r"nodename\.jsonl\.gz: line 2 is not a JSON object"):
        replay_file(path, in_tree_registry())


def test_only_the_files_of_an_area_are_taken(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz", "notes.txt"):
        (tmp_path / name).write_bytes(gzip.compress(b""))
    assert [path.name for path in golden_files([tmp_path])] == ["a.jsonl.gz", "b.jsonl.gz"]
    assert [path.name for path in golden_files([tmp_path], "b")] == ["b.jsonl.gz"]
    # A file given by name counts once, though its folder was given too.
    assert [path.name for path in golden_files([tmp_path, tmp_path / "a.jsonl.gz"])] == ["a.jsonl.gz", "b.jsonl.gz"]

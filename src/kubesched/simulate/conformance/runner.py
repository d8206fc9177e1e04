"""Run golden vectors and collect what differs.

Format of the files: the README beside them. What is compared: everything recorded about the plugins that
are registered; of the message, the text before what PostFilter plugins add while none is registered.
Preemptions in sequential vectors are taken from the record, so that what follows them can be compared too.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from kubesched.framework.registry import Registry

from .attempts import attempt
from .configs import replay_config
from .decimals import REPETITIONS, drift, drifts
from .hints import replay_hints
from .world import World

__all__ = ["AreaResult", "Failure", "golden_files", "replay_file", "replay_vector"]

JSON = dict[str, Any]

#: What upstream's PostFilter plugins append to the message.
_POST_FILTER_TEXT: Final = re.compile(r" (?:no new claims to deallocate|not found|preemption: |running PostFilter )")


@dataclass(frozen=True, slots=True)
class Failure:
    """One vector that does not agree; ``differences`` are readable lines."""

    vector: str
    differences: list[str]


@dataclass(slots=True)
class AreaResult:
    """How one golden file went."""

    area: str
    total: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def passed(self) -> int:
        return self.total - len(self.failures)


def golden_files(paths: Iterable[Path], area: str = "") -> list[Path]:
    """The golden files among files and folders, sorted; only those of ``area``, if given.

    Raises:
        FileNotFoundError: when a path does not exist.
    """
    found: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file or directory")
        found.update(
            (item for item in path.iterdir() if item.name.endswith((".jsonl", ".jsonl.gz")))
            if path.is_dir()
            else [path]
        )
    return sorted(path for path in found if not area or path.name.split(".", 1)[0] == area)


def read_vectors(path: Path) -> Iterator[JSON]:
    """The vectors of a file.

    Raises:
        ValueError: naming the file and line, when it is not JSON lines, plain or gzipped.
    """
    decoder = msgspec.json.Decoder(dict[str, Any])
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b" or path.suffix == ".gz"
        with gzip.open(path) if packed else path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield decoder.decode(line)
                except msgspec.MsgspecError as error:
                    raise ValueError(f"{path}: line {number} is not a JSON object: {error}") from None
    except (OSError, EOFError) as error:
        raise ValueError(f"{path}: not a gzipped file of JSON lines: {error}") from None


def replay_file(path: Path, registry: Registry, progress: Callable[[], None] = lambda: None) -> AreaResult:
    """Replay every vector of a golden file.

    Raises:
        ValueError: when the file cannot be read.
    """
    result = AreaResult(path.name.split(".", 1)[0])
    for vector in read_vectors(path):
        result.total += 1
        differences = replay_vector(vector, registry)
        if differences:
            result.failures.append(Failure(vector["name"], differences))
        progress()
    return result


def replay_vector(vector: JSON, registry: Registry) -> list[str]:
    """What differs between a vector's record and our answer; empty when nothing does."""
    mode = vector["mode"]
    if mode == "config":
        return replay_config(vector)
    world = _world(vector, registry)
    if mode == "hints":
        return replay_hints(world, vector)
    differences = _replay_pods(world, vector, registry)
    if differences and drifts(world.pending):
        for repetitions in REPETITIONS:
            again = _world(vector, registry)
            for pod in again.pending:
                drift(pod, repetitions)
            if not _replay_pods(again, vector, registry):
                return []
    return differences


def _world(vector: JSON, registry: Registry) -> World:
    return World({"pods": [], "pending": [], **vector["scenario"]}, registry)


def _replay_pods(world: World, vector: JSON, registry: Registry) -> list[str]:
    if vector["mode"] == "sequential":
        return _replay_sequence(world, vector["expected"]["steps"], registry)
    differences = []
    for pod, expected in zip(world.pending, vector["expected"]["pods"], strict=True):
        differences += _compare(expected, attempt(world, pod), registry, f"pod {expected['pod']}")
    return differences


def _replay_sequence(world: World, steps: list[JSON], registry: Registry) -> list[str]:
    """Place the pods one after the other, taking of the best nodes the first by name."""
    pending = {pod.key: pod for pod in world.pending}
    ordered = sorted(
        enumerate(world.pending),
        key=lambda item: (-item[1].priority, item[1].metadata.creation_timestamp or "", item[0]),
    )
    first_pass = [pod.key for _, pod in ordered]
    recorded = [step["pod"] for step in steps if step["pass"] == 1]
    if recorded != first_pass:
        return [f"order of attempts: expected {recorded}, got {first_pass}"]
    differences: list[str] = []
    for number, step in enumerate(steps, 1):
        pod = pending[step["pod"]]
        answer = attempt(world, pod)
        differences += _compare(step, answer, registry, f"step {number}, pod {step['pod']}")
        if step["outcome"] == "scheduled":
            node = answer["best"][0] if answer.get("best") else step["node"]
            if node != step["node"]:
                differences.append(f"step {number}, pod {step['pod']}: node: expected {step['node']}, got {node}")
            world.place(pod, step["node"], f"2030-01-01T00:{number // 60:02}:{number % 60:02}Z")
        elif step.get("preemption", {}).get("nominated"):
            _apply_preemption(world, pending, step)
    return differences


def _apply_preemption(world: World, pending: dict[str, Any], step: JSON) -> None:
    """Carry out the preemption that was recorded."""
    pod = pending[step["pod"]]
    node = sorted(step["preemption"]["nominated"])[0]
    for key in step["preemption"]["candidates"].get(node, {}).get("victims", ()):
        world.remove(key)
    for key in step.get("clearedNominations", ()):
        world.nominations.remove(pending[key].uid)
        pending[key] = _nominate(pending[key], "")
    pending[pod.key] = _nominate(pod, node)
    world.nominations.add(pending[pod.key], node)


def _nominate(pod: Any, node: str) -> Any:
    status = msgspec.structs.replace(pod.pod.status, nominated_node_name=node)
    return pod.with_pod(msgspec.structs.replace(pod.pod, status=status))


def _compare(expected: JSON, answer: JSON, registry: Registry, where: str) -> list[str]:
    """Differences between a recorded attempt and ours, field by field."""
    differences: list[str] = []

    def check(what: str, want: Any, got: Any) -> None:
        if want != got:
            differences.append(f"{where}: {what}: expected {_short(want)}, got {_short(got)}")

    def known(names: Iterable[str]) -> list[str]:
        return [name for name in names if name in registry]

    check("outcome", expected["outcome"], answer["outcome"])
    if expected["outcome"] == "gated":
        check("preEnqueue", expected["preEnqueue"], answer.get("preEnqueue"))
        return differences
    if expected["outcome"] == "error" or answer["outcome"] != expected["outcome"]:
        return differences
    check("feasible", expected["feasible"], answer["feasible"])
    check("best", expected["best"], answer["best"])
    before = expected.get("preFilter", {})
    if before:
        check("preFilter.skipped", known(before.get("skipped", ())), answer["skipped"])
        if before["code"] != "Success":
            got = answer.get("preFilter", {})
            for member in ("plugin", "code", "reasons"):
                check(
                    f"preFilter.{member}",
                    before.get(member) or (got.get(member) and before.get(member)),
                    got.get(member),
                )
        if "filters" in expected or "filters" in answer:
            # Nodes outside what PreFilter allows are not listed in the record.
            allowed = before.get("nodes")
            got = {
                name: status for name, status in answer.get("filters", {}).items() if allowed is None or name in allowed
            }
            check("filters", expected.get("filters", {}), got)
    if expected["outcome"] == "unschedulable":
        recorded = _POST_FILTER_TEXT.split(expected["message"])[0]
        check("message", recorded, _POST_FILTER_TEXT.split(answer["message"])[0])
        check("unschedulablePlugins", expected.get("unschedulablePlugins", []), answer["unschedulablePlugins"])
        check("pendingPlugins", expected.get("pendingPlugins", []), answer["pendingPlugins"])
        return differences
    if "scoreSkipped" in expected:
        check("scoreSkipped", known(expected["scoreSkipped"]), answer.get("scoreSkipped"))
    if "scores" in expected:
        for plugin, scores in expected["scores"].items():
            if plugin in registry:
                check(f"scores of {plugin}", scores, answer.get("scores", {}).get(plugin))
            elif any(scores.values()):
                differences.append(f"{where}: scores of {plugin}, which is not registered: {_short(scores)}")
    if "totals" in expected or "totals" in answer:
        check("totals", expected.get("totals"), answer.get("totals"))
    return differences


def _short(value: Any, limit: int = 400) -> str:
    text = msgspec.json.encode(value, order="sorted").decode()
    return text if len(text) <= limit else f"{text[:limit]}…"

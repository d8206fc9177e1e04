"""Sides of a comparison: results, clusters as they stand, and recorded runs, each as a simulation's result.

Caller: :mod:`.entry`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from kubesched.api.documents import TextError
from kubesched.api.yamltext import read_single
from kubesched.cluster.files import ManifestError, read_text
from kubesched.explain.records import Record, read_records
from kubesched.explain.records.reading import is_decision_file
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

from ..simulate.inputs.given import cluster_of, manifests_of
from ..simulate.results.pod_times import run_times
from ..simulate.results.result import PodTimes, Result, Totals
from ..simulate.run.own_thread import outside_any_loop
from ..simulate.run.standing import result_standing
from ..simulate.stepping import Simulation

__all__ = ["Side", "side_of"]

_KIND: Final = "SimulationResult"
#: Bytes at the beginning of a file among which the kind of a result is looked for.
_HEAD: Final = 400


@dataclass(slots=True)
class Side:
    """One side. ``reasons`` has the messages of pods without a node; ``records`` the last attempts, if recorded."""

    name: str
    form: str
    result: Result
    reasons: dict[str, str] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    #: False for a recorded run, which has no figures of nodes.
    has_cluster: bool = True
    remarks: list[str] = field(default_factory=list)


def side_of(given: Any, name: str) -> Side:
    """Return the side for a result, a simulation under way, a path, or a cluster in any form of objects.

    Raises:
        ManifestError: when it is none of these, or cannot be read.
        DecisionsError: for a damaged file of decisions.
    """
    if isinstance(given, Simulation):
        given = given.result()
    if isinstance(given, Result):
        return _of_result(given, name)
    if isinstance(given, str | os.PathLike) and "\n" not in str(given):
        path = Path(given)
        if path.is_file():
            return _of_file(path)
        name = str(path)
    if isinstance(given, dict) and given.get("kind") == _KIND:
        return _of_result(_decoded(given, name), name)
    return _of_cluster(manifests_of(given, name), name)


def _of_file(path: Path) -> Side:
    name = str(path)
    if is_decision_file(path):
        return _of_records(path)
    try:
        text = read_text(path)
    except ManifestError:
        return _of_cluster(cluster_of(name), name)  # a saved cluster may be no text
    if _KIND in text[:_HEAD]:
        try:
            data = msgspec.json.decode(text) if text.lstrip()[:1] == "{" else read_single(text, name)
        except (TextError, msgspec.DecodeError) as error:
            raise ManifestError(f"{name}: is no result: {error}") from None
        return _of_result(_decoded(data, name), name)
    return _of_cluster(cluster_of(name), name)


def _decoded(data: Any, name: str) -> Result:
    try:
        return msgspec.convert(data, Result)
    except msgspec.ValidationError as error:
        raise ManifestError(f"{name}: is no result of kubesched simulate -o json or yaml: {error}") from None


def _of_result(result: Result, name: str) -> Side:
    reasons = {pod: f"{group.reason}: {group.message}" for group in result.pending for pod in group.pods}
    return Side(name, "result", result, reasons)


def _of_cluster(manifests: Any, name: str) -> Side:
    if manifests.problems:
        raise ManifestError(*manifests.problems)
    if not manifests.objects:
        raise ManifestError(
            f"{name}: has no objects; expected a result, a file of decisions, a dump or a saved cluster"
        )
    registry, config = in_tree_registry(), default_config()
    result = outside_any_loop(lambda: result_standing(manifests, registry=registry, config=config))
    side = _of_result(result, name)
    side.form = "cluster"
    return side


def _of_records(path: Path) -> Side:
    """Return the side of a recorded run: the last attempt of each pod. Pods that ended are not recorded as such."""
    records: dict[str, Record] = {}
    first: dict[str, float] = {}
    count = 0
    remarks: list[str] = []
    for record in read_records(path, on_torn=remarks.append):
        if record is not None:
            count += 1
            key = record.pod.key
            if key in records and records[key].pod.uid != record.pod.uid:
                first.pop(key, None)
            records[key] = record
            first.setdefault(key, record.at - record.queue_seconds)
    start = min(first.values(), default=0.0)
    pods = [_recorded(record, first[key] - start, start) for key, record in records.items()]
    end = max((record.at - start for record in records.values()), default=0.0)
    placed = sum(bool(pod.node) for pod in pods)
    totals = Totals(
        nodes=max((record.nodes for record in records.values()), default=0),
        pods=len(pods),
        placed=placed,
        succeeded=0,
        failed=0,
        pending=len(pods) - placed,
        gated=0,
        refused=0,
        removed=0,
        attempts=count,
    )
    result = Result(
        seed=0,
        stopped="settled",
        virtual_seconds=round(end, 6),
        totals=totals,
        resources=[],
        nodes=[],
        placements=[],
        pending=[],
        refused=[],
        warnings=[],
        pods=pods,
        times=run_times(pods, end),
    )
    reasons = {key: record.message for key, record in records.items() if record.outcome != "bound"}
    return Side(str(path), "decisions", result, reasons, records, has_cluster=False, remarks=remarks)


def _recorded(record: Record, queued: float, start: float) -> PodTimes:
    is_bound = record.outcome == "bound"
    return PodTimes(
        namespace=record.pod.namespace,
        name=record.pod.name,
        workload="",
        node=record.node if is_bound else "",
        phase="Running" if is_bound else "Pending",
        created=round(queued, 6),
        queued=round(queued, 6),
        bound=round(record.at - start, 6) if is_bound else None,
        attempts=record.attempt,
    )

"""Run of a question: the cluster of a saved file in virtual time, the changes, and what follows until it is quiet.

The cluster settles first, so that only the changes make the difference: pods that are about to find a node have found it.
Nothing ends by itself: durations of pods are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from kubesched.api.kinds import PODS
from kubesched.api.selectors import parse_selector_text
from kubesched.api.wire import ApiError
from kubesched.base.turns import Steps, finish
from kubesched.cluster.files import Manifest, Manifests, read
from kubesched.explain.workloads import Workloads
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.inputs.events import NodeChoice, PlannedEvent
from kubesched.lab.simulate.inputs.given import OWN_KINDS
from kubesched.lab.simulate.planning.timeless import timeless
from kubesched.lab.simulate.results.node_status import is_failed
from kubesched.lab.simulate.results.result import Stopped
from kubesched.lab.simulate.run.session import Session
from kubesched.lab.simulate.run.simulation import simulate
from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.config import FeatureGates, KubeSchedulerConfiguration
from kubesched.scheduler.framework.registry import Registry

from ..devices import DeviceCounts
from ..node_map import NodeMap
from ..schema import NodeColumns
from ..schema_what_if import AddNodes, Drain, Failure, Outcome, Proposal, Scale, Totals, Weight, WhatIf
from .compared import Seen, SeenPod, compared
from .deeds import add_nodes, configuration_lines, scale, with_weight

__all__ = ["QUIET_SECONDS", "run_question"]

#: Virtual seconds that the changes get.
QUIET_SECONDS: Final = 3_600.0
#: Most reasons that are given, and most pods that are explained for them.
_MOST_REASONS: Final = 20
_MOST_EXPLAINED: Final = 200
#: Most pods that are named because they keep a drain from its end.
_MOST_BLOCKED: Final = 10
#: Owners that replace a pod that is deleted, on any node.
_REPLACED: Final = ("ReplicaSet", "StatefulSet", "ReplicationController")
_FINISHED: Final = ("Succeeded", "Failed")


def run_question(
    path: Path,
    question: WhatIf,
    changes: Sequence[str],
    registry: Registry,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates,
) -> Outcome:
    """Answer a question about the cluster in a file. ``changes`` are the changes in words.

    Must not be called inside a running event loop.

    Raises:
        ManifestError: when an object cannot be used.
        ConfigError: when a profile cannot be built.
        TaskCrashedError: when a part of the simulated cluster crashed.
    """
    run = _Run(question, changes, msgspec.structs.replace(config, extenders=()))
    saved = read(path)
    objects = [Manifest(item.kind, item.data(), str(path)) for item in saved.items if item.kind not in OWN_KINDS]
    run_virtual(
        simulate(
            timeless(Manifests(objects)),
            registry=registry,
            config=run.config,
            gates=gates,
            controllers=True,
            drive=run.drive,
            on_slow_plugin=None,
            seed=0,
        ),
        start=saved.time,
    )
    assert run.outcome is not None
    return run.outcome


@dataclass(slots=True)
class _Run:
    question: WhatIf
    changes: Sequence[str]
    config: KubeSchedulerConfiguration
    outcome: Outcome | None = None

    async def drive(self, session: Session) -> Stopped:
        """Let the cluster settle, make the changes, and compare."""
        stopped = await session.until_settled(session.now + QUIET_SECONDS)
        remarks: list[str] = []
        only_weights = all(isinstance(one, Weight) for one in self.question.changes)
        if only_weights:
            await self._anew(session, remarks)
        before, start = _seen(session.embedded), session.now
        for one in self.question.changes:
            try:
                await self._do(session, one, remarks)
            except ApiError as error:
                remarks.append(f"The cluster refused it: {error}")
        if only_weights:
            stopped = await self._anew(session, [])
        else:
            stopped = await session.until_settled(session.now + QUIET_SECONDS)
        if stopped != "settled":
            remarks.append(f"After {QUIET_SECONDS:,.0f} virtual seconds it was not quiet yet; this is the state then.")
        found, pending = compared(before, _seen(session.embedded), _scaled(self.question))
        self.outcome = msgspec.structs.replace(
            found,
            changes=list(self.changes),
            why=_why(session.embedded, pending),
            remarks=[*remarks, *_drains(session)],
            seconds=round(session.now - start, 3),
            nodes=finish(_columns(session.embedded)),
        )
        return stopped

    async def _anew(self, session: Session, remarks: list[str]) -> Stopped:
        """Have the pods of workloads placed anew: weights mean nothing to pods that have a node."""
        store = session.embedded.store
        pods = [
            pod
            for pod in session.embedded.pods()
            if any(one.controller and one.kind in _REPLACED for one in pod.metadata.owner_references)
        ]
        for pod in pods:
            store.delete(PODS, pod.namespace, pod.name, grace_period_seconds=0)
        remarks.append(
            f"Weights count for pods that are placed from now on. So {len(pods):,} pods of workloads were placed anew, once by the "
            "present weights and once by the new ones; this is the difference. Among equal nodes chance decides."
        )
        return await session.until_settled(session.now + QUIET_SECONDS)

    async def _do(self, session: Session, one: Proposal, remarks: list[str]) -> None:
        store = session.embedded.store
        match one:
            case Weight():
                self.config = with_weight(self.config, one)
                await self._act(session, "configure", None, {"config": self.config})
                remarks.append(f"In the configuration: {configuration_lines(one)}")
            case Drain():
                await self._act(session, "drain", _choice(one), {"force": False, "timeout": None})
            case Failure():
                await self._act(session, "fail", _choice(one), {})
            case AddNodes():
                add_nodes(store, one)
            case Scale():
                scale(store, one)

    @staticmethod
    async def _act(session: Session, action: str, nodes: NodeChoice | None, details: dict[str, object]) -> None:
        await session.act(PlannedEvent(session.now, action, nodes, None, details, "what-if"))


def _choice(one: Drain | Failure) -> NodeChoice:
    if one.node:
        return NodeChoice(names=(one.node,), text=one.node)
    return NodeChoice(matches_labels=parse_selector_text(one.selector).matches, text=one.selector)


def _columns(embedded: Embedded) -> Steps[NodeColumns]:
    scheduler = embedded.scheduler
    return NodeMap(scheduler.cache.table, DeviceCounts(scheduler.informers)).columns()


def _scaled(question: WhatIf) -> set[tuple[str, str]]:
    """Return the workloads that are scaled, as namespace and ``Kind/name``."""
    parts = [one.workload.split("/") for one in question.changes if isinstance(one, Scale)]
    return {(namespace, f"{kind}/{name}") for kind, namespace, name in parts}


def _seen(embedded: Embedded) -> Seen:
    """Return the cluster as it is: its totals, and its pods that have not finished, without those on failed nodes."""
    nodes = embedded.nodes()
    failed = {node.name for node in nodes if is_failed(node)}
    workloads = Workloads(embedded.objects)
    pods = {
        pod.key: SeenPod(pod.uid, pod.spec.node_name, pod.namespace, workloads.of(pod))
        for pod in embedded.pods()
        if pod.status.phase not in _FINISHED and pod.spec.node_name not in failed
    }
    return Seen(pods, _totals(embedded, pods, failed))


def _totals(embedded: Embedded, pods: Mapping[str, SeenPod], failed: Collection[str]) -> Totals:
    table = embedded.scheduler.cache.table
    rows = [row for row in table.order().tolist() if table.info(row).name not in failed]
    # Sums of floats: sums of large integers would overflow.
    allocatable = table.allocatable[:, rows].sum(axis=1, dtype=np.float64).tolist()
    requested = table.requested[:, rows].sum(axis=1, dtype=np.float64).tolist()
    return Totals(
        nodes=len(rows),
        placed=sum(bool(one.node) for one in pods.values()),
        pending=sum(not one.node for one in pods.values()),
        utilisation={
            name: round(requested[index] / allocatable[index], 6)
            for name, index in table.resource_index.items()
            if allocatable[index]
        },
    )


def _drains(session: Session) -> list[str]:
    """Return what the drains did not do."""
    reports = [one for event in session.events() for one in event.drains]
    found = [f"{one.node} keeps {blocked.pod}: it {blocked.why}." for one in reports for blocked in one.blocked]
    more = len(found) - _MOST_BLOCKED
    return [*found[:_MOST_BLOCKED], *([f"{more:,} more pods keep their nodes from being drained."] if more > 0 else [])]


def _why(embedded: Embedded, pending: Sequence[str]) -> list[str]:
    """Return the reasons of pods that have no node, most pods first."""
    wanted = set(pending[:_MOST_EXPLAINED])
    pods = [pod for pod in embedded.pods() if pod.key in wanted and not pod.spec.node_name]
    groups = embedded.explain(pods)
    return [
        f"{one.count:,} {'pod' if one.count == 1 else 'pods'} of {one.workload or one.pods[0]}: {one.message or one.reason}"
        for one in groups[:_MOST_REASONS]
    ]

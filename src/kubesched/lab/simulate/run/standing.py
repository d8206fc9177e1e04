"""Cluster that does not move: its objects are stored and the scheduler sees them, but nothing is decided.

Callers: ``kubesched explain``, ``audit``, ``diff`` and ``view``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from kubesched.api.groups import GATES
from kubesched.api.kinds import PODS, RESOURCE_QUOTAS
from kubesched.api.requests import pod_requests
from kubesched.api.types import Pod
from kubesched.base.said_once import said_once
from kubesched.base.times import Clock
from kubesched.cluster.files import Manifest, ManifestError, Manifests
from kubesched.cluster.store import Store
from kubesched.explain.audit import Audit, Limits, audit_cluster
from kubesched.explain.explainer import Explainer
from kubesched.explain.fragmentation import Shapes
from kubesched.explain.report import Explanation
from kubesched.explain.workloads import Workloads
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates, KubeSchedulerConfiguration
from kubesched.scheduler.framework.registry import Registry

from ..embedded import Embedded
from ..inputs.intake import gather
from ..inputs.storing import RefusedError, store_objects
from ..results.course import Course
from ..results.node_times import NodeBook
from ..results.outcome import outcome
from ..results.pod_times import PodBook, amounts
from ..results.result import Result
from ..results.turnover import Turnover
from .virtual_time import VirtualClock, run_virtual

__all__ = ["Standing", "audit_standing", "explain_standing", "result_standing", "standing"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Explained pods of a cluster.

    Attributes:
        document: the explanation.
        unknown_nodes: names of nodes to compare with that the cluster does not have.
        warnings: remarks about the input.
    """

    document: Explanation
    unknown_nodes: list[str]
    warnings: list[str]


def explain_standing(
    manifests: Manifests,
    names: Sequence[str] = (),
    *,
    namespace: str | None = None,
    against: Sequence[str] = (),
    registry: Registry,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates = DEFAULT_GATES,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Standing:
    """Explain pods and pod groups of a cluster: those named as ``namespace/name``, or all that wait (in a namespace, if given).

    ``against`` are nodes to compare with.

    Nothing is scheduled and no controller runs. If a workload has no pods yet, they are made from its template.
    Must not be called inside a running event loop.

    Raises:
        ManifestError: when an object cannot be used.
        ConfigError: when a profile cannot be built.
    """
    return run_virtual(_explain(manifests, names, namespace, against, registry, config, gates, on_progress))


async def _explain(
    manifests: Manifests,
    names: Sequence[str],
    namespace: str | None,
    against: Sequence[str],
    registry: Registry,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates,
    on_progress: Callable[[int], None],
) -> Standing:
    async with standing(manifests, registry, config, gates) as (embedded, warnings):
        pods = {pod.key: pod for pod in embedded.pods()}
        wanted = [pods[name] for name in dict.fromkeys(names) if name in pods] if names else _pending(pods, namespace)
        known = {node.name for node in embedded.nodes()}
        explainer = Explainer(embedded.scheduler, embedded.objects)
        groups = [name for name in names if explainer.groups.knows(name)]
        lacking = explainer.not_created(pods.values(), None if names else namespace, names)
        known_names = {*pods, *groups, *(one.name for one in lacking)}
        absent = [name for name in names if name not in known_names]
        document = explainer.explain(wanted, against, on_progress, groups=groups, as_groups=not names)
        return Standing(
            document=msgspec.structs.replace(document, absent=absent, not_created=lacking),
            unknown_nodes=[name for name in against if name not in known],
            warnings=warnings,
        )


def result_standing(
    manifests: Manifests,
    *,
    registry: Registry,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates = DEFAULT_GATES,
) -> Result:
    """Return a cluster as it stands in the form of a simulation's result: a run of a single moment.

    Must not be called inside a running event loop.

    Raises:
        ManifestError: when an object cannot be used.
        ConfigError: when a profile cannot be built.
    """

    async def looked_at() -> Result:
        books: list[PodBook] = []
        nodes = NodeBook(lambda: 0.0)

        def follow(embedded: Embedded) -> None:
            workloads = Workloads(embedded.objects)
            books.append(PodBook(lambda: 0.0, embedded.clock.now(), workloads.of, Turnover(lambda workload: None)))
            embedded.store.follow(books[0].changed)
            embedded.store.follow(nodes.changed)

        async with standing(manifests, registry, config, gates, follow) as (embedded, warnings):
            scheduler = embedded.scheduler
            pods = [amounts(pod_requests(pod)) for pod in embedded.pods()]
            course = Course(scheduler.cache.table, scheduler.metrics.pending_pods, Shapes(pods))
            found = outcome(embedded, books[0], course, 0.0, seed=0, stopped="settled", refused=[], nodes=nodes)
            return msgspec.structs.replace(found, warnings=[*warnings, *found.warnings])

    return run_virtual(looked_at())


def audit_standing(
    manifests: Manifests,
    *,
    registry: Registry,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates = DEFAULT_GATES,
    now: float | None = None,
    limits: Limits | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> tuple[Audit, list[str]]:
    """Audit a cluster (:func:`kubesched.explain.audit.audit_cluster`). Return the audit, and remarks about the input.

    Extenders of the configuration are not called. Must not be called inside a running event loop.

    Raises:
        ManifestError: when an object cannot be used.
        ConfigError: when a profile cannot be built.
    """

    async def audited() -> tuple[Audit, list[str]]:
        alone = msgspec.structs.replace(config, extenders=())
        async with standing(manifests, registry, alone, gates) as (embedded, warnings):
            audit = audit_cluster(
                embedded.scheduler,
                embedded.objects,
                embedded.pods(),
                config=config,
                now=now,
                limits=limits,
                on_progress=on_progress,
            )
        return audit, warnings

    return run_virtual(audited())


@asynccontextmanager
async def standing(
    manifests: Manifests,
    registry: Registry,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates,
    prepare: Callable[[Embedded], None] = lambda embedded: None,
    clock: Clock | None = None,
) -> AsyncIterator[tuple[Embedded, list[str]]]:
    """Context with the cluster, its scheduler, and remarks about the input. ``prepare`` gets it while it is empty.

    ``clock`` is that of virtual time by default.

    Raises:
        ManifestError: when an object cannot be used.
        ConfigError: when a profile cannot be built.
    """
    intake = gather(manifests, features=gates.among(GATES))
    clock = clock if clock is not None else VirtualClock(asyncio.get_running_loop())
    embedded = Embedded(config, registry, clock=clock, gates=gates, kubelets=False)
    prepare(embedded)
    try:
        objects = sorted(intake.everything(), key=_turn)
        refused = store_objects(embedded.store, objects)
    except RefusedError as error:
        raise ManifestError(*error.problems) from None
    _mark_deleted(embedded.store, objects)
    await embedded.start(scheduler=False)
    try:
        await embedded.scheduler.start()
        yield embedded, list(said_once([*intake.warnings, *(f"{item.source}: {item.message}" for item in refused)]))
    finally:
        await embedded.stop()


def _turn(item: Manifest) -> int:
    """Place of an object among those that are stored: quotas come after pods that are there, and before new ones."""
    if item.kind == RESOURCE_QUOTAS:
        return 1
    return 2 if item.kind == PODS and not item.data.get("status") else 0


def _mark_deleted(store: Store, objects: Iterable[Manifest]) -> None:
    """Give pods that are being deleted their timestamps back, which the creation of an object does not take over."""
    for item in objects:
        given = item.data["metadata"] if item.kind == PODS else {}
        stored = store.table(PODS).objects.get((item.namespace, item.name)) if given.get("deletionTimestamp") else None
        if stored is not None:
            document = stored.document()
            fields = ("deletionTimestamp", "deletionGracePeriodSeconds")
            document["metadata"] |= {name: given[name] for name in fields if name in given}
            store.commit(PODS, document, stored)


def _pending(pods: Mapping[str, Pod], namespace: str | None) -> list[Pod]:
    """Return the pods without a node that have not finished."""
    return [
        pod
        for pod in pods.values()
        if not pod.spec.node_name
        and pod.status.phase not in ("Succeeded", "Failed")
        and (namespace is None or pod.namespace == namespace)
    ]

"""Cluster as it stands: its objects are stored, and the scheduler sees them and decides nothing.

Caller: ``kubesched explain``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kubesched.api.types import Pod
from kubesched.base.said_once import said_once
from kubesched.cluster.files import ManifestError, Manifests
from kubesched.explain import Explainer, Explanation
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates, KubeSchedulerConfiguration
from kubesched.scheduler.framework.registry import Registry

from ..embedded import Embedded
from ..inputs.intake import gather
from ..inputs.storing import RefusedError, store_objects
from .virtual_time import VirtualClock, run_virtual

__all__ = ["Standing", "explain_standing"]


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
    """Explain pods of a cluster: those named as ``namespace/name``, or all that are pending (in a namespace, if given).

    ``against`` are nodes to compare with.

    Nothing is scheduled and no controller runs. Pods of workloads that have none yet are made from their templates.
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
    intake = gather(manifests)
    clock = VirtualClock(asyncio.get_running_loop())
    embedded = Embedded(config, registry, clock=clock, gates=gates, kubelets=False)
    try:
        refused = store_objects(embedded.store, intake.everything())
    except RefusedError as error:
        raise ManifestError(*error.problems) from None
    await embedded.start(scheduler=False)
    try:
        await embedded.scheduler.start()
        pods = {pod.key: pod for pod in embedded.pods()}
        wanted = [pods[name] for name in dict.fromkeys(names) if name in pods] if names else _pending(pods, namespace)
        known = {node.name for node in embedded.nodes()}
        warnings = list(said_once([*intake.warnings, *(f"{item.source}: {item.message}" for item in refused)]))
        explainer = Explainer(embedded.scheduler, embedded.objects)
        document = explainer.explain(wanted, against, on_progress)
        return Standing(
            document=msgspec.structs.replace(document, absent=[name for name in names if name not in pods]),
            unknown_nodes=[name for name in against if name not in known],
            warnings=warnings,
        )
    finally:
        await embedded.stop()


def _pending(pods: Mapping[str, Pod], namespace: str | None) -> list[Pod]:
    """Return the pods without a node that have not finished."""
    return [
        pod
        for pod in pods.values()
        if not pod.spec.node_name
        and pod.status.phase not in ("Succeeded", "Failed")
        and (namespace is None or pod.namespace == namespace)
    ]

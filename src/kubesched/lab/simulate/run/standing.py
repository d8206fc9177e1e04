"""Cluster as it stands: its objects are stored, and the scheduler sees them and decides nothing.

Caller: ``kubesched explain``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kubesched.api.groups import GATES
from kubesched.api.types import Pod
from kubesched.cluster.files import ManifestError, Manifests
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates, KubeSchedulerConfiguration
from kubesched.scheduler.framework.registry import Registry

from ..embedded import Embedded
from ..inputs.intake import gather
from ..inputs.storing import RefusedError, store_objects
from ..results.pending import explain_pending
from ..results.result import Pending
from .virtual_time import VirtualClock, run_virtual

__all__ = ["Standing", "explain_standing"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Explained pods of a cluster.

    Attributes:
        pending: pods without a node, grouped by workload and reason.
        placed: pods that were named and have a node, as ``namespace/name``, with the node's name.
        absent: names that no pod has.
        warnings: remarks about the input.
    """

    pending: list[Pending]
    placed: dict[str, str]
    absent: list[str]
    warnings: list[str]


def explain_standing(
    manifests: Manifests,
    names: Sequence[str] = (),
    *,
    registry: Registry,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates = DEFAULT_GATES,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Standing:
    """Explain pods of a cluster: those named as ``namespace/name``, or all that are pending.

    Nothing is scheduled and no controller runs. Pods of workloads that have none yet are made from their templates.
    Must not be called inside a running event loop.

    Raises:
        ManifestError: when an object cannot be used.
        ConfigError: when a profile cannot be built.
    """
    return run_virtual(_explain(manifests, names, registry, config, gates, on_progress))


async def _explain(
    manifests: Manifests,
    names: Sequence[str],
    registry: Registry,
    config: KubeSchedulerConfiguration,
    gates: FeatureGates,
    on_progress: Callable[[int], None],
) -> Standing:
    intake = gather(manifests, features=gates.among(GATES))
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
        wanted = [pods[name] for name in dict.fromkeys(names) if name in pods] if names else list(pods.values())
        warnings = [*intake.warnings, *(f"{item.source}: {item.message}" for item in refused)]
        return Standing(
            pending=explain_pending(embedded, [pod for pod in wanted if _is_pending(pod)], on_progress),
            placed={pod.key: pod.spec.node_name for pod in wanted if names and pod.spec.node_name},
            absent=[name for name in names if name not in pods],
            warnings=warnings,
        )
    finally:
        await embedded.stop()


def _is_pending(pod: Pod) -> bool:
    return not pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed")

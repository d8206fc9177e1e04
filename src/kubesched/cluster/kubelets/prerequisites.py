"""What a pod waits for before it starts: its devices are prepared, and its CSI volumes attached to the node.

Devices are prepared when the pod's claims are allocated and reserved for it; stage rules of kind ResourceClaim say how long
that takes and how often it fails, without any it takes no time. VolumeAttachments are written by the attach controller, and only
where it runs do pods wait for them. Rules: upstream ``pkg/kubelet/cm/dra`` and ``pkg/volume/csi``. Caller: :mod:`.hollow`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from kubesched.api.kinds import CLAIMS, CSI_DRIVERS, RESOURCE_CLAIMS, VOLUME_ATTACHMENTS, VOLUMES, Kind
from kubesched.api.resource import ResourceClaim
from kubesched.api.storage import PersistentVolumeSpec, claims_of
from kubesched.api.types import Pod
from kubesched.api.volume_sources import CSISource
from kubesched.api.wire import Item

from .stages import Stage, choose, rules_of
from .watch_cache import WatchCache

__all__ = ["FAILED_PREPARE", "Prerequisites", "attachment_name", "claim_names"]

#: The reason of a pod's events about its devices.
FAILED_PREPARE: Final = "FailedPrepareDynamicResources"


def claim_names(pod: Pod) -> list[str]:
    """The names of the ResourceClaims that a pod uses; empty for one whose claim is not recorded yet."""
    if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
        return []
    recorded = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    found = [claim.resource_claim_name or recorded.get(claim.name, "") for claim in pod.spec.resource_claims]
    names = [name for name in found if name is not None]  # a recorded None: the pod needs no claim there
    if pod.status.extended_resource_claim_status is not None:
        names.append(pod.status.extended_resource_claim_status.resource_claim_name)
    return names


def attachment_name(csi: CSISource, node: str) -> str:
    """The name of the VolumeAttachment of a volume on a node, the same for those who write and who read it."""
    return f"csi-{hashlib.sha256(f'{csi.volume_handle}{csi.driver}{node}'.encode()).hexdigest()}"


class Prerequisites:
    """The claims, volumes and attachments that pods wait for, and those pods.

    ``watch`` gives the cache of a kind. ``attachments``: whether pods wait until their CSI volumes are attached.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        random: Random,
        nodes: WatchCache,
        watch: Callable[[Kind], WatchCache],
        *,
        attachments: bool,
    ) -> None:
        self._rules = rules_of(RESOURCE_CLAIMS.kind, stages)
        self._random = random
        self._nodes = nodes
        kinds = (CLAIMS, VOLUMES, CSI_DRIVERS, VOLUME_ATTACHMENTS) if attachments else ()
        self._known = {kind: watch(kind) for kind in (RESOURCE_CLAIMS, *kinds)}
        #: The pods that cannot start because of an object.
        self._waiting: dict[tuple[Kind, str], dict[str, None]] = {}

    def released_by(self, item: Item) -> list[str]:
        """The pods that waited for an object, which has changed."""
        return list(self._waiting.pop((item.kind, item.key), ()))

    def pod_gone(self, key: str) -> None:
        for pods in self._waiting.values():
            pods.pop(key, None)

    def are_missing(self, key: str, pod: Pod) -> bool:
        """Whether a pod has to wait for a volume; :meth:`released_by` returns it when that may be over."""
        missing = self._missing(pod) if CLAIMS in self._known else None
        if missing is not None:
            self._waiting.setdefault(missing, {})[key] = None
        return missing is not None

    def _missing(self, pod: Pod) -> tuple[Kind, str] | None:
        """The first object that keeps a volume of a pod from being used on its node."""
        for claim_key, _ in claims_of(pod):
            claim = self._known[CLAIMS].get(claim_key)
            if claim is None or not claim.typed.spec.volume_name:
                return CLAIMS, claim_key
            volume = self._known[VOLUMES].get(claim.typed.spec.volume_name)
            if volume is None:
                return VOLUMES, claim.typed.spec.volume_name
            spec: PersistentVolumeSpec = volume.typed.spec
            driver = self._known[CSI_DRIVERS].get(spec.csi.driver) if spec.csi is not None else None
            if spec.csi is None or (driver is not None and not driver.typed.attaches):
                continue
            name = attachment_name(spec.csi, pod.spec.node_name)
            attachment = self._known[VOLUME_ATTACHMENTS].get(name)
            if attachment is None or not attachment.typed.is_attached:
                return VOLUME_ATTACHMENTS, name
        return None

    def preparation(self, key: str, pod: Pod, claims: Sequence[str]) -> tuple[Stage | None, str]:
        """The rule by which a pod's devices are prepared, if there is one; or why they cannot be, as things stand."""
        found: list[Stage] = []
        for name in claims:
            claim_key = f"{pod.namespace}/{name}"
            item = self._known[RESOURCE_CLAIMS].get(claim_key)
            problem = _problem(item, pod, name)
            if problem:
                self._waiting.setdefault((RESOURCE_CLAIMS, claim_key), {})[key] = None
                return None, f"Failed to prepare dynamic resources: {problem}"
            if item is not None and self._rules:
                found += self._matching(item, pod.spec.node_name)
        return choose(found, self._random) if found else None, ""

    def _matching(self, item: Item, node: str) -> list[Stage]:
        claim: ResourceClaim = item.typed
        found, allocation = self._nodes.get(node), claim.status.allocation
        labels = found.typed.metadata.labels if found is not None else {}
        drivers = {result.driver for result in allocation.devices.results} if allocation is not None else ()
        return [
            rule for rule in self._rules if any(rule.matches_volume(claim.metadata, one, labels) for one in drivers)
        ]


def _problem(item: Item | None, pod: Pod, name: str) -> str:
    """Why a pod may not use a claim; nothing when it may."""
    if item is None:
        return f"failed to fetch ResourceClaim {name} referenced by pod {pod.name}"
    claim: ResourceClaim = item.typed
    if claim.status.allocation is None:
        return f"the ResourceClaim {name} referenced by pod {pod.name} has not been allocated"
    if all(consumer.uid != pod.uid for consumer in claim.status.reserved_for):
        return f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim {name} ({claim.metadata.uid})"
    return ""

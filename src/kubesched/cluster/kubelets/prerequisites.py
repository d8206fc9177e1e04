"""Prerequisites of a pod's start: its devices are prepared, and its CSI volumes attached to the node.

Devices are prepared when the pod's claims are allocated and reserved for it. Stage rules of kind ResourceClaim set
duration and failure rate; without rules preparation takes no time. The attach controller writes VolumeAttachments; pods
wait for them only where it runs. Rules: upstream ``pkg/kubelet/cm/dra`` and ``pkg/volume/csi``. Caller: :mod:`.hollow`.
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

#: Reason of a pod's events about its devices.
FAILED_PREPARE: Final = "FailedPrepareDynamicResources"


def claim_names(pod: Pod) -> list[str]:
    """Return the ResourceClaims that a pod uses; empty while one of them is not recorded yet."""
    if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
        return []
    recorded = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    found = [claim.resource_claim_name or recorded.get(claim.name, "") for claim in pod.spec.resource_claims]
    names = [name for name in found if name is not None]  # a recorded None: the pod needs no claim there
    if pod.status.extended_resource_claim_status is not None:
        names.append(pod.status.extended_resource_claim_status.resource_claim_name)
    return names


def attachment_name(csi: CSISource, node: str) -> str:
    """Return the name of a volume's VolumeAttachment on a node. Writers and readers compute it from both names."""
    return f"csi-{hashlib.sha256(f'{csi.volume_handle}{csi.driver}{node}'.encode()).hexdigest()}"


class Prerequisites:
    """Claims, volumes and attachments that pods wait for, and the waiting pods.

    ``watch`` gives the cache of a kind. With ``attachments`` pods wait until their CSI volumes are attached.
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
        #: Keys of the pods that wait for an object.
        self._waiting: dict[tuple[Kind, str], dict[str, None]] = {}

    def released_by(self, item: Item) -> list[str]:
        """Return the pods that waited for an object, which has changed."""
        return list(self._waiting.pop((item.kind, item.key), ()))

    def pod_gone(self, key: str) -> None:
        for pods in self._waiting.values():
            pods.pop(key, None)

    def are_missing(self, key: str, pod: Pod) -> bool:
        """True if a pod has to wait for a volume. :meth:`released_by` returns the pod when the wait may have ended."""
        missing = self._missing(pod) if CLAIMS in self._known else None
        if missing is not None:
            self._waiting.setdefault(missing, {})[key] = None
        return missing is not None

    def _missing(self, pod: Pod) -> tuple[Kind, str] | None:
        """Return the first object that a volume of a pod lacks on its node, if any."""
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
        """Return the rule by which a pod's devices are prepared, if there is one, and an empty text.

        If they cannot be prepared now, the text is the reason.
        """
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
    """Return the reason why a pod may not use a claim; empty when it may."""
    if item is None:
        return f"failed to fetch ResourceClaim {name} referenced by pod {pod.name}"
    claim: ResourceClaim = item.typed
    if claim.status.allocation is None:
        return f"the ResourceClaim {name} referenced by pod {pod.name} has not been allocated"
    if not claim.status.is_reserved_for(pod):
        return f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim {name} ({claim.metadata.uid})"
    return ""

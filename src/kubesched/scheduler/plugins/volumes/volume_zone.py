"""VolumeZone: a pod's node must be in the zones and regions that the labels of its volumes name (PreFilter, Filter).

Only the old zone and region labels count here; VolumeBinding checks the node affinity of volumes.
Source: rules/volumes §4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np

from kubesched.api.kinds import CLAIMS, STORAGE_CLASSES, VOLUMES
from kubesched.api.selectors import Operator, Requirement
from kubesched.api.storage import WAIT_FOR_FIRST_CONSUMER, PersistentVolume, PersistentVolumeClaim, StorageClass

from ...framework.demand import Demand
from ...framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from ...framework.interface import Handle, Plugin
from ...framework.question import Question, Reads, RowArray, VerdictArray
from ...framework.status import Status
from ...nodes.columns import ABSENT, BoolArray
from ...nodes.nodeinfo import NodeInfo
from ...nodes.podinfo import PodInfo
from .claims import NotFoundError, Storage, claims_that_help, uses_claim
from .csi_translation import BETA_REGION, BETA_ZONE, DELIMITER, GA_REGION, GA_ZONE
from .volume_demands import zoned_volumes

if TYPE_CHECKING:
    from ...nodes import NodeList, NodeTable

__all__ = ["VolumeZone"]

#: Labels that count, in upstream's order, and the labels that a node may have in place of the beta ones.
_KEYS: Final = (BETA_ZONE, BETA_REGION, GA_ZONE, GA_REGION)
_GA_FORM: Final = {BETA_ZONE: GA_ZONE, BETA_REGION: GA_REGION}
#: Most sets of places whose rows are remembered.
_MOST_PLACES: Final = 256


class _Place(NamedTuple):
    """Demand of a volume on a node: the label must have one of these values."""

    key: str
    values: tuple[str, ...]


_Places = tuple[_Place, ...]


def _places(volume: PersistentVolume) -> _Places:
    """Read the demands of a volume's labels. A label whose value has an empty part demands nothing."""
    found: list[_Place] = []
    labels = volume.metadata.labels
    for key in _KEYS if labels else ():
        if key in labels:
            parts = {part.strip() for part in labels[key].split(DELIMITER)}
            if "" not in parts:
                found.append(_Place(key, tuple(sorted(parts))))
    return tuple(found)


class _Zones(Question):
    """Question about the zones and regions that a pod's volumes demand now. The key is the set of demands."""

    reads = Reads.NODE
    by_spec = True  # a question that depends on present volumes sets False
    stands_alone = frozenset({"filter"})

    def __init__(self, plugin: VolumeZone, demanded: _Places | Status, nodes: NodeTable) -> None:
        self.by_spec = False
        self._plugin, self._nodes = plugin, nodes
        #: Rejection, on every node, of a pod whose demands cannot be known.
        self._rejection = demanded if isinstance(demanded, Status) else None
        self.key = self._places = None if isinstance(demanded, Status) else demanded

    def pre_filter(self, nodes: NodeList) -> Status | None:
        return self._rejection or (None if self._places else Status.skip())

    def verdicts(self, rows: RowArray) -> VerdictArray:
        if self._places is None:
            return np.ones(len(rows), np.uint64)
        verdicts: VerdictArray = (~self._plugin.met(self._places, self._nodes)[rows]).astype(np.uint64)
        return verdicts

    def verdict(self, node: NodeInfo) -> int:
        if self._places is None:
            return 1
        labels = node.labels
        if all(key not in labels for key in _KEYS):
            return 0  # an unlabelled node stands for a cluster of one zone
        for key, values in self._places:
            value = labels.get(key)
            if value is None:
                value = labels.get(_GA_FORM.get(key, key))
            if value is None or value not in values:
                return 1
        return 0

    def why(self, verdict: int) -> Status:
        return self._rejection or Status.unresolvable(VolumeZone.REASON)


class VolumeZone(Plugin):
    """Check of the zones of volumes. Its question is :class:`_Zones`. Rows are found once per set of demands."""

    name = "VolumeZone"
    asks = _Zones
    informs: ClassVar[tuple[str, ...]] = (CLAIMS.plural, VOLUMES.plural, STORAGE_CLASSES.plural)
    REASON: Final = "node(s) had no available volume zone"

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._storage = Storage(handle)
        #: Rows that meet a set of places, bool[capacity], by the set; valid for one version of the nodes' labels.
        self._met: dict[_Places, BoolArray] = {}
        self._met_version = (-1, -1)

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _Zones(self, self._demanded(pod), nodes) if pod.pvcs else None

    def met(self, places: _Places, nodes: NodeTable) -> BoolArray:
        """Mark the rows that meet these places, bool[capacity]."""
        version = (nodes.labels_version, nodes.capacity)
        if version != self._met_version or len(self._met) >= _MOST_PLACES:
            self._met.clear()
            self._met_version = version
        met = self._met.get(places)
        if met is None:
            met = self._met[places] = _rows_that_meet(places, nodes)
        return met

    def _demanded(self, pod: PodInfo) -> _Places | Status:
        """Collect the demands of all volumes of a pod, or the reason why they cannot be known (rules/volumes §4.1)."""
        storage = self._storage
        found: dict[_Place, None] = {}
        try:
            for volume in pod.storage:
                if volume.persistent_volume_claim is None:
                    continue
                name = volume.persistent_volume_claim.claim_name
                if not name:
                    return Status.unresolvable("PersistentVolumeClaim had no name")
                claim = storage.get(CLAIMS, name, pod.namespace)
                if claim.spec.volume_name:
                    found.update(dict.fromkeys(_places(storage.get(VOLUMES, claim.spec.volume_name))))
                    continue
                rejection = self._unbound(claim)
                if rejection is not None:
                    return rejection
        except NotFoundError as error:
            return Status.unresolvable(str(error))
        return tuple(found)

    def _unbound(self, claim: PersistentVolumeClaim) -> Status | None:
        """Reject an unbound claim, unless its volume is chosen together with the node."""
        found: StorageClass | None = self._storage.class_of(claim)
        if found is None:
            return Status.unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
        if found.volume_binding_mode is None:
            return Status.unresolvable(f'VolumeBindingMode not set for StorageClass "{found.name}"')
        if found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
            return None
        return Status.unresolvable("PersistentVolume had no name")

    # -- events ----------------------------------------------------------------------------------------

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        return zoned_volumes(pod, self._storage, _places)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        changed = ActionType.ADD | ActionType.UPDATE
        return [
            ClusterEventWithHint(ClusterEvent(EventResource.STORAGE_CLASS, ActionType.ADD), self._after_class),
            ClusterEventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)),
            ClusterEventWithHint(
                ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, changed),
                self._after_claim,
                partial(claims_that_help, ephemeral=False),
            ),
            ClusterEventWithHint(ClusterEvent(EventResource.PERSISTENT_VOLUME, changed), self._after_volume),
        ]

    def _after_class(self, pod: PodInfo, old: StorageClass | None, new: StorageClass) -> QueueingHint:
        delayed = new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        return QueueingHint.QUEUE if delayed else QueueingHint.SKIP

    def _after_claim(self, pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> QueueingHint:
        return QueueingHint.QUEUE if uses_claim(pod, new, ephemeral=False) else QueueingHint.SKIP

    def _after_volume(self, pod: PodInfo, old: PersistentVolume | None, new: PersistentVolume) -> QueueingHint:
        if old is None or _places(old) != _places(new):
            return QueueingHint.QUEUE
        return QueueingHint.SKIP


def _rows_that_meet(places: _Places, nodes: NodeTable) -> BoolArray:
    """Mark the rows of nodes that meet all places; nodes with none of the labels are marked, too. bool[capacity]."""
    codes = {key: nodes.labels.column(key).codes for key in _KEYS}
    met = np.ones(nodes.capacity, np.bool_)
    for key, values in places:
        here = _has(nodes, key, values, codes[key])
        if key in _GA_FORM:
            other = _GA_FORM[key]
            here |= (codes[key] == ABSENT) & _has(nodes, other, values, codes[other])
        met &= here
    unlabelled = np.ones(nodes.capacity, np.bool_)
    for column in codes.values():
        unlabelled &= column == ABSENT
    return met | unlabelled


def _has(nodes: NodeTable, key: str, values: tuple[str, ...], codes: RowArray) -> BoolArray:
    wanted = Requirement(key, Operator.IN, frozenset(values))
    found: BoolArray = nodes.labels.column(key).lookup(wanted)[codes]
    return found

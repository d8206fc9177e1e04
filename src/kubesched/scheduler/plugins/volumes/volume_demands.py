"""Demands for volumes, for explanations: each volume of a pod, with what its plugin knows about it in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from kubesched.api.kinds import CLAIMS, VOLUMES
from kubesched.api.storage import PersistentVolume, PersistentVolumeClaim, class_of
from kubesched.api.types import Volume

from ...framework.demand import Change, Demand
from ...framework.question import RowArray
from ...nodes import NodeInfo, NodeTable, PodInfo
from ...nodes.disks import conflicts
from ..demands import storage
from ..demands.words import always, counted, listed, requirement_text
from .attached_volumes import AttachedVolumes
from .claim_changes import claim_changes
from .claims import Storage
from .countable import ClaimNotFoundError, CountingError

__all__ = ["bound_volumes", "counted_volumes", "unshared_volumes", "zoned_volumes"]

#: Pods and values that one text lists.
_MOST: Final = 3
_ONE_POD: Final = "ReadWriteOncePod"


def _claim_of(found: Storage, pod: PodInfo, volume: Volume) -> PersistentVolumeClaim | None:
    if volume.persistent_volume_claim is not None:
        name = volume.persistent_volume_claim.claim_name
    elif volume.ephemeral is not None:
        name = f"{pod.name}-{volume.name}"
    else:
        return None
    claim: PersistentVolumeClaim | None = found.find(CLAIMS, name, pod.namespace)
    return claim


def _weaker(found: Storage, pod: PodInfo, volume: Volume) -> Iterable[Change]:
    claim = _claim_of(found, pod, volume)
    return claim_changes(found, claim) if claim is not None else ()


# -- limits ------------------------------------------------------------------------------------------------


def counted_volumes(pod: PodInfo, attached: AttachedVolumes, nodes: NodeTable) -> Iterable[Demand]:
    """Each volume, with the numbers of the drivers that get new volumes: attached, limit, and the pods with most."""
    try:
        drivers = Counter(attached.volumes.of_new(pod, migrated=True).values())
    except (ClaimNotFoundError, CountingError) as error:
        problem = str(error)
        return storage.volumes(pod, lambda volume: always(problem))

    def about(rows: RowArray) -> str:
        return "; ".join(_limit_text(pod, attached, nodes, rows, driver, count) for driver, count in drivers.items())

    return storage.volumes(pod, lambda volume: about)


def _limit_text(
    pod: PodInfo, attached: AttachedVolumes, nodes: NodeTable, rows: RowArray, driver: str, new: int
) -> str:
    attached.refresh()
    there, most = attached.count(driver)[rows], attached.limit(driver)[rows]
    place = int((most - there).argmax())
    node = nodes.info(int(rows[place]))
    having = sorted(node.pods.values(), key=lambda other: (-len(other.storage), other.pod.key))
    users = [other.pod.key for other in having if other.storage]
    by = f", used by {listed(users[:_MOST], len(users))}" if users else ""
    return f"{counted(new, 'volume')} of {driver}, but {node.name} has {there[place]} of at most {most[place]}{by}"


# -- zones and node affinity -------------------------------------------------------------------------------


def zoned_volumes(
    pod: PodInfo, found: Storage, places: Callable[[PersistentVolume], Iterable[tuple[str, tuple[str, ...]]]]
) -> Iterable[Demand]:
    """Each volume, with the zones and regions that it is in."""

    def about(volume: Volume) -> Callable[[RowArray], str]:
        claim = _claim_of(found, pod, volume)
        name = claim.spec.volume_name if claim is not None else ""
        bound: PersistentVolume | None = found.find(VOLUMES, name) if name else None
        if bound is None:
            return always("it is not bound to a volume")
        where = " and ".join(f"{key} {' or '.join(values)}" for key, values in places(bound))
        return always(f"{name} is in {where}" if where else "")

    return storage.volumes(pod, about, weaker=partial(_weaker, found, pod))


def bound_volumes(pod: PodInfo, found: Storage) -> Iterable[Demand]:
    """Each volume, with the nodes that can use it; or what its claim asks for, while it is not bound."""

    def about(volume: Volume) -> Callable[[RowArray], str]:
        claim = _claim_of(found, pod, volume)
        if claim is None:
            return always("the claim does not exist")
        name = claim.spec.volume_name
        if not name:
            wanted = claim.spec.resources.requests.get("storage", "some storage")
            return always(f"not bound; it asks for {wanted} of class {class_of(claim) or '(none)'}")
        bound: PersistentVolume | None = found.find(VOLUMES, name)
        if bound is None:
            return always(f"bound to {name}, which does not exist")
        return always(f"bound to {name}{_affinity_text(bound)}")

    return storage.volumes(pod, about, weaker=partial(_weaker, found, pod))


def _affinity_text(bound: PersistentVolume) -> str:
    affinity = bound.spec.node_affinity
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ()
    texts = [" and ".join(map(requirement_text, (*term.match_expressions, *term.match_fields))) for term in terms]
    return f", which only nodes with {listed(texts[:_MOST], len(texts))} can use" if texts else ""


# -- volumes of one pod ------------------------------------------------------------------------------------


def unshared_volumes(pod: PodInfo, found: Storage, nodes: NodeTable) -> Iterable[Demand]:
    """Each volume, with the pods that use its disk, or its claim for one pod."""
    own: list[Volume] = []
    keys: dict[str, str] = {}
    for volume in pod.storage:
        claim = _claim_of(found, pod, volume)
        if claim is not None and _ONE_POD in claim.spec.access_modes:
            keys[volume.name] = f"{pod.namespace}/{claim.metadata.name}"
        own.append(volume)
    users = _users_of(nodes, set(keys.values()))

    def holders(volume: Volume, row: int) -> Iterable[tuple[NodeInfo, PodInfo]]:
        return users.get(keys.get(volume.name, ""), ())

    def about(volume: Volume) -> Callable[[RowArray], str]:
        if volume.name not in keys:
            return lambda rows: _disk_text(pod, nodes, rows)
        by = [f"{other.pod.key} on {node.name}" for node, other in users.get(keys[volume.name], ())]
        return always(f"only one pod may use it, and {listed(by[:_MOST], len(by))} does" if by else "")

    return storage.volumes(pod, about, holders, partial(_weaker, found, pod))


def _users_of(nodes: NodeTable, claims: set[str]) -> dict[str, list[tuple[NodeInfo, PodInfo]]]:
    """The pods on nodes that use these claims, by claim. Only claims in use are looked for."""
    wanted = {key for key in claims if nodes.pvc_counts.get(key)}
    found: dict[str, list[tuple[NodeInfo, PodInfo]]] = {}
    if wanted:
        for node in nodes.all_infos():
            for other in node.pods.values():
                for key in wanted.intersection(other.pvcs) if other.pvcs else ():
                    found.setdefault(key, []).append((node, other))
    return found


def _disk_text(pod: PodInfo, nodes: NodeTable, rows: RowArray) -> str:
    def users() -> Iterator[str]:
        for row in rows.tolist():
            node = nodes.info(row)
            if any(conflicts(use, node.disk_counts) for use in pod.disks):
                mine = {disk for disk, _ in pod.disks}
                for other in node.pods.values():
                    if mine & {disk for disk, _ in other.disks}:
                        yield f"{other.pod.key} on {node.name}"

    by = sorted(users())
    return f"the disk is used by {listed(by[:_MOST], len(by))}" if by else ""

"""Pod groups of a run: how many members have a node, where, and how long the group waited. Caller: :mod:`.outcome`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from kubesched.api.groups import PodGroup, group_key
from kubesched.api.kinds import POD_GROUPS
from kubesched.api.types import Pod
from kubesched.base.turns import finish
from kubesched.explain.pod_groups import GroupExplainer
from kubesched.explain.report import PodGroupReport

from ..embedded import Embedded
from .result import GroupOutcome, PodTimes

__all__ = ["group_outcomes"]

#: Most groups with waiting members that are explained in a result.
_MOST_EXPLAINED: Final = 16


def group_outcomes(
    embedded: Embedded, pods: Iterable[Pod], times: Iterable[PodTimes], end: float
) -> list[GroupOutcome]:
    """Return the pod groups by namespace and name; none without the gate GenericWorkload.

    ``pods`` are those at the end, ``times`` those of the whole run, which ended at ``end``.
    """
    if embedded.scheduler.groups is None:
        return []
    objects: dict[str, PodGroup] = {
        f"{one.typed.metadata.namespace}/{one.typed.metadata.name}": one.typed
        for one in embedded.store.list(POD_GROUPS).items
    }
    members: dict[str, list[Pod]] = {key: [] for key in objects}
    for pod in pods:
        if key := group_key(pod):
            members.setdefault(key, []).append(pod)
            if key not in objects and (read := embedded.scheduler.informers.group_of(pod)) is not None:
                objects[key] = read
    seen: dict[str, list[PodTimes]] = {key: [] for key in members}
    for one in times:
        if one.group:
            seen.setdefault(f"{one.namespace}/{one.group}", []).append(one)
    labels = {node.name: node.metadata.labels for node in embedded.nodes()}
    found = [_outcome(key, objects.get(key), members.get(key, ()), seen[key], end, labels) for key in sorted(seen)]
    return _explained(embedded, found)


def _outcome(
    key: str,
    group: PodGroup | None,
    members: Sequence[Pod],
    seen: Sequence[PodTimes],
    end: float,
    labels: dict[str, dict[str, str]],
) -> GroupOutcome:
    namespace, _, name = key.partition("/")
    is_gang = group is not None and group.spec.scheduling_policy.gang is not None
    needed = group.min_count if group is not None and is_gang else 1
    nodes = {pod.spec.node_name for pod in members if pod.spec.node_name}
    since = min((one.queued if one.queued is not None else one.created for one in seen), default=None)
    bound = sorted(one.bound for one in seen if one.bound is not None)
    at = bound[needed - 1] if len(bound) >= needed else None
    placed = sum(bool(pod.spec.node_name) for pod in members)
    return GroupOutcome(
        namespace=namespace,
        name=name,
        policy="" if group is None else "gang" if is_gang else "basic",
        min_count=group.min_count if group is not None else 0,
        members=len(members),
        placed=placed,
        waiting=len(members) - placed,
        placement=_placement(group, nodes, labels),
        nodes=len(nodes),
        since=since,
        bound=at,
        wait=None if since is None else round(max(0.0, (at if at is not None else end) - since), 6),
    )


def _placement(group: PodGroup | None, nodes: Iterable[str], labels: dict[str, dict[str, str]]) -> str:
    constraints = group.spec.scheduling_constraints if group is not None else None
    if constraints is None or not constraints.topology:
        return ""
    values = {labels.get(node, {}).get(constraints.topology[0].key, "") for node in nodes}
    return values.pop() if len(values) == 1 else ""


def _explained(embedded: Embedded, found: Sequence[GroupOutcome]) -> list[GroupOutcome]:
    """Add to the first groups with waiting members why they wait."""
    keys = [f"{one.namespace}/{one.name}" for one in found if one.waiting][:_MOST_EXPLAINED]
    reports: dict[str, PodGroupReport] = {
        one.group: one for one in finish(GroupExplainer(embedded.scheduler).explaining(keys))
    }
    return [replace(one, why=reports.get(f"{one.namespace}/{one.name}")) for one in found]

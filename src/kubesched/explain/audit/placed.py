"""Pods that their own node would reject today, and pods nominated to a node that rejects them.

Each pod is taken off its node in a what-if, and the node is filtered for it as for a new pod, by every Filter plugin of
its profile. Nothing is grouped before the verdicts, so plugins of any kind answer exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np

from kubesched.api.kinds import CLAIMS, RESOURCE_CLAIMS, VOLUMES, Kind
from kubesched.scheduler.core.plan import Asked
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.nodes import NodeInfo, PodInfo, Snapshot
from kubesched.scheduler.nodes.nodeinfo import PortTable
from kubesched.scheduler.plugins.demands.words import counted

from ..obstacles import obstacles_of_plugin
from .rules import RULES
from .verdicts import Verdict, verdicts_on
from .view import View

__all__ = ["audit_nominated", "audit_placed"]

#: Annotation of pods that a kubelet made from a file: no scheduler ever saw them.
_MIRROR: Final = "kubernetes.io/config.mirror"
#: Kinds of objects that these plugins read about pods with volumes and claims. Many dumps lack all objects of a kind.
_NEEDED: Final[dict[str, tuple[Kind, ...]]] = {
    **dict.fromkeys(("VolumeBinding", "VolumeRestrictions", "VolumeZone", "NodeVolumeLimits"), (CLAIMS, VOLUMES)),
    "DynamicResources": (RESOURCE_CLAIMS,),
}
#: Most groups whose numbers are found, the largest first: for rules between pods that takes a pass over all nodes.
_MOST_DETAILS: Final = 10
_MOST_DETAILS_WIDE: Final = 200
#: Most characters of a reason or detail: plugins and users write them.
_MOST_TEXT: Final = 500


@dataclass(slots=True)
class _Group:
    """Pods of one workload with the same verdict, and the first of them with its node and place among all pods."""

    pod: PodInfo
    node: NodeInfo | None
    place: int = 0
    pods: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)


class _Placed(NamedTuple):
    """Pod on a node. ``incoming`` is the pod as it would come anew, without its node; ``place`` is its place in the order
    of the nodes.
    """

    place: int
    pod: PodInfo
    node: NodeInfo
    incoming: PodInfo


def _in_order(view: View) -> Iterator[_Placed]:
    """Yield the pods on nodes, those with equal rules about other pods together: counts of the pods that the rules match
    then stay up to date from one to the next. Pods with equal specs share the keys of their questions.
    """
    models: dict[bytes, PodInfo] = {}
    alike: dict[bytes, list[_Placed]] = {}
    for place, (pod, node) in enumerate(_running(view)):
        incoming, spec = pod.on_node(""), pod.spec
        rules = msgspec.msgpack.encode((pod.namespace, spec.affinity, spec.topology_spread_constraints))
        incoming.model = models.setdefault(msgspec.msgpack.encode((pod.namespace, incoming.spec)), incoming)
        alike.setdefault(rules, []).append(_Placed(place, pod, node, incoming))
    for group in alike.values():
        yield from group


def audit_placed(view: View, on_progress: Callable[[int], None]) -> list[tuple[PodInfo, Asked]]:
    """Add a finding by workload, plugin and reason. Return the pods' questions, which other checks count."""
    groups: dict[tuple[str, str, str, Verdict], _Group] = {}
    asked: list[tuple[int, PodInfo, Asked]] = []
    strangers, without = Counter[str](), Counter[str]()
    blind = {name for name, kinds in _NEEDED.items() if any(not _has(view, kind) for kind in kinds)}
    for done, (place, pod, node, incoming) in enumerate(_in_order(view), 1):
        profile = view.profile(pod.pod)
        if profile is None:
            strangers[pod.spec.scheduler_name] += 1
            continue
        framework, search = profile
        with _without(search.snapshot, node, pod):
            verdicts, questions = verdicts_on(framework, search, incoming, node)
        if questions is not None:
            asked.append((place, pod, questions))
        for verdict in verdicts:
            if verdict.plugin in blind:
                without[verdict.plugin] += 1
                continue
            key = (pod.namespace, view.workloads.of(pod.pod), pod.spec.scheduler_name, verdict)
            group = groups.setdefault(key, _Group(pod, node, place))
            if place < group.place:
                group.pod, group.node, group.place = pod, node, place
            group.pods.append(pod.key)
            group.nodes.append(node.name)
        on_progress(done)
    most = _MOST_DETAILS_WIDE if view.limits.is_wide else _MOST_DETAILS
    ordered = sorted(groups.items(), key=lambda item: (item[0][-1].is_failure, -len(item[1].pods), item[1].place))
    for place, ((namespace, workload, _, verdict), group) in enumerate(ordered):
        _report(view, namespace, workload, verdict, group, _details(view, group, verdict) if place < most else [])
    for name, count in sorted(without.items()):
        missing = " and ".join(kind.kind for kind in _NEEDED[name] if not _has(view, kind))
        view.findings.cannot_check(f"{name} for {counted(count, 'pod')}: there is no {missing} in the cluster as read")
    for name, count in sorted(strangers.items()):
        view.findings.cannot_check(f'{counted(count, "pod")} of schedulerName "{name}": no profile has this name')
    asked.sort(key=lambda item: item[0])
    return [(pod, questions) for _, pod, questions in asked]


def _has(view: View, kind: Kind) -> bool:
    return any(True for _ in view.objects.all(kind))


@contextmanager
def _without(snapshot: Snapshot, node: NodeInfo, pod: PodInfo) -> Iterator[None]:
    """Show the node without the pod. Ports that other pods there hold as well stay in use, unlike in preemption."""
    with snapshot.what_if(node) as trial:
        trial.remove(pod)
        if pod.ports:
            left = PortTable()
            for other in node.pods.values():
                left.add(other.ports)
            snapshot.table.set_ports(node.row, left.by_ip)
        yield


def _running(view: View) -> Iterator[tuple[PodInfo, NodeInfo]]:
    for node in list(view.table.all_infos()):
        if node.node is not None:
            for pod in list(node.pods.values()):
                meta = pod.pod.metadata
                if meta.deletion_timestamp is None and _MIRROR not in meta.annotations:
                    yield pod, node


def _details(view: View, group: _Group, verdict: Verdict) -> list[str]:
    """Return what the plugin demands of the first pod's node, with the numbers there."""
    profile = view.profile(group.pod.pod)
    if profile is None or group.node is None or verdict.is_failure:
        return []
    framework, search = profile
    framework.turn.number += 1
    for entry in framework.filters:
        if entry.name == verdict.plugin:
            row = np.array([group.node.row], np.intp)
            with _without(search.snapshot, group.node, group.pod), suppress(PluginFailedError):
                found = obstacles_of_plugin(framework, entry, search.table, group.pod.on_node(""), row)
                texts = dict.fromkeys(one.text[:_MOST_TEXT] for one in found if one.text != verdict.reason)
                whose = f"{group.pod.key}: " if len(group.pods) > 1 else ""
                return [whose + text for text in texts]
    return []


def _report(view: View, namespace: str, workload: str, verdict: Verdict, group: _Group, details: list[str]) -> None:
    reason = verdict.reason[:_MOST_TEXT]
    who = f"of {workload} " if workload else ""
    pods = counted(len(group.pods), "pod")
    if verdict.is_failure:
        rule, message = "plugin-failed", f"{verdict.plugin} fails for {pods} {who}in {namespace}: {reason}"
    else:
        rule = "pod-rejected-by-its-node"
        where = counted(len(set(group.nodes)), "node")
        message = f"{pods} {who}in {namespace}, on {where}, would not be placed there again: {reason}"
    view.findings.add(
        rule,
        message,
        "Pod",
        group.pods,
        nodes=group.nodes,
        namespace=namespace,
        workload=workload,
        plugin=verdict.plugin,
        reason=reason,
        details=details,
    )


def audit_nominated(view: View) -> None:
    """Add pods that their nominated node rejects even without the pods that are being deleted there."""
    groups: dict[tuple[str, str, str, Verdict], _Group] = {}
    for pod in view.pending:
        name, profile = pod.status.nominated_node_name, view.profile(pod)
        if not name or profile is None:
            continue
        framework, search = profile
        node, seen = view.table.get(name), view.seen(pod)
        verdicts = [Verdict("", "there is no such node")]
        if node is not None and node.node is not None:
            leaving = [one for one in node.pods.values() if one.pod.metadata.deletion_timestamp is not None]
            with search.snapshot.without([(node, one) for one in leaving]):
                verdicts, _ = verdicts_on(framework, search, seen, node)
        for verdict in verdicts:
            group = groups.setdefault((pod.namespace, view.workloads.of(pod), name, verdict), _Group(seen, None))
            group.pods.append(pod.key)
    for (namespace, workload, name, verdict), group in groups.items():
        reason = verdict.reason[:_MOST_TEXT]
        view.findings.add(
            "nomination-stale",
            f"{counted(len(group.pods), 'pod')} nominated to {name} cannot run there, even after pods that are being "
            f"deleted: {reason}",
            "Pod",
            group.pods,
            nodes=[name],
            namespace=namespace,
            workload=workload,
            plugin=verdict.plugin,
            reason=reason,
            advice=RULES["nomination-stale"].advice,
        )

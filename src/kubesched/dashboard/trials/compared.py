"""Comparison of a cluster before and after some changes, by its pods.

A pod that is gone and a new one of the same workload are one: the new pod is the other's replacement.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ..schema import NodeColumns, TextColumn
from ..schema_what_if import Outcome, Totals

__all__ = ["Seen", "SeenPod", "compared"]

#: Most pods of each kind that are listed.
_MOST_LISTED: Final = 500
_NO_NODES: Final = NodeColumns(
    names=[], resources=[], labels=[], taints=TextColumn(values=[], index=[]), status=TextColumn(values=[], index=[])
)


@dataclass(frozen=True, slots=True)
class SeenPod:
    """Pod that has not finished, and is not on a failed node. ``node`` is empty without one."""

    uid: str
    node: str
    namespace: str
    workload: str


@dataclass(frozen=True, slots=True)
class Seen:
    """Cluster at one time: pods by ``namespace/name``, and totals."""

    pods: Mapping[str, SeenPod]
    totals: Totals


class _Lists:
    """Pods in words by what happens to them. ``known`` are the names of the pods that are there now.

    A pod that is made while changes are tried has no lasting name: it is called by its workload.
    """

    def __init__(self, known: Container[str]) -> None:
        self._known = known
        self.moved: list[str] = []
        self.placed: list[str] = []
        self.pending: list[str] = []
        #: Names of the pods of ``pending``.
        self.without_node: list[str] = []

    def take(self, key: str, old: SeenPod | None, new: SeenPod) -> None:
        """Note a pod: ``old`` is the pod before it, or what it was before."""
        before = old.node if old is not None else ""
        words = key
        if key not in self._known and new.workload:
            words = f"new pod of {new.workload.replace('/', ' ', 1)} in namespace {new.namespace}"
        if new.node and before and new.node != before:
            self.moved.append(f"{words}: {before} → {new.node}")
        elif new.node and not before:
            self.placed.append(words)
        elif not new.node and (before or old is None):
            self.pending.append(words)
            self.without_node.append(key)


def compared(before: Seen, after: Seen, scaled: Container[tuple[str, str]] = ()) -> tuple[Outcome, list[str]]:
    """Return the outcome, without reasons and the nodes afterwards, and the names of the newly pending pods.

    ``scaled`` are the workloads with another number of replicas, by namespace and ``Kind/name``: their pods may go.
    """
    lists = _Lists(before.pods)
    gone: dict[tuple[str, str], list[SeenPod]] = {}
    evicted = lost = 0
    for key in sorted(before.pods):
        pod = before.pods[key]
        new = after.pods.get(key)
        if new is not None:
            lists.take(key, pod, new)
            evicted += new.uid != pod.uid
        elif pod.workload:
            gone.setdefault((pod.namespace, pod.workload), []).append(pod)
        else:
            evicted, lost = evicted + 1, lost + 1
    for key, old in _replaced(gone, {key: after.pods[key] for key in sorted(after.pods.keys() - before.pods.keys())}):
        evicted += old is not None
        lists.take(key, old, after.pods[key])
    for workload, pods in gone.items():
        if workload not in scaled:
            evicted, lost = evicted + len(pods), lost + len(pods)
    outcome = Outcome(
        changes=[],
        before=before.totals,
        after=after.totals,
        counts={
            "moved": len(lists.moved),
            "placed": len(lists.placed),
            "pending": len(lists.pending),
            "evicted": evicted,
            "lost": lost,
        },
        newly_pending=lists.pending[:_MOST_LISTED],
        newly_placed=lists.placed[:_MOST_LISTED],
        moved=lists.moved[:_MOST_LISTED],
        why=[],
        remarks=[],
        seconds=0.0,
        nodes=_NO_NODES,
    )
    return outcome, lists.without_node


def _replaced(
    gone: Mapping[tuple[str, str], list[SeenPod]], new: Mapping[str, SeenPod]
) -> Iterator[tuple[str, SeenPod | None]]:
    """Yield each new pod with the pod of its workload that it replaces, which is taken out of ``gone``.

    Pods on the same node are matched first; a pod replaces one that had a node, as far as there are any.
    """
    left: list[tuple[str, SeenPod]] = []
    places: dict[tuple[str, str, str], list[SeenPod]] = {}
    for pods in gone.values():
        for pod in pods:
            if pod.node:
                places.setdefault((pod.namespace, pod.workload, pod.node), []).append(pod)
    taken: set[str] = set()
    for key, pod in new.items():
        same = places.get((pod.namespace, pod.workload, pod.node))
        if same:
            old = same.pop()
            taken.add(old.uid)
            yield key, old
        else:
            left.append((key, pod))
    for pods in gone.values():
        pods[:] = sorted((one for one in pods if one.uid not in taken), key=lambda one: bool(one.node))
    for key, pod in left:
        ended = gone.get((pod.namespace, pod.workload))
        yield key, ended.pop() if ended else None

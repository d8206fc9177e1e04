"""DaemonSet: one pod for every node that the template's selector, affinity and tolerations allow.

The pod is pinned by node affinity to ``metadata.name`` and placed by the scheduler; it tolerates what upstream's
daemon pods tolerate. RollingUpdate with maxUnavailable (maxSurge counts as 0) and OnDelete.
"""

from __future__ import annotations

from typing import Any, Final

from ...api.decode import from_builtins
from ...api.kinds import DAEMON_SETS, NODES
from ...api.selectors import RequiredNodeAffinity, required_node_affinity
from ...api.taints import NO_EXECUTE, do_not_schedule, first_untolerated
from ...api.types import Node, PodSpec, Taint
from ...api.wire import Item
from ...client.event_writer import NORMAL, WARNING
from .base import WorkloadController
from .context import Context, Data
from .pods import is_finished, is_ready, pod_body, resolve_count
from .revisions import REVISION_LABEL, Revisions

__all__ = ["DaemonSets", "daemon_spec"]

_TOLERATIONS: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def daemon_spec(spec: Data, node: str = "") -> Data:
    """A template's spec with a daemon's tolerations, pinned to ``node`` if there is one; a new object."""
    result = dict(spec)
    given = spec.get("tolerations") or []
    standard = [*_TOLERATIONS]
    if spec.get("hostNetwork"):
        standard.append(("node.kubernetes.io/network-unavailable", "NoSchedule"))
    result["tolerations"] = [
        *given,
        *(
            {"key": key, "operator": "Exists", "effect": effect}
            for key, effect in standard
            if {"key": key, "operator": "Exists", "effect": effect} not in given
        ),
    ]
    if node:
        affinity = dict(spec.get("affinity") or {})
        node_affinity = dict(affinity.get("nodeAffinity") or {})
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = (node_affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
        node_affinity[_REQUIRED] = {"nodeSelectorTerms": [{**term, "matchFields": [field]} for term in terms]}
        result["affinity"] = {**affinity, "nodeAffinity": node_affinity}
    return result


class _Fit:
    """Whether nodes are for a template."""

    def __init__(self, spec: Data) -> None:
        self._spec = from_builtins(daemon_spec(spec), PodSpec)
        self._affinity: RequiredNodeAffinity = required_node_affinity(self._spec)

    def matches(self, node: Node) -> bool:
        name = self._spec.node_name
        return (not name or name == node.name) and self._affinity.matches(node.labels, node.name)

    def should_run(self, node: Node) -> bool:
        return (
            self.matches(node) and first_untolerated(node.spec.taints, self._spec.tolerations, do_not_schedule) is None
        )

    def may_stay(self, node: Node) -> bool:
        """Pods that run are driven out only by NoExecute."""
        return self.matches(node) and (first_untolerated(node.spec.taints, self._spec.tolerations, _no_execute) is None)


def _no_execute(taint: Taint) -> bool:
    return taint.effect == NO_EXECUTE


def _pinned_to(pod: Item) -> str:
    """The node a daemon pod is on or meant for."""
    typed = pod.typed
    if typed.spec.node_name:
        return str(typed.spec.node_name)
    affinity = typed.spec.affinity.node_affinity if typed.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
                return str(field.values[0])
    return ""


class DaemonSets(WorkloadController):
    """Keeps one pod of each set on every node it is for."""

    name = "daemonset"
    component = "daemonset-controller"
    kind = DAEMON_SETS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = self.watch(NODES, self._node_changed)
        self._revisions = Revisions(context)

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if old is not None and new is not None:
            before, after = old.typed, new.typed
            if before.metadata.labels == after.metadata.labels and before.spec.taints == after.spec.taints:
                return
        for one in self.cache.values():
            self.queue.add(one.key)

    async def reconcile_object(self, item: Item, data: Data) -> None:
        if "deletionTimestamp" in data["metadata"]:
            return
        revision = await self._revisions.current(item, data)
        fit = _Fit((data["spec"].get("template") or {}).get("spec") or {})

        async def act() -> None:
            await self._manage(item, data, fit, revision)
            await self._update(item, data, fit, revision)

        await self.act_and_report(item, act(), lambda fresh, failure: self._write_status(fresh, fit, revision))

    def _by_node(self, item: Item) -> dict[str, list[Item]]:
        found: dict[str, list[Item]] = {}
        for pod in self.context.owned_pods(item.uid):
            found.setdefault(_pinned_to(pod), []).append(pod)
        return found

    async def _manage(self, item: Item, data: Data, fit: _Fit, revision: Item) -> None:
        """One pod where one should be, none where none may be; failed ones are replaced."""
        there = self._by_node(item)
        template = data["spec"].get("template") or {}
        labels = {REVISION_LABEL: self._revisions.label(item, revision.name)}
        known = set()
        for node_item in self._nodes.values():
            node: Node = node_item.typed
            known.add(node.name)
            pods = there.get(node.name, [])
            staying = [pod for pod in pods if not self.context.is_going(pod)]
            if fit.should_run(node):
                healthy = [pod for pod in staying if not is_finished(pod.typed)]
                for pod in staying:
                    if is_finished(pod.typed):
                        await self._record_finished(item, pod, node.name)
                        await self.delete_pod(item, pod)
                if not pods:
                    spec = daemon_spec(template.get("spec") or {}, node.name)
                    body = pod_body(item, template, generate=f"{item.name}-", labels=labels, spec=spec)
                    await self.create_pod(item, body)
                healthy.sort(key=lambda pod: (not pod.typed.spec.node_name, pod.typed.metadata.creation_timestamp))
                for pod in healthy[1:]:
                    await self.delete_pod(item, pod)
            elif not fit.may_stay(node):
                for pod in staying:
                    await self.delete_pod(item, pod)
        for name, pods in there.items():
            if name not in known:
                for pod in pods:
                    if not self.context.is_going(pod):
                        await self.delete_pod(item, pod)

    async def _record_finished(self, item: Item, pod: Item, node: str) -> None:
        failed = pod.typed.status.phase == "Failed"
        word, end = ("failed", "kill") if failed else ("succeeded", "delete")
        text = f"Found {word} daemon pod {pod.key} on node {node}, will try to {end} it"
        await self.record(item, WARNING if failed else NORMAL, f"{word.capitalize()}DaemonPod", text)

    async def _update(self, item: Item, data: Data, fit: _Fit, revision: Item) -> None:
        """Replace pods of older templates, as many at a time as may be unavailable."""
        strategy = data["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        there = self._by_node(item)
        nodes = [node.typed.name for node in self._nodes.values() if fit.should_run(node.typed)]
        wanted = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        most = max(1, resolve_count(wanted, len(nodes), up=True))
        label = self._revisions.label(item, revision.name)
        unavailable, stale = 0, []
        for name in nodes:
            pods = there.get(name, [])
            up = [pod for pod in pods if not self.context.is_going(pod) and self.is_available(item, data["spec"], pod)]
            old = [pod for pod in pods if pod.typed.metadata.labels.get(REVISION_LABEL) != label]
            if up and old:
                stale += [pod for pod in old if pod in up]
            if not up:
                unavailable += 1
                for pod in old:
                    if not self.context.is_going(pod):
                        await self.delete_pod(item, pod)
        for pod in stale[: max(0, most - unavailable)]:
            await self.delete_pod(item, pod)

    async def _write_status(self, item: Item, fit: _Fit, revision: Item) -> None:
        data = item.data()
        there = self._by_node(item)
        label = self._revisions.label(item, revision.name)
        desired = current = misplaced = ready = available = updated = 0
        for node_item in self._nodes.values():
            pods = [pod for pod in there.get(node_item.name, ()) if not is_finished(pod.typed)]
            if not fit.should_run(node_item.typed):
                misplaced += bool(pods)
                continue
            desired += 1
            if pods:
                first = min(pods, key=lambda pod: pod.typed.metadata.creation_timestamp or "")
                current += 1
                ready += is_ready(first.typed)
                available += not self.context.is_going(first) and self.is_available(item, data["spec"], first)
                updated += first.typed.metadata.labels.get(REVISION_LABEL) == label
        status: dict[str, Any] = {
            "currentNumberScheduled": current,
            "numberMisscheduled": misplaced,
            "desiredNumberScheduled": desired,
            "numberReady": ready,
            "observedGeneration": data["metadata"].get("generation", 0),
            "updatedNumberScheduled": updated or None,
            "numberAvailable": available or None,
            "numberUnavailable": (desired - available) or None,
        }
        await self.context.write_status(item, data, status)
        used = {pod.typed.metadata.labels.get(REVISION_LABEL, "") for pods in there.values() for pod in pods}
        names = {one.name for one in self._revisions.of(item) if self._revisions.label(item, one.name) in used}
        await self._revisions.forget_old(item, data, names | {revision.name})

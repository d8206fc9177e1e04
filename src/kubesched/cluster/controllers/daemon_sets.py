"""DaemonSet: one pod for every node that the template's selector, affinity and tolerations allow.

The pod is pinned by node affinity to ``metadata.name`` and placed by the scheduler. It has the tolerations of
upstream's daemon pods. The update strategies are RollingUpdate with maxUnavailable (maxSurge counts as 0) and OnDelete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubesched.api.decode import from_builtins
from kubesched.api.kinds import DAEMON_SETS, NODES, PODS, REVISIONS
from kubesched.api.selectors import RequiredNodeAffinity, required_node_affinity
from kubesched.api.taints import NO_EXECUTE, do_not_schedule, first_untolerated
from kubesched.api.types import Node, PodSpec, Taint
from kubesched.api.wire import Item
from kubesched.client.event_writer import NORMAL, WARNING

from .base import WorkloadController
from .context import Context, Data, data_of, differ, spec_of
from .ownership import Ownership
from .pods import is_finished, is_ready, pod_body, resolve_count
from .revisions import REVISION_LABEL, Revisions

__all__ = ["DaemonSets", "daemon_spec"]

#: Tolerations of daemon pods; the last one only for pods in the host's network.
_TOLERATIONS: Final = tuple(
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
    for effect, names in (
        ("NoExecute", "not-ready unreachable"),
        ("NoSchedule", "disk-pressure memory-pressure pid-pressure unschedulable network-unavailable"),
    )
    for name in names.split()
)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def daemon_spec(spec: Data, node: str = "") -> Data:
    """Return a copy of a template's spec with the tolerations of a daemon, pinned to ``node`` if it is not empty."""
    given = spec.get("tolerations") or []
    standard = _TOLERATIONS if spec.get("hostNetwork") else _TOLERATIONS[:-1]
    result = {**spec, "tolerations": [*given, *({**one} for one in standard if one not in given)]}
    if node:
        affinity = dict(spec.get("affinity") or {})
        node_affinity = dict(affinity.get("nodeAffinity") or {})
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = (node_affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
        node_affinity[_REQUIRED] = {"nodeSelectorTerms": [{**term, "matchFields": [field]} for term in terms]}
        result["affinity"] = {**affinity, "nodeAffinity": node_affinity}
    return result


class _Fit:
    """Check of nodes against a template."""

    def __init__(self, spec: Data) -> None:
        self._spec = from_builtins(daemon_spec(spec), PodSpec)
        self._affinity: RequiredNodeAffinity = required_node_affinity(self._spec)

    def allows(self, node: Node, counts: Callable[[Taint], bool] = do_not_schedule) -> bool:
        """True if a pod of the template may be on a node. The function ``counts`` returns True for a taint that keeps pods away."""
        return (
            self._spec.node_name in ("", node.name)
            and self._affinity.matches(node.labels, node.name)
            and first_untolerated(node.spec.taints, self._spec.tolerations, counts) is None
        )


def _no_execute(taint: Taint) -> bool:
    return taint.effect == NO_EXECUTE


def _pinned_to(pod: Item) -> str:
    """Return the node a daemon pod is on or pinned to."""
    spec: PodSpec = pod.typed.spec
    node_affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = node_affinity.required if node_affinity is not None else None
    fields = (field for term in required.node_selector_terms for field in term.match_fields) if required else ()
    pinned = (one.values[0] for one in fields if (one.key, one.operator, len(one.values)) == ("metadata.name", "In", 1))
    return spec.node_name or next(pinned, "")


class DaemonSets(WorkloadController):
    """Controller that keeps one pod of each set on every node that fits."""

    name = "daemonset"
    kind = DAEMON_SETS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = context.watch(NODES, self._node_changed)
        self._revisions = Revisions(context)
        self._ownership = Ownership(self, context.pods)
        self._history = Ownership(self, context.owned_cache(REVISIONS))

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if differ(old, new, lambda node: (node.typed.metadata.labels, node.typed.spec.taints)):
            for one in self.cache.values():
                self.queue.add(one.key)

    async def reconcile_object(self, item: Item) -> None:
        if self.context.is_going(item):
            return
        await self._history.settle(item)
        await self._ownership.settle(item)
        revision = await self._revisions.current(item)
        fit = _Fit((spec_of(item).get("template") or {}).get("spec") or {})
        action = self._manage(item, fit, revision)
        await self.act_and_report(item, action, lambda fresh, failure: self._write_status(fresh, fit, revision))

    def _by_node(self, item: Item) -> dict[str, list[Item]]:
        found: dict[str, list[Item]] = {}
        for pod in self.context.owned_pods(item.uid):
            found.setdefault(_pinned_to(pod), []).append(pod)
        return found

    async def _manage(self, item: Item, fit: _Fit, revision: Item) -> None:
        """Create missing pods, delete pods from nodes that may have none, and replace failed pods and pods of older
        templates.
        """
        there, spec = self._by_node(item), spec_of(item)
        template, strategy = spec.get("template") or {}, spec.get("updateStrategy") or {}
        labels = {REVISION_LABEL: self._revisions.label(item, revision.name)}
        nodes: dict[str, Node] = {node.name: node.typed for node in self._nodes.values()}
        wanted = unavailable = 0
        old_up: list[Item] = []
        old_down: list[Item] = []
        for name, node in nodes.items():
            staying = [pod for pod in there.get(name, ()) if not self.context.is_going(pod)]
            surplus: list[Item] = []
            if fit.allows(node):
                for pod in staying:
                    if is_finished(pod.typed):
                        await self._record_finished(item, pod, name)
                        await self.delete_owned(item, pod)
                if name not in there:
                    pinned = daemon_spec(template.get("spec") or {}, name)
                    await self.create_owned(item, PODS, pod_body(item, template, labels=labels, spec=pinned))
                healthy = [pod for pod in staying if not is_finished(pod.typed)]
                healthy.sort(key=lambda pod: (not pod.typed.spec.node_name, pod.typed.metadata.creation_timestamp))
                surplus = healthy[1:]
                is_up = any(self.is_available(item, pod) for pod in healthy[:1])
                old = [pod for pod in healthy[:1] if not labels.items() <= pod.typed.metadata.labels.items()]
                (old_up if is_up else old_down).extend(old)
                wanted, unavailable = wanted + 1, unavailable + (not is_up)
            elif not fit.allows(node, _no_execute):  # only NoExecute taints drive out running pods
                surplus = staying
            await self.delete_owned(item, *surplus)
        await self.delete_owned(item, *(pod for name, pods in there.items() if name not in nodes for pod in pods))
        if strategy.get("type", "RollingUpdate") == "RollingUpdate":
            most = resolve_count((strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1), wanted, up=True)
            await self.delete_owned(item, *old_down, *old_up[: max(0, max(1, most) - unavailable)])

    async def _record_finished(self, item: Item, pod: Item, node: str) -> None:
        word = pod.typed.status.phase
        type_, end = (WARNING, "kill") if word == "Failed" else (NORMAL, "delete")
        text = f"Found {word.lower()} daemon pod {pod.key} on node {node}, will try to {end} it"
        await self.record(item, type_, f"{word}DaemonPod", text)

    async def _write_status(self, item: Item, fit: _Fit, revision: Item) -> None:
        labels = {REVISION_LABEL: self._revisions.label(item, revision.name)}
        running = {
            name: min(alive, key=lambda pod: pod.typed.metadata.creation_timestamp or "")
            for name, pods in self._by_node(item).items()
            if (alive := [pod for pod in pods if not is_finished(pod.typed)])
        }
        nodes = {node.name: fit.allows(node.typed) for node in self._nodes.values()}
        pods = [running[name] for name, wanted in nodes.items() if wanted and name in running]
        desired, updated = sum(nodes.values()), sum(labels.items() <= pod.typed.metadata.labels.items() for pod in pods)
        available = sum([not self.context.is_going(pod) and self.is_available(item, pod) for pod in pods])
        status: Data = {
            "currentNumberScheduled": len(pods),
            "numberMisscheduled": sum(name in running for name, wanted in nodes.items() if not wanted),
            "desiredNumberScheduled": desired,
            "numberReady": sum(is_ready(pod.typed) for pod in pods),
            "observedGeneration": data_of(item)["metadata"].get("generation", 0),
            "updatedNumberScheduled": updated or None,
            "numberAvailable": available or None,
            "numberUnavailable": (desired - available) or None,
        }
        await self.context.write_status(item, status)
        await self._revisions.forget_old(item, revision)

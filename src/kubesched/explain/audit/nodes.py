"""Nodes with more requests than they have, and pods on nodes that do not exist."""

from __future__ import annotations

from kubesched.api.kinds import DEVICE_CLASSES
from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from kubesched.scheduler.nodes import NodeInfo
from kubesched.scheduler.plugins.demands.words import amount_text, counted

from .report import Amount
from .view import View, moment

__all__ = ["audit_nodes", "audit_terminating"]


def audit_nodes(view: View) -> None:
    """Add nodes without room for their pods, and names of nodes that pods are bound to and that do not exist."""
    if not len(view.table):
        view.findings.cannot_check("nodes: there is none in the cluster as read")
        return
    # Devices stand for these resources on nodes that do not list them.
    by_devices = {one.spec.extended_resource_name for one in view.objects.all(DEVICE_CLASSES)}
    for node in view.table.all_infos():
        if node.node is None:
            if node.pods:
                text = f"{counted(len(node.pods), 'pod')} bound to {node.name}, which does not exist"
                view.findings.add(
                    "node-missing", text, "Pod", [pod.key for pod in node.pods.values()], nodes=[node.name]
                )
            continue
        amounts = _over(node, by_devices)
        if amounts:
            text = ", ".join(
                f"{one.resource}: {amount_text(one.resource, one.requested)} requested of "
                f"{amount_text(one.resource, one.allocatable)}, "
                f"{amount_text(one.resource, one.requested - one.allocatable)} too much"
                for one in amounts
            )
            view.findings.add(
                "node-overcommitted",
                f"{node.name} has more requests than room: {text}",
                "Node",
                [node.name],
                nodes=[node.name],
                amounts=amounts,
            )


def _over(node: NodeInfo, by_devices: set[str]) -> list[Amount]:
    has, asked = node.allocatable, node.requested
    pairs = [
        (CPU, asked.milli_cpu, has.milli_cpu),
        (MEMORY, asked.memory, has.memory),
        (EPHEMERAL_STORAGE, asked.ephemeral_storage, has.ephemeral_storage),
        (PODS, len(node.pods), has.allowed_pods),
        *((name, amount, has.scalars.get(name, 0)) for name, amount in sorted(asked.scalars.items())),
    ]
    return [
        Amount(resource=name, requested=requested, allocatable=allocatable)
        for name, requested, allocatable in pairs
        if requested > allocatable and not (name in by_devices and name not in has.scalars)
    ]


def audit_terminating(view: View) -> None:
    """Add pods that should have been gone for some time, by node."""
    for node in view.table.all_infos():
        stuck: list[str] = []
        held: dict[str, int] = {}
        oldest = 0.0
        finalizers: set[str] = set()
        for pod in node.pods.values():
            due = moment(pod.pod.metadata.deletion_timestamp)
            if due is None or view.now - due <= view.limits.older_than:
                continue
            stuck.append(pod.key)
            oldest = max(oldest, view.now - due)
            finalizers.update(pod.pod.metadata.finalizers)
            for name, amount in ((CPU, pod.requests.milli_cpu), (MEMORY, pod.requests.memory)):
                held[name] = held.get(name, 0) + amount
        if stuck:
            held_text = " and ".join(f"{amount_text(name, amount)} {name}" for name, amount in held.items())
            kept_by = f"; finalizers: {', '.join(sorted(finalizers)[:5])}" if finalizers else ""
            text = (
                f"{counted(len(stuck), 'pod')} on {node.name} overdue to be gone, for up to {_minutes(oldest)}, and "
                f"holding {held_text}{kept_by}"
            )
            view.findings.add("pod-stuck-terminating", text, "Pod", stuck, nodes=[node.name])


def _minutes(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"

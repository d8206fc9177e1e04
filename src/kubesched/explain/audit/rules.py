"""Rules that an audit checks: level, source and advice of each, and those of each plugin that rejects."""

from __future__ import annotations

from typing import Final, NamedTuple

from .report import Level

__all__ = ["PLUGINS", "RULES", "Rule", "advice_for", "source_for"]


class Rule(NamedTuple):
    """One rule: its level, where Kubernetes' rule is described, and the advice if the finding has none of its own."""

    level: Level
    source: str
    advice: str


RULES: Final[dict[str, Rule]] = {
    "plugin-failed": Rule("error", "rules/framework §1", "correct the object that the message names, or the plugin"),
    "pod-never-schedulable": Rule("error", "rules/cycle §5", "change the pod, or add nodes that it fits"),
    "node-overcommitted": Rule(
        "error",
        "rules/node-plugins §8.2",
        "move pods to other nodes; find out whether the node's allocatable amounts shrank",
    ),
    "node-missing": Rule(
        "error", "rules/cache-and-events §4", "delete the pods, if the node is gone for good; nothing else frees them"
    ),
    "budgets-overlap": Rule(
        "error", "policy/v1 Eviction", "let each pod be selected by one budget only: the API refuses to evict others"
    ),
    "pod-unknown-scheduler": Rule(
        "warning",
        "rules/cache-and-events §14.1",
        "run a scheduler with a profile of this name, or correct the schedulerName; --config names the profiles to check",
    ),
    "pod-rejected-by-its-node": Rule("warning", "rules/framework §4.7", "restart the pods when it suits you"),
    "nomination-stale": Rule(
        "warning", "rules/cycle §12", "nothing, if a scheduler runs: its next attempt looks at all nodes"
    ),
    "budget-blocks-evictions": Rule(
        "warning", "policy/v1 PodDisruptionBudget", "raise maxUnavailable, lower minAvailable, or add replicas"
    ),
    "priority-starves": Rule(
        "warning", "rules/queue §2.1", "give the pods a higher priority, set quotas for the higher one, or add nodes"
    ),
    "pod-stuck-terminating": Rule(
        "warning",
        "rules/cache-and-events §4",
        "look at the kubelet of the node and at the finalizers: the requests count until the pod is gone",
    ),
    "volume-unreachable": Rule(
        "warning", "rules/volumes §2.8", "bring back a node with these labels, or move the data to another volume"
    ),
    "budget-spent": Rule(
        "info", "policy/v1 PodDisruptionBudget", "find out why pods are not ready; evictions wait for them"
    ),
    "budget-selects-nothing": Rule(
        "info", "policy/v1 PodDisruptionBudget", "correct the selector, or delete the budget"
    ),
    "priority-never-preempts": Rule(
        "info", "rules/preemption §3.1", "nothing, if they may wait; else remove preemptionPolicy: Never"
    ),
    "priority-differs": Rule(
        "info", "rules/queue §2.1", "restart the pods: a pod keeps the value that its class had when it was created"
    ),
    "pods-scanned-in-full": Rule(
        "info",
        "rules/framework §4.4",
        "let the plugin sign pods (sign, or a key of its question: docs/plugins.md)",
    ),
    "signatures-many": Rule(
        "info",
        "rules/framework §4.4",
        "leave out of the pod template what differs from pod to pod: labels, requests, selectors",
    ),
    "nodes-sampled": Rule("info", "rules/cycle §5.7", "remove percentageOfNodesToScore: all nodes are cheaper here"),
    "extender-called": Rule("info", "rules/framework §8", "limit it by managedResources, or make it a plugin"),
    "namespace-selectors": Rule(
        "info", "rules/topology §A.2", "name the namespaces, where they are known: a list is not matched by labels"
    ),
}

#: Plugin to the section about its Filter, and to the advice for pods that it would reject.
PLUGINS: Final[dict[str, tuple[str, str]]] = {
    "NodeUnschedulable": ("rules/node-plugins §7.3", "uncordon the node, or drain it"),
    "NodeName": ("rules/node-plugins §7.4", "the pod names another node"),
    "TaintToleration": ("rules/node-plugins §7.5", "remove the taint, tolerate it, or let the pods move"),
    "NodeAffinity": ("rules/node-plugins §7.6", "restore the labels, change the selector, or let the pods move"),
    "NodePorts": ("rules/node-plugins §7.7", "one of the pods that share the host port has to move"),
    "NodeDeclaredFeatures": ("rules/node-plugins §7.10", "enable the feature on the node, or let the pods move"),
    "NodeResourcesFit": ("rules/node-plugins §8.2", "move pods to other nodes until the requests fit"),
    "InterPodAffinity": ("rules/topology §A.5", "restart the pods, or change the rules between them"),
    "PodTopologySpread": ("rules/topology §B.6", "restart pods of the fullest domains: nothing moves them by itself"),
    "VolumeBinding": ("rules/volumes §2.5", "restore the labels that the volume asks for, or the claim"),
    "VolumeRestrictions": ("rules/volumes §3.4", "the volume is used twice: one of the pods has to go"),
    "VolumeZone": ("rules/volumes §4.2", "restore the zone label of the node, or correct that of the volume"),
    "NodeVolumeLimits": ("rules/volumes §5.2", "move pods with volumes to other nodes"),
    "DynamicResources": ("rules/devices §5.3", "look at the claims of the pods and at the node's devices"),
}


def source_for(rule: str, plugin: str = "") -> str:
    """Return where the rule is described: the plugin's own section, if it has one."""
    return PLUGINS[plugin][0] if plugin in PLUGINS else RULES[rule].source


def advice_for(rule: str, plugin: str = "") -> str:
    return PLUGINS[plugin][1] if plugin in PLUGINS else RULES[rule].advice

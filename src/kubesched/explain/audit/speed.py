"""Pods and settings that make a scheduler slow, as the decision core sees them (``docs/decision-core.md``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from kubesched.api.types import Pod
from kubesched.scheduler.core.plan import Asked, Plan
from kubesched.scheduler.core.search import Search, prepared
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.plugins.demands.words import counted, listed

from .rules import PLUGINS, advice_for, source_for
from .view import View, distinct

__all__ = ["audit_speed"]

#: Advice for pods that only plugins of Kubernetes do not sign, which nobody can change.
_IN_TREE: Final = "nothing: pods with volumes or device claims are looked at one by one"
#: Most names of plugins or namespaces in a sentence.
_MOST_NAMES: Final = 4


def audit_speed(view: View, placed: Iterable[tuple[PodInfo, Asked]]) -> None:
    """Add what costs time in each attempt. ``placed`` are the pods on nodes with their questions."""
    _settings(view)
    asked = [*placed, *_pending(view)]
    _scans(view, asked)
    _signatures(view, asked)
    _namespace_selectors(view)


def _pending(view: View) -> list[tuple[PodInfo, Asked]]:
    found: list[tuple[PodInfo, Asked]] = []
    for _, pods in distinct(view, view.pending):
        profile = view.profile(pods[0])
        if profile is not None:
            try:
                asked = profile[1].ask(view.seen(pods[0]))
            except PluginFailedError:
                continue
            found += [(PodInfo(pod), asked) for pod in pods]
    return found


def _settings(view: View) -> None:
    config = view.config
    for profile in config.profiles:
        percentage = profile.percentage_of_nodes_to_score
        if percentage is None:
            percentage = config.percentage_of_nodes_to_score
        if percentage:
            text = (
                f"profile {profile.scheduler_name} samples nodes (percentageOfNodesToScore {percentage}): every attempt "
                "scans nodes, and nothing that earlier ones found is used"
            )
            view.findings.add("nodes-sampled", text, "Profile", [profile.scheduler_name])
    for extender in config.extenders:
        resources = [managed.name for managed in extender.managed_resources]
        whom = f"pods that ask for {listed(resources[:_MOST_NAMES], len(resources))}" if resources else "every pod"
        text = f"extender {extender.url_prefix} is called over HTTP for {whom}"
        view.findings.add("extender-called", text, "Extender", [extender.url_prefix])
        if not view.scheduler.extenders:
            view.findings.cannot_check(f"nodes that extender {extender.url_prefix} rejects: it is not called")


def _scans(view: View, asked: Iterable[tuple[PodInfo, Asked]]) -> None:
    """Add the pods whose attempts filter all nodes with some plugin, because no answers of it can be kept."""
    groups: dict[tuple[str, str], tuple[Plan, list[str]]] = {}
    for pod, questions in asked:
        name, plan = pod.spec.scheduler_name, questions.plan
        # Asked for each pod: a plugin without a key may skip one pod and not the next.
        why = _why_scanned(view.scheduler.frameworks[name], view.scheduler.profiles[name].search, plan, pod)
        if why:
            groups.setdefault((name, why), (plan, []))[1].append(pod.key)
    for (name, why), (plan, pods) in groups.items():
        view.findings.add(
            "pods-scanned-in-full",
            f"{counted(len(pods), 'pod')} of profile {name} with a full scan in each attempt: {why}",
            "Pod",
            pods,
            reason=why,
            plugin=next(iter(plan.keyless)) if len(plan.keyless) == 1 else "",
            source=source_for("pods-scanned-in-full"),
            advice=_IN_TREE if plan.keyless and plan.keyless <= PLUGINS.keys() else advice_for("pods-scanned-in-full"),
        )


def _why_scanned(framework: Framework, search: Search, plan: Plan, pod: PodInfo) -> str:
    """Return why no layer can answer for a pod; "" if one can. Nothing is kept of the answers."""
    if not plan.unsigned.names or (plan.can_interact and plan.may_interact_after(plan.signed.filters)):
        return ""
    framework.turn.number += 1
    incoming = pod.on_node("") if pod.spec.node_name else pod
    base, state = prepared(CycleState(), False, plan.absent), prepared(CycleState(), False, plan.absent)
    nodes = search.snapshot.nodes()
    try:
        framework.pre_filter(base, incoming, nodes, plan.signed.pre_filters)
        outcome = framework.pre_filter(state, incoming, nodes, plan.unsigned.pre_filters)
    except PluginFailedError:
        return ""
    filters = [entry for entry in plan.signed.filters if entry.name not in base.skip_filter]
    if plan.is_answered(state, outcome) or (plan.can_interact and plan.may_interact_after(filters)):
        return ""
    keyless = sorted(plan.keyless)
    if keyless:
        return f"{listed(keyless[:_MOST_NAMES], len(keyless))} cannot sign them"
    together = sorted(entry.name for entry in framework.scores if entry.needs_all and entry.name in plan.unsigned.names)
    if together:
        return f"{listed(together[:_MOST_NAMES], len(together))} normalises the scores of all nodes together"
    return "a filter that may fail comes before others in the configured order"


def _signatures(view: View, asked: Iterable[tuple[PodInfo, Asked]]) -> None:
    """Add workloads whose pods have many distinct signatures: answers found for one pod do not serve the next."""
    groups: dict[tuple[str, str], tuple[set[Hashable], list[str]]] = {}
    for pod, questions in asked:
        workload = view.workloads.of(pod.pod)
        if workload:
            seen, pods = groups.setdefault((pod.namespace, workload), (set(), []))
            seen.add((questions.signature, questions.linked))
            pods.append(pod.key)
    for (namespace, workload), (seen, pods) in groups.items():
        if len(seen) > view.limits.signatures:
            text = f"{counted(len(pods), 'pod')} of {workload} in {namespace} with {len(seen):,} distinct signatures"
            view.findings.add("signatures-many", text, "Pod", pods, namespace=namespace, workload=workload)


def _namespace_selectors(view: View) -> None:
    groups: dict[str, list[str]] = {}
    for pod in view.pods:
        if pod.spec.affinity is not None and _selects_namespaces(pod):
            groups.setdefault(pod.namespace, []).append(pod.key)
    for namespace, keys in groups.items():
        text = (
            f"{counted(len(keys), 'pod')} in {namespace} with a namespaceSelector in affinity terms: pods of all "
            "namespaces that it selects are counted, and each new label of a namespace changes that"
        )
        view.findings.add("namespace-selectors", text, "Pod", keys, namespace=namespace)


def _selects_namespaces(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    for rules in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if rules is not None:
            terms = [
                *rules.required_during_scheduling_ignored_during_execution,
                *(one.pod_affinity_term for one in rules.preferred_during_scheduling_ignored_during_execution),
            ]
            if any(term.namespace_selector is not None for term in terms):
                return True
    return False

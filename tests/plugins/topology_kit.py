"""Random clusters for the topology plugins, and their plain twins: straight from the rules, one node at a time.

The twins see nodes with the pods on them and the labels of namespaces, nothing else; no index, no arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from kubesched.api.selectors import required_node_affinity
from kubesched.api.taints import first_untolerated
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import AffinityTerm, PodInfo
from kubesched.plugins.topology_constraints import HARD, SOFT, Constraint, compile_constraints
from kubesched.simulate.conformance.world import complete

JSON = dict[str, Any]

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
KEYS = (ZONE, HOST, "rack")
NAMESPACES = ("default", "dev", "prod")

# -- random objects ----------------------------------------------------------------------------------------

_apps = st.sampled_from(["web", "db", "job"])
labels = st.fixed_dictionaries({}, optional={"app": _apps, "tier": st.sampled_from(["x", "y"])})


@st.composite
def selectors(draw: st.DrawFn) -> JSON | None:
    """A label selector: mostly one that asks for an app; also absent, empty and negative ones."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return None
    if kind == 1:
        return {}
    if kind == 2:
        return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [draw(_apps)]}]}
    if kind == 3:
        return {"matchExpressions": [{"key": "tier", "operator": draw(st.sampled_from(["Exists", "DoesNotExist"]))}]}
    if kind == 4:
        values = draw(st.lists(_apps, min_size=1, max_size=3, unique=True))
        return {"matchExpressions": [{"key": "app", "operator": "In", "values": values}], "matchLabels": {"tier": "x"}}
    return {"matchLabels": {"app": draw(_apps)}}


@st.composite
def terms(draw: st.DrawFn) -> JSON:
    term: JSON = {"topologyKey": draw(st.sampled_from(KEYS)), "labelSelector": draw(selectors())}
    if draw(st.booleans()):
        term["namespaces"] = draw(st.lists(st.sampled_from(NAMESPACES), max_size=2, unique=True))
    if draw(st.integers(0, 3)) == 0:
        term["namespaceSelector"] = draw(
            st.sampled_from(
                [
                    {},
                    {"matchLabels": {"env": "test"}},
                    {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["live"]}]},
                ]
            )
        )
    return {name: value for name, value in term.items() if value is not None}


@st.composite
def affinities(draw: st.DrawFn) -> JSON:
    """podAffinity and podAntiAffinity, each with up to two required and two preferred terms."""

    def one() -> JSON:
        weighted = st.builds(
            lambda weight, term: {"weight": weight, "podAffinityTerm": term}, st.integers(1, 9), terms()
        )
        return {
            "requiredDuringSchedulingIgnoredDuringExecution": draw(st.lists(terms(), max_size=2)),
            "preferredDuringSchedulingIgnoredDuringExecution": draw(st.lists(weighted, max_size=2)),
        }

    found = {}
    if draw(st.booleans()):
        found["podAffinity"] = one()
    if draw(st.booleans()):
        found["podAntiAffinity"] = one()
    return found


@st.composite
def constraints(draw: st.DrawFn) -> JSON:
    item: JSON = {
        "topologyKey": draw(st.sampled_from(KEYS)),
        "maxSkew": draw(st.integers(1, 3)),
        "whenUnsatisfiable": draw(st.sampled_from([HARD, SOFT])),
        "labelSelector": draw(selectors()),
    }
    if item["whenUnsatisfiable"] == HARD and draw(st.booleans()):
        item["minDomains"] = draw(st.integers(1, 4))
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if draw(st.booleans()):
            item[policy] = draw(st.sampled_from(["Honor", "Ignore"]))
    if draw(st.integers(0, 3)) == 0:
        item["matchLabelKeys"] = ["tier", "nothing"]
    return {name: value for name, value in item.items() if value is not None}


@st.composite
def pods(draw: st.DrawFn, name: str = "", node: str = "") -> JSON:
    """A pod with rules about others; on a node, if one is named."""
    name = name or f"p{draw(st.integers(0, 10**9))}"
    spec: JSON = {"containers": [{"name": "c"}]}
    if node:
        spec["nodeName"] = node
    if draw(st.integers(0, 2)) == 0:
        spec["affinity"] = draw(affinities())
    if draw(st.booleans()):
        spec["topologySpreadConstraints"] = draw(st.lists(constraints(), max_size=3))
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = {"disk": "ssd"}
    if draw(st.integers(0, 3)) == 0:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    meta: JSON = {"name": name, "namespace": draw(st.sampled_from(NAMESPACES)), "labels": draw(labels)}
    if node and draw(st.integers(0, 5)) == 0:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if draw(st.integers(0, 3)) == 0:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}
        meta["ownerReferences"] = [owner]
    return complete({"metadata": meta, "spec": spec}, "Pod")


@st.composite
def nodes(draw: st.DrawFn, name: str) -> JSON:
    of = draw(
        st.fixed_dictionaries(
            {},
            optional={
                ZONE: st.sampled_from(["a", "b", "c", ""]),
                "rack": st.sampled_from(["r1", "r2"]),
                "disk": st.sampled_from(["ssd", "hdd"]),
            },
        )
    )
    if draw(st.integers(0, 5)):
        of[HOST] = name
    taints = [{"key": "dedicated", "effect": "NoSchedule"}] if draw(st.integers(0, 4)) == 0 else []
    return complete(
        {
            "metadata": {"name": name, "labels": of},
            "spec": {"taints": taints},
            "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "200"}},
        },
        "Node",
    )


def namespace(name: str, env: str) -> JSON:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"env": env} if env else {}}}


@st.composite
def objects(draw: st.DrawFn) -> list[JSON]:
    """Namespaces, Services and ReplicaSets."""
    found = [namespace(name, draw(st.sampled_from(["test", "live", ""]))) for name in NAMESPACES]
    for name in NAMESPACES:
        meta = {"name": "s", "namespace": name}
        if draw(st.booleans()):
            spec: JSON = {"selector": {"app": draw(_apps)}}
            found.append({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
        if draw(st.booleans()):
            spec = {"selector": draw(selectors()) or {"matchLabels": {"tier": "x"}}}
            found.append(
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {**meta, "name": "rs"}, "spec": spec}
            )
    return found


# -- plain twins -------------------------------------------------------------------------------------------


@dataclass
class Cluster:
    """What the twins look at."""

    nodes: list[NodeInfo]
    namespaces: dict[str, dict[str, str]]

    def means(self, term: AffinityTerm, pod: PodInfo) -> bool:
        """Whether an incoming pod's term means an existing pod: namespaces by name or by their labels."""
        names = set(term.namespaces)
        names |= {name for name, of in self.namespaces.items() if term.namespace_selector.matches(of)}
        return (term.namespace_selector.is_empty or pod.namespace in names) and term.selector.matches(pod.labels)

    def is_meant(self, term: AffinityTerm, pod: PodInfo) -> bool:
        """Whether an existing pod's term means the incoming pod."""
        return term.matches(pod.pod, self.namespaces.get(pod.namespace, {}))


def affinity_verdicts(cluster: Cluster, pod: PodInfo) -> dict[str, int]:
    """Node name to the check that fails (0: none): 1 affinity, 2 anti-affinity, 3 existing pods' anti-affinity."""
    mine = pod.affinity_terms
    affinity: dict[tuple[str, str], int] = {}
    anti: dict[tuple[str, str], int] = {}
    existing: set[tuple[str, str]] = set()
    for node in cluster.nodes:
        for other in node.pods.values():
            for term in other.affinity_terms.required_anti:
                if term.topology_key in node.labels and cluster.is_meant(term, pod):
                    existing.add((term.topology_key, node.labels[term.topology_key]))
            if mine.required and all(cluster.means(term, other) for term in mine.required):
                for term in mine.required:
                    if term.topology_key in node.labels:
                        place = (term.topology_key, node.labels[term.topology_key])
                        affinity[place] = affinity.get(place, 0) + 1
            for term in mine.required_anti:
                if term.topology_key in node.labels and cluster.means(term, other):
                    place = (term.topology_key, node.labels[term.topology_key])
                    anti[place] = anti.get(place, 0) + 1
    first = not affinity and all(cluster.means(term, pod) for term in mine.required)

    def verdict(of: dict[str, str]) -> int:
        if any(term.topology_key not in of for term in mine.required):
            return 1
        near = all((term.topology_key, of[term.topology_key]) in affinity for term in mine.required)
        if not near and not first:
            return 1
        if any((term.topology_key, of.get(term.topology_key, "\0")) in anti for term in mine.required_anti):
            return 2
        return 3 if any(place in existing for place in of.items()) else 0

    return {node.name: verdict(node.labels) for node in cluster.nodes}


def affinity_scores(
    cluster: Cluster, pod: PodInfo, feasible: Iterable[str], hard_weight: int = 1
) -> dict[str, int] | None:
    """Node name to normalised score; None when the plugin has nothing to say."""
    mine = pod.affinity_terms
    sums: dict[tuple[str, str], int] = {}

    def add(node: NodeInfo, key: str, weight: int) -> None:
        if key in node.labels:
            sums[key, node.labels[key]] = sums.get((key, node.labels[key]), 0) + weight

    for node in cluster.nodes:
        for other in node.pods.values():
            for sign, soft in ((1, mine.preferred), (-1, mine.preferred_anti)):
                for item in soft:
                    if cluster.means(item.term, other):
                        add(node, item.term.topology_key, sign * item.weight)
            its = other.affinity_terms
            for term in its.required:
                if hard_weight and cluster.is_meant(term, pod):
                    add(node, term.topology_key, hard_weight)
            for sign, soft in ((1, its.preferred), (-1, its.preferred_anti)):
                for item in soft:
                    if cluster.is_meant(item.term, pod):
                        add(node, item.term.topology_key, sign * item.weight)
    if not sums:
        return None
    by_name = {node.name: node for node in cluster.nodes}
    raw = {name: sum(sums.get(place, 0) for place in by_name[name].labels.items()) for name in feasible}
    low, high = min(raw.values()), max(raw.values())
    if low == high:
        return dict.fromkeys(raw, 0)
    return {name: int(100.0 * (float(score - low) / float(high - low))) for name, score in raw.items()}


def _count(node: NodeInfo, rule: Constraint, pod: PodInfo) -> int:
    if rule.selector.is_empty:
        return 0
    return sum(
        other.namespace == pod.namespace
        and other.metadata.deletion_timestamp is None
        and rule.selector.matches(other.labels)
        for other in node.pods.values()
    )


def _included(node: NodeInfo, rule: Constraint, pod: PodInfo) -> bool:
    if rule.honors_affinity and not required_node_affinity(pod.spec).matches(node.labels, node.name):
        return False
    return not rule.honors_taints or first_untolerated(node.taints, pod.spec.tolerations) is None


def spread_verdicts(cluster: Cluster, pod: PodInfo, rules: tuple[Constraint, ...]) -> dict[str, int]:
    """Node name to 1 for a missing label, 2 for too much skew, 0 for neither."""
    found: list[dict[str, int]] = []
    for rule in rules:
        domains: dict[str, int] = {}
        for node in cluster.nodes:
            if all(other.key in node.labels for other in rules) and _included(node, rule, pod):
                value = node.labels[rule.key]
                domains[value] = domains.get(value, 0) + _count(node, rule, pod)
        found.append(domains)

    def verdict(of: dict[str, str]) -> int:
        for rule, domains in zip(rules, found, strict=True):
            if rule.key not in of:
                return 1
            least = 0 if len(domains) < rule.min_domains or not domains else min(domains.values())
            if domains.get(of[rule.key], 0) + rule.selector.matches(pod.labels) - least > rule.max_skew:
                return 2
        return 0

    return {node.name: verdict(node.labels) for node in cluster.nodes}


def spread_scores(
    cluster: Cluster, pod: PodInfo, rules: tuple[Constraint, ...], feasible: list[str], *, requires_all: bool
) -> dict[str, int]:
    """Node name to normalised score."""
    by_name = {node.name: node for node in cluster.nodes}

    def lacks(node: NodeInfo) -> bool:
        return requires_all and any(rule.key not in node.labels for rule in rules)

    scored = [by_name[name] for name in feasible if not lacks(by_name[name])]
    raw = dict.fromkeys((node.name for node in scored), 0.0)
    for rule in rules:
        candidates = {node.labels.get(rule.key, "") for node in scored}
        size = len(scored) if rule.key == HOST else len(candidates)
        weight = math.log(size + 2)
        counts = dict.fromkeys(candidates, 0)
        for node in cluster.nodes:
            value = node.labels.get(rule.key, "")
            if not lacks(node) and _included(node, rule, pod) and value in counts:
                counts[value] += _count(node, rule, pod)
        for node in scored:
            if rule.key in node.labels:
                count = _count(node, rule, pod) if rule.key == HOST else counts[node.labels[rule.key]]
                raw[node.name] += float(count) * weight + float(rule.max_skew - 1)
    rounded = {name: math.floor(total + 0.5) for name, total in raw.items()}
    low = min(rounded.values(), default=0)
    high = max(0, *rounded.values(), 0)
    result = dict.fromkeys(feasible, 0)
    for name, score in rounded.items():
        result[name] = 100 if high == 0 else 100 * (high + low - score) // high
    return result


__all__ = [
    "HARD",
    "HOST",
    "KEYS",
    "NAMESPACES",
    "SOFT",
    "ZONE",
    "Cluster",
    "affinity_scores",
    "affinity_verdicts",
    "compile_constraints",
    "labels",
    "namespace",
    "nodes",
    "objects",
    "pods",
    "spread_scores",
    "spread_verdicts",
]

"""The rules of InterPodAffinity and PodTopologySpread over plain manifests: what the plugins are compared with.

Written from the rules alone (rules/topology, with the deviations of ``docs/differences.md``), pod by
pod and node by node. Nothing of kubesched is used: not its types, selectors, defaults nor counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

JSON = dict[str, Any]
Labels = dict[str, str]

HARD = "DoNotSchedule"
SOFT = "ScheduleAnyway"
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

#: Spec B.2: what applies without any configuration.
_SYSTEM = [
    {"topologyKey": HOST, "maxSkew": 3, "whenUnsatisfiable": SOFT},
    {"topologyKey": ZONE, "maxSkew": 5, "whenUnsatisfiable": SOFT},
]


@dataclass
class Model:
    """A cluster as its manifests say, and what the profile configures of the two plugins."""

    nodes: dict[str, JSON] = field(default_factory=dict)
    #: UID to pod; pods of nodes that are not there do not count.
    pods: dict[str, JSON] = field(default_factory=dict)
    #: Namespace to its labels.
    namespaces: dict[str, Labels] = field(default_factory=dict)
    #: Services and owners: (kind, namespace, name) to object.
    objects: dict[tuple[str, str, str], JSON] = field(default_factory=dict)
    spread_args: JSON = field(default_factory=dict)
    affinity_args: JSON = field(default_factory=dict)

    def on(self, node: str) -> Iterator[JSON]:
        return (pod for pod in self.pods.values() if pod["spec"]["nodeName"] == node)


def labels_of(obj: JSON) -> Labels:
    labels: Labels = obj["metadata"].get("labels") or {}
    return labels


def namespace_of(obj: JSON) -> str:
    return str(obj["metadata"]["namespace"])


def _meets(requirement: JSON, labels: Labels) -> bool:
    key, values = requirement["key"], requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise AssertionError(requirement)


def selects(selector: JSON | None, labels: Labels) -> bool:
    """No selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    pairs = (selector.get("matchLabels") or {}).items()
    return all(labels.get(key) == value for key, value in pairs) and all(
        _meets(item, labels) for item in selector.get("matchExpressions") or []
    )


def is_empty(selector: JSON | None) -> bool:
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


# -- inter-pod affinity ------------------------------------------------------------------------------------


def _terms(pod: JSON, which: str, how: str) -> list[JSON]:
    affinity = (pod["spec"].get("affinity") or {}).get(which) or {}
    found: list[JSON] = affinity.get(how) or []
    return found


def _weighted(pod: JSON) -> list[tuple[int, JSON]]:
    return [
        (sign * item["weight"], item["podAffinityTerm"])
        for which, sign in (("podAffinity", 1), ("podAntiAffinity", -1))
        for item in _terms(pod, which, _PREFERRED)
    ]


def _means(model: Model, owner: JSON, term: JSON, pod: JSON, *, resolved: bool) -> bool:
    """Return True if ``owner``'s term means ``pod``.

    ``resolved``: the owner is the incoming pod, so that its namespaceSelector is resolved to the existing namespaces;
    else it is matched against the labels of the pod's namespace, none if that is unknown.
    """
    listed, selector = term.get("namespaces") or [], term.get("namespaceSelector")
    names = set(listed)
    if not listed and selector is None:
        names = {namespace_of(owner)}
    where = namespace_of(pod)
    if resolved and not is_empty(selector):
        names |= {name for name, labels in model.namespaces.items() if selects(selector, labels)}
        known = where in names
    else:
        known = where in names or selects(selector, model.namespaces.get(where, {}))
    return known and selects(term.get("labelSelector"), labels_of(pod))


class AffinityFilter:
    """PreFilter's three counters, AddPod and RemovePod, and Filter. Verdicts: 0 passes, else the check that fails."""

    def __init__(self, model: Model, pod: JSON) -> None:
        self._model, self._pod = model, pod
        self._near = _terms(pod, "podAffinity", _REQUIRED)
        self._away = _terms(pod, "podAntiAffinity", _REQUIRED)
        self.existing: dict[tuple[str, str], int] = {}
        self.affinity: dict[tuple[str, str], int] = {}
        self.anti: dict[tuple[str, str], int] = {}
        for name, node in model.nodes.items():
            for other in model.on(name):
                self.shift(other, node, 1)

    @property
    def skips(self) -> bool:
        return not self.existing and not self._near and not self._away

    def shift(self, other: JSON, node: JSON, delta: int) -> None:
        """One pod more or less on a node."""
        model, pod, labels = self._model, self._pod, labels_of(node)

        def count(counter: dict[tuple[str, str], int], term: JSON) -> None:
            key = term["topologyKey"]
            if key in labels:
                place = (key, labels[key])
                counter[place] = counter.get(place, 0) + delta
                if not counter[place]:
                    del counter[place]

        for term in _terms(other, "podAntiAffinity", _REQUIRED):
            if _means(model, other, term, pod, resolved=False):
                count(self.existing, term)
        if all(_means(model, pod, term, other, resolved=True) for term in self._near):
            for term in self._near:
                count(self.affinity, term)
        for term in self._away:
            if _means(model, pod, term, other, resolved=True):
                count(self.anti, term)

    def verdict(self, node: JSON) -> int:
        labels = labels_of(node)
        if any(term["topologyKey"] not in labels for term in self._near):
            return 1
        if any(self.affinity.get((term["topologyKey"], labels[term["topologyKey"]]), 0) <= 0 for term in self._near):
            own = all(_means(self._model, self._pod, term, self._pod, resolved=True) for term in self._near)
            if self.affinity or not own:
                return 1
        for term in self._away:
            key = term["topologyKey"]
            if key in labels and self.anti.get((key, labels[key]), 0) > 0:
                return 2
        return 3 if any(self.existing.get(place, 0) > 0 for place in labels.items()) else 0


def affinity_scores(model: Model, pod: JSON, feasible: Iterable[str]) -> dict[str, int] | None:
    """Node name to normalised score; None when the plugin has nothing to say."""
    hard_weight = model.affinity_args.get("hardPodAffinityWeight", 1)
    mine = _weighted(pod)
    if model.affinity_args.get("ignorePreferredTermsOfExistingPods") and not mine:
        return None
    sums: dict[tuple[str, str], int] = {}
    for name, node in model.nodes.items():
        labels = labels_of(node)
        for other in model.on(name):
            found = [(weight, term) for weight, term in mine if _means(model, pod, term, other, resolved=True)]
            theirs = _weighted(other)
            if hard_weight > 0:
                theirs += [(hard_weight, term) for term in _terms(other, "podAffinity", _REQUIRED)]
            found += [(weight, term) for weight, term in theirs if _means(model, other, term, pod, resolved=False)]
            for weight, term in found:
                key = term["topologyKey"]
                if key in labels:
                    sums[key, labels[key]] = sums.get((key, labels[key]), 0) + weight
    if not sums:
        return None
    raw = {name: sum(sums.get(place, 0) for place in labels_of(model.nodes[name]).items()) for name in feasible}
    low, high = min(raw.values()), max(raw.values())
    if low == high:
        return dict.fromkeys(raw, 0)
    return {name: int(100.0 * (float(score - low) / float(high - low))) for name, score in raw.items()}


# -- topology spread ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constraint:
    """With every default filled in."""

    key: str
    max_skew: int
    min_domains: int
    selector: JSON | None
    honors_affinity: bool
    honors_taints: bool


def _default_selector(model: Model, pod: JSON) -> JSON:
    """Return the selector of the pod's Services and its controller together."""
    space, labels = namespace_of(pod), labels_of(pod)
    pairs: Labels = {}
    expressions: list[JSON] = []
    for (kind, namespace, _), obj in model.objects.items():
        if kind == "Service" and namespace == space:
            selector = obj["spec"].get("selector")
            if selector is not None and selects({"matchLabels": selector}, labels):
                pairs.update(selector)
    for owner in pod["metadata"].get("ownerReferences") or []:
        if not owner.get("controller"):
            continue
        known = model.objects.get((owner["kind"], space, owner["name"]))
        selector = None if known is None else known["spec"].get("selector")
        if selector is None:
            continue
        match (owner["apiVersion"], owner["kind"]):
            case ("v1", "ReplicationController"):
                pairs.update(selector)
            case ("apps/v1", "ReplicaSet" | "StatefulSet"):
                # All of both: a label that is asked for twice must meet both.
                expressions = [
                    {"key": key, "operator": "In", "values": [value]}
                    for key, value in (selector.get("matchLabels") or {}).items()
                ]
                expressions += selector.get("matchExpressions") or []
    return {"matchLabels": pairs, "matchExpressions": expressions}


def effective(model: Model, pod: JSON, kind: str) -> list[Constraint]:
    """The constraints of a kind that apply to a pod: its own, or else the profile's."""
    own = pod["spec"].get("topologySpreadConstraints") or []
    if own:
        listed, selector = own, None
    else:
        in_list = model.spread_args.get("defaultingType") == "List"
        listed = model.spread_args.get("defaultConstraints") or [] if in_list else _SYSTEM
        selector = _default_selector(model, pod)
        if is_empty(selector):
            return []
    labels = labels_of(pod)
    found = []
    for item in listed:
        if item["whenUnsatisfiable"] != kind:
            continue
        means = item.get("labelSelector") if own else selector
        keys = [key for key in item.get("matchLabelKeys") or [] if key in labels]
        if own and means is not None and keys:
            more = [{"key": key, "operator": "In", "values": [labels[key]]} for key in keys]
            means = {**means, "matchExpressions": [*(means.get("matchExpressions") or []), *more]}
        found.append(
            Constraint(
                item["topologyKey"],
                item["maxSkew"],
                item.get("minDomains", 1),
                means,
                item.get("nodeAffinityPolicy", "Honor") == "Honor",
                item.get("nodeTaintsPolicy", "Ignore") == "Honor",
            )
        )
    return found


def _node_matches(pod: JSON, node: JSON) -> bool:
    """nodeSelector and required node affinity."""
    spec, labels = pod["spec"], labels_of(node)
    if not selects({"matchLabels": spec.get("nodeSelector") or {}}, labels):
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if required is None:
        return True
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(_meets(item, labels) for item in term.get("matchExpressions") or [])
        and all(_meets(item, {"metadata.name": node["metadata"]["name"]}) for item in term.get("matchFields") or [])
        for term in required["nodeSelectorTerms"]
    )


def _tolerates(pod: JSON, taint: JSON) -> bool:
    for item in pod["spec"].get("tolerations") or []:
        if item.get("effect", "") not in ("", taint["effect"]) or item.get("key", "") not in ("", taint["key"]):
            continue
        if item.get("operator", "Equal") == "Exists":
            return True
        if item.get("key") and item.get("value", "") == taint.get("value", ""):
            return True
    return False


def _included(pod: JSON, rule: Constraint, node: JSON) -> bool:
    if rule.honors_affinity and not _node_matches(pod, node):
        return False
    taints = node["spec"].get("taints") or []
    keeps_out = [taint for taint in taints if taint["effect"] in ("NoSchedule", "NoExecute")]
    return not rule.honors_taints or all(_tolerates(pod, taint) for taint in keeps_out)


def _count(model: Model, pod: JSON, rule: Constraint, node: str) -> int:
    if is_empty(rule.selector):
        return 0
    return sum(
        namespace_of(other) == namespace_of(pod)
        and not other["metadata"].get("deletionTimestamp")
        and selects(rule.selector, labels_of(other))
        for other in model.on(node)
    )


class SpreadFilter:
    """PreFilter's counts, AddPod and RemovePod, and Filter. Verdicts: 1 a missing label, 2 too much skew, 0 neither."""

    def __init__(self, model: Model, pod: JSON) -> None:
        self._pod = pod
        self._rules = effective(model, pod, HARD)
        self._counts: list[dict[str, int]] = []
        for rule in self._rules:
            counts: dict[str, int] = {}
            for name, node in model.nodes.items():
                if self._takes_part(node) and _included(pod, rule, node):
                    value = labels_of(node)[rule.key]
                    counts[value] = counts.get(value, 0) + _count(model, pod, rule, name)
            self._counts.append(counts)

    @property
    def skips(self) -> bool:
        return not self._rules

    def _takes_part(self, node: JSON) -> bool:
        return all(rule.key in labels_of(node) for rule in self._rules)

    def shift(self, other: JSON, node: JSON, delta: int) -> None:
        """One pod more or less on a node; one that is being deleted counts, and everything for ``{}`` (B-Q3)."""
        if namespace_of(other) != namespace_of(self._pod) or not self._takes_part(node):
            return
        for rule, counts in zip(self._rules, self._counts, strict=True):
            if selects(rule.selector, labels_of(other)) and _included(self._pod, rule, node):
                counts[labels_of(node)[rule.key]] += delta

    def verdict(self, node: JSON) -> int:
        labels = labels_of(node)
        for rule, counts in zip(self._rules, self._counts, strict=True):
            if rule.key not in labels:
                return 1
            least = 0 if len(counts) < rule.min_domains else min(counts.values(), default=0)
            own = int(selects(rule.selector, labels_of(self._pod)))
            if counts.get(labels[rule.key], 0) + own - least > rule.max_skew:
                return 2
        return 0


def spread_scores(model: Model, pod: JSON, feasible: list[str]) -> dict[str, int] | None:
    """Node name to normalised score; None when the plugin has nothing to say."""
    rules = effective(model, pod, SOFT)
    if not rules:
        return None
    in_list = model.spread_args.get("defaultingType") == "List"
    require_all = bool(pod["spec"].get("topologySpreadConstraints")) or in_list

    def ignored(name: str) -> bool:
        return require_all and any(rule.key not in labels_of(model.nodes[name]) for rule in rules)

    scored = [name for name in feasible if not ignored(name)]
    totals = dict.fromkeys(scored, 0.0)
    for rule in rules:
        domains = {labels_of(model.nodes[name]).get(rule.key, ""): 0 for name in scored}
        weight = math.log((len(scored) if rule.key == HOST else len(domains)) + 2)
        for name, node in model.nodes.items():
            value = labels_of(node).get(rule.key, "")
            if not ignored(name) and value in domains and _included(pod, rule, node):
                domains[value] += _count(model, pod, rule, name)
        for name in scored:
            labels = labels_of(model.nodes[name])
            if rule.key in labels:
                count = _count(model, pod, rule, name) if rule.key == HOST else domains[labels[rule.key]]
                totals[name] += float(count) * weight + float(rule.max_skew - 1)
    raw = {name: int(Decimal(total).quantize(Decimal(1), ROUND_HALF_UP)) for name, total in totals.items()}
    low, high = min(raw.values(), default=0), max(0, *raw.values(), 0)
    scores = {name: 100 * (high + low - score) // high if high else 100 for name, score in raw.items()}
    return {name: scores.get(name, 0) for name in feasible}

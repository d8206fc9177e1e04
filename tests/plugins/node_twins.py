"""Plain twins of the node-level plugins: straight from the specification, one node at a time.

Nothing of the house is used but the API types and Quantity, so a mistake in selectors, request arithmetic,
columns or plugins is not made twice. Rules: rules/node-plugins §2 to §10.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from kubesched.api.quantity import Quantity
from kubesched.api.types import (
    Container,
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PreferredSchedulingTerm,
    Taint,
    Toleration,
)

UU, U = 3, 2
MIB = 1 << 20

#: (code, reasons), or None where the node passes.
Outcome = tuple[int, tuple[str, ...]] | None
Amounts = dict[str, Fraction]

# -- resources (rules/node-plugins §8.1) -------------------------------------------------------------------------------


def _amounts(source: Mapping[str, str | int | float]) -> Amounts:
    return {name: Fraction(Quantity.parse(text).nanos, 10**9) for name, text in source.items()}


def _plus(first: Amounts, second: Amounts) -> Amounts:
    return {name: first.get(name, Fraction(0)) + second.get(name, Fraction(0)) for name in {**first, **second}}


def _most(*sources: Amounts) -> Amounts:
    names = dict.fromkeys(name for source in sources for name in source)
    return {name: max(source[name] for source in sources if name in source) for name in names}


def _pod_level_names(pod: Pod) -> list[str]:
    requests = pod.spec.resources.requests if pod.spec.resources is not None else {}
    return [name for name in requests if name in ("cpu", "memory") or name.startswith("hugepages-")]


def _infeasible(pod: Pod) -> bool:
    found = [item for item in pod.status.conditions if item.type == "PodResizePending"]
    return bool(found) and found[0].reason == "Infeasible"


def asked(pod: Pod, *, status: bool, pod_level: bool = True, defaults: Sequence[str] = ()) -> Amounts:
    """Return the exact amounts a pod asks for. ``defaults`` are the resources filled in where a container has no entry."""
    fill = {"cpu": Fraction(1, 10), "memory": Fraction(200 * MIB)}

    def own(container: Container) -> Amounts:
        amounts = _amounts(container.resources.requests)
        return {**{name: fill[name] for name in defaults if name not in amounts}, **amounts}

    def effective(container: Container) -> Amounts:
        statuses = [*pod.status.container_statuses, *pod.status.init_container_statuses]
        for item in statuses:
            if status and item.name == container.name and item.resources is not None:
                sources = [_amounts(item.resources.requests), _amounts(item.allocated_resources)]
                if not _infeasible(pod):
                    sources.append(_amounts(container.resources.requests))
                amounts = _most(*sources)
                return {**{name: fill[name] for name in defaults if name not in amounts}, **amounts}
        return own(container)

    total: Amounts = {}
    for container in pod.spec.containers:
        total = _plus(total, effective(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            total = _plus(total, effective(container))
            sidecars = _plus(sidecars, effective(container))
            peak = _most(peak, sidecars)
        else:
            peak = _most(peak, _plus(own(container), sidecars))
    total = _most(total, peak)
    if pod_level and _pod_level_names(pod):
        assert pod.spec.resources is not None
        level = _amounts(pod.spec.resources.requests)
        if status and pod.status.resources is not None:
            sources = [_amounts(pod.status.resources.requests), _amounts(pod.status.allocated_resources)]
            if not _infeasible(pod):
                sources.append(level)
            level = _most(*sources)
        for name in _pod_level_names(pod):
            total[name] = level.get(name, Fraction(0))
    return _plus(total, _amounts(pod.spec.overhead))


def is_extended(name: str) -> bool:
    """Extended, for the names these tests use (which are all well-formed)."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def is_scalar(name: str) -> bool:
    return is_extended(name) or "kubernetes.io/" in name or name.startswith(("hugepages-", "attachable-volumes-"))


def whole(amounts: Amounts) -> dict[str, int]:
    """cpu in milli-units, the rest in units, rounded up and at most int64; only what is counted."""
    counted = {"cpu", "memory", "ephemeral-storage", "pods"}
    return {
        name: min(math.ceil(amount * (1000 if name == "cpu" else 1)), (1 << 63) - 1)
        for name, amount in amounts.items()
        if name in counted or is_scalar(name)
    }


def allocatable(node: Node) -> dict[str, int]:
    return whole(_amounts(node.status.allocatable))


def requested(pods: Iterable[Pod]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in whole(asked(pod, status=True)).items():
            total[name] = total.get(name, 0) + amount
    return total


def nonzero(pod: Pod) -> tuple[int, int]:
    """cpu and memory charged to a node for scoring (rules/node-plugins §8.1, second table)."""
    names = ["cpu", "memory"]
    if _pod_level_names(pod):
        present = asked(pod, status=True)
        names = [name for name in names if name not in present]
    filled = whole(asked(pod, status=True, defaults=names))
    return filled.get("cpu", 0), filled.get("memory", 0)


# -- fit (rules/node-plugins §8.2 and §8.4) ----------------------------------------------------------------------------


def fit(pod: Pod, node: Node, pods: Sequence[Pod], ignored: Sequence[str] = (), groups: Sequence[str] = ()) -> Outcome:
    wanted, offered, used = whole(asked(pod, status=False)), allocatable(node), requested(pods)
    reasons: list[str] = []
    hopeless = False
    if len(pods) + 1 > offered.get("pods", 0):
        reasons.append("Too many pods")
    fixed = ("cpu", "memory", "ephemeral-storage")
    for name in (*fixed, *(name for name in wanted if is_scalar(name))):
        amount = wanted.get(name, 0)
        if is_extended(name) and (name in ignored or name.partition("/")[0] in groups):
            continue
        if amount > 0 and amount > offered.get(name, 0) - used.get(name, 0):
            reasons.append(f"Insufficient {name}")
            hopeless = hopeless or amount > offered.get(name, 0)
    return (UU if hopeless else U, tuple(reasons)) if reasons else None


def _trunc(value: int, divisor: int) -> int:
    return math.trunc(Fraction(value, divisor))


def _line(shape: Sequence[tuple[int, int]], x: int) -> int:
    points = [(utilization, score * 10) for utilization, score in shape]
    for (left, bottom), (right, top) in zip([points[0], *points], points, strict=False):
        if x <= right:
            return top if (left, bottom) == (right, top) else bottom + _trunc((top - bottom) * (x - left), right - left)
    return points[-1][1]


def fit_score(
    pod: Pod,
    node: Node,
    pods: Sequence[Pod],
    strategy: str,
    resources: Sequence[tuple[str, int]],
    shape: Sequence[tuple[int, int]] = (),
) -> int:
    wanted = whole(asked(pod, status=False, pod_level=False, defaults=["cpu", "memory"]))
    offered, used = allocatable(node), requested(pods)
    used["cpu"] = sum(nonzero(other)[0] for other in pods)
    used["memory"] = sum(nonzero(other)[1] for other in pods)
    parts: list[tuple[int, int]] = []
    for name, weight in resources:
        if name == "pods" or (is_scalar(name) and not wanted.get(name, 0)) or not offered.get(name, 0):
            continue
        capacity, total = offered[name], used.get(name, 0) + wanted.get(name, 0)
        if strategy == "LeastAllocated":
            score = 0 if total > capacity else _trunc((capacity - total) * 100, capacity)
        elif strategy == "MostAllocated":
            score = _trunc(min(total, capacity) * 100, capacity)
        else:
            score = _line(shape, 100 if total > capacity else _trunc(total * 100, capacity))
            if score <= 0:
                continue
        parts.append((score, weight))
    if not parts:
        return 0
    total, weights = sum(score * weight for score, weight in parts), sum(weight for _, weight in parts)
    if strategy == "RequestedToCapacityRatio":
        return math.floor(float(total) / float(weights) + 0.5)
    return _trunc(total, weights)


def _balance(fractions: list[float]) -> int:
    if len(fractions) < 2:
        spread = 0.0
    elif len(fractions) == 2:
        spread = abs((fractions[0] - fractions[1]) / 2)
    else:
        total = 0.0
        for item in fractions:
            total += item
        mean = total / len(fractions)
        squares = 0.0
        for item in fractions:
            squares += (item - mean) * (item - mean)
        spread = math.sqrt(squares / len(fractions))
    return int((1 - spread) * 100.0)


def balanced(pod: Pod, node: Node, pods: Sequence[Pod], resources: Sequence[str]) -> int | None:
    """None where PreScore skips."""
    wanted, offered, used = whole(asked(pod, status=True)), allocatable(node), requested(pods)
    if not any(wanted.get(name, 0) for name in resources):
        return None
    before, after = [], []
    for name in resources:
        if name == "pods" or (is_scalar(name) and not wanted.get(name, 0)) or not offered.get(name, 0):
            continue
        before.append(min(1.0, float(used.get(name, 0)) / float(offered[name])))
        after.append(min(1.0, float(used.get(name, 0) + wanted.get(name, 0)) / float(offered[name])))
    return 50 + _trunc(50 + _balance(after) - _balance(before), 2)


# -- taints, names, cordons (rules/node-plugins §3 and §7.3 to §7.5) ---------------------------------------------------


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    return (
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (
            toleration.operator == "Exists"
            or (toleration.operator in ("", "Equal") and toleration.value == taint.value)
        )
    )


def taints(pod: Pod, node: Node) -> Outcome:
    for taint in node.spec.taints:
        if taint.effect not in ("NoSchedule", "NoExecute"):
            continue
        if not any(tolerates(toleration, taint) for toleration in pod.spec.tolerations):
            return UU, ("node(s) had untolerated taint(s)",)
    return None


def taint_score(pod: Pod, node: Node) -> int:
    soft = [item for item in pod.spec.tolerations if item.effect in ("", "PreferNoSchedule")]
    return sum(
        taint.effect == "PreferNoSchedule" and not any(tolerates(toleration, taint) for toleration in soft)
        for taint in node.spec.taints
    )


def unschedulable(pod: Pod, node: Node) -> Outcome:
    cordon = Taint(key="node.kubernetes.io/unschedulable", value="", effect="NoSchedule")
    if not node.spec.unschedulable or any(tolerates(item, cordon) for item in pod.spec.tolerations):
        return None
    return UU, ("node(s) were unschedulable",)


def node_name(pod: Pod, node: Node) -> Outcome:
    if pod.spec.node_name in ("", node.metadata.name):
        return None
    return UU, ("node(s) didn't match the requested node name",)


# -- node affinity (rules/node-plugins §2 and §7.6) --------------------------------------------------------------------

_LABEL_VALUE = re.compile(r"(?!.{64})([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_KEY = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def _int64(text: str) -> int | None:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return None
    return int(text) if -(1 << 63) <= int(text) < 1 << 63 else None


def _parses(item: NodeSelectorRequirement) -> bool:
    if not _KEY.fullmatch(item.key) or not all(_LABEL_VALUE.fullmatch(value) for value in item.values):
        return False
    match item.operator:
        case "In" | "NotIn":
            return len(item.values) > 0
        case "Exists" | "DoesNotExist":
            return not item.values
        case "Gt" | "Lt":
            return len(item.values) == 1 and _int64(item.values[0]) is not None
    return False


def _holds(item: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(item.key)
    match item.operator:
        case "In":
            return value is not None and value in item.values
        case "NotIn":
            return value is None or value not in item.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number, bound = None if value is None else _int64(value), _int64(item.values[0])
    if number is None or bound is None:
        return False
    return number > bound if item.operator == "Gt" else number < bound


def term_parses(term: NodeSelectorTerm) -> bool:
    return all(_parses(item) for item in term.match_expressions) and all(
        item.operator in ("In", "NotIn") and len(item.values) == 1 for item in term.match_fields
    )


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    if not term_parses(term):
        return False
    for item in term.match_fields:
        value = node.metadata.name if item.key == "metadata.name" else ""
        if (value in item.values) != (item.operator == "In"):
            return False
    return all(_holds(item, node.metadata.labels) for item in term.match_expressions)


def node_affinity(pod: Pod, node: Node) -> Outcome:
    outcome = UU, ("node(s) didn't match Pod's node affinity/selector",)
    if any(node.metadata.labels.get(key) != value for key, value in (pod.spec.node_selector or {}).items()):
        return outcome
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None:
        return None
    return None if any(term_matches(term, node) for term in affinity.required.node_selector_terms) else outcome


def preference(terms: Iterable[PreferredSchedulingTerm], node: Node) -> int:
    return sum(item.weight for item in terms if item.weight and term_matches(item.preference, node))


# -- ports, images, features (rules/node-plugins §7.7, §7.8 and §7.10) -------------------------------------------------


def ports(pod: Pod) -> list[tuple[str, str, int]]:
    sidecars = [item for item in pod.spec.init_containers if item.restart_policy == "Always"]
    return [
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for container in (*sidecars, *pod.spec.containers)
        for port in container.ports
        if port.host_port > 0
    ]


def node_ports(pod: Pod, pods: Sequence[Pod]) -> Outcome:
    used = [port for other in pods for port in ports(other)]
    for ip, protocol, number in ports(pod):
        for other_ip, other_protocol, other_number in used:
            if (protocol, number) == (other_protocol, other_number) and (ip == other_ip or "0.0.0.0" in (ip, other_ip)):
                return U, ("node(s) didn't have free ports for the requested pod ports",)
    return None


def image_score(pod: Pod, node: Node, nodes: Sequence[Node], sizes: Mapping[str, int]) -> int:
    """``sizes`` are the sizes as first recorded."""

    def has(where: Node, image: str) -> bool:
        return any(image in item.names for item in where.status.images)

    def tagged(name: str) -> str:
        return name if ":" in name.rpartition("/")[2] else f"{name}:latest"

    containers = [*pod.spec.init_containers, *pod.spec.containers]
    wanted = [tagged(item.image) for item in containers]
    wanted += [tagged(volume.image["reference"]) for volume in pod.spec.volumes if volume.image is not None]
    total = 0
    for image in wanted:
        if has(node, image):
            spread = sum(has(other, image) for other in nodes)
            total += int(float(sizes[image]) * (float(spread) / float(len(nodes))))
    low, high = 23 * MIB, 1000 * MIB * len(containers)
    return (100 * (min(max(total, low), high) - low)) // (high - low)


def declared_features(pod: Pod, node: Node) -> Outcome:
    needed = set()
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if any(rule.action == "RestartAllContainers" for rule in container.restart_policy_rules):
            needed.add("RestartAllContainersOnContainerExits")
    if pod.spec.host_network and pod.spec.host_users is False:
        needed.add("UserNamespacesHostNetworkSupport")
    if needed <= set(node.status.declared_features):
        return None
    return UU, ("node(s) didn't match Pod's required features",)


def scaled(scores: Mapping[str, int], *, reverse: bool) -> dict[str, int]:
    """Default normalisation (rules/node-plugins §4)."""
    greatest = max(0, *scores.values())
    if greatest == 0:
        return dict.fromkeys(scores, 100) if reverse else dict(scores)
    return {
        name: 100 - _trunc(100 * score, greatest) if reverse else _trunc(100 * score, greatest)
        for name, score in scores.items()
    }

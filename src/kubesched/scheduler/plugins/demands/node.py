"""Demands on the node itself: its name, its taints, its labels, its ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from heapq import nsmallest
from typing import Final

import numpy as np
from msgspec.structs import replace

from kubesched.api.taints import NO_EXECUTE, NO_SCHEDULE, tolerated
from kubesched.api.types import (
    Container,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    Taint,
    Toleration,
)

from ...framework.demand import Change, Demand
from ...framework.question import RowArray
from ...nodes import NodeTable, PodInfo
from ...nodes.columns import ABSENT
from ...nodes.podinfo import WILDCARD_IP
from .words import MOST_APART, always, listed, requirement_text

__all__ = ["cordons", "labels", "node_name", "ports", "taints"]

#: Values, names and pods that one text lists.
_MOST_LISTED: Final = 5
#: Most taints that are listed one by one, the most frequent first.
_MOST_TAINTS: Final = 16
_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


def cordons(nodes: NodeTable) -> Iterator[Demand]:
    """Demand for a node that is not cordoned."""
    names = sorted(node.name for node in nodes.all_infos() if node.unschedulable)
    if names:
        text = f"cordoned nodes: {listed(names[:_MOST_LISTED], len(names))}"
        yield Demand(always(text), _toleration(_CORDON, "run on cordoned nodes (or uncordon them): tolerate "))


def taints(pod: PodInfo, nodes: NodeTable) -> Iterator[Demand]:
    """Demands for a node without a taint: one for each taint that the pod does not tolerate."""
    counts: Counter[Taint] = Counter()
    column = nodes.taints
    for code, count in enumerate(np.bincount(column.codes[nodes.order()]).tolist()):
        for taint in column.sets[code] if count else ():
            if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerated(taint, pod.spec.tolerations):
                counts[Taint(key=taint.key, value=taint.value, effect=taint.effect)] += count
    for taint in sorted(counts, key=lambda one: (-counts[one], _taint_text(one)))[:_MOST_TAINTS]:
        yield Demand(always(f"taint {_taint_text(taint)}"), _toleration(taint, "tolerate the taint "))


def _toleration(taint: Taint, words: str) -> Change:
    added = Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
    return Change.of_spec(
        f"{words}{_taint_text(taint)}", lambda spec: replace(spec, tolerations=(*spec.tolerations, added))
    )


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def node_name(pod: PodInfo) -> Iterator[Demand]:
    """Demand for the one node that ``spec.nodeName`` names."""
    name = pod.spec.node_name
    if name:
        yield Demand(
            always(f"nodeName {name}"),
            Change.of_spec(f"drop nodeName {name}", lambda spec: replace(spec, node_name="")),
        )


# -- labels ------------------------------------------------------------------------------------------------


def labels(pod: PodInfo, nodes: NodeTable) -> Iterator[Demand]:
    """Demands of each label of the node selector and each requirement of the node affinity. Several terms make one
    demand.
    """
    spec = pod.spec
    selected = spec.node_selector or {}
    if len(selected) > MOST_APART:
        shown = [f"{key}={value}" for key, value in nsmallest(_MOST_LISTED, selected.items())]
        drop = Change.of_spec("drop the whole nodeSelector", lambda spec: replace(spec, node_selector=None))
        yield Demand(always(f"nodeSelector with {len(selected):,} labels: {listed(shown, len(selected))}"), drop)
        selected = {}
    for key, value in sorted(selected.items()):
        text = f"nodeSelector {key}={value}: {_values(nodes, key)}"
        yield Demand(always(text), Change.of_spec(f"drop nodeSelector {key}={value}", partial(_without_label, key)))
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    if required is None:
        return
    terms = required.node_selector_terms
    apart = len(terms) == 1 and len(terms[0].match_expressions) + len(terms[0].match_fields) <= MOST_APART
    if not apart:
        count = sum(len(term.match_expressions) + len(term.match_fields) for term in terms)
        many = f"{len(terms):,} terms" if len(terms) != 1 else f"{count:,} requirements"
        text = f"node affinity with {many}, of which none matches" if len(terms) != 1 else f"node affinity with {many}"
        yield Demand(always(text), Change.of_spec("drop the required node affinity", partial(_with_terms, ())))
        return
    (term,) = terms
    for requirement in term.match_expressions:
        yield _requirement(requirement, f": {_values(nodes, requirement.key)}")
    for requirement in term.match_fields:
        yield _requirement(requirement)


def _requirement(requirement: NodeSelectorRequirement, values: str = "") -> Demand:
    text = f"node affinity {requirement_text(requirement)}"
    return Demand(always(text + values), Change.of_spec(f"drop the {text}", partial(_without_requirement, requirement)))


def _values(nodes: NodeTable, key: str) -> str:
    """The values of a label, most frequent first."""
    column = nodes.labels.column(key)
    codes = column.codes[nodes.order()]
    counts = {code: count for code, count in enumerate(np.bincount(codes[codes != ABSENT]).tolist()) if count}
    if not counts:
        return f"no node has the label {key}"
    frequent = sorted(counts, key=lambda code: -counts[code])[:_MOST_LISTED]
    return f"nodes have {listed([f'{column.values[code]} ({counts[code]:,})' for code in frequent], len(counts))}"


def _without_label(key: str, spec: PodSpec) -> PodSpec:
    left = {name: value for name, value in (spec.node_selector or {}).items() if name != key}
    return replace(spec, node_selector=left or None)


def _without_requirement(requirement: NodeSelectorRequirement, spec: PodSpec) -> PodSpec:
    assert spec.affinity is not None
    assert spec.affinity.node_affinity is not None
    required = spec.affinity.node_affinity.required
    left = tuple(
        made
        for term in (required.node_selector_terms if required is not None else ())
        if (made := _less(term, requirement)).match_expressions or made.match_fields
    )
    return _with_terms(left, spec)


def _less(term: NodeSelectorTerm, requirement: NodeSelectorRequirement) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=tuple(one for one in term.match_expressions if one is not requirement),
        match_fields=tuple(one for one in term.match_fields if one is not requirement),
    )


def _with_terms(terms: tuple[NodeSelectorTerm, ...], spec: PodSpec) -> PodSpec:
    assert spec.affinity is not None
    assert spec.affinity.node_affinity is not None
    required = NodeSelector(node_selector_terms=terms) if terms else None
    of_node = replace(spec.affinity.node_affinity, required_during_scheduling_ignored_during_execution=required)
    return replace(spec, affinity=replace(spec.affinity, node_affinity=of_node))


# -- ports -------------------------------------------------------------------------------------------------


def ports(pod: PodInfo, nodes: NodeTable) -> Iterator[Demand]:
    """Demands of each host port, with the pods that hold the port."""
    for wanted in pod.ports:
        _, protocol, number = wanted
        if nodes.port_rows.get(wanted[1:]):
            change = Change.of_spec(
                f"do without the host port {number}/{protocol}", partial(_without_port, protocol, number)
            )
            yield Demand(partial(_port_text, nodes, wanted), change)


def _port_text(nodes: NodeTable, wanted: tuple[str, str, int], rows: RowArray) -> str:
    """The port with its holders on these nodes."""
    there = nodes.port_rows.get(wanted[1:], set())
    held = [node for row in rows.tolist() if row in there and (node := nodes.info(row)).used_ports.conflicts(wanted)]
    holders = [
        f"{other.pod.key} on {node.name}"
        for node in sorted(held, key=lambda node: node.name)[:_MOST_LISTED]
        for other in node.pods.values()
        if any(port[1:] == wanted[1:] and _overlap(port[0], wanted[0]) for port in other.ports)
    ]
    return f"host port {wanted[2]}/{wanted[1]}: held by {listed(holders[:_MOST_LISTED], max(len(held), len(holders)))}"


def _overlap(first: str, second: str) -> bool:
    """True if two host IPs cannot both have a port."""
    return first == second or WILDCARD_IP in (first, second)


def _without_port(protocol: str, number: int, spec: PodSpec) -> PodSpec:
    def freed(container: Container) -> Container:
        kept = (port for port in container.ports if (port.protocol or "TCP", port.host_port) != (protocol, number))
        return replace(container, ports=tuple(kept))

    return replace(
        spec,
        containers=tuple(freed(container) for container in spec.containers),
        init_containers=tuple(freed(container) for container in spec.init_containers),
    )

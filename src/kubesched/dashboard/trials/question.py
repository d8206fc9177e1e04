"""Checks of proposals against a cluster, and their words. A proposal that cannot be is refused, with what would be right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubesched.api.kinds import DEPLOYMENTS, NODES, REPLICA_SETS, STATEFUL_SETS, Kind
from kubesched.api.selectors import SelectorError, parse_selector_text
from kubesched.api.types import Node
from kubesched.cluster.store import Store

from ..schema import Profile
from ..schema_what_if import AddNodes, Drain, Failure, Proposal, Scalable, Scale, Weight, WhatIf
from ..source import Refused

__all__ = ["SCALABLE", "checked", "chosen_nodes", "scalable", "scalables", "words"]

#: Workloads that can be scaled, by the name of their kind.
SCALABLE: Final[Mapping[str, Kind]] = {one.kind: one for one in (DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS)}
#: Most changes of a question, nodes that are added, replicas, and the largest weight.
_MOST_CHANGES: Final = 20
_MOST_NEW: Final = 10_000
_MOST_REPLICAS: Final = 100_000
_MOST_WEIGHT: Final = 1_000_000
#: Most workloads that are listed.
_MOST_WORKLOADS: Final = 5_000
#: Most nodes that are named.
_MOST_NAMED: Final = 3
_MOST_TEXT: Final = 200


def checked(question: WhatIf, store: Store, profiles: Sequence[Profile]) -> list[str]:
    """Check a question, and return its changes in words.

    Raises:
        Refused: for a proposal that cannot be.
    """
    if not 1 <= len(question.changes) <= _MOST_CHANGES:
        raise Refused(400, f"changes: there are {len(question.changes)}; expected 1 to {_MOST_CHANGES}")
    found = []
    for index, one in enumerate(question.changes):
        try:
            _check(one, store, profiles)
        except Refused as error:
            raise Refused(error.status, f"changes[{index}].{error}") from None
        found.append(words(one, store))
    new = sum(one.count for one in question.changes if isinstance(one, AddNodes))
    if new > _MOST_NEW:
        raise Refused(400, f"changes: {new:,} nodes are added together; at most {_MOST_NEW:,} can be")
    return found


def _check(one: Proposal, store: Store, profiles: Sequence[Profile]) -> None:
    match one:
        case Weight():
            _check_weight(one, profiles)
        case Drain() | Failure():
            if not chosen_nodes(one, store):
                raise Refused(400, f"selector: {_shown(one.selector)}: no node has these labels")
        case AddNodes():
            if ("", one.like) not in store.table(NODES).objects:
                raise Refused(400, f"like: {_shown(one.like)}: there is no such node")
            if not 1 <= one.count <= _MOST_NEW:
                raise Refused(400, f"count: {one.count}: expected 1 to {_MOST_NEW:,} nodes")
        case Scale():
            scalable(one.workload, store)
            if not 0 <= one.replicas <= _MOST_REPLICAS:
                raise Refused(400, f"replicas: {one.replicas}: expected 0 to {_MOST_REPLICAS:,}")


def _check_weight(one: Weight, profiles: Sequence[Profile]) -> None:
    profile = next((each for each in profiles if each.name == one.profile), None)
    if profile is None:
        known = ", ".join(each.name for each in profiles)
        raise Refused(400, f"profile: {_shown(one.profile)}: there is no such profile; there are {known}")
    plugins = [each.plugin for each in profile.scores]
    if one.plugin not in plugins:
        raise Refused(400, f"plugin: {_shown(one.plugin)}: scores nothing in this profile; {', '.join(plugins)} do")
    if not 1 <= one.weight <= _MOST_WEIGHT:
        raise Refused(400, f"weight: {one.weight}: expected 1 to {_MOST_WEIGHT:,}")


def chosen_nodes(one: Drain | Failure, store: Store) -> list[str]:
    """Return the names of the nodes that a proposal is about, sorted.

    Raises:
        Refused: for a name that no node has, and for a selector that cannot be read.
    """
    nodes = store.table(NODES).objects
    if bool(one.node) == bool(one.selector):
        raise Refused(400, "node, selector: give one of them: the name of a node, or a label selector")
    if one.node:
        if ("", one.node) not in nodes:
            raise Refused(400, f"node: {_shown(one.node)}: there is no such node")
        return [one.node]
    try:
        matches: Callable[[Mapping[str, str]], bool] = parse_selector_text(one.selector).matches
    except SelectorError as error:
        raise Refused(400, f"selector: {_shown(one.selector)}: {error}") from None
    typed: list[Node] = [item.typed for item in nodes.values()]
    return sorted(node.name for node in typed if matches(node.metadata.labels))


def scalable(workload: str, store: Store) -> tuple[Kind, str, str]:
    """Return kind, namespace and name of a workload, ``Kind/namespace/name``.

    Raises:
        Refused: if there is none, or it has no replicas.
    """
    parts = workload.split("/")
    kind = SCALABLE.get(parts[0])
    if len(parts) != 3 or kind is None:
        right = f"Kind/namespace/name, where Kind is {', '.join(SCALABLE)}"
        raise Refused(400, f"workload: {_shown(workload)}: expected {right}")
    if (parts[1], parts[2]) not in store.table(kind).objects:
        raise Refused(400, f"workload: {_shown(workload)}: there is no such workload")
    return kind, parts[1], parts[2]


def scalables(store: Store) -> list[Scalable]:
    """Return the workloads that can be scaled, by name. ReplicaSets of a Deployment are left out."""
    found = []
    for kind in SCALABLE.values():
        for item in store.table(kind).objects.values():
            data = item.data()
            if any(one.get("controller") for one in data["metadata"].get("ownerReferences") or ()):
                continue
            replicas = (data.get("spec") or {}).get("replicas")
            name = f"{kind.kind}/{item.namespace}/{item.name}"
            found.append(Scalable(workload=name, replicas=replicas if isinstance(replicas, int) else 1))
    return sorted(found, key=lambda one: one.workload)[:_MOST_WORKLOADS]


def words(one: Proposal, store: Store) -> str:
    """Return a proposal in words."""
    match one:
        case Weight():
            return f"{one.plugin} has weight {one.weight} in profile {one.profile}"
        case Drain():
            nodes, many = _nodes(one, store)
            return f"{nodes} {'are' if many else 'is'} drained"
        case Failure():
            nodes, many = _nodes(one, store)
            return f"{nodes} {'fail' if many else 'fails'}"
        case AddNodes():
            nodes = "1 node is" if one.count == 1 else f"{one.count:,} nodes are"
            return f"{nodes} added, like {one.like}"
        case Scale():
            return f"{one.workload} has {one.replicas:,} {'replica' if one.replicas == 1 else 'replicas'}"


def _nodes(one: Drain | Failure, store: Store) -> tuple[str, bool]:
    """Return the nodes in words, and whether they are several."""
    names = chosen_nodes(one, store)
    if len(names) <= _MOST_NAMED:
        return ", ".join(names), len(names) > 1
    return f"{len(names):,} nodes with {one.selector}", True


def _shown(text: Any) -> str:
    return repr(str(text)[:_MOST_TEXT])

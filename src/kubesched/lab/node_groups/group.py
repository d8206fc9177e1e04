"""Node group: a kind of node of which there may be more, its bounds and its price.

Read by :mod:`.file`; used by ``kubesched plan``, and by simulations in which nodes come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubesched.api.kinds import NODES
from kubesched.cluster.files import Manifest, ManifestError
from kubesched.cluster.kubelets import make_nodes

__all__ = ["GROUP_LABEL", "MOST_NODES", "NodeGroup", "members", "with_models"]

#: Label of the nodes that are made for a group, with the group's name.
GROUP_LABEL: Final = "kubesched.io/node-group"
#: Most nodes of one group.
MOST_NODES: Final = 1_000_000
_HOSTNAME: Final = "kubernetes.io/hostname"
_ZONE: Final = "topology.kubernetes.io/zone"
#: Prefix of taints that a node's state brings about; a new node has none.
_STATE: Final = "node.kubernetes.io/"
#: Labels by which clouds name the group of a node.
_CLOUD_LABELS: Final = (
    GROUP_LABEL,
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
)


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Kind of node that can be had.

    Attributes:
        name: name of the group, a label value.
        template: Node manifest without a name, from which nodes are made; empty until :func:`with_models` has found
            the model.
        like: name of an existing node, or of a group of existing nodes, that is the model; empty with a template.
        minimum, maximum: bounds of the number of nodes, those that exist included.
        price: price of a node per hour, in any currency.
        zones: zones that new nodes are dealt over in turn; empty to keep the template's.
        labels: labels besides the template's.
        selector: labels of the existing nodes that belong to the group; empty for :data:`GROUP_LABEL` and clouds'
            labels with the group's name.
        ready_after: seconds from the order of a node until it is ready.
        spot_failure_rate: expected interruptions of a node per hour.
        priority: rank for a choice by priority; the greater wins.
        pool: name that groups with common limits share.
        limits: most of each resource, in the API's notation, over all nodes of the pool, existing ones included.
        source: file and place where it was written.
    """

    name: str
    template: dict[str, Any] = {}
    like: str = ""
    minimum: int = 0
    maximum: int = 1000
    price: float = 0.0
    zones: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    selector: dict[str, str] = {}
    ready_after: float = 0.0
    spot_failure_rate: float = 0.0
    priority: int = 0
    pool: str = ""
    limits: dict[str, str] = {}
    source: str = ""

    def nodes(self, count: int, *, start: int = 0, taken: Iterable[str] = ()) -> list[Manifest]:
        """Return new nodes, ``NAME-0``, ``NAME-1``, …, from number ``start`` on.

        Zones are dealt by number. Names in ``taken`` are left out.
        """
        used = set(taken)
        made: list[Manifest] = []
        numbers = iter(range(start, start + count + len(used)))
        while len(made) < count:
            data = next(self._made(next(numbers)))
            if data["metadata"]["name"] not in used:
                made.append(Manifest(NODES, data, self.source or f"node group {self.name}"))
        return made

    def _made(self, number: int) -> Iterator[dict[str, Any]]:
        metadata = self.template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), **self.labels, GROUP_LABEL: self.name}
        template = {**self.template, "metadata": {**metadata, "labels": labels}}
        zones = (self.zones[number % len(self.zones)],) if self.zones else ()
        yield from make_nodes(1, template, prefix=f"{self.name}-", zones=zones, start=number, width=1)

    def has(self, labels: Mapping[str, str]) -> bool:
        """Return True if a node with these labels belongs to the group."""
        if self.selector:
            return all(labels.get(key) == value for key, value in self.selector.items())
        return any(labels.get(key) == self.name for key in _CLOUD_LABELS)


def members(groups: Sequence[NodeGroup], nodes: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the names of the existing nodes of each group. A node belongs to the first group that has it."""
    found: dict[str, list[str]] = {group.name: [] for group in groups}
    for node in nodes:
        metadata = node.get("metadata") or {}
        own = next((group for group in groups if group.has(metadata.get("labels") or {})), None)
        if own is not None:
            found[own.name].append(metadata.get("name", ""))
    return found


def with_models(groups: Sequence[NodeGroup], nodes: Iterable[Mapping[str, Any]]) -> list[NodeGroup]:
    """Return the groups with a template each: those with a model get a copy of it, as a new node would be.

    A copy has the model's labels but the host name (and, where the group has zones, the zone), its taints but those of
    a state, and its amounts.

    Raises:
        ManifestError: when a model is not among the nodes, or its taints differ from its group's other nodes.
    """
    known: dict[str, Mapping[str, Any]] = {}
    by_group: dict[str, Mapping[str, Any]] = {}
    for node in nodes:
        metadata = node.get("metadata") or {}
        known.setdefault(metadata.get("name", ""), node)
        for label in _CLOUD_LABELS:
            by_group.setdefault((metadata.get("labels") or {}).get(label, ""), node)
    problems, found = [], []
    for group in groups:
        model = known.get(group.like) or by_group.get(group.like) if group.like else None
        if group.template:
            found.append(group)
        elif model is None:
            labels = ", ".join(_CLOUD_LABELS[:3])
            problems.append(
                f"{group.source}: node group {group.name}: there is no node {group.like!r} to take as the model, and no "
                f"node with this value of a label such as {labels}; name a node that exists, or give resources"
            )
        else:
            found.append(msgspec.structs.replace(group, template=template_like(model, keep_zone=not group.zones)))
    if problems:
        raise ManifestError(*problems)
    return found


def template_like(node: Mapping[str, Any], *, keep_zone: bool = True) -> dict[str, Any]:
    """Return a template for nodes like an existing one."""
    metadata, spec, status = (node.get(name) or {} for name in ("metadata", "spec", "status"))
    left_out = {_HOSTNAME, GROUP_LABEL, *(() if keep_zone else (_ZONE,))}
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if key.startswith("kubesched.io/")
    }
    taints = [one for one in spec.get("taints") or () if not one.get("key", "").startswith(_STATE)]
    amounts = status.get("allocatable") or status.get("capacity") or {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "labels": {key: one for key, one in (metadata.get("labels") or {}).items() if key not in left_out},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {"taints": taints} if taints else {},
        "status": {
            "capacity": dict(amounts),
            "allocatable": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            **({"nodeInfo": status["nodeInfo"]} if status.get("nodeInfo") else {}),
        },
    }

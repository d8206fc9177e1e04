"""Documents of the dashboard's API about what-if questions; see :mod:`.schema`."""

from __future__ import annotations

from typing import TypeAlias

from .schema import NodeColumns, Part, Profile

__all__ = [
    "AddNodes",
    "Applied",
    "Choices",
    "Drain",
    "Failure",
    "Outcome",
    "Proposal",
    "Scalable",
    "Scale",
    "Totals",
    "Weight",
    "WhatIf",
]


class Weight(Part, frozen=True, kw_only=True, tag="weight", tag_field="kind"):
    """Other weight of a score plugin."""

    profile: str
    plugin: str
    weight: int


class Drain(Part, frozen=True, kw_only=True, tag="drain", tag_field="kind"):
    """Nodes that are drained: the node of a name, or the nodes of a label selector."""

    node: str = ""
    selector: str = ""


class Failure(Part, frozen=True, kw_only=True, tag="fail", tag_field="kind"):
    """Nodes that fail at once, such as a zone: the node of a name, or the nodes of a label selector."""

    node: str = ""
    selector: str = ""


class AddNodes(Part, frozen=True, kw_only=True, tag="add-nodes", tag_field="kind"):
    """Nodes that are added: ``count`` empty ones like the node ``like``."""

    like: str
    count: int


class Scale(Part, frozen=True, kw_only=True, tag="scale", tag_field="kind"):
    """Workload with another number of replicas; ``workload`` is ``Kind/namespace/name``."""

    workload: str
    replicas: int


Proposal: TypeAlias = Weight | Drain | Failure | AddNodes | Scale


class WhatIf(Part, frozen=True, kw_only=True):
    """Question: these changes, in this order, at once."""

    changes: list[Proposal]


class Scalable(Part, frozen=True, kw_only=True):
    """Workload that can be scaled: ``Kind/namespace/name``, and its replicas now."""

    workload: str
    replicas: int


class Choices(Part, frozen=True, kw_only=True):
    """Things that proposals can be about. ``kinds`` of proposals can be tried, ``applicable`` can be carried out."""

    kinds: list[str]
    applicable: list[str]
    workloads: list[Scalable]
    profiles: list[Profile]


class Totals(Part, frozen=True, kw_only=True):
    """Counts of a cluster, before and after. Utilisation is a share, 0 to 1."""

    nodes: int
    placed: int
    pending: int
    utilisation: dict[str, float] = {}


class Outcome(Part, frozen=True, kw_only=True):
    """Answer to a question: what would have happened once everything is quiet again.

    Lists have the first of their kind, ``counts`` has the numbers: ``moved``, ``placed``, ``pending``, ``evicted``, ``lost``. ``remarks`` say what could
    not be done or was left out. ``nodes`` are the nodes afterwards, for the map. A pod that is there now is listed as ``namespace/name``; one
    that is made by the changes, as ``new pod of Deployment web in namespace shop``, once for each.
    """

    #: The changes in words.
    changes: list[str]
    before: Totals
    after: Totals
    counts: dict[str, int]
    #: Pods without a node that had one, or are new.
    newly_pending: list[str]
    #: Pods with a node that had none.
    newly_placed: list[str]
    #: Pods on another node, or replaced by another: ``pod: from → to``.
    moved: list[str]
    #: Reasons why pods are pending afterwards, most pods first.
    why: list[str]
    remarks: list[str]
    #: Virtual seconds until it is quiet.
    seconds: float
    nodes: NodeColumns


class Applied(Part, frozen=True, kw_only=True):
    """Answer to changes that were carried out, in words, and what was refused."""

    done: list[str]
    remarks: list[str]

"""Python interface of the planners: ``kubesched.capacity(...)`` and ``kubesched.plan(...)``, with tables of the answers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, Unpack

import msgspec

from kubesched.base.large_json import large_json

from ...node_groups import NodeGroup, read_catalogue, read_node_groups
from ...node_groups.file import parse_node_groups
from ..entry import Options, options_of
from ..inputs.given import Objects, manifests_of
from ..results.frames import frame_of
from ..run.own_thread import outside_any_loop
from .buying import EFFORT
from .capacity import MOST, Counting, capacity_of
from .capacity_report import Capacity
from .plan import demanded, plan_of
from .plan_report import Plan
from .question import Question, question_of
from .removing import removal_of

__all__ = ["CapacityResult", "PlanResult", "asked_of", "capacity", "groups_of", "plan"]

#: Kinds of nodes: a path or several, a text of YAML, or groups.
Groups: TypeAlias = str | os.PathLike[str] | NodeGroup | Iterable[Any]


class CapacityResult(Capacity, frozen=True, kw_only=True):
    """Answer to "how many more fit?": the fields of :class:`~.capacity_report.Capacity`, and views of them."""

    @classmethod
    def of(cls, found: Capacity) -> CapacityResult:
        """Return the document with the views."""
        return cls(**{name: getattr(found, name) for name in found.__struct_fields__})

    @property
    def copies(self) -> int:
        """Copies that fit of the first question, which is the only one unless ``until_full``."""
        return self.answers[0].copies

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with the names of the JSON output."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def to_json(self) -> str:
        """Return the JSON output, without line breaks."""
        return large_json(self).decode()

    def table(self, name: str = "nodes") -> dict[str, list[Any]]:
        """Return values by column name: of ``nodes``, ``zones``, ``resources`` or ``pods``.

        Raises:
            ValueError: when no table has this name.
        """
        if name not in ("nodes", "zones", "resources", "pods"):
            raise ValueError(f"{name!r} is no table; there are nodes, zones, resources and pods")
        rows = [
            {"answer": number, **msgspec.to_builtins(row)}
            for number, answer in enumerate(self.answers)
            for row in getattr(answer, name)
        ]
        found: dict[str, list[Any]] = {}
        for row in rows:
            for column, value in row.items():
                if not isinstance(value, dict):
                    found.setdefault(column, []).append(value)
        return found

    def to_frame(self, name: str = "nodes", library: str | None = None) -> Any:
        """Return :meth:`table` as a data frame of ``pandas`` or ``polars``; by default of the one that is installed.

        Raises:
            ValueError: when no table or library has this name.
            ImportError: when the library is not installed.
        """
        return frame_of(self.table(name), library)

    def __repr__(self) -> str:
        parts = []
        for answer in self.answers:
            names = ", ".join(f"{one.placed:,} {one.name}" for one in answer.pods[:4])
            more = ", …" if len(answer.pods) > 4 else ""
            parts.append(f"{answer.copies:,} copies ({names}{more}), then {answer.stopped}")
        shown = "; ".join(parts[:4]) + ("; …" if len(parts) > 4 else "")
        return f"<CapacityResult on {self.cluster_nodes:,} nodes: {shown}>"


class PlanResult(Plan, frozen=True, kw_only=True):
    """Plan for nodes: the fields of :class:`~.plan_report.Plan`, and views of them."""

    @classmethod
    def of(cls, found: Plan) -> PlanResult:
        """Return the document with the views."""
        return cls(**{name: getattr(found, name) for name in found.__struct_fields__})

    @property
    def counts(self) -> dict[str, int]:
        """Number of nodes to add, by group."""
        return {one.group: one.count for one in self.add}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with the names of the JSON output."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def to_json(self) -> str:
        """Return the JSON output, without line breaks."""
        return large_json(self).decode()

    def __repr__(self) -> str:
        if self.removal is not None:
            names = ", ".join(one.node for one in self.removal.drains[:6])
            more = ", …" if len(self.removal.drains) > 6 else ""
            return f"<PlanResult: {len(self.removal.drains):,} of {self.cluster_nodes:,} nodes can go: {names}{more}>"
        nodes = ", ".join(f"{one.count:,} {one.group}" for one in self.add) or "no node"
        quality = "the cheapest" if self.exact else f"none below {self.bound:g}"
        return f"<PlanResult: {nodes}, {self.cost:g} per hour ({quality}), for {self.placed:,} of {self.wanted:,} pods>"


def groups_of(groups: Groups, catalogue: str | os.PathLike[str] | None = None) -> list[NodeGroup]:
    """Return node groups from paths, texts of YAML, or as they are.

    Raises:
        ManifestError: when a file, a text or the catalogue cannot be used.
        ValueError: for anything else.
    """
    known = read_catalogue(os.fspath(catalogue)) if catalogue is not None else {}
    several = [groups] if isinstance(groups, str | os.PathLike | NodeGroup) else list(groups)
    paths: list[str] = []
    found: list[NodeGroup] = []
    for index, one in enumerate(several):
        if isinstance(one, NodeGroup):
            found.append(one)
        elif isinstance(one, str) and "\n" in one:
            found += parse_node_groups(one, f"groups[{index}]", known)
        elif isinstance(one, str | os.PathLike):
            paths.append(os.fspath(one))
        else:
            raise ValueError(f"groups[{index}]={one!r}: expected a path, a text of YAML, or a NodeGroup")
    return found + (read_node_groups(paths, known) if paths else [])


def asked_of(
    pods: Objects, *, mix: Mapping[str, int] | None, until_full: bool, preemption: bool, most: int
) -> tuple[Question, Counting]:
    """Return the question and the way of counting of the arguments of :func:`capacity`.

    Raises:
        ManifestError, ValueError: see :func:`capacity`.
    """
    if isinstance(most, bool) or not isinstance(most, int) or not 0 < most <= MOST:
        raise ValueError(f"most={most!r}: must be a whole number from 1 to {MOST}")
    if mix is not None and not isinstance(mix, Mapping):
        raise ValueError(f"mix={mix!r}: expected a dict of names and numbers of pods")
    question = question_of(manifests_of(pods, "pods"), mix)
    return question, Counting(together=not until_full, preemption=bool(preemption), most=most)


def capacity(
    manifests: Objects = (),
    pods: Objects = (),
    *,
    mix: Mapping[str, int] | None = None,
    until_full: bool = False,
    preemption: bool = False,
    most: int = MOST,
    **options: Unpack[Options],
) -> CapacityResult:
    """Count how many more of some pods fit on a cluster. The scheduler places them, until one has no node.

    Args:
        manifests: the cluster's objects, in the forms of ``kubesched.simulate``; a saved cluster or a dump, too.
        pods: Pods, or workloads, in the same forms. Several are asked about together, as a mix in which a workload
            counts with its replicas. Other objects among them are added to the cluster.
        mix: other proportions, as ``{"web": 3, "db": 1}``; pods that are not named are left out.
        until_full: ask about each kind of pod alone, on the cluster as it is.
        preemption: count with evictions of pods of lower priority, too.
        most: most copies that are counted.
        options: ``nodes``, ``zones``, ``config``, ``plugins``, ``gates``, ``seed``, … as in ``kubesched.simulate``.

    Raises:
        ManifestError: for objects that cannot be used or asked about; all of them are named.
        ConfigError, PluginError: for a configuration or a plugin that cannot be used.
        ValueError: for another argument that cannot be used, naming it.
        TypeError: for an argument that does not exist.
    """
    question, counting = asked_of(pods, mix=mix, until_full=until_full, preemption=preemption, most=most)
    arguments = options_of(manifests, **options)
    return CapacityResult.of(outside_any_loop(lambda: capacity_of(arguments, question, counting)))


#: Python's own messages about a call show this name.
capacity.__qualname__ = "kubesched.capacity"


def plan(
    manifests: Objects = (),
    demand: Objects = (),
    *,
    groups: Groups = (),
    catalogue: str | os.PathLike[str] | None = None,
    remove: bool = False,
    effort: int = EFFORT,
    **options: Unpack[Options],
) -> PlanResult:
    """Find the cheapest nodes for the pods that have none; or the nodes that can go.

    Args:
        manifests: the cluster's objects, in the forms of ``kubesched.simulate``; a saved cluster or a dump, too.
        demand: further pods and workloads to place.
        groups: kinds of nodes that can be had: paths, texts of YAML, or NodeGroup objects.
        catalogue: a table of instance types, for Karpenter's NodePools and groups with an ``instanceType``.
        remove: find nodes that can go instead, with the sequence of their drains; groups have the prices then.
        effort: number of placements after which the search ends with the best that it has.
        options: ``nodes``, ``zones``, ``config``, ``plugins``, ``gates``, ``seed``, … as in ``kubesched.simulate``.

    Raises:
        ManifestError: for objects or groups that cannot be used; all of them are named.
        ConfigError, PluginError: for a configuration or a plugin that cannot be used.
        ValueError: for another argument that cannot be used, naming it.
        TypeError: for an argument that does not exist.
    """
    if isinstance(effort, bool) or not isinstance(effort, int) or effort < 1:
        raise ValueError(f"effort={effort!r}: must be a whole number, 1 or more")
    kinds = groups_of(groups, catalogue)
    if not kinds and not remove:
        raise ValueError(
            "groups: give the kinds of nodes that can be added: a path, a text of YAML, or NodeGroup objects"
        )
    arguments = demanded(options_of(manifests, **options), manifests_of(demand, "demand"))
    find = removal_of if remove else plan_of
    return PlanResult.of(outside_any_loop(lambda: find(arguments, kinds, effort)))


plan.__qualname__ = "kubesched.plan"

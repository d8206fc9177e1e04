"""Audit, typed: the schema of its JSON and YAML.

Field names are camelCase on the wire. Amounts of cpu are in millicores, of memory and storage in bytes, of everything
else in units. Within ``kubesched.io/v1alpha1`` fields are only ever added.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

__all__ = ["LEVELS", "Amount", "Audit", "Finding", "Level", "Omitted", "Totals"]

#: Weight of a finding. ``error``: something is broken, or will never work. ``warning``: it breaks with the next restart,
#: drain or shortage. ``info``: worth knowing.
Level = Literal["error", "warning", "info"]
#: All levels, the gravest first.
LEVELS: Final[tuple[Level, ...]] = ("error", "warning", "info")


class _Struct(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    pass


class Amount(_Struct, frozen=True, kw_only=True):
    """Amount of one resource of a node: ``requested`` is above ``allocatable``."""

    resource: str
    requested: int
    allocatable: int


class Finding(_Struct, frozen=True, kw_only=True):
    """One finding, about one object or about objects that have it in common."""

    level: Level
    #: Name of the rule, as in ``docs/audit.md``.
    rule: str
    #: Finding as a sentence, with its numbers.
    message: str
    #: Way to put it right.
    advice: str
    #: Where the rule of Kubernetes is described: a section of ``docs/rules``, or the name of an API.
    source: str
    #: Kind of ``objects``.
    kind: str
    #: Number of objects.
    count: int
    #: First objects by name, as ``namespace/name`` or ``name``; all of them in a wide audit.
    objects: list[str]
    #: Namespace and ``Kind/name`` of the workload, if the objects are its pods.
    namespace: str = ""
    workload: str = ""
    #: Plugin that rejects, and its reason in the words of kube-scheduler.
    plugin: str = ""
    reason: str = ""
    #: Numbers, a sentence each; of pods that share a finding those of the first one.
    details: list[str] = []
    #: Number of nodes concerned, and the first of them by name.
    node_count: int = 0
    nodes: list[str] = []
    amounts: list[Amount] = []


class Omitted(_Struct, frozen=True, kw_only=True):
    """Findings of one rule beyond the limit: their number, and that of their objects."""

    rule: str
    findings: int
    objects: int


class Totals(_Struct, frozen=True, kw_only=True):
    """Numbers of nodes, of pods that are not finished, of those without a node, and of findings by level."""

    nodes: int
    pods: int
    pending: int
    error: int
    warning: int
    info: int


class Audit(_Struct, frozen=True, kw_only=True):
    """Findings about a cluster, the gravest first, those with most objects before others."""

    api_version: str = "kubesched.io/v1alpha1"
    kind: str = "Audit"
    #: Moment to which ages refer: RFC 3339, UTC.
    as_of: str
    totals: Totals
    findings: list[Finding]
    omitted: list[Omitted]
    #: Sentences about what could not be checked.
    unchecked: list[str]

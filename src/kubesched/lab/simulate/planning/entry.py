"""Python interface of the planners: ``kubesched.capacity(...)``, with tables and data frames of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import msgspec

from kubesched.base.large_json import large_json

from ..entry import Options, options_of
from ..inputs.given import Objects, manifests_of
from ..results.frames import frame_of
from ..run.own_thread import outside_any_loop
from .capacity import MOST, Counting, capacity_of
from .capacity_report import Capacity
from .question import Question, question_of

__all__ = ["CapacityResult", "asked_of", "capacity"]


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

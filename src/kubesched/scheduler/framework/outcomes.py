"""Outcomes of PreFilter and PostFilter: the answers of all plugins, merged one by one.

:mod:`.runtime` fills them; the decision core and the attempt read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..nodes.nominating import NominatingMode
from .interface import PostFilterResult
from .status import Code, Status

__all__ = ["PostFilterAnswer", "PostFilterOutcome", "PreFilterOutcome"]

#: Answer of PostFilter: a result to act on or None, and the status, None for success.
PostFilterAnswer = tuple[PostFilterResult | None, Status | None]


@dataclass(slots=True)
class PreFilterOutcome:
    """Merged answers of all PreFilter plugins.

    Attributes:
        nodes: names of the only nodes to filter; None for all nodes.
        status: rejection of the pod on every node, or None.
        restricting: names of the plugins that restricted ``nodes``.
    """

    nodes: frozenset[str] | None = None
    status: Status | None = None
    restricting: list[str] = field(default_factory=list)

    def restrict(self, plugin: str, allowed: frozenset[str]) -> None:
        """Note that a plugin allows only these nodes. If no node is left, ``status`` becomes a rejection."""
        self.restricting.append(plugin)
        self.nodes = allowed if self.nodes is None else self.nodes & allowed
        if self.nodes:
            return
        if len(self.restricting) == 1:
            message = f"node(s) didn't satisfy plugin {plugin}"
        else:
            message = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(self.restricting))}] simultaneously"
        self.status = Status.unresolvable(message)


@dataclass(slots=True)
class PostFilterOutcome:
    """Merged answers of the PostFilter plugins (rules/framework §4.9).

    Attributes:
        chosen: result to act on, or None.
        reasons: reasons of all rejections, in order.
        first: name of the first plugin that rejected; "" before.
    """

    chosen: PostFilterResult | None = None
    reasons: list[str] = field(default_factory=list)
    first: str = ""

    def take(self, plugin: str, result: PostFilterResult | None, status: Status | None) -> bool | Status:
        """Add a plugin's answer. Return True to ask the next plugin, or the status that ends the point."""
        if status is None or status.code is Code.SUCCESS:
            self.chosen = result
            return Status(Code.SUCCESS)
        if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            self.chosen = result
            return status.with_plugin(plugin)
        if not status.is_rejected:
            self.chosen = None
            return Status.from_error(status.as_error() or RuntimeError(status.message()), plugin)
        self.first = self.first or plugin
        self.reasons.extend(status.reasons())
        planned = self.chosen.act if self.chosen is not None else None
        if result is not None and result.nominating is not None and result.nominating.mode is NominatingMode.OVERRIDE:
            self.chosen = result if result.act is not None else replace(result, act=planned)
        elif result is not None and result.act is not None:
            self.chosen = result
        return True

    def answer(self, ended: Status | None) -> PostFilterAnswer:
        """Return the answer of the point; ``ended`` is the status that ended it, None if every plugin was asked."""
        if ended is None:
            return self.chosen, Status(Code.UNSCHEDULABLE, *self.reasons, plugin=self.first)
        return self.chosen, None if ended.code is Code.SUCCESS else ended

"""Message of a scheduler, explained: as a document, and as lines for people.

Caller: ``kubesched explain --message``. The rows come from :mod:`.reasons`, the parts from :mod:`.messages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

import msgspec

from kubesched.base.lines import Line, Style, printable, title
from kubesched.scheduler.framework.events import ACTION_NAMES, ActionType, ClusterEvent, EventResource
from kubesched.scheduler.plugins.demands.words import counted

from .messages import Message, Stage, Told
from .reasons import filled
from .waiting import wake_texts

__all__ = ["MessageExplanation", "ReasonExplanation", "message_explanation", "message_lines"]

#: Most reasons shown of each part of a message, unless all are asked for.
_MOST_SHOWN: Final = 12
_WIDTH: Final = 116
_INDENT: Final = " " * 8
_TITLES: Final[dict[Stage, str]] = {
    "nodes": "Against nodes",
    "pod": "Of the pod, whatever the node",
    "afterwards": "Of plugins afterwards",
    "preemption": "Of preemption",
}
_ACTIONS: Final = {name: ActionType(value) for value, name in ACTION_NAMES.items()}


class ReasonExplanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Reason of a message.

    Attributes:
        text: the reason, without its count; control characters are escaped.
        stage: ``nodes``: against nodes; ``pod``: about the pod, whatever the node; ``afterwards``: words of PostFilter
            plugins; ``preemption``: why evictions do not help.
        nodes: number of nodes it is given for; null where it has no count.
        is_known: False if the reason is in no table: of a plugin outside the tree, an extender, or another release.
        is_cut: True if the message ends within it.
        plugins: plugins that give it; codes: codes it comes with.
        preemption_may_help: True if the eviction of other pods may help.
        meaning: in one or two sentences; what_to_do: best first.
        wakes: events after which the pod is tried again, as ``RESOURCE/ACTION``.
    """

    text: str
    stage: Stage
    nodes: int | None = None
    is_known: bool = False
    is_cut: bool = False
    plugins: list[str] = []
    codes: list[str] = []
    preemption_may_help: bool = False
    meaning: str = ""
    what_to_do: list[str] = []
    wakes: list[str] = []


class MessageExplanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Message of a scheduler, explained. ``nodes``: of the cluster, null if it does not say; ``is_cut``: it is incomplete."""

    api_version: str = "kubesched.io/v1alpha1"
    kind: str = "MessageExplanation"
    nodes: int | None = None
    is_cut: bool = False
    reasons: list[ReasonExplanation]


def message_explanation(message: Message) -> MessageExplanation:
    """Return the document of a message: the reasons by stage, most nodes first."""
    order = list(_TITLES)
    told = sorted(message.reasons, key=lambda one: (order.index(one.stage), -(one.nodes or 0)))
    return MessageExplanation(nodes=message.nodes, is_cut=message.is_cut, reasons=[_explained(one) for one in told])


def _explained(told: Told) -> ReasonExplanation:
    text, row = printable(told.text), told.row
    if row is None:
        return ReasonExplanation(text=text, stage=told.stage, nodes=told.nodes, is_cut=told.is_cut)
    parts = {name: printable(part) for name, part in told.parts.items()}
    return ReasonExplanation(
        text=text,
        stage=told.stage,
        nodes=told.nodes,
        is_known=True,
        is_cut=told.is_cut,
        plugins=row.plugins,
        codes=row.codes,
        preemption_may_help=row.preempt,
        meaning=filled(row.meaning, parts),
        what_to_do=[filled(todo, parts) for todo in row.todo],
        wakes=row.wakes,
    )


def message_lines(document: MessageExplanation, *, wide: bool = False) -> list[Line]:
    """Return an explained message for people. ``wide`` shows every reason."""
    if not document.reasons:
        return [Line("the message names no reason", "warn")]
    lines = [] if document.nodes is None else [Line(f"None of {counted(document.nodes, 'node')} is available.")]
    if document.is_cut:
        lines.append(
            Line(
                "The message is cut: `kubectl get pod POD -o yaml` has it whole, in the condition PodScheduled.", "warn"
            )
        )
    for stage, heading in _TITLES.items():
        found = [one for one in document.reasons if one.stage == stage]
        shown = found if wide else found[:_MOST_SHOWN]
        lines += title(heading) if found else []
        for one in shown:
            lines += _reason_lines(one)
        if len(shown) < len(found):
            lines.append(Line(f"{_INDENT}{len(found) - len(shown):,} more reasons: --wide shows all", "dim"))
    return lines[1:] if not lines[0].text else lines


def _reason_lines(one: ReasonExplanation) -> Iterator[Line]:
    count = "" if one.nodes is None else f"{one.nodes:,}"
    by = f"  [{', '.join(one.plugins)}]" if one.plugins else ""
    text = f"{one.text}…" if one.is_cut else one.text
    yield from _wrapped(f"{text}{by}", f"{count:>6}  ", style="bad" if one.stage in ("nodes", "pod") else "")
    if not one.is_known:
        words = (
            "The message ends before it can be told which reason it is."
            if one.is_cut
            else ("No reason of Kubernetes 1.36: it comes from another plugin, an extender or another release.")
        )
        yield Line(f"{_INDENT}{words}", "dim")
        return
    yield from _wrapped(one.meaning, _INDENT)
    for todo in one.what_to_do:
        yield from _wrapped(todo, f"{_INDENT}- ", style="good")
    if one.wakes:
        yield from _wrapped(f"tried again when {'; '.join(_wakes(one.wakes))}", _INDENT, style="dim")


def _wakes(events: Sequence[str]) -> Iterator[str]:
    for event in events:
        resource, _, action = event.rpartition("/")
        yield from (text for _, text in wake_texts(ClusterEvent(EventResource(resource), _ACTIONS[action])))


def _wrapped(text: str, start: str, *, style: Style = "") -> Iterator[Line]:
    """Yield lines of at most _WIDTH characters; words are not parted."""
    rest = " " * len(start)
    parts = wrap(
        text, _WIDTH, initial_indent=start, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    for part in parts:
        yield Line(part, style)

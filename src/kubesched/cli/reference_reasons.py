"""Reference page of reasons, from their table.

Caller: :mod:`.reference`.
"""

from __future__ import annotations

from typing import Final

from kubesched.explain.reasons import Row, Section, sections

__all__ = ["reasons_page"]

_HEAD: Final = """# Reasons why a pod is pending

Every text that kube-scheduler 1.36 can give in the event FailedScheduling, the condition PodScheduled, and what belongs to them:
what it means, and what to do. `kubesched explain --message TEXT` looks a whole message up here; `kubesched explain POD` goes further and
tries what would help ([why a pod is pending](explain.md)).

`{word}` stands for one word, `{text...}` for any text. *Tried again after* lists the events that wake the pod. Without such an event it is
tried again after five minutes.

A message has the form

    0/5 nodes are available: 2 Insufficient cpu, 3 node(s) were unschedulable. preemption: 0/5 nodes are available: ...

Each number counts nodes; a node may count for several reasons of one plugin. Only the first plugin that rejects a node is counted. Events are
cut at 1,024 bytes, conditions are not.
"""


def reasons_page(made: str) -> str:
    """Return the page; ``made`` says how it is made."""
    return "\n".join([_HEAD, made, *map(_section, sections())])


def _section(section: Section) -> str:
    about = f"\n{section.about}\n" if section.about else ""
    return "\n".join([f"\n## {section.title}\n{about}", *map(_row, section.row)]).rstrip()


def _row(row: Row) -> str:
    by = ", ".join(row.plugins) or "the scheduler"
    head = [f"{by} at {', '.join(row.points)}"]
    if row.codes:
        head.append(" or ".join(row.codes))
    if row.preempt:
        head.append("evictions may help")
    lines = [f"### `{row.text}`", "", row.meaning, "", *(f"* {todo}" for todo in row.todo), "", f"*{'; '.join(head)}.*"]
    if row.wakes:
        lines[-1] += f" Tried again after {', '.join(row.wakes)}."
    return "\n".join([*lines, ""])

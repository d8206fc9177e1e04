"""Words about a pod group: its state in one sentence, and what would help."""

from __future__ import annotations

from typing import Final

from kubesched.scheduler.plugins.demands.words import counted, listed

from ..report import GroupEvictionReport, PlacementReport, PodGroupReport

__all__ = ["hints_of", "placement_text", "summary_of"]

_MOST_NAMES: Final = 3


def summary_of(report: PodGroupReport, lacks: str) -> str:
    """Return the state of a group in one sentence; ``lacks`` says what the next member lacks, in a few words."""
    who = f"{report.policy or 'group'} of {report.members:,}"
    if report.state == "Missing":
        return f"{counted(report.members, 'pod')} {_verb('wait for', report.members)} the PodGroup {report.group}, which does not exist"
    if report.state == "Scheduled":
        return f"{who} is placed: {counted(report.scheduled, 'member')} with a node"
    if report.state == "SchedulerError":
        return f"{who} waits: {report.message}"
    parts = []
    if report.state == "Incomplete":
        parts.append(f"{counted(report.members, 'member')} of {report.min_count:,} exist")
    if report.scheduled:
        parts.append(f"{report.scheduled:,} have a node")
    if report.gated:
        parts.append(f"{report.gated:,} are held before scheduling")
    if report.placements:
        parts.append(_trial(report, lacks))
    elif report.message:
        parts.append(report.message)
    text = f"{who} waits: {', '.join(parts)}"
    evictions = report.evictions
    if report.state == "Unschedulable" and evictions is not None:
        where = (
            ""
            if not evictions.placement
            else f"; the nearest {_kind(report)} that would hold all of it is {evictions.placement}"
        )
        text += f"{where or '; all of it would fit'} after evicting {listed(evictions.pods[:_MOST_NAMES], len(evictions.pods))}"
    return text


def _trial(report: PodGroupReport, lacks: str) -> str:
    first = report.placements[0]
    where = f" in {first.name}" if first.name else ""
    if first.fits:
        return f"its turn has not come; {first.fit:,} fit{where}"
    if report.next and first.lacking:
        return f"{first.fit:,} fit, {first.lacking:,} {_verb(lacks or 'find no node', first.lacking)}{where}"
    return f"{first.fit:,} fit{where}"


def _verb(words: str, count: int) -> str:
    """Return words that begin with a verb in the plural for a number of members."""
    if count != 1:
        return words
    verb, _, rest = words.partition(" ")
    return f"{ {'are': 'is'}.get(verb, verb + 's') } {rest}"


def _kind(report: PodGroupReport) -> str:
    return report.topology.rpartition("/")[2] or "placement"


def placement_text(one: PlacementReport) -> str:
    """Return what came of the trial in a placement."""
    name = one.name or "all nodes"
    lacking = (
        "fits"
        if one.fits
        else f"{one.lacking:,} more {_verb('are needed', one.lacking)}"
        if one.lacking
        else "not enough members may be tried"
    )
    return f"{name}: {counted(one.nodes, 'node')}, {one.fit:,} fit, {lacking}"


def hints_of(report: PodGroupReport) -> list[str]:
    """Return the proposals of a report in words."""

    def then(placement: str) -> str:
        return f"the group would fit{f' in {placement}' if placement else ''}"

    hints = []
    if report.state == "Missing":
        hints.append(f"create the PodGroup {report.group} (a dump without podgroups lacks it, too)")
    if report.state == "Incomplete":
        hints.append(f"create {counted(report.min_count - report.members, 'more member')}")
    hints += [f"{' AND '.join(one.changes)}: {then(one.placement)}" for one in report.remedies]
    if report.evictions is not None:
        hints.append(f"{_eviction(report.evictions)}: {then(report.evictions.placement)}")
    hints += [f"{counted(new.count, 'more node')} like {new.like}: {then(new.placement)}" for new in report.new_nodes]
    if not hints and report.state == "Unschedulable":
        hints.append("no change that was tried, no eviction, and no more nodes like these")
    return hints


def _eviction(one: GroupEvictionReport) -> str:
    nodes = sorted(set(one.nodes))
    shown = listed(one.pods[:_MOST_NAMES], len(one.pods))
    note = "" if one.lower_priority else ", whose priority is not lower than the group's"
    return f"remove {shown} from {listed(nodes[:_MOST_NAMES], len(nodes))}{note}"

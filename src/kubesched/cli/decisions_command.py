"""``kubesched decisions``: recorded decisions, and their replay; see :func:`.arguments.simulations.decisions`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, redirect_stdout
from typing import Any, Final

import msgspec

from kubesched.api.yamltext import to_yaml
from kubesched.base.lines import Line, columns
from kubesched.base.times import RealClock, micro_time
from kubesched.explain.records import Record, RecordFilter, json_lines, read_records
from kubesched.explain.records.schema import Decided
from kubesched.lab.decisions.differences import Difference
from kubesched.lab.decisions.replay import Replayed, replay
from kubesched.lab.simulate.run.virtual_time import run_virtual

from .console import flush, print_lines, progress_bar, terminal_width, warn, write, write_json
from .errors import CliError
from .loading import load_setup

__all__ = ["run"]

#: Records that are shown at most, unless they follow each other.
_MOST: Final = 1_000_000
#: Differences that the table shows; ``-o wide`` shows all that are kept.
_SHOWN: Final = 20
#: Seconds between two looks at a file that grows.
_PAUSE: Final = 0.3

_KINDS: Final = {
    "otherNode": "another node has a greater total",
    "rejected": "the recorded node is rejected, another one fits",
    "unschedulable": "no node fits any more",
    "fits": "the pod was unschedulable, and fits now",
    "error": "the decision ends in an error",
}


def run(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    if words[0] == "replay" and len(words) == 2:
        return _replay(words[1], options)
    if len(words) != 1:
        raise CliError(f"{' '.join(words)}: expected FILE, or replay FILE", code=2)
    given = [
        f"--{name.replace('_', '-')}" for name in ("config", "plugin_module", "enable_plugin") if getattr(options, name)
    ]
    if given:
        raise CliError(f"{given[0]}: belongs to kubesched decisions replay FILE", code=2)
    _list(words[0], options)
    return 0


# -- records -----------------------------------------------------------------------------------------------


def _filter(options: argparse.Namespace) -> RecordFilter:
    now = RealClock().now()
    since, until = (now + one if one is not None and one <= 0 else one for one in (options.since, options.until))
    return RecordFilter(
        pod=options.pod,
        node=options.node,
        plugin=options.plugin,
        outcome=options.outcome,
        since=since,
        until=until,
    )


def _list(path: str, options: argparse.Namespace) -> None:
    wanted = _filter(options)
    found: Iterator[Record | None] = (
        record
        for record in read_records(path, follow=options.follow, on_torn=warn)
        if record is None or wanted.accepts(record)
    )
    show = _SHOW[options.output]
    if not options.follow:
        show(list(deque((one for one in found if one is not None), maxlen=options.last or _MOST)), True)
        return
    first, fresh = True, deque[Record](maxlen=options.last or _MOST)
    for record in found:
        if record is not None:
            fresh.append(record)
            continue
        if fresh or first:
            show(list(fresh), first)
            flush()
        first = False
        fresh = deque(maxlen=_MOST)
        time.sleep(_PAUSE)


def _json(records: Sequence[Record], first: bool) -> None:
    for line in json_lines(records):
        write(line.decode())


def _yaml(records: Sequence[Record], first: bool) -> None:
    for record in records:
        write("---\n" + to_yaml(msgspec.to_builtins(record), sort_keys=False))


def _table(records: Sequence[Record], first: bool) -> None:
    head = ("TIME", "POD", "OUTCOME", "NODE", "TOTAL", "TIES", "FIT", "WHY")
    _print(head, [_cells(one) for one in records], (4, 5, 6), first)


def _wide(records: Sequence[Record], first: bool) -> None:
    head = (
        "TIME",
        "POD",
        "OUTCOME",
        "NODE",
        "TOTAL",
        "TIES",
        "FIT",
        "TRY",
        "QUEUE",
        "SEARCH",
        "BINDING",
        "PATH",
        "WHY",
    )
    rows = [
        (
            *_cells(one)[:7],
            str(one.attempt),
            *(f"{seconds * 1000:.1f}ms" for seconds in (one.queue_seconds, one.search_seconds, one.binding_seconds)),
            one.path,
            _why(one, wide=True),
        )
        for one in records
    ]
    _print(head, rows, (4, 5, 6, 7, 8, 9, 10), first)


_SHOW: Final[dict[str, Callable[[Sequence[Record], bool], None]]] = {
    "json": _json,
    "yaml": _yaml,
    "table": _table,
    "wide": _wide,
}


def _cells(record: Record) -> tuple[str, ...]:
    node = record.node or (f"({record.nominated_node})" if record.nominated_node else "")
    return (
        micro_time(record.at)[:-4] + "Z",
        record.pod.key,
        f"{record.outcome} at {record.stage}" if record.stage else record.outcome,
        node,
        str(record.top[0].total) if record.top and record.top[0].scores else "",
        str(record.ties) if record.ties else "",
        f"{record.feasible}/{record.nodes}",
        _why(record),
    )


def _why(record: Record, *, wide: bool = False) -> str:
    """Return what decided: the scores of the next best node, or the plugins that rejected nodes."""
    if record.outcome == "bound":
        return _lead(record, wide=wide)
    if wide or not record.verdicts or record.outcome != "unschedulable":
        return record.message
    parts = [f"{one.plugin or 'no plugin'}: {', '.join(one.reasons)} ({one.nodes})" for one in record.verdicts]
    if record.preemption is not None:
        parts.append(f"evicts {', '.join(record.preemption.victims)} on {record.preemption.node}")
    return "; ".join(parts)


def _lead(record: Record, *, wide: bool) -> str:
    if len(record.top) < 2:
        return "the only node that fits" if record.feasible == 1 else ""
    best, *others = record.top
    texts = []
    for other in others if wide else others[:1]:
        gaps = {name: score - other.scores.get(name, 0) for name, score in best.scores.items()}
        decisive = [f"{name} {gap:+d}" for name, gap in gaps.items() if gap]
        how = ", ".join(decisive) if decisive else "equal"
        texts.append(f"{other.node} {other.total}: {how}")
    return "; ".join(texts)


def _print(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], first: bool) -> None:
    if not rows:
        if first:
            print_lines([Line("no decision matches", "dim")])
        return
    lines = columns(head, rows, right=right, width=terminal_width())
    print_lines(Line(text, "title" if place == 0 else "") for place, text in enumerate(lines) if first or place)


# -- replay ------------------------------------------------------------------------------------------------


def _replay(path: str, options: argparse.Namespace) -> int:
    if options.follow:
        raise CliError("--follow: a replay reads the file as it is", code=2)
    if options.node or options.plugin or options.outcome or options.last:
        raise CliError("a replay is narrowed by --pod, --since and --until only", code=2)
    registry, config, gates, remarks = load_setup(options, options.config)
    wanted = _wanted(options)
    # Output of plugins must not be part of a document.
    aside = redirect_stdout(sys.stderr) if options.output in ("json", "yaml") else nullcontext()
    with progress_bar("decisions made again", quiet=options.quiet) as bar, aside:
        found = run_virtual(
            replay(
                path,
                config,
                registry,
                gates=gates,
                wanted=wanted,
                on_progress=lambda done: bar.update(done, 0),
            )
        )
    for remark in [*remarks, *found.warnings]:
        warn(remark)
    if options.output in ("table", "wide"):
        print_lines(_replay_lines(found, path, options))
    else:
        document = _document(found)
        if options.output == "json":
            write_json(document)
        else:
            write(to_yaml(document, sort_keys=False))
    return 0


def _wanted(options: argparse.Namespace) -> Callable[[Decided], bool]:
    chosen = _filter(options)

    def wanted(decided: Decided) -> bool:
        name = decided.key.rpartition("/")[2]
        return (
            (not chosen.pod or chosen.pod in (name, decided.key, decided.uid))
            and (chosen.since is None or decided.at >= chosen.since)
            and (chosen.until is None or decided.at < chosen.until)
        )

    return wanted


def _document(found: Replayed) -> dict[str, Any]:
    return {
        "apiVersion": "kubesched.io/v1alpha1",
        "kind": "DecisionReplay",
        "decisions": found.decisions,
        "differing": found.differing,
        "counts": [{"kind": kind, "plugin": plugin, "decisions": count} for (kind, plugin), count in _ordered(found)],
        "differences": msgspec.to_builtins(found.differences),
        "skipped": found.skipped,
        "warnings": found.warnings,
    }


def _ordered(found: Replayed) -> list[tuple[tuple[str, str], int]]:
    return sorted(found.counts.items(), key=lambda pair: (-pair[1], pair[0]))


def _replay_lines(found: Replayed, path: str, options: argparse.Namespace) -> Iterator[Line]:
    by, what = options.config or "the default configuration", "decision" if found.decisions == 1 else "decisions"
    yield Line(f"{found.decisions:,} {what} of {path}, made again by {by}: {found.differing:,} would differ", "title")
    for (kind, plugin), count in _ordered(found):
        yield Line(f"{count:>8,}  {_KINDS[kind]}{f': {plugin}' if plugin else ''}")
    for why, count in found.skipped.items():
        yield Line(f"{count:>8,}  not made again: {why}", "dim")
    shown = found.differences if options.output == "wide" else found.differences[:_SHOWN]
    if shown:
        yield Line("")
        rows = [_difference_cells(one) for one in shown]
        for place, text in enumerate(columns(("TIME", "POD", "WAS", "NOW", "WHY"), rows, width=terminal_width())):
            yield Line(text, "title" if place == 0 else "")
    if len(shown) < found.differing:
        more = "-o wide shows more" if len(shown) < len(found.differences) else "further ones are only counted"
        yield Line(f"{found.differing - len(shown):,} more: {more}", "dim")


def _difference_cells(one: Difference) -> tuple[str, ...]:
    now = ", ".join(one.now) + (", …" if one.ties > len(one.now) else "")
    return micro_time(one.at)[:-4] + "Z", one.pod, one.recorded or "-", now or "-", one.why

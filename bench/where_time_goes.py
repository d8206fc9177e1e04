"""Draws where the CPU time of a basic pod goes, from samples of the stack, as an SVG picture.

    python bench/where_time_goes.py docs/where-the-time-goes.svg
    python bench/where_time_goes.py --pods 100000 picture.svg

Runs the shape ``basic`` once. A timer of CPU time interrupts it every two milliseconds while it is measured, and each sample counts
for the innermost part in whose function it was. That slows nothing down, unlike a profiler, which makes calls look expensive.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import html
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from kubesched.lab.bench import load_workloads, run_workload
from kubesched.scheduler.plugins import in_tree_registry

_PACKAGE: Final = "kubesched."
_SECONDS: Final = 0.002


class Part(NamedTuple):
    """Bar of the picture, and the functions that begin it."""

    group: str
    name: str
    functions: tuple[str, ...]


_PARTS: Final = (
    Part("decision", "layers: filters, scores", ("scheduler.layers.Layer.refresh",)),
    Part("decision", "the rest of the search", ("scheduler.search.Search.find",)),
    Part("scheduling cycle", "assume: the pod into the cache", ("scheduler.cycle.Cycle._assume",)),
    Part("scheduling cycle", "binding in the store", ("cluster.store.store.Store.bind",)),
    Part("scheduling cycle", "the rest of binding", ("scheduler.binding.BindingCycles.start",)),
    Part("scheduling cycle", "queue, metrics, the rest", ("scheduler.scheduler.Scheduler.run",)),
    Part(
        "informers",
        "handlers: cache and queue",
        ("client.delivery.Deliveries.add", "client.delivery.Deliveries.update"),
    ),
    Part("informers", "watch", ("client.watch_list.OpenWatch.next_batch",)),
    Part("informers", "decoding, the rest", ("client.informer.Informer._main",)),
    Part("events", "in the store", ("cluster.store.inprocess.InProcessClient.record",)),
    Part("events", "the rest", ("client.events.EventBroadcaster._main",)),
    Part("around", "creating the pods in the store", ("bench.execute.run_workload",)),
    Part("around", "garbage collector", ("api.collector.CollectorTimer._tick", "api.collector._leave_survivors")),
    Part("around", "event loop", ()),
)
_COLOURS: Final = {
    "decision": "#0072b2",
    "scheduling cycle": "#56b4e9",
    "informers": "#009e73",
    "events": "#e69f00",
    "around": "#999999",
}
_PART_OF: Final = {function: part for part in _PARTS for function in part.functions}


class Sampler(cProfile.Profile):
    """In the place of a profiler: counts samples by part."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[Part] = Counter()

    def enable(self, *options: Any, **named: Any) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, _SECONDS, _SECONDS)

    def disable(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _sample(self, number: int, frame: FrameType | None) -> None:
        self.counts[part_of(_functions(frame))] += 1


def _functions(frame: FrameType | None) -> list[str]:
    """The functions of the package on the stack, innermost first."""
    found = []
    while frame is not None:
        module: str = frame.f_globals.get("__name__", "")
        if module.startswith(_PACKAGE):
            found.append(f"{module.removeprefix(_PACKAGE)}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return found


def part_of(functions: Sequence[str]) -> Part:
    """The innermost part of a stack, given innermost first."""
    return next((_PART_OF[name] for name in functions if name in _PART_OF), _PARTS[-1])


def picture(counts: Counter[Part]) -> str:
    """Horizontal bars, a group of them in each colour, with the shares in percent."""
    total = counts.total()
    most = max(counts.values())
    lines, y = [], 0
    for group, colour in _COLOURS.items():
        parts = [part for part in _PARTS if part.group == group]
        share = sum(counts[part] for part in parts) / total
        y += 24
        lines.append(f'<text x="8" y="{y}" font-weight="bold">{html.escape(group)} {share:.0%}</text>')
        for part in parts:
            y += 18
            width = 330 * counts[part] / most
            lines.append(f'<text x="222" y="{y}" text-anchor="end">{html.escape(part.name)}</text>')
            lines.append(f'<rect x="230" y="{y - 11}" width="{width:.1f}" height="13" fill="{colour}"/>')
            lines.append(f'<text x="{236 + width:.1f}" y="{y}">{100 * counts[part] / total:.1f} %</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {y + 14}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join((head, '<rect width="100%" height="100%" fill="white"/>', *lines, "</svg>\n"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path, help="the SVG file to write")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=30_000)
    options = parser.parse_args()
    workload = next(iter(load_workloads(Path(__file__).with_name("basic.yaml"))))
    workload.params.update(initNodes=options.nodes, initPods=1_000, measurePods=options.pods)
    sampler = Sampler()
    asyncio.run(run_workload(workload, in_tree_registry(), profiler=sampler))
    options.file.write_text(picture(sampler.counts), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Speed and memory of the dashboard's page in chromium.

    python tests/browser/figures.py                             # all, in about five minutes
    python tests/browser/figures.py paint --nodes 5000 50000
    python tests/browser/figures.py frames tasks --rate 1000
    python tests/browser/figures.py memory --duration 3600 --rate 1000

A cluster of hollow nodes in a process of its own binds pods at a rate, and deletes the oldest, so that its population stays the same.
Chromium paints without a graphics card, on the cores on which the cluster runs. Needs what ``make browser`` installs.

* ``paint``: milliseconds from the start of the navigation until the map has its colours; the median of the loads.
* ``frames``: frames a second of a map of 10,000 nodes that is panned and zoomed, at rest and with changes.
* ``tasks``: long tasks, of more than 50 ms, of the page with 5,000 nodes, and how long it takes from a key to the next frame.
* ``memory``: bytes of the JavaScript heap after a collection, and numbers of elements and listeners, again and again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from browser_kit import Keys, Window, missing, until

from kubesched.api.kinds import NODES, PODS
from kubesched.base.times import RealClock
from kubesched.cluster.kubelets import make_nodes, node_template
from kubesched.dashboard.listener import Listener
from kubesched.dashboard.live import Live
from kubesched.dashboard.server import Site
from kubesched.explain.watchers import Watchers
from kubesched.lab.simulate.embedded import Embedded
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

KINDS: Final = ("paint", "frames", "tasks", "memory")
#: Seconds for which frames and long tasks are counted.
_SECONDS: Final = 15.0
_LOADS: Final = 5
_POPULATION: Final = 10_000
_MOST_WAITING: Final = 500

#: Notes in ``painted`` when the middle of the map has colours. A frame that has been drawn is seen with the next one.
_PAINTED: Final = """
    const look = () => {
      const canvas = document.querySelector("[data-testid=map]");
      if (canvas && canvas.width > 300) {
        const middle = canvas.getContext("2d").getImageData(canvas.width / 2 - 50, canvas.height / 2 - 50, 100, 100);
        if (new Set(new Uint32Array(middle.data.buffer)).size > 2) {
          requestAnimationFrame(() => { window.painted = performance.now(); });
          return;
        }
      }
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
"""
#: Pans and zooms for some milliseconds, and answers with the times between frames.
_MOVED: Final = """
    const [length, done] = arguments;
    const canvas = document.querySelector("[data-testid=map]");
    const place = canvas.getBoundingClientRect();
    const at = (turn) => ({ clientX: place.left + place.width * (0.5 + 0.3 * Math.cos(turn)), clientY: place.top + place.height * (0.5 + 0.3 * Math.sin(turn)),
      bubbles: true, cancelable: true, pointerId: 1, pointerType: "mouse", buttons: 1 });
    canvas.setPointerCapture = () => undefined;
    const times = [], start = performance.now();
    let before = start;
    canvas.dispatchEvent(new PointerEvent("pointerdown", at(0)));
    const step = (now) => {
      times.push(now - before);
      before = now;
      const turn = (now - start) / 500;
      canvas.dispatchEvent(new PointerEvent("pointermove", at(turn)));
      canvas.dispatchEvent(new WheelEvent("wheel", { ...at(turn), deltaY: 40 * Math.cos(turn * 0.7) }));
      if (now - start < length) requestAnimationFrame(step);
      else { canvas.dispatchEvent(new PointerEvent("pointercancel", at(turn))); done(times.slice(1)); }
    };
    requestAnimationFrame(step);
"""
_OBSERVE: Final = """
    window.tasks = []; window.events = [];
    new PerformanceObserver((list) => tasks.push(...list.getEntries().map((each) => each.duration))).observe({ type: "longtask" });
    new PerformanceObserver((list) => events.push(...list.getEntries().filter((each) => each.name === "keydown").map((each) => each.duration)))
      .observe({ type: "event", durationThreshold: 16 });
"""


# -- the cluster, in a process of its own ----------------------------------------------------------------


async def serve(nodes: int, rate: float) -> None:
    """Serve a dashboard, print its link, and bind pods at a rate until this process is ended."""
    watchers = Watchers(None, annotate_why=False, event_why=False, simulator_results=False)
    live = Live("figures", "embedded")
    observers = [*watchers.observers, live.observer]
    embedded = Embedded(default_config(), in_tree_registry(), clock=RealClock(), observers=observers, kubelets=False)
    watchers.attach(embedded.scheduler, embedded.port, objects=embedded.objects)
    live.attach(lambda: embedded.scheduler, watchers)
    template, zones = node_template(cpu="32"), [f"zone-{letter}" for letter in "abc"]
    for node in make_nodes(nodes, template, zones=zones):
        embedded.store.create(NODES, "", node)
    await embedded.start()
    tasks = [asyncio.create_task(task, name=name) for name, task in (*watchers.tasks(), *live.tasks())]
    names: deque[str] = deque()
    made = await bind(embedded, names, 0, _POPULATION)
    while bound_pods(embedded) < made:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    await Listener(Site([live]), ("127.0.0.1", 0), announce=lambda link: print(link, flush=True), warn=print).start()
    start, first = time.monotonic(), made
    while all(not task.done() for task in tasks):
        made = await bind(embedded, names, made, int(first + rate * (time.monotonic() - start)))
        await asyncio.sleep(0.02)


def bound_pods(embedded: Embedded) -> int:
    return len(embedded.scheduler.cache.pods) - len(embedded.scheduler.cache.assumed)


async def bind(embedded: Embedded, names: deque[str], made: int, wanted: int) -> int:
    """Create pods up to a number, and delete as many of the oldest; return how many there have been in all."""
    store = embedded.store
    # The scheduler may be slower than the rate; then there is a queue, but it does not grow.
    while made < wanted and (made < _POPULATION or len(names) - bound_pods(embedded) < _MOST_WAITING):
        if len(names) >= _POPULATION:
            store.delete(PODS, "default", names.popleft())
        made += 1
        names.append(f"pod-{made}")
        requests = {"cpu": f"{100 * (made % 7 + 1)}m", "memory": "200Mi"}
        spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}
        metadata = {"name": names[-1], "namespace": "default", "labels": {"app": f"app-{made % 20}"}}
        store.create(PODS, "default", {"metadata": metadata, "spec": spec})
        if made % 50 == 0:
            await asyncio.sleep(0)
    return made


@contextmanager
def cluster(nodes: int, rate: float) -> Iterator[str]:
    """Address of the dashboard of a cluster, which is a link that logs in."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--serve", str(nodes), str(rate)]
        environment = {**os.environ, "XDG_STATE_HOME": folder}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        try:
            link = process.stdout.readline().strip()
            if not link:
                raise SystemExit("the cluster did not start")
            yield link
        finally:
            process.kill()
            process.communicate()


@contextmanager
def page(nodes: int, rate: float) -> Iterator[Window]:
    """Window on the map of a cluster."""
    with tempfile.TemporaryDirectory() as folder, cluster(nodes, rate) as link:
        window = Window(Path(folder), logs=False)
        window.driver.set_script_timeout(120)
        try:
            window.driver.get(link)
            window.see("map")
            yield window
        finally:
            window.close()


# -- what is measured ------------------------------------------------------------------------------------


def paint(nodes: int) -> None:
    with page(nodes, 0) as window:
        window.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _PAINTED})
        times = []
        for _ in range(_LOADS):
            window.driver.refresh()
            times.append(float(until("the map", lambda: window.script("return window.painted"))))
        sizes = "return performance.getEntriesByType('resource').map((e) => [e.name, e.transferSize, e.responseEnd - e.startTime])"
        name, size, taken = max(window.script(sizes), key=lambda each: float(each[1]))
        print(f"paint: {nodes:,} nodes: {median(times):.0f} ms (of {', '.join(f'{each:.0f}' for each in times)})")
        print(f"  of that {taken:.0f} ms for {name.partition('/ui/')[2]}, {size / 1024:.0f} KB on the wire")


def frames(nodes: int, rate: float) -> None:
    for each in (0.0, rate):
        with page(nodes, each) as window:
            time.sleep(5)
            times: Sequence[float] = window.driver.execute_async_script(_MOVED, _SECONDS * 1000)
            ordered = sorted(times)
            print(
                f"frames: {nodes:,} nodes, {each:g} bindings a second, panned and zoomed: {1000 * len(times) / sum(times):.1f} a second; "
                f"median {median(times):.1f} ms, 95 % within {ordered[len(ordered) * 95 // 100]:.1f} ms, longest {ordered[-1]:.0f} ms"
            )


def tasks(nodes: int, rate: float) -> None:
    with page(nodes, rate) as window:
        time.sleep(10)
        window.script(_OBSERVE)
        before, start = bound(window), time.monotonic()
        canvas = window.see("map")
        while (passed := time.monotonic() - start) < 2 * _SECONDS:
            canvas.send_keys(Keys.ARROW_RIGHT)
            time.sleep(0.5)
        speed = (bound(window) - before) / passed
        long, keys = window.script("return tasks"), window.script("return events")
        print(
            f"tasks: {nodes:,} nodes, {speed:.0f} pods a second came to nodes, {passed:.0f} s: {len(long)} long tasks, together {sum(long):.0f} ms, "
            f"longest {max(long, default=0):.0f} ms; {len(keys)} keys, median {median(keys or [0]):.0f} ms to the next frame, slowest {max(keys, default=0):.0f} ms"
        )


def bound(window: Window) -> int:
    """Return how many pods the page has seen bound: the newest pod's number."""
    link = window.find("[data-testid=happenings] a.name")
    return int(link.text.rpartition("-")[2])


def memory(nodes: int, rate: float, duration: float) -> None:
    with page(nodes, rate) as window:
        driver = window.driver
        driver.execute_cdp_cmd("Performance.enable", {})
        start, first, count = time.monotonic(), 0.0, bound(window)
        while True:
            passed = time.monotonic() - start
            driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
            heap = driver.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"] / 2**20
            found: dict[str, Any] = {
                each["name"]: each["value"] for each in driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
            }
            seen = bound(window) - count
            print(
                f"memory: {nodes:,} nodes, after {passed:4.0f} s and {seen:,} bindings: {heap:.2f} MiB, {found['Nodes']:.0f} elements, "
                f"{found['JSEventListeners']:.0f} listeners",
                flush=True,
            )
            if passed >= duration:
                break
            # Lists of what happened and of samples fill first.
            if not first and passed >= duration / 4:
                first = heap
            time.sleep(max(1.0, min(60.0, duration / 12)))
        print(f"  {100 * (heap / first - 1):+.1f} % since the first quarter")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"what to measure: {', '.join(KINDS)} (default: all)")
    parser.add_argument("--nodes", type=int, nargs="+", help="numbers of nodes (default: those of the kind)")
    parser.add_argument("--rate", type=float, default=1000.0, help="bindings a second (default: 1000)")
    parser.add_argument("--duration", type=float, default=120.0, help="seconds of `memory` (default: 120)")
    parser.add_argument("--serve", nargs=2, type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(int(options.serve[0]), options.serve[1]))
        return 0
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"{', '.join(sorted(unknown))}: no such kind; there are {', '.join(KINDS)}")
    if lack := missing():
        parser.error(lack)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} from elsewhere")
    kinds = options.kinds or KINDS
    for nodes in options.nodes or (5000, 50_000) if "paint" in kinds else ():
        paint(nodes)
    for nodes in options.nodes or (10_000,) if "frames" in kinds else ():
        frames(nodes, options.rate)
    for nodes in options.nodes or (5000,) if "tasks" in kinds else ():
        tasks(nodes, options.rate)
    for nodes in options.nodes or (5000,) if "memory" in kinds else ():
        memory(nodes, options.rate, options.duration)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Pictures of the dashboard in README and docs: ``make screenshots``.

A simulation with a seed is shown by ``kubesched view``, so the pictures differ only where the page does, or the fonts of the machine.
Needs what ``make browser`` installs.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from browser_kit import Program, Window, missing, until
from clusters import deployment, node, pod, pod_spec, written
from PIL import Image

ROOT: Final = Path(__file__).parents[2]
TARGET: Final = ROOT / "docs/pictures"
_GPU: Final = "nvidia.com/gpu"
#: Moments of the animation, in seconds since the start; each is shown for some milliseconds.
_MOMENTS: Final = range(0, 1210, 40)
_SHOWN: Final = 240
#: Moment of the other pictures.
_BUSY: Final = 700


def gpu_pod(name: str, gpus: int, **more: Any) -> dict[str, Any]:
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    found = pod(name, pod_spec("3", "8Gi", tolerations=tolerations, **more.pop("spec", {})), **more)
    found["spec"]["containers"][0]["resources"].setdefault("limits", {})[_GPU] = str(gpus)
    found["spec"]["containers"][0]["resources"]["requests"][_GPU] = str(gpus)
    return found


def cluster() -> list[dict[str, Any]]:
    """48 nodes in three zones, of three sizes, some with GPUs."""
    sizes = [8] * 8 + [16] * 5 + [32] * 2
    found = []
    for zone in "abc":
        found += [node(f"{zone}-{at:02}", f"zone-{zone}", size) for at, size in enumerate(sizes)]
        found += [node(f"{zone}-gpu", f"zone-{zone}", 16, gpus=8)]
    return found


def workloads() -> list[dict[str, Any]]:
    """Twenty minutes: services from the start, jobs in waves, training that evicts notebooks, and pods that fit nowhere."""
    chance = random.Random(31)
    found = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000}
    ]
    for name, replicas, cpu, memory in (
        ("frontend", 36, "500m", "1Gi"),
        ("checkout", 18, "1", "2Gi"),
        ("search", 9, "3", "12Gi"),
    ):
        found.append(deployment(name, replicas, pod_spec(cpu, memory)))
    at = 20.0
    for number in range(800):
        at += chance.expovariate(1.5 if number % 260 < 200 else 0.4)
        times = {"kubesched.io/arrival": f"{at:.0f}s", "kubesched.io/duration": f"{chance.randrange(90, 420)}s"}
        name = f"{chance.choice(('etl', 'render', 'report'))}-{number:03}"
        found.append(
            pod(name, pod_spec(chance.choice(("1", "2", "2", "4")), chance.choice(("2Gi", "6Gi"))), annotations=times)
        )
    for number in range(10):
        times = {"kubesched.io/arrival": f"{30 + 20 * number}s", "kubesched.io/duration": "900s"}
        found.append(gpu_pod(f"notebook-{number}", 2, annotations=times))
    for number in range(3):
        times = {"kubesched.io/arrival": f"{420 + 60 * number}s", "kubesched.io/duration": "500s"}
        found.append(gpu_pod(f"training-{number}", 8, annotations=times, spec={"priorityClassName": "urgent"}))
    later = {"kubesched.io/arrival": "300s"}
    found.append(pod("warehouse", pod_spec("24", "100Gi", nodeSelector={"size": "cpu-16"}), annotations=later))
    return found


@contextmanager
def shown(folder: Path, file: Path) -> Iterator[Program]:
    (place := folder / f"of-{file.name}").mkdir()
    shutil.copy(file, place)
    program = Program(place, "view", file.name)
    try:
        yield program
    finally:
        program.stop()


def at_moment(window: Window, view: str, moment: float) -> None:
    """Show a view at a moment, and wait until all of it is there."""
    window.go(f"{view}{'&' if '?' in view else '?'}at={moment:g}")
    clock = f"{int(moment) // 3600}:{int(moment) // 60 % 60:02}:{int(moment) % 60:02}"
    until(f"{clock} on the clock", lambda: window.text("clock").endswith(clock))
    settle(window)


def settle(window: Window) -> None:
    """Wait until the page has asked for nothing for a while."""
    window.script("document.activeElement.blur()")
    count, same = -1, 0
    while same < 5:
        time.sleep(0.1)
        found = window.script("return performance.getEntriesByType('resource').length")
        same = same + 1 if found == count else 0
        count = found
        if count > 150:  # the browser keeps 250
            window.script("performance.clearResourceTimings()")


def picture(window: Window) -> Image.Image:
    return Image.open(io.BytesIO(window.driver.get_screenshot_as_png())).convert("RGB")


def save(window: Window, name: str) -> None:
    path = TARGET / f"{name}.png"
    picture(window).quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1024:.0f} KB")


def animate(window: Window, name: str) -> None:
    pictures = []
    for moment in _MOMENTS:
        at_moment(window, "/map", moment)
        pictures.append(picture(window))
    path = TARGET / f"{name}.webp"
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=_SHOWN, loop=0, quality=50, method=6)
    print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1024:.0f} KB, {len(pictures)} pictures")


def what_if(window: Window) -> None:
    """Question about a zone that fails: the form, the figures, and the maps before and after."""
    window.choose("kind", "fail")
    window.choose("value", "zone-b")
    window.click("add-proposal")
    window.click("try")
    window.see("preview", "Then")
    window.script("window.scrollTo(0, 0)")
    settle(window)


def main() -> int:
    if lack := missing():
        raise SystemExit(lack)
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nodes, pods = written(folder, "nodes.yaml", cluster()), written(folder, "pods.yaml", workloads())
        command = [sys.executable, "-m", "kubesched.cli", "simulate", "-f", str(nodes), str(pods), "--seed", "31"]
        command += [
            "--until",
            f"{_MOMENTS[-1]}s",
            "-o",
            "json",
            "--decisions",
            "day.gz",
            "--save-cluster",
            "saved.jsonl",
        ]
        day = folder / "day.json"
        with day.open("w") as output:
            subprocess.run(command, stdout=output, check=True, cwd=folder)
        print(json.loads(day.read_text())["totals"])
        (folder / "browser").mkdir()
        window = Window(folder / "browser")
        try:
            take(window, folder)
        finally:
            window.close()
    return 0


def take(window: Window, folder: Path) -> None:
    window.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    with shown(folder, folder / "day.json") as program:
        window.open(program)
        window.prefer("dark")
        window.resize(1000, 690)
        animate(window, "dashboard")
        window.prefer("light")
        window.resize(1200, 720)
        at_moment(window, "/map", _BUSY)
        save(window, "dashboard-map")
        window.resize(1200, 900)
        at_moment(window, "/time", _BUSY)
        save(window, "dashboard-time")
    with shown(folder, folder / "day.gz") as program:
        window.open(program)
        settle(window)
        window.go("/pod/default/warehouse")
        window.see("explanation", "What would help")
        settle(window)
        save(window, "dashboard-pod")
        window.resize(1200, 720)
        window.prefer("dark")
        window.click("show-on-map")
        window.see("legend", "cpu")
        settle(window)
        save(window, "dashboard-verdicts")
        window.prefer("light")
    with shown(folder, folder / "saved.jsonl") as program:
        window.open(program, "/what-if")
        window.resize(1200, 900)
        what_if(window)
        save(window, "dashboard-what-if")


if __name__ == "__main__":
    sys.exit(main())

"""Cost of a slow extender to pods that it has no interest in: nothing, if all is well.

    python bench/slow_extender.py [--nodes 1000] [--pods 5000] [--seconds 5] [--interested 3]

Places pods on an embedded cluster twice: without any extender, and while an extender over HTTP takes ``--seconds`` for each
answer about ``--interested`` other pods. Prints both throughputs and costs, and how the slow pods fared.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from aiohttp import web

from kubesched.api.kinds import NODES, PODS
from kubesched.base.times import RealClock
from kubesched.cluster.kubelets import make_nodes
from kubesched.lab.simulate.embedded import Embedded
from kubesched.scheduler.config import API_VERSION, KIND, load_config_data
from kubesched.scheduler.extenders.http import http_extenders
from kubesched.scheduler.plugins import in_tree_registry

RESOURCE = "example.com/gpu"


def pod(name: str, amounts: dict[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": amounts, "limits": amounts}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}


async def measure(options: argparse.Namespace, url: str | None) -> tuple[float, float]:
    """Pods per second, and microseconds of CPU per pod, of the pods without interest.

    They are created while the slow ones are being considered.
    """
    entry = {
        "urlPrefix": url,
        "filterVerb": "filter",
        "nodeCacheCapable": True,
        "httpTimeout": "60s",
        "managedResources": [{"name": RESOURCE, "ignoredByScheduler": True}],
    }
    data = {"apiVersion": API_VERSION, "kind": KIND, "extenders": [entry] if url else []}
    config = load_config_data(data)
    left = options.pods
    done = asyncio.Event()

    def bound(namespace: str, name: str, node: str) -> None:
        nonlocal left
        left -= name.startswith("usual-")
        if not left:
            done.set()

    embedded = Embedded(
        config,
        in_tree_registry(),
        clock=RealClock(),
        kubelets=False,
        event_queue_size=1 << 20,
        on_bind=bound,
        extenders=http_extenders(config.extenders),
    )
    for node in make_nodes(options.nodes):
        embedded.store.create(NODES, "", node)
    async with embedded.running():
        if url:
            for number in range(options.interested):
                embedded.store.create(PODS, "default", pod(f"slow-{number}", {"cpu": "1m", RESOURCE: "1"}))
            await asyncio.sleep(0.2)
        start, cpu = time.perf_counter(), time.process_time()
        for number in range(options.pods):
            embedded.store.create(PODS, "default", pod(f"usual-{number}", {"cpu": "1m"}))
            if number % 64 == 63:
                await asyncio.sleep(0)
        await done.wait()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        slow = [one for one in embedded.pods() if one.name.startswith("slow-")]
        if slow:
            waiting = sum(1 for one in slow if not one.spec.node_name)
            print(f"  {waiting} of {len(slow)} pods with the extender were still undecided after {seconds:.2f} s")
    return options.pods / seconds, cpu / options.pods * 1e6


async def run(options: argparse.Namespace) -> None:
    async def slow(request: web.Request) -> web.Response:
        names = (await request.json())["NodeNames"]
        await asyncio.sleep(options.seconds)
        return web.json_response({"NodeNames": names})

    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/filter", slow)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        for round_ in range(1, options.rounds + 1):
            without, cost = await measure(options, None)
            print(f"round {round_}: {without:,.0f} pods/s, {cost:.0f} µs of CPU per pod without an extender")
            loaded, cost = await measure(options, url)
            print(
                f"round {round_}: {loaded:,.0f} pods/s ({loaded / without:.0%}), {cost:.0f} µs of CPU per pod while one "
                f"takes {options.seconds:g} s"
            )
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--interested", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

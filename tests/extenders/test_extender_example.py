"""The example ``examples/extender``: a scheduler, an API server and an extender in conversation over HTTP."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from extender_kit import Cluster

from kubesched.base.times import RealClock
from kubesched.cluster.files import load_manifests
from kubesched.cluster.http import HttpServer
from kubesched.lab.simulate.embedded import Embedded
from kubesched.scheduler.config import KubeSchedulerConfiguration, load_config_file
from kubesched.scheduler.extenders.http import http_extenders
from kubesched.scheduler.plugins import in_tree_registry

EXAMPLE = Path(__file__).parents[2] / "examples" / "extender"


def example_module() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_extender", EXAMPLE / "gpu_extender.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def configured(port: int) -> KubeSchedulerConfiguration:
    """The example's configuration, with the port that the extender got here."""
    config = load_config_file(str(EXAMPLE / "config/scheduler.yaml"))
    (extender,) = config.extenders
    assert extender.url_prefix == "http://127.0.0.1:8888/gpu"
    moved = msgspec.structs.replace(extender, url_prefix=f"http://127.0.0.1:{port}/gpu")
    return msgspec.structs.replace(config, extenders=(moved,))


def test_the_extender_places_pods_by_what_it_alone_knows() -> None:
    async def main() -> None:
        extender = example_module().GpuExtender("")
        runner = web.AppRunner(extender.app(), shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            config = configured(runner.addresses[0][1])
            embedded = Embedded(
                config,
                in_tree_registry(),
                clock=RealClock(),
                kubelets=False,
                extenders=http_extenders(config.extenders),
            )
            async with HttpServer(embedded.store) as server:
                extender.api_server = server.url
                for item in load_manifests([str(EXAMPLE / "cluster.yaml")]).objects:
                    embedded.store.create(item.kind, item.namespace, item.data)
                async with embedded.running():
                    found = Cluster(embedded)
                    # The order of pods of one priority is that of their arrival; each takes what fits best.
                    assert await found.bound("one-gpu") == "small"
                    assert await found.bound("four-gpus") == "large"
                    await found.bound("web")
                    message = (await found.failed("eight-gpus")).message
                    assert "0/2 nodes are available: " in message
                    assert "of 8 GPUs free" in message
                    await found.until(lambda: extender.taken == {"small": 1, "large": 4}, "the account of the extender")
        finally:
            await runner.cleanup()

    asyncio.run(main())

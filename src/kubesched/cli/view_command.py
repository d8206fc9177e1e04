"""``kubesched view``: the dashboard over files; see :func:`.arguments.simulations.view`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from kubesched.base.collector import collector_off
from kubesched.base.extras import needing

from .console import log_warnings, warn, write
from .errors import CliError
from .interrupts import run_loop
from .loading import Setup, load_setup
from .stopping import StopSignal

with needing("kubesched view", "server"):
    from kubesched.dashboard.files import kind_of_file, read_cluster, recording_of
    from kubesched.dashboard.listener import Listener
    from kubesched.dashboard.server import Site
    from kubesched.dashboard.source import Source
    from kubesched.dashboard.standing import standing_source
    from kubesched.dashboard.trials.trials import ClusterTrials

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    log_warnings()
    paths = [Path(one) for one in (options.file, options.second) if one is not None]
    setup = load_setup(options, options.config)
    for remark in setup.remarks:
        warn(remark)
    return run_loop(_view(paths, setup, options))


async def _view(paths: Sequence[Path], setup: Setup, options: argparse.Namespace) -> int:
    stop = StopSignal(asyncio.get_running_loop())
    async with AsyncExitStack() as stack:
        sources = [await _source(path, number, setup, options, stop, stack) for number, path in enumerate(paths)]
        for source in sources:
            for remark in source.info.remarks:
                warn(f"{source.info.name}: {remark}")

        def announce(link: str) -> None:
            write(f"{link}\n" if options.quiet else f"dashboard, by a link that works once: {link}\n")
            sys.stdout.flush()

        listener = Listener(Site(sources), options.port, announce=announce, warn=warn, option="--port")
        try:
            await listener.start()
        except OSError as error:
            raise CliError(error.strerror or str(error)) from None
        stack.push_async_callback(listener.stop)
        if not options.quiet:
            write("stop with Ctrl-C\n")
            sys.stdout.flush()
        await stop.wait()
    return 0


async def _source(
    path: Path, number: int, setup: Setup, options: argparse.Namespace, stop: StopSignal, stack: AsyncExitStack
) -> Source:
    """Return the source over a file."""
    with stop.interrupts(), collector_off():
        kind = kind_of_file(path)
        if kind != "cluster":
            return recording_of(path, kind, number, setup[:3], stack)
        manifests = read_cluster(path)
    source = await stop.unless(
        stack.enter_async_context(
            standing_source(manifests, str(path), number, setup.registry, setup.config, setup.gates)
        )
    )
    source.trials = ClusterTrials(source.embedded, options.plugin_module, setup.gates)
    return source

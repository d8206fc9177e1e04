"""``kubesched up``: an embedded cluster that kubectl can talk to, with a scheduler, controllers and hollow nodes.

Everything runs in one process and one event loop, in real time or faster, until it is told to stop.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import secrets
import signal
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kubesched.api.kinds import NODES
from kubesched.api.wire import ApiError
from kubesched.cluster.http import CertificateFiles, HttpServer, make_certificates, write_kubeconfig
from kubesched.cluster.manifests import Manifest, ManifestError, load_manifests
from kubesched.cluster.nodes import make_nodes
from kubesched.cluster.snapshot_file import SnapshotError, restore, save
from kubesched.cluster.stages import StageError, load_stages
from kubesched.cluster.store import Store
from kubesched.framework.clock import Clock, RealClock
from kubesched.simulate.embedded import Embedded
from kubesched.simulate.intake import in_order, unknown_fields
from kubesched.simulate.scaled_time import ScaledClock, ScaledTimeLoop

from .console import progress_bar, warn, write
from .errors import CliError
from .loading import load_configuration, load_registry

__all__ = ["run"]

#: Hollow kubelets renew their leases this often (seconds), as real ones.
_HEARTBEAT_SECONDS = 10.0


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("kubesched.scheduler").setLevel(logging.INFO)  # what SIGUSR2 asks for is said at that level
    speed: float = options.speed
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if speed != 1:
        factory = lambda: ScaledTimeLoop(speed)  # noqa: E731 - a factory is what Runner wants
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_up(options))


async def _up(options: argparse.Namespace) -> int:
    loop = asyncio.get_running_loop()
    clock: Clock = RealClock()
    if options.speed != 1:
        clock = ScaledClock(loop, clock.now())
    registry, own = load_registry(options.plugin_module)
    config, remarks = load_configuration(options.config, registry, own)
    for remark in remarks:
        warn(remark)
    kubelets: dict[str, Any] = {"heartbeat_seconds": _HEARTBEAT_SECONDS}
    if options.stages:
        try:
            kubelets["stages"] = load_stages(options.stages)
        except StageError as error:
            raise CliError(str(error)) from None
    embedded = Embedded(
        config,
        registry,
        clock=clock,
        seed=options.seed,
        controllers=not options.no_controllers,
        kubelet_options=kubelets,
    )
    _fill(embedded.store, options)
    await embedded.start(scheduler=not options.no_scheduler)
    with tempfile.TemporaryDirectory(prefix="kubesched-") as scratch:
        server, kubeconfig = await _serve(embedded.store, options, clock, Path(scratch))
        try:
            stop = _stop_signal(loop)
            embedded.scheduler.debugger.install(loop)
            gc.collect()
            gc.freeze()  # what is there now mostly stays; looking through it again and again costs much
            _greet(embedded, server, kubeconfig, options)
            await stop.wait()
        finally:
            await server.stop()
            await embedded.stop()
    if options.snapshot:
        count = save(embedded.store, options.snapshot)
        if not options.quiet:
            write(f"saved {count} objects to {options.snapshot}\n")
    return 0


def _fill(store: Store, options: argparse.Namespace) -> None:
    """A saved cluster if there is one, hollow nodes, manifests."""
    restored = 0
    if options.snapshot and Path(options.snapshot).exists():
        try:
            restored = restore(store, options.snapshot)
        except SnapshotError as error:
            raise CliError(str(error)) from None
        if not options.quiet:
            write(f"restored {restored} objects from {options.snapshot}\n")
    if options.nodes and not restored:
        template = _node_template(options.node_template) if options.node_template else None
        zones = [f"zone-{chr(ord('a') + index)}" for index in range(options.zones)]
        with progress_bar("creating nodes", quiet=options.quiet) as bar:
            for done, node in enumerate(make_nodes(options.nodes, template, zones=zones), 1):
                _create(store, Manifest(NODES, node, options.node_template or "hollow nodes"))
                if done % 500 == 0:
                    bar.update(done, options.nodes)
    if options.filename:
        loaded = load_manifests([path for group in options.filename for path in group])
        for warning in (*loaded.warnings, *unknown_fields(loaded.objects)):
            warn(warning)
        for item in in_order(loaded.objects):
            _create(store, item, exists_is_fine=bool(restored))


def _create(store: Store, item: Manifest, *, exists_is_fine: bool = False) -> None:
    try:
        store.create(item.kind, item.namespace, item.data)
    except ApiError as error:
        if exists_is_fine and error.reason == "AlreadyExists":
            return
        raise CliError(f"{item.source}: {item.kind.kind} {item.name} was refused: {error}") from None


def _node_template(path: str) -> Mapping[str, Any]:
    """The first Node of a file; its name is not used."""
    nodes = [item for item in load_manifests([path]).objects if item.kind == NODES]
    if not nodes:
        raise ManifestError(f"{path}: holds no Node; a template is a manifest of kind Node")
    return nodes[0].data


async def _serve(store: Store, options: argparse.Namespace, clock: Clock, scratch: Path) -> tuple[HttpServer, Path]:
    """Listen, and write the kubeconfig."""
    token = secrets.token_urlsafe(24) if options.token == "" else options.token
    cert, key, ca = options.tls_cert, options.tls_key, options.tls_ca
    if options.tls and cert is None:
        try:
            made: CertificateFiles = make_certificates(scratch, clock, ("localhost", "127.0.0.1", options.host))
        except RuntimeError as error:
            raise CliError(str(error)) from None
        cert, key, ca = str(made.cert), str(made.key), str(made.ca)
    try:
        server = HttpServer(store, host=options.host, port=options.port, token=token, tls_cert=cert, tls_key=key)
        await server.start()
    except ValueError as error:
        raise CliError(str(error), code=2) from None
    except OSError as error:
        raise CliError(f"cannot listen on {options.host}:{options.port}: {error.strerror or error}") from None
    try:
        kubeconfig = write_kubeconfig(options.kubeconfig_out, server.url, token=token, ca=ca)
    except OSError:
        await server.stop()
        raise
    return server, kubeconfig


def _stop_signal(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def _greet(embedded: Embedded, server: HttpServer, kubeconfig: Path, options: argparse.Namespace) -> None:
    if options.quiet:
        write(f"{server.url}\n")
        return
    nodes, pods = len(embedded.nodes()), len(embedded.pods())
    parts = ["scheduler"] * (not options.no_scheduler) + ["controllers"] * (not options.no_controllers)
    speed = f", {options.speed:g} times as fast as real time" if options.speed != 1 else ""
    write(
        f"cluster at {server.url} with {nodes} nodes and {pods} pods "
        f"({' and '.join(parts) or 'API server only'}{speed}; process {os.getpid()})\n"
        f"  export KUBECONFIG={kubeconfig.resolve()}\n"
        "  kubectl get nodes\n"
        "stop with Ctrl-C\n"
    )

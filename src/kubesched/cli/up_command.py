"""``kubesched up``: an embedded cluster that kubectl can talk to, with a scheduler, controllers and hollow nodes.

Everything runs in one process and one event loop, in real time or faster, until it is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import os
import secrets
import ssl
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kubesched.api.kinds import NODES, PODS
from kubesched.api.wire import ApiError
from kubesched.base.collector import PASS_SECONDS, collector_paused
from kubesched.base.loop_watch import HoldReporter, watch_loop
from kubesched.base.pages import Page
from kubesched.base.small_file import read_small_file
from kubesched.base.times import Clock, RealClock, SteadyClock, timestamp
from kubesched.cluster.files import (
    Import,
    Manifest,
    ManifestError,
    Snapshot,
    SnapshotError,
    absent_owners_remark,
    import_dump,
    is_saved_cluster,
    load_manifests,
    read,
)
from kubesched.cluster.http import (
    HttpServer,
    make_certificates,
    publish_address,
    write_kubeconfig,
)
from kubesched.cluster.kubelets import make_nodes, zone_names
from kubesched.cluster.store import Store
from kubesched.explain.records import Recorder
from kubesched.explain.watchers import Watchers
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.inputs.given import node_template_of
from kubesched.lab.simulate.inputs.intake import (
    in_order,
    is_served,
    unknown_fields,
    unread_groups,
    with_default_class,
    without_gates,
    wrong_devices,
)
from kubesched.lab.simulate.inputs.storing import ensure_namespace
from kubesched.lab.simulate.run.scaled_time import ScaledClock, ScaledTimeLoop
from kubesched.scheduler.config import KubeSchedulerConfiguration
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.extenders.http import http_extenders
from kubesched.scheduler.framework.slow_calls import loop_progress, plugins_of, watching_plugins, work_of

from .busy_plugins import watch_busy_plugins
from .console import log_warnings, progress_bar, warn, write
from .errors import CliError
from .interrupts import run_loop
from .loading import load_gates, load_setup
from .memory import EVENT_CACHE, MOST_EVENTS, give_back
from .pod_life import pod_stages
from .preemption_log import PreemptionLog
from .saved_file import claimed, decision_file, save_or_rescue
from .stopping import StopSignal
from .up_checks import check_access, check_files

if TYPE_CHECKING:
    from kubesched.dashboard.source import Trials

    from .live_dashboard import LiveDashboard

__all__ = ["run"]

#: Seconds between two renewals of a hollow kubelet's lease, as with real kubelets.
_HEARTBEAT_SECONDS: Final = 10.0
#: Least time in seconds for which a function must hold the event loop to be logged.
_HOLD_SECONDS: Final = 0.5
#: Seconds between two looks at the Service of the API server, as upstream.
_PUBLISH_SECONDS: Final = 10.0
#: Seconds between two searches for expired events.
_EXPIRY_SECONDS: Final = 60.0


def run(options: argparse.Namespace) -> int:
    log_warnings()
    logging.getLogger("kubesched.scheduler").setLevel(logging.INFO)  # the answer to SIGUSR2 is logged at this level
    speed: float = options.speed
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if speed != 1:
        factory = lambda: ScaledTimeLoop(speed)  # noqa: E731 - a factory is what run_loop wants
    return run_loop(_up(options), factory)


async def _up(options: argparse.Namespace) -> int:
    loop = asyncio.get_running_loop()
    stop = StopSignal(loop)
    check_access(options)
    check_files(options)
    with claimed(options.snapshot, "--snapshot") if options.snapshot else nullcontext():
        async with AsyncExitStack() as stack:
            with collector_paused(stack.callback, every=PASS_SECONDS * options.speed):
                scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kubesched-")))
                with stop.interrupts():
                    certificates = _certificates(options, scratch)
                    recorder = _recorder(options)
                    stack.callback(recorder.close)
                    watchers = _watchers(options, recorder)
                    dashboard = _dashboard(options)
                    shown = [dashboard.live.observer] if dashboard is not None else []
                    embedded = _build(options, loop, [*watchers.observers, *shown], certificates)
                    attach = partial(watchers.attach, port=embedded.port, objects=embedded.objects)
                    attach(embedded.scheduler)
                    if dashboard is not None:
                        dashboard.attach(lambda: embedded.scheduler, watchers, replaced=attach)
                        dashboard.live.trials = _trials(options, embedded)
                pages = {} if options.no_scheduler else watchers.pages
                plugins = plugins_of(embedded.scheduler.frameworks.values())
                work = work_of(embedded.scheduler.frameworks.values())
                stack.enter_context(watching_plugins(plugins, warn, progress=loop_progress(loop), work=work))
                stack.push_async_callback(embedded.stop)
                await stop.unless(embedded.start(scheduler=not options.no_scheduler))
                server, kubeconfig = await stop.unless(_serve(embedded.store, options, certificates, pages))
                stack.push_async_callback(server.stop)
                stack.push_async_callback(_save, embedded.store, server, options)
                if dashboard is not None:
                    await _show(dashboard)
                    stack.push_async_callback(dashboard.stop)
                embedded.scheduler.debugger.install(loop)
                for name, task in (*watchers.tasks(), *(dashboard.tasks() if dashboard is not None else ())):
                    embedded.tasks.spawn(task, name)
                embedded.tasks.spawn(_expire_events(embedded.store), "event-expiry")
                embedded.tasks.spawn(_publish(embedded.store, server.url), "address")
            if options.speed == 1:  # otherwise the loop's seconds are not real ones
                busy = watch_busy_plugins(embedded.scheduler.frameworks.values(), warn)
                embedded.tasks.spawn(busy, "busy-plugins")
                reporter = HoldReporter(logging.getLogger("kubesched.up"), least=_HOLD_SECONDS)
                stack.enter_context(watch_loop(reporter))
            with embedded.tasks.guard():
                _greet(embedded, server, kubeconfig, options)
                if dashboard is not None:
                    dashboard.announce()
                await stop.wait()
    return 0


async def _save(store: Store, server: HttpServer, options: argparse.Namespace) -> None:
    """Save a cluster that has run, also after an error. Do it at once, because a service manager may soon kill the
    process.

    Writes are refused first, so that the file has every write that a client got an answer for.
    """
    await server.close()
    if options.snapshot:
        count = await save_or_rescue(store, options.snapshot)
        if not options.quiet:
            write(f"saved {count} objects to {options.snapshot}\n")


async def _expire_events(store: Store) -> None:
    """Remove expired events even when no new ones arrive, and release unused memory."""
    turns = count()
    while True:
        if store.expire_events():
            await asyncio.sleep(0)
            continue
        give_back(store, seconds=next(turns) * _EXPIRY_SECONDS)
        await asyncio.sleep(_EXPIRY_SECONDS)


async def _publish(store: Store, url: str) -> None:
    """Keep the Service ``kubernetes`` as it should be."""
    while True:
        await asyncio.sleep(_PUBLISH_SECONDS)
        publish_address(store, url)


def _watchers(options: argparse.Namespace, recorder: Recorder) -> Watchers:
    """Return the watchers that the options ask for.

    Raises:
        CliError: if there is no scheduler whose attempts they could watch.
    """
    for name in ("annotate_why_pending", "event_why_pending", "annotate_simulator_results"):
        if options.no_scheduler and getattr(options, name):
            raise CliError(f"--{name.replace('_', '-')}: nothing is attempted with --no-scheduler", code=2)
    return Watchers(
        recorder,
        annotate_why=options.annotate_why_pending,
        event_why=options.event_why_pending,
        simulator_results=options.annotate_simulator_results,
    )


def _dashboard(options: argparse.Namespace) -> LiveDashboard | None:
    """Return the dashboard that the options ask for."""
    if options.ui is None:
        return None
    if options.no_scheduler:
        raise CliError("--ui: it shows a scheduler at work, and there is none with --no-scheduler", code=2)
    from kubesched.dashboard.live import Live  # noqa: PLC0415 - not without the option

    from .live_dashboard import LiveDashboard  # noqa: PLC0415

    def announce(link: str) -> None:
        write(f"{link}\n" if options.quiet else f"dashboard, by a link that works once: {link}\n")
        sys.stdout.flush()

    live = Live("kubesched up", "embedded", speed=options.speed)
    return LiveDashboard(live, options.ui, announce=announce, warn=warn, speed=options.speed)


def _trials(options: argparse.Namespace, embedded: Embedded) -> Trials:
    """Return what tries changes on a copy of the cluster, and carries them out."""
    from kubesched.dashboard.trials.trials import ClusterTrials  # noqa: PLC0415 - not without the dashboard

    return ClusterTrials(embedded, options.plugin_module, load_gates(options))


async def _show(dashboard: LiveDashboard) -> None:
    try:
        await dashboard.start()
    except OSError as error:
        raise CliError(str(error)) from None


def _recorder(options: argparse.Namespace) -> Recorder:
    if options.decisions is None:
        return Recorder()
    if options.no_scheduler:
        raise CliError("--decisions: there are none with --no-scheduler", code=2)
    return Recorder(file=decision_file(options.decisions))


def _build(
    options: argparse.Namespace,
    loop: asyncio.AbstractEventLoop,
    observers: Sequence[AttemptObserver],
    certificates: _Certificates,
) -> Embedded:
    """Return the cluster that the options describe, with all its objects. Nothing moves yet."""
    registry, config, gates, remarks = load_setup(options, options.config)
    for remark in remarks:
        warn(remark)
    start = options.start or (options.snapshot if options.snapshot and Path(options.snapshot).exists() else None)
    snapshot, dump = None, None
    if start is not None:
        try:
            if start == options.snapshot or is_saved_cluster(start):
                snapshot = read(start)
            else:
                dump = import_dump([start])
        except SnapshotError as error:
            raise CliError(str(error)) from None
    clock = _clock(options, loop, snapshot)
    embedded = Embedded(
        config,
        registry,
        clock=clock,
        seed=options.seed,
        gates=gates,
        controllers=not options.no_controllers,
        kubelet_options={"heartbeat_seconds": _HEARTBEAT_SECONDS},
        stages=pod_stages(options),
        extenders=http_extenders(config.extenders),
        observers=[*([] if options.quiet else [PreemptionLog(clock)]), *observers],
        taint_new_nodes=not options.no_controllers,
        event_cache_size=EVENT_CACHE,
        root_ca=_root_ca(certificates),
    )
    embedded.store.most_events = MOST_EVENTS
    _fill(embedded.store, options, start or "", snapshot, dump, config)
    return embedded


def _clock(options: argparse.Namespace, loop: asyncio.AbstractEventLoop, snapshot: Snapshot | None) -> Clock:
    """Return the cluster's clock: this machine's, unless time passes faster or a snapshot is from a later time.

    A cluster that ran ahead when it was saved continues at its own time. A cluster that was saved in the past continues
    now, as a real cluster that was switched off in between.
    """
    real = SteadyClock()
    now = real.now()
    if snapshot is None or snapshot.time <= now:
        return real if options.speed == 1 else ScaledClock(loop, now)
    if not options.quiet:
        ahead, where = timedelta(seconds=round(snapshot.time - now)), timestamp(snapshot.time)
        write(
            f"the cluster's clock continues at {where}, where it was when saved; that is {ahead} ahead of this machine's\n"
        )
    return ScaledClock(loop, snapshot.time)


def _fill(
    store: Store,
    options: argparse.Namespace,
    start: str,
    snapshot: Snapshot | None,
    dump: Import | None,
    config: KubeSchedulerConfiguration,
) -> None:
    """Fill the store with a saved or imported cluster if there is one, hollow nodes, and manifests."""
    started = snapshot is not None or dump is not None
    if started:
        if snapshot is not None:
            snapshot.load_into(store)
            count = len(snapshot.items)
        elif dump is not None:
            for text in (*dump.warnings, *dump.store_in(store)):
                warn(text)
            count = len(dump.objects)
        if not options.no_controllers:
            for text in absent_owners_remark(item.data() for item in store.table(PODS).items()):
                warn(text)
        if options.nodes:
            warn(f"--nodes {options.nodes}: ignored, because the nodes come from {start}")
        if not options.quiet:
            write(f"{'restored' if snapshot is not None else 'read'} {count} objects from {start}\n")
    elif options.nodes:
        template = node_template_of(options.node_template, dict(options.node_resources))
        zones = zone_names(options.zones)
        with progress_bar("creating nodes", quiet=options.quiet) as bar:
            for done, node in enumerate(make_nodes(options.nodes, template, zones=zones, now=store.now()), 1):
                _create(store, Manifest(NODES, node, options.node_template or "hollow nodes"))
                if done % 500 == 0:
                    bar.update(done, options.nodes)
    elif options.node_template or options.node_resources:
        given = f"--node-template {options.node_template}" if options.node_template else "--node-resource"
        warn(f"{given}: ignored without --nodes, the number of nodes to make")
    loaded = load_manifests((path for group in options.filename for path in group), lenient=True)
    for warning in (*loaded.warnings, *unknown_fields(loaded.objects)):
        warn(warning)
    loaded.problems += wrong_devices(loaded.objects)
    features = store.admission.features
    for text in (*without_gates(loaded.objects, features), *unread_groups(loaded.objects, config, features)):
        warn(text)
    loaded.objects = [item for item in loaded.objects if is_served(item.kind, features)]
    for item in in_order(loaded.objects if started else with_default_class(loaded.objects)):
        with loaded.collecting():
            if item.kind.namespaced:
                ensure_namespace(store, item)
            _create(store, item, exists_is_fine=started)
    loaded.close()  # raises the problems that were found


def _create(store: Store, item: Manifest, *, exists_is_fine: bool = False) -> None:
    try:
        store.create(item.kind, item.namespace, item.data)
    except ApiError as error:
        if exists_is_fine and error.reason == "AlreadyExists":
            return
        raise ManifestError(f"{item.source}: {item.kind.kind} {item.name} was refused: {error}") from None


class _Certificates(NamedTuple):
    """Files of the server's certificate, its key, and the authority that signed it. Those not given are None."""

    cert: str | None
    key: str | None
    ca: str | None


def _certificates(options: argparse.Namespace, scratch: Path) -> _Certificates:
    """Return the certificates of the options, or throw-away ones for ``--tls``."""
    given = _Certificates(options.tls_cert, options.tls_key, options.tls_ca)
    if given.cert is not None and given.key is not None:
        _check_certificate(given.cert, given.key)
    elif options.tls and given.cert is None:
        try:
            # Dates in certificates follow this machine's clock, because clients compare them with their own clocks.
            made = make_certificates(scratch, RealClock(), ("localhost", "127.0.0.1", options.host))
        except RuntimeError as error:
            raise CliError(str(error)) from None
        return _Certificates(str(made.cert), str(made.key), str(made.ca))
    return given


def _root_ca(certificates: _Certificates) -> str:
    """Return the certificate authority as text; an empty text if there is none."""
    if certificates.ca is None:
        return ""
    try:
        return read_small_file(certificates.ca).decode()
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or error
        raise CliError(f"--tls-ca {certificates.ca}: cannot be read: {text}") from None


async def _serve(
    store: Store, options: argparse.Namespace, certificates: _Certificates, pages: Mapping[str, Page]
) -> tuple[HttpServer, Path]:
    """Start the server and write the kubeconfig."""
    token = secrets.token_urlsafe(24) if options.token == "" else options.token
    ca = certificates.ca
    if token is not None and certificates.cert is None:
        warn("kubectl sends a token over HTTPS only, so its requests will be rejected; add --tls")
    try:
        server = HttpServer(
            store,
            host=options.host,
            port=options.port,
            token=token,
            authorization_mode=options.authorization_mode,
            allowed_hosts=options.allowed_host,
            insecure_without_token=options.insecure_without_token,
            tls_cert=certificates.cert,
            tls_key=certificates.key,
            pages=pages,
        )
        await server.start()
        publish_address(store, server.url)
    except ValueError as error:
        raise CliError(str(error), code=2) from None
    except OSError as error:
        hint = "; stop what listens there or give another --port" if error.errno == errno.EADDRINUSE else ""
        text = os.strerror(error.errno) if error.errno == errno.EADDRINUSE else error.strerror or error
        raise CliError(f"cannot listen on {options.host}:{options.port}: {text}{hint}") from None
    try:
        kubeconfig = write_kubeconfig(options.kubeconfig_out, server.url, token=token, ca=ca)
    except OSError as error:
        await server.stop()
        which = (
            f"--tls-ca {ca}"
            if error.filename == ca and ca is not None
            else f"--kubeconfig-out {options.kubeconfig_out}"
        )
        raise CliError(f"{which}: {error.filename or ''}: {error.strerror or error}") from None
    return server, kubeconfig


def _check_certificate(cert: str, key: str) -> None:
    for option, name in (("--tls-cert", cert), ("--tls-key", key)):
        try:
            read_small_file(name)
        except OSError as error:
            raise CliError(f"{option} {name}: cannot be read: {error.strerror or error}") from None
    try:
        # No password prompt: the command may run unattended.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise CliError(
            f"--tls-cert {cert}, --tls-key {key}: cannot be used: {reason}; "
            "give a certificate and its key as PEM files, the key without a password"
        ) from None


def _greet(embedded: Embedded, server: HttpServer, kubeconfig: Path, options: argparse.Namespace) -> None:
    if options.quiet:
        write(f"{server.url}\n")
        sys.stdout.flush()
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
    sys.stdout.flush()

"""``kubesched run``: the scheduler of a real cluster, as kube-scheduler is run.

    flags -> options -> access -> HTTPS server (bound) -> scheduler (built) -> informers -> lease -> scheduling

Source: rules/configuration §7 and §8, rules/serving §7 and §9.
Different on purpose: at a signal bindings under way may end before the lease is released, for at most five seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import random
import signal
import sys
from asyncio import sslproto
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kubesched import __version__
from kubesched.api.kinds import kind_by_plural
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError
from kubesched.base.collector import collector_paused
from kubesched.base.hosts import loopback_listener
from kubesched.base.loop_watch import HoldReporter, watch_loop
from kubesched.base.tasks import Supervisor, TaskCrashedError
from kubesched.base.times import RealClock, SteadyClock
from kubesched.base.whole_file import write_file
from kubesched.client.access import AccessError, ClusterAccess, load_access
from kubesched.client.candidate import LeaseCandidate
from kubesched.client.http import HttpTransport
from kubesched.client.lease import LeaderElector, LeaseError
from kubesched.client.port import ApiPort
from kubesched.explain.watchers import Watchers
from kubesched.scheduler.config import (
    IN_TREE,
    ConfigError,
    FeatureGates,
    KubeSchedulerConfiguration,
    dump_config,
    dump_yaml,
)
from kubesched.scheduler.extenders.http import http_extenders
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.framework.registry import PluginError, Registry
from kubesched.scheduler.framework.slow_calls import loop_progress, plugins_of, watching_plugins, work_of
from kubesched.scheduler.loading import register_retired
from kubesched.scheduler.scheduler import Scheduler
from kubesched.scheduler.server import (
    AuthorizationOptions,
    Exposition,
    HealthChecks,
    Pages,
    PodResources,
    ProcessMetrics,
    Server,
    ServingError,
    election_check,
    scheduler_checks,
)
from kubesched.scheduler.server.process_metrics import RequestMetrics

from ..busy_plugins import watch_busy_plugins
from ..console import write
from ..interrupts import add_signal_handler, run_loop
from ..loading import load_registry
from .connections import BUILD_INFO, KUBERNETES_VERSION, Connections, lease_of
from .flags import FLAG_SET
from .flagset import FlagError, Flags
from .logs import VModule, configure, level_of, with_pairs
from .options import OptionsError, RunOptions, default_plugins, options_of, vmodule_of, with_plugins
from .serving import authentication_of, exposition_of, serving_of

if TYPE_CHECKING:
    from ..live_dashboard import LiveDashboard

__all__ = ["main"]

_log = logging.getLogger("kubesched.run")

#: Seconds that bindings under way may take at the end.
_BINDING_SECONDS: Final = 5.0
#: Bytes of the buffer that asyncio makes for each TLS connection. Its own 256 KiB are for transfers of large files: a
#: record of TLS has 16 KiB, and most connections here carry answers of 2 KB.
_TLS_BUFFER: Final = 64 << 10


def main(arguments: Sequence[str]) -> int:
    """Run until a signal comes or something fails. Return the exit code that kube-scheduler has."""
    try:
        flags = FLAG_SET.parse(arguments)
    except FlagError as error:
        usage = f"{FLAG_SET.usage}\n" if error.with_usage else ""
        print(f"{usage}Error: {error}", file=sys.stderr)
        return 1
    if flags["help"]:
        write(f"{FLAG_SET.help()}\n")
        return 0
    if "version" in flags.changed and flags["version"] in ("true", "raw"):
        print(_version(raw=flags["version"] == "raw"))
        return 0
    sslproto.SSLProtocol.max_size = _TLS_BUFFER
    if flags["ui"]:
        import_module("kubesched.cli.live_dashboard")  # 100 modules, for which the event loop would stand still
    try:
        return run_loop(_run(flags))
    except SystemExit as error:  # raised in a task; a plugin must not choose the exit code
        return _failed(f"a task or a plugin tried to end the process with {error.code!r}")


def _version(*, raw: bool) -> str:
    if not raw:
        return f"Kubernetes {KUBERNETES_VERSION}"
    fields = {
        "Major": BUILD_INFO["major"],
        "Minor": BUILD_INFO["minor"],
        "GitVersion": KUBERNETES_VERSION,
        "KubeschedVersion": __version__,
        "PythonVersion": platform.python_version(),
        "Platform": BUILD_INFO["platform"],
    }
    return "\n".join(f"{name}: {value}" for name, value in fields.items())


async def _run(flags: Flags) -> int:
    """Do all that needs a loop. Errors before logging is set up are plain text, later ones are log lines."""
    try:
        process = _Process(flags)
        return await process.run()
    except OptionsError as error:
        if not error.logged:
            print(f"Error: {error}" if "format:" not in str(error) else str(error), file=sys.stderr)
            return 1
        return _failed(str(error))
    except ConfigError as error:
        return _failed(error.user_message)
    except (AccessError, ServingError, LeaseError, PluginError, ApiError) as error:
        prefix = "couldn't create leader elector: " if isinstance(error, LeaseError) else ""
        return _failed(f"{prefix}{error}")
    except TaskCrashedError as error:
        _log.critical("a task of the scheduler ended unexpectedly", exc_info=error)
        return _failed(str(error))
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _failed(text: str) -> int:
    if not logging.getLogger().handlers:
        configure()
    _log.error("command failed", extra=with_pairs(err=text))
    return 1


class _Process:
    """One run of the command."""

    def __init__(self, flags: Flags) -> None:
        self._flags = flags
        self._clock = RealClock()
        self._rng = random.Random(flags["seed"] or None)
        self._stop = asyncio.Event()
        self._leading = False
        self._synced = False
        self._stack = AsyncExitStack()
        self._scheduler: Scheduler | None = None

    async def run(self) -> int:
        self._handle_signals()
        registry, _ = load_registry(self._flags["plugin-module"])
        options = await options_of(self._flags, self._config_map, IN_TREE.keys() - registry.keys())
        logs = _configure_logs(self._flags)
        for name, text in self._flags.texts().items():
            _log.log(level_of(1), 'FLAG: --%s="%s"', name, text)
        for warning in options.warnings:
            _log.warning("%s", warning)
        if missing := sorted(default_plugins(options.config) - registry.keys()):
            _log.warning("kubesched lacks plugins of kube-scheduler's default profile: %s", ", ".join(missing))
        register_retired(registry, options.retired)
        config = with_plugins(options.config, self._flags["enable-plugin"], registry)
        async with self._stack:
            return await self._serve(config, options, registry, logs)

    # -- assembly --------------------------------------------------------------------------------------

    async def _serve(
        self, config: KubeSchedulerConfiguration, options: RunOptions, registry: Registry, logs: VModule
    ) -> int:
        flags, gates = self._flags, options.gates
        kubeconfig, master = config.client_connection.kubeconfig, flags["master"]
        access = await load_access(kubeconfig, master)
        lease = lease_of(config, coordinated=gates.enabled("CoordinatedLeaderElection"))
        if lease is not None:
            lease.check()
        process_metrics = ProcessMetrics(gates, BUILD_INFO)
        observe = process_metrics.kubesched_event_loop_hold_seconds.labels().observe
        self._stack.enter_context(watch_loop(HoldReporter(_log, observe)))
        scheduler_metrics = SchedulerMetrics(gates.values)
        requests = RequestMetrics(process_metrics, _host(access))
        connections = Connections(access, "" if master else kubeconfig, requests, self._clock, self._rng, self._stack)
        port = connections.port(config, watch_list=gates.enabled("WatchListClient"))
        elector, candidate = (None, None) if lease is None else connections.election(config, lease)
        if elector is not None:
            process_metrics.follow_election(elector)
        watchers, dashboard = self._watchers(), self._dashboard(access)
        checks = scheduler_checks(
            stopping=self._stop.is_set,
            handlers_synced=lambda: self._synced,
            missing_lists=lambda: self._scheduler.first_lists.missing() if self._scheduler is not None else (),
            leader_election=election_check(elector, lease) if elector is not None and lease is not None else None,
            informers_not_started=_not_synced(candidate) if candidate is not None else None,
        )
        exposition = exposition_of(flags, process_metrics, scheduler_metrics)
        pages = self._pages(config, gates, logs, exposition, checks, watchers, dashboard)
        # The listener is opened before the scheduler is built, so that an address in use is reported first.
        server = await self._server(pages, process_metrics, connections, gates)
        if server is not None:
            server.bind()
            self._stack.push_async_callback(server.stop)
        if dashboard is not None:
            await dashboard.start()
            dashboard.announce()
            self._stack.push_async_callback(dashboard.stop)
        scheduler = self._scheduler = Scheduler(
            config,
            registry,
            port,
            clock=SteadyClock(),
            rng=random.Random(self._rng.getrandbits(64)),
            gates=gates,
            metrics=scheduler_metrics,
            max_in_unschedulable=flags["pod-max-in-unschedulable-pods-duration"].seconds,
            extenders=http_extenders(config.extenders),
            observers=[*watchers.observers, *([dashboard.live.observer] if dashboard is not None else [])],
        )
        watchers.attach(scheduler, port, ready=lambda: self._synced)
        if dashboard is not None:
            dashboard.attach(lambda: scheduler, watchers, ready=lambda: self._synced)
        if self._write_config(config, registry):
            return 0
        beside = (*watchers.tasks(), *(dashboard.tasks() if dashboard is not None else ()))
        return await self._work(config, scheduler, port, server, elector, candidate, beside)

    def _write_config(self, config: KubeSchedulerConfiguration, registry: Registry) -> bool:
        """Log the configuration, and write it if that is all that is wanted: return True then."""
        path = self._flags["write-config-to"]
        if not path and not _log.isEnabledFor(level_of(2)):
            return False  # the text takes a while to make
        text = dump_yaml(config, registered=list(registry))
        _log.log(level_of(2), "Using component config", extra=with_pairs(config=text))
        if path:
            write_file(path, text.encode())
            _log.info("Wrote configuration", extra=with_pairs(file=path))
        return bool(path)

    async def _work(
        self,
        config: KubeSchedulerConfiguration,
        scheduler: Scheduler,
        port: ApiPort,
        server: Server | None,
        elector: LeaderElector | None,
        candidate: LeaseCandidate | None,
        beside: Sequence[tuple[str, Coroutine[Any, Any, None]]],
    ) -> int:
        _log.info("Starting Kubernetes Scheduler", extra=with_pairs(version=KUBERNETES_VERSION, kubesched=__version__))
        loop = asyncio.get_running_loop()
        scheduler.debugger.install(loop)
        plugins = plugins_of(scheduler.frameworks.values())
        self._stack.enter_context(
            watching_plugins(
                plugins,
                lambda text: _log.warning("%s", text),
                progress=loop_progress(loop),
                work=work_of(scheduler.frameworks.values()),
            )
        )
        tasks = Supervisor("run")
        try:
            with tasks.guard():
                tasks.spawn(port.events.run(), "events")
                busy = watch_busy_plugins(scheduler.frameworks.values(), partial(_log.warning, "%s"))
                for name, task in (*beside, ("busy-plugins", busy)):
                    tasks.spawn(task, name)
                if server is not None:
                    await server.start()
                if candidate is not None:
                    tasks.spawn(candidate.run(), "lease-candidate")
                delayed = elector is not None and config.delay_cache_until_active
                work = self._lead(scheduler, tasks, elector, delayed=delayed)
                leading = tasks.spawn(work, "leader", lasting=False)
                stopped = tasks.spawn(self._stop.wait(), "signal", lasting=False)
                await asyncio.wait((leading, stopped), return_when=asyncio.FIRST_COMPLETED)
                if not self._stop.is_set():
                    leading.result()
                    _log.error("Leaderelection lost")
                    return 1
                # Bindings under way may end. Then the lease is released, by cancelling its renewal.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_BINDING_SECONDS):
                        await scheduler.stop()
                        await port.events.drain()
                leading.cancel()
                await asyncio.wait((leading,))
            if elector is None:
                return _failed("finished without leader elect")
            _log.info("Requested to terminate, exiting")
            return 0
        finally:
            tasks.begin_stop()
            scheduler.tasks.begin_stop()  # stop() is not used because it may wait; its tasks end with the loop
            port.events.stop()
            await tasks.stop()

    async def _lead(
        self, scheduler: Scheduler, tasks: Supervisor, elector: LeaderElector | None, *, delayed: bool
    ) -> None:
        """Fill the caches, win the lease, and schedule. Return when the lease is lost."""
        if not delayed:
            await self._start(scheduler)
        if elector is not None:
            await elector.acquire()
        self._leading = True
        try:
            if delayed:
                _log.info("Waiting for caches to sync, because delayCacheUntilActive is set")
                await self._start(scheduler)
            tasks.spawn(scheduler.run(), "scheduler", lasting=False)
            if elector is not None:
                await elector.hold()
            else:
                await self._stop.wait()
        finally:
            self._leading = False

    async def _start(self, scheduler: Scheduler) -> None:
        with collector_paused(self._stack.callback):
            await scheduler.start()
        self._synced = True

    # -- parts -----------------------------------------------------------------------------------------

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Read the data of a ConfigMap, for a Policy."""
        kind = kind_by_plural("", "configmaps")
        assert kind is not None
        access = await load_access(self._flags["kubeconfig"], self._flags["master"])
        async with HttpTransport.connect(access) as transport:
            found: Mapping[str, Any] = (await transport.get(kind, namespace, name)).data().get("data") or {}
        return found

    def _watchers(self) -> Watchers:
        """Return the watchers that the flags ask for. A file of decisions ends with the process."""
        flags, recorder = self._flags, None
        path, kept = flags["decisions"], flags["decisions-kept"]
        if path or kept > 0:
            from kubesched.explain.records import DecisionFile, Recorder  # noqa: PLC0415 - not without these flags

            recorder = Recorder(kept=max(kept, 0), file=DecisionFile(path) if path else None)
            self._stack.callback(recorder.close)
        return Watchers(
            recorder,
            annotate_why=flags["annotate-why-pending"],
            event_why=flags["event-why-pending"],
            simulator_results=flags["annotate-simulator-results"],
        )

    def _dashboard(self, access: ClusterAccess) -> LiveDashboard | None:
        """Return the dashboard if the flags ask for it.

        Raises:
            OptionsError: for an address that cannot be used.
        """
        if not self._flags["ui"]:
            return None
        from kubesched.dashboard.live import Live  # noqa: PLC0415 - not without the flag

        from ..live_dashboard import LiveDashboard  # noqa: PLC0415

        try:
            address = loopback_listener(self._flags["ui"], "127.0.0.1", 10260)
        except ValueError as error:
            raise OptionsError(f"--ui: {error}", logged=True) from None
        return LiveDashboard(
            Live(_host(access), "live", remarks=self._remarks),
            address,
            announce=lambda link: _log.info(
                "The dashboard opens by a link that works once", extra=with_pairs(link=link)
            ),
            warn=lambda text: _log.warning("%s", text),
        )

    def _pages(
        self,
        config: KubeSchedulerConfiguration,
        gates: FeatureGates,
        logs: VModule,
        exposition: Exposition,
        checks: HealthChecks,
        watchers: Watchers,
        dashboard: LiveDashboard | None,
    ) -> Pages:
        def pods() -> Collection[Pod]:
            return self._scheduler.informers.pods.values() if self._scheduler is not None else ()

        return Pages(
            exposition,
            checks,
            PodResources(pods, lambda: self._leading),
            configz=lambda: dump_config(config),
            flags=self._flags.texts if gates.enabled("ComponentFlagz") else None,
            versions=(KUBERNETES_VERSION, "1.36") if gates.enabled("ComponentStatusz") else None,
            profiling=config.enable_profiling,
            set_verbosity=logs.set_verbosity,
            added=watchers.pages,
            sites={"ui": dashboard.site.answer} if dashboard is not None else {},
        )

    def _remarks(self) -> list[str]:
        """Return what people at the dashboard should know of this replica now."""
        if not self._synced:
            return ["the cluster is being read"]
        return (
            [] if self._leading else ["this replica does not hold the lease: another one schedules, and pods wait here"]
        )

    async def _server(
        self, pages: Pages, metrics: ProcessMetrics, connections: Connections, gates: FeatureGates
    ) -> Server | None:
        flags = self._flags
        if not flags["secure-port"]:
            return None
        authn = await connections.reviewer(flags["authentication-kubeconfig"])
        authz = await connections.reviewer(flags["authorization-kubeconfig"])
        return Server(
            pages,
            metrics=metrics,
            clock=self._clock,
            rng=random.Random(self._rng.getrandbits(64)),
            serving=serving_of(flags),
            authentication=authentication_of(flags, gates),
            authorization=AuthorizationOptions(
                flags["authorization-always-allow-paths"],
                flags["authorization-webhook-cache-authorized-ttl"].seconds,
                flags["authorization-webhook-cache-unauthorized-ttl"].seconds,
            ),
            authn_transport=authn,
            authz_transport=authz,
        )

    # -- signals ---------------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            add_signal_handler(loop, number, self._signalled, held_up=_exit)

    def _signalled(self) -> None:
        """Handle a signal: the first one stops in good order, the second at once."""
        if self._stop.is_set():
            _exit()
        self._stop.set()


def _exit() -> None:
    os._exit(1)


def _configure_logs(flags: Flags) -> VModule:
    return configure(
        json_lines=flags["logging-format"] == "json",
        verbosity=flags["v"],
        vmodule=vmodule_of(flags),
        split=flags["log-json-split-stream"] or flags["log-text-split-stream"],
    )


def _not_synced(candidate: LeaseCandidate) -> Callable[[], Sequence[str]]:
    return lambda: () if candidate.informer.has_synced else ("*v1beta1.LeaseCandidate",)


def _host(access: ClusterAccess) -> str:
    return access.url.partition("://")[2]

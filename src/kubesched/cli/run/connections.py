"""Connections of ``kubesched run`` to the API server: its transports, the scheduler's port, and leader election."""

from __future__ import annotations

import os
import platform
import random
import socket
import sys
import uuid
from contextlib import AsyncExitStack
from typing import Any, Final

from kubesched import __version__
from kubesched.base.times import Clock
from kubesched.client.access import ClusterAccess, load_access
from kubesched.client.backoff import token_bucket
from kubesched.client.candidate import LeaseCandidate
from kubesched.client.connection_log import ConnectionLog
from kubesched.client.http import HttpTransport
from kubesched.client.lease import LeaderElector, LeaseConfig
from kubesched.client.metered import MeteredTransport
from kubesched.client.port import ApiPort
from kubesched.scheduler.config import KubeSchedulerConfiguration
from kubesched.scheduler.server.process_metrics import RequestMetrics

__all__ = ["BUILD_INFO", "KUBERNETES_VERSION", "Connections", "lease_of"]

#: Kubernetes version whose scheduler this program corresponds to, as ``--version`` prints it.
KUBERNETES_VERSION: Final = "v1.36.0"
#: Labels of ``kubernetes_build_info``. Those of Go's tools have no value.
BUILD_INFO: Final = {
    "git_version": KUBERNETES_VERSION,
    "major": "1",
    "minor": "36",
    "platform": f"{sys.platform}/{platform.machine()}",
}
#: The version without its prefix, as lease candidates carry it.
_SEMANTIC_VERSION: Final = KUBERNETES_VERSION.removeprefix("v")
_AGENT: Final = f"kube-scheduler/{KUBERNETES_VERSION} ({sys.platform}/{platform.machine()}) kubesched/{__version__}"

#: Limits of token and access reviews: requests a second, and requests at once.
_REVIEW_QPS, _REVIEW_BURST = 200.0, 400


class Connections:
    """Factory of transports, each with its own user agent.

    Transports of one kubeconfig share its access and its log: ``access`` belongs to the file ``kubeconfig``, which is empty
    if a flag overrides it, or if there is none. ``stack`` closes all transports; ``requests`` counts requests.
    """

    def __init__(
        self,
        access: ClusterAccess,
        kubeconfig: str,
        requests: RequestMetrics,
        clock: Clock,
        rng: random.Random,
        stack: AsyncExitStack,
    ) -> None:
        #: Accesses and their logs, by kubeconfig. The scheduler's own has the empty name, too.
        self._known = dict.fromkeys(("", kubeconfig), (access, ConnectionLog(access.url)))
        self._requests = requests
        self._clock = clock
        self._rng = rng
        self._stack = stack
        #: Transports that may write only while this process leads.
        self._writers: list[HttpTransport | MeteredTransport] = []

    def port(self, config: KubeSchedulerConfiguration, *, watch_list: bool) -> ApiPort:
        """Return the scheduler's port. Events have a connection of their own."""
        connection = config.client_connection
        transport, events = self._transport("scheduler"), self._transport("scheduler")
        port = ApiPort(
            transport,
            clock=self._clock,
            rng=random.Random(self._rng.getrandbits(64)),
            event_transport=events,
            watch_list=watch_list,
            hostname=socket.gethostname(),
            limiter=token_bucket(connection.qps, connection.burst),
            event_limiter=token_bucket(connection.qps, connection.burst),
        )
        port.transport.on_wait = port.event_transport.on_wait = self._requests.waited
        # The inner transports are fenced as well, because they repeat writes.
        self._writers += (port.transport, port.event_transport, transport, events)
        return port

    def election(
        self, config: KubeSchedulerConfiguration, lease: LeaseConfig
    ) -> tuple[LeaderElector, LeaseCandidate | None]:
        """Return the elector, and a candidate if the election is coordinated.

        From now on ports write only as the leader.
        """
        connection = config.client_connection
        transport = MeteredTransport(
            self._transport("leader-election", seconds=lease.request_timeout),
            limiter=token_bucket(connection.qps, connection.burst),
            on_wait=self._requests.waited,
        )
        candidate: LeaseCandidate | None = None
        if lease.coordinated:
            candidate = LeaseCandidate(
                transport,
                lease,
                clock=self._clock,
                rng=random.Random(self._rng.getrandbits(64)),
                binary_version=_SEMANTIC_VERSION,
                emulation_version=_SEMANTIC_VERSION,
            )
        elector = LeaderElector(
            transport,
            lease,
            clock=self._clock,
            rng=random.Random(self._rng.getrandbits(64)),
            component=config.profiles[0].scheduler_name,
        )
        for writer in self._writers:
            writer.may_write = lambda: elector.may_write
        return elector, candidate

    async def reviewer(self, kubeconfig: str) -> MeteredTransport | None:
        """Return the transport of reviews: by the kubeconfig given, or inside a cluster by the service account."""
        if not kubeconfig and "KUBERNETES_SERVICE_HOST" not in os.environ:
            return None
        if kubeconfig not in self._known:
            access = await load_access(kubeconfig)
            self._known[kubeconfig] = access, ConnectionLog(access.url)
        transport = self._transport("", kubeconfig, seconds=10.0)
        return MeteredTransport(transport, limiter=token_bucket(_REVIEW_QPS, _REVIEW_BURST))

    def _transport(self, suffix: str, kubeconfig: str = "", *, seconds: float | None = None) -> HttpTransport:
        access, log = self._known[kubeconfig]
        options: dict[str, Any] = {} if seconds is None else {"timeout": seconds}
        agent = f"{_AGENT}/{suffix}" if suffix else _AGENT
        transport = HttpTransport.connect(
            access, user_agent=agent, observer=self._requests, connection_log=log, **options
        )
        self._stack.push_async_callback(transport.close)
        return transport


def lease_of(config: KubeSchedulerConfiguration, *, coordinated: bool) -> LeaseConfig | None:
    """Return the lease that the configuration asks for; None without leader election."""
    election = config.leader_election
    if not election.leader_elect:
        return None
    return LeaseConfig(
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        namespace=election.resource_namespace,
        name=election.resource_name,
        lease_duration=election.lease_duration.seconds,
        renew_deadline=election.renew_deadline.seconds,
        retry_period=election.retry_period.seconds,
        coordinated=coordinated,
    )

"""Metrics of the process around the scheduler: its API client, its HTTPS server, its lease, its feature gates.

Source: rules/metrics-and-client §4. Writers: the request pipeline, the reviews, the lease elector, and the owner of a
port, through :class:`RequestMetrics`. Reader: :mod:`.exposition`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubesched.client.lease import LeaderElector

from ..config.features import FEATURES, FeatureGates, Stage
from ..framework.metrics import Counter, Gauge, Histogram, Kind, Level, MetricDef, MetricSet, exponential_buckets

__all__ = ["DEFINITIONS", "LEASE_NAME", "SLI_DEFINITIONS", "HealthMetrics", "ProcessMetrics", "RequestMetrics"]

_CLIENT: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
_SIZES: Final = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
_SERVER: Final = exponential_buckets(0.001, 2, 15)
#: Go client's default buckets.
_DEFAULT: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_HOLDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5)
_DELEGATED: Final = (0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10)
#: Label of the leader election metrics. It does not depend on the lease's name.
LEASE_NAME: Final = "kube-scheduler"


def _row(
    name: str,
    kind: Kind,
    help: str,  # noqa: A002 - the field's name
    labels: tuple[str, ...] = (),
    buckets: tuple[float, ...] = (),
    level: Level = "ALPHA",
) -> MetricDef:
    return MetricDef(name, kind, help, labels, buckets, level, prefix="")


#: Every metric of the process, in the order of rules/metrics-and-client §4.
DEFINITIONS: Final[tuple[MetricDef, ...]] = (
    _row("rest_client_requests_total", "counter", "Number of requests to the API server, by status code, method and host.", ("code", "method", "host")),
    _row("rest_client_request_duration_seconds", "histogram", "Seconds a request to the API server took, without the wait for the rate limiter.", ("verb", "host"), _CLIENT),
    _row("rest_client_rate_limiter_duration_seconds", "histogram", "Seconds requests waited for the client-side rate limiter.", ("verb", "host"), _CLIENT),
    _row("rest_client_request_retries_total", "counter", "Number of requests to the API server that were repeated, by status code, verb and host.", ("code", "verb", "host")),
    _row("rest_client_request_size_bytes", "histogram", "Size of request bodies in bytes.", ("verb", "host"), _SIZES),
    _row("rest_client_response_size_bytes", "histogram", "Size of response bodies in bytes, watches excepted.", ("verb", "host"), _SIZES),
    _row("leader_election_master_status", "gauge", "1 while this process holds the lease, 0 otherwise.", ("name",)),
    _row("leader_election_slowpath_total", "counter", "Number of lease renewals that could not use the lease as last seen.", ("name",)),
    _row("kubernetes_build_info", "gauge", "Always 1; the labels say what was built.", ("build_date", "compiler", "git_commit", "git_tree_state", "git_version", "go_version", "major", "minor", "platform")),
    _row("version_info", "gauge", "Always 1; the labels name the Kubernetes version whose behaviour is implemented.", ("binary", "component", "emulation", "min_compat")),
    _row("kubernetes_feature_enabled", "gauge", "1 for a feature gate that is on, 0 for one that is off.", ("name", "stage"), level="BETA"),
    _row("registered_metrics_total", "counter", "Number of metrics registered, by stability level and the version that deprecated them.", ("stability_level", "deprecated_version"), level="BETA"),
    _row("hidden_metrics_total", "counter", "Number of metrics hidden because they are deprecated.", level="BETA"),
    _row("disabled_metrics_total", "counter", "Number of metrics disabled on request.", level="BETA"),
    _row("cardinality_enforcement_unexpected_categorizations_total", "counter", "Number of series whose label values were replaced because the allow-list lacks them."),
    _row("authenticated_user_requests", "counter", "Number of authenticated requests, by kind of user name.", ("username",)),
    _row("authentication_attempts", "counter", "Number of authentications, by result.", ("result",)),
    _row("authentication_duration_seconds", "histogram", "Seconds an authentication took, by result.", ("result",), _SERVER),
    _row("authentication_token_cache_request_total", "counter", "Number of tokens looked up among those reviewed before.", ("status",)),
    _row("authentication_token_cache_request_duration_seconds", "histogram", "Seconds a token lookup took, its review included.", ("status",), _DEFAULT),
    _row("authentication_token_cache_fetch_total", "counter", "Number of token reviews, by outcome.", ("status",)),
    _row("authentication_token_cache_active_fetch_count", "gauge", "Number of token reviews under way, and of requests that wait for one.", ("status",)),
    _row("authorization_attempts_total", "counter", "Number of authorizations, by result.", ("result",)),
    _row("authorization_duration_seconds", "histogram", "Seconds an authorization took, by result.", ("result",), _SERVER),
    _row("apiserver_delegated_authn_request_total", "counter", "Number of token reviews sent, by status code.", ("code",)),
    _row("apiserver_delegated_authn_request_duration_seconds", "histogram", "Seconds a token review took, by status code.", ("code",), _DELEGATED),
    _row("apiserver_delegated_authz_request_total", "counter", "Number of access reviews sent, by status code.", ("code",)),
    _row("apiserver_delegated_authz_request_duration_seconds", "histogram", "Seconds an access review took, by status code.", ("code",), _DELEGATED),
    _row("kubesched_event_loop_hold_seconds", "histogram", "CPU seconds for which one function held the event loop, of 50 ms or more.", (), _HOLDS),
)  # fmt: skip

#: Metrics of ``/metrics/slis``.
SLI_DEFINITIONS: Final[tuple[MetricDef, ...]] = (
    _row("kubernetes_healthcheck", "gauge", "1 when the check passed the last time it ran, 0 when it failed.", ("name", "type"), level="STABLE"),
    _row("kubernetes_healthchecks_total", "counter", "Number of runs of a health check, by outcome.", ("name", "status", "type"), level="STABLE"),
    _row("process_start_time_seconds", "gauge", "Start of the process, in seconds since the epoch.", level="STABLE"),
)  # fmt: skip


class ProcessMetrics(MetricSet):
    """Metrics of the process, one attribute for each row of :data:`DEFINITIONS`."""

    rest_client_requests_total: Counter
    rest_client_request_duration_seconds: Histogram
    rest_client_rate_limiter_duration_seconds: Histogram
    rest_client_request_retries_total: Counter
    rest_client_request_size_bytes: Histogram
    rest_client_response_size_bytes: Histogram
    leader_election_master_status: Gauge
    leader_election_slowpath_total: Counter
    kubernetes_build_info: Gauge
    version_info: Gauge
    kubernetes_feature_enabled: Gauge
    registered_metrics_total: Counter
    hidden_metrics_total: Counter
    disabled_metrics_total: Counter
    cardinality_enforcement_unexpected_categorizations_total: Counter
    authenticated_user_requests: Counter
    authentication_attempts: Counter
    authentication_duration_seconds: Histogram
    authentication_token_cache_request_total: Counter
    authentication_token_cache_request_duration_seconds: Histogram
    authentication_token_cache_fetch_total: Counter
    authentication_token_cache_active_fetch_count: Gauge
    authorization_attempts_total: Counter
    authorization_duration_seconds: Histogram
    apiserver_delegated_authn_request_total: Counter
    apiserver_delegated_authn_request_duration_seconds: Histogram
    apiserver_delegated_authz_request_total: Counter
    apiserver_delegated_authz_request_duration_seconds: Histogram
    kubesched_event_loop_hold_seconds: Histogram

    def __init__(self, gates: FeatureGates, build: Mapping[str, str]) -> None:
        """``build`` has values for the labels of ``kubernetes_build_info``; a missing one is empty."""
        super().__init__(DEFINITIONS)
        labels = self.kubernetes_build_info.definition.labels
        self.kubernetes_build_info.labels(*(build.get(label, "") for label in labels)).set(1)
        self.version_info.labels("1.36", "kube", "1.36", "1.35").set(1)
        for name, feature in FEATURES.items():
            stage = "" if feature.stage is Stage.GA else str(feature.stage)
            self.kubernetes_feature_enabled.labels(name, stage).set(float(gates.enabled(name)))

    def follow_election(self, elector: LeaderElector) -> None:
        """Show the state of this elector from now on."""
        leading = self.leader_election_master_status.labels(LEASE_NAME)
        slow_paths = self.leader_election_slowpath_total.labels(LEASE_NAME)

        def measure() -> None:
            leading.value = float(elector.leading)
            slow_paths.value = elector.slow_paths

        self.before_collect(measure)


class RequestMetrics:
    """Metrics of one API client's requests to ``host`` (name and port).

    The methods are the hooks of ``client.metered`` and ``client.http``.
    """

    def __init__(self, metrics: ProcessMetrics, host: str) -> None:
        self._metrics = metrics
        self._host = host

    def finished(self, method: str, code: str, seconds: float) -> None:
        """Count a request that was answered, or failed with code ``<error>``."""
        self._metrics.rest_client_requests_total.inc(code, method, self._host)
        self._metrics.rest_client_request_duration_seconds.observe(seconds, method, self._host)

    def waited(self, method: str, seconds: float) -> None:
        """Record the seconds that a request waited for its token from the rate limiter."""
        self._metrics.rest_client_rate_limiter_duration_seconds.observe(seconds, method, self._host)

    def transferred(self, method: str, sent: int, received: int) -> None:
        """Record the bytes of a request's body and of its answer's body."""
        self._metrics.rest_client_request_size_bytes.observe(sent, method, self._host)
        self._metrics.rest_client_response_size_bytes.observe(received, method, self._host)

    def repeated(self, method: str, code: str) -> None:
        """Count a request that is sent once more because of this answer."""
        self._metrics.rest_client_request_retries_total.inc(code, method, self._host)


class HealthMetrics(MetricSet):
    """Metrics of health checks, written by each run of a check; the rows of :data:`SLI_DEFINITIONS`."""

    kubernetes_healthcheck: Gauge
    kubernetes_healthchecks_total: Counter
    process_start_time_seconds: Gauge

    def __init__(self, started: float) -> None:
        super().__init__(SLI_DEFINITIONS)
        self.process_start_time_seconds.labels().set(started)

    def ran(self, name: str, endpoint: str, passed: bool) -> None:
        """Record the run of a check; ``endpoint`` is healthz, livez or readyz."""
        self.kubernetes_healthcheck.labels(name, endpoint).set(float(passed))
        self.kubernetes_healthchecks_total.inc(name, "success" if passed else "error", endpoint)

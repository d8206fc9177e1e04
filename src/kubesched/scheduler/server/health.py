"""Health checks of ``/healthz``, ``/livez`` and ``/readyz``, and the text of the answers.

Caller: :mod:`.endpoints`. The assembly builds the checks with :func:`scheduler_checks`. Source: rules/serving §3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kubesched.client.lease import LeaderElector, LeaseConfig

__all__ = [
    "PING",
    "HealthCheck",
    "HealthChecks",
    "HealthReport",
    "election_check",
    "run_checks",
    "run_one",
    "scheduler_checks",
]

_log = logging.getLogger("kubesched.scheduler.server")

_RENEWAL_GRACE: Final = 20.0


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """Health check. ``problem`` returns the fault, "" when there is none. ``problem`` must not wait."""

    name: str
    problem: Callable[[], str]


PING = HealthCheck("ping", lambda: "")


@dataclass(frozen=True, slots=True)
class HealthChecks:
    """Checks of each endpoint, in the order in which they are run and listed."""

    healthz: tuple[HealthCheck, ...] = (PING,)
    livez: tuple[HealthCheck, ...] = (PING,)
    readyz: tuple[HealthCheck, ...] = (PING,)

    def by_endpoint(self) -> dict[str, tuple[HealthCheck, ...]]:
        return {"healthz": self.healthz, "livez": self.livez, "readyz": self.readyz}


def scheduler_checks(
    *,
    stopping: Callable[[], bool],
    handlers_synced: Callable[[], bool],
    missing_lists: Callable[[], Sequence[str]] = tuple,
    leader_election: Callable[[], str] | None = None,
    informers_not_started: Callable[[], Sequence[str]] | None = None,
) -> HealthChecks:
    """Make the checks of a scheduler.

    ``missing_lists`` are the kinds whose first list has not come, for the fault of ``sched-handler-sync``.
    ``leader_election`` is the check ``leaderElection``, None without election; it returns the fault, or "".
    ``informers_not_started`` adds ``informer-sync`` (coordinated leader election).
    """
    election = () if leader_election is None else (HealthCheck("leaderElection", leader_election),)
    ready = [
        *election,
        HealthCheck("shutdown", lambda: "process is shutting down" if stopping() else ""),
        HealthCheck("sched-handler-sync", lambda: "" if handlers_synced() else _not_synced(missing_lists())),
    ]
    if informers_not_started is not None:
        ready.append(HealthCheck("informer-sync", lambda: _not_started(informers_not_started())))
    return HealthChecks(healthz=election or (PING,), livez=(PING,), readyz=tuple(ready))


def election_check(elector: LeaderElector, lease: LeaseConfig) -> Callable[[], str]:
    """Make the check ``leaderElection``: it fails for a leader without a renewal for the lease duration plus 20 s."""

    def problem() -> str:
        stale = elector.leading and elector.renewal_age > lease.lease_duration + _RENEWAL_GRACE
        return f"failed election to renew leadership on lease {lease.name}" if stale else ""

    return problem


def _not_synced(kinds: Sequence[str]) -> str:
    lists = f": the first list has not come of {', '.join(kinds)}" if kinds else ""
    return f"handlers are not fully synchronized{lists}"


def _not_started(names: Sequence[str]) -> str:
    return f"{len(names)} informers not started yet: [{' '.join(names)}]" if names else ""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Outcome of one request: HTTP status and body."""

    status: int
    text: str


def run_checks(
    endpoint: str,
    checks: Sequence[HealthCheck],
    *,
    verbose: bool = False,
    exclude: frozenset[str] = frozenset(),
    ran: Callable[[str, str, bool], None] = lambda name, endpoint, passed: None,
) -> HealthReport:
    """Run the checks of an endpoint, without those excluded. ``ran`` receives name, endpoint and outcome.

    The reasons of failures go to the log only.
    """
    lines, failures = [], []
    for check in checks:
        if check.name in exclude:
            lines.append(f"[+]{check.name} excluded: ok")
            continue
        problem = _problem_of(check)
        ran(check.name, endpoint, not problem)
        if problem:
            failures.append(f"{check.name}: {problem}")
            lines.append(f"[-]{check.name} failed: reason withheld")
        else:
            lines.append(f"[+]{check.name} ok")
    unknown = sorted(exclude - {check.name for check in checks})
    if unknown:
        quoted = ",".join(f'"{name}"' for name in unknown)
        warning = f"warn: some health checks cannot be excluded: no matches for {quoted}"
        _log.warning("%s: %s", endpoint, ascii(warning))
        lines.append(warning)
    if failures:
        _log.warning("%s check failed: %s", endpoint, "; ".join(failures))
        return HealthReport(500, "\n".join([*lines, f"{endpoint} check failed", ""]))
    if not verbose:
        return HealthReport(200, "ok")
    return HealthReport(200, "\n".join([*lines, f"{endpoint} check passed", ""]))


def run_one(
    endpoint: str, check: HealthCheck, *, ran: Callable[[str, str, bool], None] = lambda name, endpoint, passed: None
) -> HealthReport:
    """Run one check by itself, as ``/readyz/NAME`` does; the reason of a failure is shown."""
    problem = _problem_of(check)
    ran(check.name, endpoint, not problem)
    return HealthReport(500, f"internal server error: {problem}\n") if problem else HealthReport(200, "ok")


def _problem_of(check: HealthCheck) -> str:
    """Return the fault that a check finds. A check that raises has failed."""
    try:
        return check.problem()
    except Exception:
        _log.exception("health check %s raised", check.name)
        return "the check itself failed"

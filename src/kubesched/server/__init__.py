"""The HTTPS server of ``kubesched run``: health, metrics, configuration, profiling.

    server ──▶ pipeline ──▶ authentication, authorization ──▶ reviews
                       └──▶ endpoints ──▶ health, exposition, resources, zpages, profiling
    tls, trust: certificates and authorities, followed as they change

Needs the ``run`` extra (aiohttp, prometheus-client, cryptography).
"""

from __future__ import annotations

from importlib.util import find_spec

_MISSING = [package for package in ("aiohttp", "httptools", "prometheus_client") if find_spec(package) is None]
if _MISSING:
    raise ImportError(f"serving needs {' and '.join(_MISSING)}: install kubesched[run]")

from .endpoints import Pages  # noqa: E402 - after the check of what is installed
from .exposition import Exposition  # noqa: E402
from .health import HealthCheck, HealthChecks, election_check, scheduler_checks  # noqa: E402
from .options import (  # noqa: E402
    AuthenticationOptions,
    AuthorizationOptions,
    ServingError,
    ServingOptions,
    SniPair,
)
from .process_metrics import ProcessMetrics  # noqa: E402
from .resources import PodResources  # noqa: E402
from .server import Server  # noqa: E402

__all__ = [
    "AuthenticationOptions",
    "AuthorizationOptions",
    "Exposition",
    "HealthCheck",
    "HealthChecks",
    "Pages",
    "PodResources",
    "ProcessMetrics",
    "Server",
    "ServingError",
    "ServingOptions",
    "SniPair",
    "election_check",
    "scheduler_checks",
]

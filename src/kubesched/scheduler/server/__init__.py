"""HTTPS server of ``kubesched run``: health, metrics, configuration, profiling.

    server ──▶ pipeline ──▶ authentication, authorization ──▶ reviews
                       └──▶ endpoints ──▶ health, exposition, resources, zpages, profiling
    tls, trust: certificates and authorities, followed as they change

Needs the ``run`` extra (aiohttp, prometheus-client, cryptography).
"""

from __future__ import annotations

from kubesched.base.extras import needing

with needing("the HTTPS server", "run"):
    from .endpoints import Pages
    from .exposition import Exposition
    from .health import HealthCheck, HealthChecks, election_check, scheduler_checks
    from .options import AuthenticationOptions, AuthorizationOptions, ServingError, ServingOptions, SniPair
    from .process_metrics import ProcessMetrics
    from .resources import PodResources
    from .server import Server

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

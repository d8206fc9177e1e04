"""Scheduler configuration of a workload."""

from __future__ import annotations

from kubesched.scheduler.config import KubeSchedulerConfiguration, default_config, load_config_file
from kubesched.scheduler.extenders.interface import Extender

from .workloads import Workload

__all__ = ["config_of", "extenders_of"]


def config_of(workload: Workload) -> KubeSchedulerConfiguration:
    """Return the workload's scheduler configuration, else the default.

    Raises:
        ConfigError: when the file cannot be used.
        WorkloadError: when the feature gates do not fit together.
    """
    path = workload.scheduler_config_path
    gates = workload.gates
    return load_config_file(workload.folder / path, gates=gates) if path else default_config(gates=gates)


def extenders_of(config: KubeSchedulerConfiguration) -> tuple[Extender, ...]:
    """Return the extenders that a configuration names, which are called over HTTP."""
    if not config.extenders:
        return ()
    from kubesched.scheduler.extenders.http import http_extenders  # noqa: PLC0415 - an extra

    return http_extenders(config.extenders)

"""Rules for the life of hollow pods, from the options of a command. Callers: ``up`` and ``kubelets``."""

from __future__ import annotations

import argparse
from typing import Final

from kubesched.cluster.kubelets import Stage, default_stages, job_end, load_stages, rules_of

from .console import warn

__all__ = ["pod_stages"]

#: Seconds after which a deleted pod is gone, as with programs that end when asked to.
_STOP_SECONDS: Final = 1.0


def pod_stages(options: argparse.Namespace) -> tuple[Stage, ...]:
    """Return the stage rules of the options: those of the files.

    If there are none for pods, add the default rules and the rules of the options.
    """
    stages, seconds = load_stages(options.stages), options.stop_pods_after
    if seconds is not None and rules_of("Pod", stages, ()):
        warn(f"--stop-pods-after {seconds:g}: ignored, because --stages has rules for pods")
    pods = rules_of("Pod", stages, default_stages(stop_delay=_STOP_SECONDS if seconds is None else seconds))
    if options.complete_jobs is not None:
        pods += job_end(options.complete_jobs)
    return (*pods, *(stage for stage in stages if stage.kind != "Pod"))

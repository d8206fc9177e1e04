"""Process that answers one question: a :class:`Request` on its standard input, an Outcome or a Fault as JSON on its output.

It is a process of its own, so that the cluster that goes on keeps its share of the interpreter, and so that the run can be ended
at any time. Started by :mod:`.trials` only.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from kubesched.base.large_json import large_json
from kubesched.cluster.files import ManifestError, SnapshotError
from kubesched.scheduler.config import ConfigError, FeatureGates, KubeSchedulerConfiguration
from kubesched.scheduler.framework.registry import PluginError
from kubesched.scheduler.loading import load_registry

from ..schema import Fault
from ..schema_what_if import Outcome, WhatIf
from .run import run_question

__all__ = ["Request", "main"]

#: Niceness: the cluster that goes on comes first.
_NICENESS: Final = 10
#: Seconds after which the process ends itself. Its parent gives up earlier, unless it was killed.
_MOST_SECONDS: Final = 180


@dataclass(frozen=True, slots=True)
class Request:
    """Question, and everything that the process needs: the saved cluster, and the scheduler's plugins and configuration.

    ``plugin_modules`` are names of modules, or .py files.
    """

    path: Path
    question: WhatIf
    changes: list[str]
    plugin_modules: list[str]
    config: KubeSchedulerConfiguration
    gates: FeatureGates


def main() -> None:
    """Answer the question of the parent process."""
    if hasattr(os, "nice"):
        with suppress(OSError):
            os.nice(_NICENESS)
    if hasattr(signal, "alarm"):
        signal.alarm(_MOST_SECONDS)
    request: Request = pickle.load(sys.stdin.buffer)
    answer: Outcome | Fault
    with redirect_stdout(sys.stderr):  # output of plugins is no part of the answer
        try:
            registry, _ = load_registry(request.plugin_modules)
            answer = run_question(
                request.path, request.question, request.changes, registry, request.config, request.gates
            )
        except (ManifestError, SnapshotError, ConfigError, PluginError) as error:
            answer = Fault(error=f"the copy of the cluster cannot run: {error}")
    sys.stdout.buffer.write(large_json(msgspec.to_builtins(answer)))


if __name__ == "__main__":
    main()

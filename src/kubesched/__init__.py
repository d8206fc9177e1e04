"""Kubernetes scheduler in Python.

``kubesched.simulate(...)`` schedules manifests on a simulated cluster; ``kubesched.Simulation(...)`` does so step by
step (``docs/python.md``). ``kubesched.arrivals(...)`` generates pods that arrive over time (``docs/arrivals.md``).
``kubesched.capacity(...)`` counts how many more pods fit (``docs/capacity.md``), ``kubesched.plan(...)`` finds the
nodes to add or remove (``docs/plan.md``). ``kubesched.sweep(...)`` makes many runs (``docs/sweeps.md``),
``kubesched.diff(...)`` compares two (``docs/diff.md``). ``kubesched.decisions(...)`` reads recorded decisions
(``docs/decisions.md``). ``Plugin`` and ``Status`` are for plugins (``docs/plugins.md``); the exceptions are what these
functions raise. Each is imported at its first use.
"""

from __future__ import annotations

# Import nothing here. Ctrl-C is not handled until the command has begun (see kubesched.cli.first).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from kubesched.api.wire import ApiError
    from kubesched.base.tasks import TaskCrashedError
    from kubesched.cluster.files import ManifestError
    from kubesched.lab.comparisons import Comparison, diff
    from kubesched.lab.decisions.table import decisions
    from kubesched.lab.simulate.entry import simulate
    from kubesched.lab.simulate.inputs.trace_files import arrivals
    from kubesched.lab.simulate.planning.entry import capacity, plan
    from kubesched.lab.simulate.results.views import SimulationResult
    from kubesched.lab.simulate.stepping import Simulation
    from kubesched.lab.sweeps import SweepError, sweep
    from kubesched.lab.traces import TraceError
    from kubesched.scheduler.config import ConfigError
    from kubesched.scheduler.framework import Plugin, Status
    from kubesched.scheduler.framework.registry import PluginError

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "Comparison",
    "ConfigError",
    "ManifestError",
    "Plugin",
    "PluginError",
    "Simulation",
    "SimulationResult",
    "Status",
    "SweepError",
    "TaskCrashedError",
    "TraceError",
    "__version__",
    "arrivals",
    "capacity",
    "decisions",
    "diff",
    "plan",
    "simulate",
    "sweep",
]

#: Public name to its module, and its name there.
_LAZY: Final = {
    "ApiError": ("kubesched.api.wire", "ApiError"),
    "Comparison": ("kubesched.lab.comparisons", "Comparison"),
    "ConfigError": ("kubesched.scheduler.config", "ConfigError"),
    "ManifestError": ("kubesched.cluster.files", "ManifestError"),
    "Plugin": ("kubesched.scheduler.framework", "Plugin"),
    "PluginError": ("kubesched.scheduler.framework.registry", "PluginError"),
    "Simulation": ("kubesched.lab.simulate.stepping", "Simulation"),
    "SimulationResult": ("kubesched.lab.simulate.results.views", "SimulationResult"),
    "capacity": ("kubesched.lab.simulate.planning.entry", "capacity"),
    "Status": ("kubesched.scheduler.framework", "Status"),
    "SweepError": ("kubesched.lab.sweeps", "SweepError"),
    "TaskCrashedError": ("kubesched.base.tasks", "TaskCrashedError"),
    "TraceError": ("kubesched.lab.traces", "TraceError"),
    "arrivals": ("kubesched.lab.simulate.inputs.trace_files", "arrivals"),
    "decisions": ("kubesched.lab.decisions.table", "decisions"),
    "diff": ("kubesched.lab.comparisons", "diff"),
    "plan": ("kubesched.lab.simulate.planning.entry", "plan"),
    "simulate": ("kubesched.lab.simulate.entry", "simulate"),
    "sweep": ("kubesched.lab.sweeps", "sweep"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - see above

    module, attribute = _LAZY[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})

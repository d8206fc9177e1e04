"""Kubernetes scheduler in Python.

``kubesched.simulate(...)`` schedules manifests on a simulated cluster; ``kubesched.Simulation(...)`` does so step by
step (``docs/python.md``). ``kubesched.capacity(...)`` counts how many more pods fit (``docs/capacity.md``).
``kubesched.sweep(...)`` makes many runs (``docs/sweeps.md``). ``kubesched.decisions(...)``
reads recorded decisions (``docs/decisions.md``). Each is imported at its first use.
"""

from __future__ import annotations

# Import nothing here. Ctrl-C is not handled until the command has begun (see kubesched.cli.first).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from kubesched.lab.decisions.table import decisions
    from kubesched.lab.simulate.entry import simulate
    from kubesched.lab.simulate.planning.entry import capacity
    from kubesched.lab.simulate.results.views import SimulationResult
    from kubesched.lab.simulate.stepping import Simulation
    from kubesched.lab.sweeps import sweep

__version__ = "0.1.0"

__all__ = ["Simulation", "SimulationResult", "__version__", "capacity", "decisions", "simulate", "sweep"]

#: Public name to its module, and its name there.
_LAZY: Final = {
    "Simulation": ("kubesched.lab.simulate.stepping", "Simulation"),
    "SimulationResult": ("kubesched.lab.simulate.results.views", "SimulationResult"),
    "capacity": ("kubesched.lab.simulate.planning.entry", "capacity"),
    "decisions": ("kubesched.lab.decisions.table", "decisions"),
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

"""The Kubernetes scheduler in Python.

``kubesched.simulate(...)`` schedules manifests on a simulated cluster, ``kubesched.Simulation(...)`` goes through it step by
step; see ``docs/python.md``. ``kubesched.sweep(...)`` makes many runs; see ``docs/sweeps.md``. All are imported when they are
first used.
"""

from __future__ import annotations

# Nothing is imported here: Ctrl-C is not handled yet when the command begins; see kubesched.cli.first.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from kubesched.lab.simulate.entry import simulate
    from kubesched.lab.simulate.results.views import SimulationResult
    from kubesched.lab.simulate.stepping import Simulation
    from kubesched.lab.sweeps import sweep

__version__ = "0.1.0"

__all__ = ["Simulation", "SimulationResult", "__version__", "simulate", "sweep"]

#: Name to the module it is in, and its name there.
_LAZY: Final = {
    "Simulation": ("kubesched.lab.simulate.stepping", "Simulation"),
    "SimulationResult": ("kubesched.lab.simulate.results.views", "SimulationResult"),
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

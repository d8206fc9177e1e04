"""The scheduler as a simulator: manifests in, placements and the reasons of pending pods out.

``kubesched.simulate(...)`` is Python's way in; :mod:`.entry` describes its arguments. :func:`simulate` is what runs on a
virtual-time loop, :func:`run_simulation` is one call that makes the loop too, with every part given. The command line uses these.
"""

from .results.result import Result
from .run.simulation import run_simulation, simulate
from .stepping import Simulation

__all__ = ["Result", "Simulation", "run_simulation", "simulate"]

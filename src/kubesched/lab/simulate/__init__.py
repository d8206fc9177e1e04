"""Simulator: manifests in, placements and the reasons of pending pods out, from the real scheduler.

``kubesched.simulate(...)`` is the Python interface; :mod:`.entry` describes its arguments. :func:`simulate` runs on a
virtual-time loop, and :func:`run_simulation` makes the loop too; both need every part given. The command line uses
them.
"""

from .results.result import Result
from .run.simulation import run_simulation, simulate
from .stepping import Simulation

__all__ = ["Result", "Simulation", "run_simulation", "simulate"]

"""The scheduler as a simulator: manifests in, placements and the reasons of pending pods out.

``kubesched.simulate(...)`` is Python's way in; :mod:`.entry` describes its arguments. The package has the same name, and so it is the
function: what is imported from the package are the function's attributes. Whichever of them a program imports first, it finds both.

:func:`simulate` is what runs on a virtual-time loop, :func:`run_simulation` the same as one call, with every part given. The
command line uses these; :mod:`.conformance` replays recorded decisions.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .entry import simulate_now
from .result import Result
from .simulation import run_simulation, simulate
from .stepping import Simulation

if TYPE_CHECKING:
    __call__ = simulate_now

__all__ = ["Result", "Simulation", "run_simulation", "simulate"]


# The function is what the package name gives: help(), signatures and calls are the function's, attributes the package's.
simulate_now.__dict__ = globals()
simulate_now.__name__ = __name__  # what imports from the package go by
sys.modules[__name__] = simulate_now  # type: ignore[assignment]

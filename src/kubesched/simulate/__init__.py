"""The scheduler as a simulator: manifests in, placements and the reasons of pending pods out.

``kubesched.simulate(...)`` is Python's way in; :mod:`.entry` describes its arguments. That this package can be called lets
the function have the name that its package has, whichever of them a program imports first.

:func:`simulate` is what runs on a virtual-time loop, :func:`run_simulation` the same as one call, with every part given. The
command line uses these; :mod:`.conformance` replays recorded decisions.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

from .entry import simulate_now
from .result import Result
from .simulation import run_simulation, simulate
from .stepping import Simulation

if TYPE_CHECKING:
    __call__ = simulate_now

__all__ = ["Result", "Simulation", "run_simulation", "simulate"]


class _Callable(types.ModuleType):
    """A module that is called as the function that it is about."""

    __call__ = staticmethod(simulate_now)


sys.modules[__name__].__class__ = _Callable

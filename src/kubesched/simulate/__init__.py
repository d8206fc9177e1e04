"""The scheduler as a simulator: manifests in, placements and the reasons of pending pods out.

:func:`simulate` is the library's way in (``await`` it on a virtual-time loop), :func:`run_simulation` the same
as one call. The command line uses both; :mod:`.conformance` replays recorded decisions.
"""

from .result import Result
from .simulation import run_simulation, simulate

__all__ = ["Result", "run_simulation", "simulate"]

"""Sweeps: many runs with different parameters, on processes or a cluster engine, into one table."""

from .plan import Run, SweepError, make_runs, parse_seeds
from .results_file import read_results
from .running import execute, sweep
from .summary import Summary
from .table import SweepTable

__all__ = ["Run", "Summary", "SweepError", "SweepTable", "execute", "make_runs", "parse_seeds", "read_results", "sweep"]

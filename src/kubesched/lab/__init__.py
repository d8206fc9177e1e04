"""Laboratory: tools around the scheduler, for experiments and checks.

:mod:`.simulate` runs the scheduler in virtual time, :mod:`.sweeps` many runs, :mod:`.bench` measurements.
:mod:`.conformance` replays recorded decisions, :mod:`.traces` reads recorded workloads.
"""

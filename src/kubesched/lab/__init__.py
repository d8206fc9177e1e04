"""Laboratory: tools around the scheduler, for experiments and checks.

:mod:`.simulate` runs the scheduler in virtual time, :mod:`.sweeps` makes many runs, :mod:`.bench` measures.
:mod:`.conformance` replays recorded decisions, :mod:`.traces` reads recorded workloads.
"""

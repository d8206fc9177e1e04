"""Parts of DefaultPreemption, one idea each.

:mod:`.importance` (the order of pods), :mod:`.budgets` (disruption budgets), :mod:`.dry_run` (the victims on one node),
:mod:`.candidates` (the nodes to try), :mod:`.choose` (the best candidate), :mod:`...extenders.preemption` (the
extenders' part), :mod:`.evict` (the eviction of the victims). Source: rules/preemption.
"""

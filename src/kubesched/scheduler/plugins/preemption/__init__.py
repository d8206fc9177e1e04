"""Parts of DefaultPreemption, one idea each.

:mod:`.importance` (which pods matter more), :mod:`.budgets` (disruption budgets), :mod:`.dry_run` (which pods one node
would have to lose), :mod:`.candidates` (which nodes are tried, and how many), :mod:`.choose` (one of them),
:mod:`...extenders.preemption` (extenders' part), :mod:`.evict` (the victims go). Source: rules/preemption.
"""

"""Decision core: one scheduling cycle from the popped pod to its binding or its failure.

Begin with :mod:`.cycle`, then :mod:`.search`.
"""

"""Recordings that the dashboard shows: simulations and recorded decisions, with a time line.

    files ──▶ :mod:`.of_result`, :mod:`.of_decisions` ──▶ :mod:`.recording` (:mod:`.timeline`) ──▶ :mod:`.source`

:mod:`.timeline` has nodes and pods at any moment, :mod:`.queue` the pods that wait, :mod:`.lives` single pods and nodes.
"""

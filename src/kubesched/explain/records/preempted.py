"""Notes about preemptions for decision records: victims, and why other nodes lost, as counts.

Counting why all others lost may take longer than the preemption itself. So it is done for the first preemptions of a
second, as in ``kubesched up``.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kubesched.scheduler.framework.preemption import Preemption

from .schema import Preempted

__all__ = ["PreemptionNotes"]

#: Preemptions of a second whose other candidates are counted.
_MOST: Final = 5
#: Victims that are named.
_NAMED: Final = 200


class PreemptionNotes:
    """Maker of notes."""

    def __init__(self) -> None:
        self._second = 0
        self._counted = 0

    def note(self, preemption: Preemption, now: float) -> Preempted:
        """Return the note of a preemption. Call it within the attempt that preempts."""
        if int(now) != self._second:
            self._second, self._counted = int(now), 0
        self._counted += 1
        lost: dict[str, int] | None = None
        not_helpful: dict[str, int] | None = None
        if self._counted <= _MOST:
            lost = dict(Counter(why for _, why in preemption.others()).most_common())
            reasons = (reason for status in preemption.rejected().values() for reason in status.reasons())
            not_helpful = dict(Counter(reasons).most_common())
        victims = preemption.chosen.victims
        return Preempted(
            preemption.chosen.node_name,
            [pod.key for pod in victims.pods[:_NAMED]],
            victims.pdb_violations,
            lost,
            not_helpful,
        )

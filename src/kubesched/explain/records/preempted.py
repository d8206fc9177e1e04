"""Notes about preemptions for decision records: victims, and why other nodes lost, as counts.

The limit of preemptions that are described in full also serves reports, :mod:`..preemptions`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kubesched.scheduler.framework.preemption import Preemption

from .schema import Preempted

__all__ = ["FirstOfSecond", "preempted"]

#: Preemptions of a second that are described in full.
_MOST_PER_SECOND: Final = 5
#: Victims that are named.
_NAMED: Final = 200


class FirstOfSecond:
    """Limit of the preemptions that are described in full: the first of each second.

    Explaining why all other candidates lost may cost more than the preemption itself.
    """

    def __init__(self) -> None:
        self._second = 0
        self._taken = 0

    def take(self, now: float) -> bool:
        """Return True if a preemption at this time is among the first of its second."""
        if int(now) != self._second:
            self._second, self._taken = int(now), 0
        self._taken += 1
        return self._taken <= _MOST_PER_SECOND


def preempted(preemption: Preemption, *, brief: bool) -> Preempted:
    """Return the note of a preemption; a ``brief`` one leaves out the other nodes.

    Call it within the attempt that preempts.
    """
    lost: dict[str, int] | None = None
    not_helpful: dict[str, int] | None = None
    if not brief:
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

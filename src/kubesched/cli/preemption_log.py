"""Log of preemptions for ``kubesched up``: the victims, their node and the preemptor, and why other nodes were not
chosen.

In a burst, only the first preemptions of each second are described, because finding out why all other candidates lost
costs more than the preemption itself. Further preemptions are counted.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from kubesched.base.times import Clock, timestamp
from kubesched.explain.preemptions import preemption_report
from kubesched.explain.text import preemption_lines
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.framework.preemption import Preemption

from .console import write

__all__ = ["PreemptionLog"]

#: Most preemptions that are described in a second of this machine's time.
_MOST: Final = 3


class PreemptionLog(AttemptObserver):
    """Writes each preemption to standard output. Call it within the attempt that preempts."""

    def __init__(self, clock: Clock) -> None:
        """``clock`` is the clock of the cluster."""
        self._clock = clock
        self._seen = 0

    def preempted(self, preemption: Preemption) -> None:
        if not self._seen:
            asyncio.get_running_loop().call_later(1, self._end_of_second)
        self._seen += 1
        if self._seen <= _MOST:
            now = self._clock.now()
            lines = preemption_lines(preemption_report(preemption, now, now), f"at {timestamp(now)}")
            write("".join(f"{'' if line.text.startswith(' ') else 'preempted: '}{line.text}\n" for line in lines))
            sys.stdout.flush()

    def _end_of_second(self) -> None:
        hidden, self._seen = self._seen - _MOST, 0
        if hidden > 0:
            write(f"preempted: {hidden:,} more pods in the same second; kubectl get events shows who was evicted\n")
            sys.stdout.flush()

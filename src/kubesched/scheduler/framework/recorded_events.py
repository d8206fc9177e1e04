"""Events that the scheduler records about pods: type, reason and action of each.

Events about the scheduler's lease are in ``client.lease``.
"""

from typing import Final

__all__ = ["FAILED_SCHEDULING", "PREEMPTED", "SCHEDULED"]

SCHEDULED: Final = ("Normal", "Scheduled", "Binding")
FAILED_SCHEDULING: Final = ("Warning", "FailedScheduling", "Scheduling")
PREEMPTED: Final = ("Normal", "Preempted", "Preempting")

"""Scheduling queue and nominator: see :mod:`kubesched.scheduler.queue.scheduling_queue`."""

from ..nodes.nominating import NominatingInfo, NominatingMode
from .nominator import Nominator
from .scheduling_queue import QueueError, SchedulingQueue
from .views import QueueViews

__all__ = ["NominatingInfo", "NominatingMode", "Nominator", "QueueError", "QueueViews", "SchedulingQueue"]

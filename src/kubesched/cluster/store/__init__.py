"""The objects of the embedded cluster: versions, watches, deletion, and the in-process transport to them."""

from .event_recorder import NORMAL, WARNING, EventRecorder
from .events import NEW_EVENTS
from .faults import Faults
from .inprocess import InProcessClient
from .store import Store
from .table import Table, Watch

__all__ = [
    "NEW_EVENTS",
    "NORMAL",
    "WARNING",
    "EventRecorder",
    "Faults",
    "InProcessClient",
    "Store",
    "Table",
    "Watch",
]

"""The objects of the embedded cluster: versions, watches, deletion, and the in-process transport to them."""

from .event_recorder import NORMAL, WARNING, EventRecorder
from .events import NEW_EVENTS
from .faults import Faults
from .inprocess import InProcessClient
from .store import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Store
from .table import Table, Watch

__all__ = [
    "JSON_PATCH",
    "MERGE_PATCH",
    "NEW_EVENTS",
    "NORMAL",
    "STRATEGIC_PATCH",
    "WARNING",
    "EventRecorder",
    "Faults",
    "InProcessClient",
    "Store",
    "Table",
    "Watch",
]

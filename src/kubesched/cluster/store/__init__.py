"""Objects of the embedded cluster: versions, watches, deletion, and the in-process transport to them."""

from .faults import Faults
from .inprocess import InProcessClient
from .store import Store
from .table import Table, Watch

__all__ = ["Faults", "InProcessClient", "Store", "Table", "Watch"]

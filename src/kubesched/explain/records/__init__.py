"""Decision records: what the scheduler decided at each attempt and why, in memory and in a file.

:class:`Recorder` watches a scheduler; :func:`read_records` reads a file. See ``docs/decisions.md``.
"""

from .file import DecisionFile, FileInUseError
from .reading import DecisionsError, read_lines, read_records
from .recorder import Recorder
from .ring import RecordFilter, Ring, json_lines
from .schema import OUTCOMES, Record

__all__ = [
    "OUTCOMES",
    "DecisionFile",
    "DecisionsError",
    "FileInUseError",
    "Record",
    "RecordFilter",
    "Recorder",
    "Ring",
    "json_lines",
    "read_lines",
    "read_records",
]

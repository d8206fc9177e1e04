"""Limit of log lines that are alike, so that a flood of bad objects or answers does not fill a disk."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

__all__ = ["LogLimit"]

#: Lines that are alike and pass one after the other.
_BURST: Final = 20
#: Seconds after which one more line passes.
_SECONDS: Final = 10.0
#: Most kinds of lines that are known at one time. The one that was logged longest ago is forgotten.
_MOST_KINDS: Final = 1_000


class LogLimit(logging.Filter):
    """Filter of warnings and errors: of lines that are alike, 20 pass, and from then on one every ten seconds.

    Two lines are alike if one statement logged them, with whatever arguments. A line that passes after others were left out
    says how many. Lines of lower levels pass: whoever asks for them wants them all.
    """

    def __init__(self) -> None:
        super().__init__()
        #: By kind of line: lines that may pass, the time as of which that is true, lines left out since the last one.
        self._kinds: OrderedDict[tuple[str, int], tuple[float, float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        kind = record.pathname, record.lineno
        may, since, left_out = self._kinds.pop(kind, (float(_BURST), record.created, 0))
        may = min(may + max(record.created - since, 0.0) / _SECONDS, float(_BURST))
        passes = may >= 1.0
        if passes and left_out:
            record.msg = f"{record.msg} ({left_out} more lines like this were left out)"
        self._kinds[kind] = (may - 1.0, record.created, 0) if passes else (may, record.created, left_out + 1)
        if len(self._kinds) > _MOST_KINDS:
            self._kinds.popitem(last=False)
        return passes

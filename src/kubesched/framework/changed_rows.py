"""The rows that questions name because of changes elsewhere: how they are asked for, and how their answers are checked.

See ``changed`` and ``rescored`` in :class:`.question.Question`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .entries import PluginFailedError, failed, shape_of
from .interface import RowArray

__all__ = ["ChangedRows"]

#: Up to this many rows plain Python beats NumPy.
_FEW: Final = 8
#: The shape of an array that names no rows.
_NONE: Final = (0,)
#: The method to that of the question, and to the extension point whose results it keeps up.
_POINTS: Final = {"refresh_filter": ("changed", "PreFilter"), "refresh_scores": ("rescored", "PreScore")}


class ChangedRows:
    """One plugin's ``refresh_…`` method."""

    __slots__ = ("_call", "_checked", "_method", "_point", "_size", "name")

    def __init__(self, plugin: Any, method: str) -> None:
        self.name: str = plugin.name
        self._method, self._point = _POINTS[method]
        self._call = getattr(plugin, method)
        #: The rows checked last, and the size of the table then: many domains are named again and again.
        self._checked: RowArray | None = None
        self._size = -1

    def named(self, size: int, *args: Any) -> RowArray | None:
        """The rows to evaluate again, of ``size`` rows; None: every row may have changed.

        Raises:
            PluginFailedError: when the plugin fails, or names something else than rows of the table.
        """
        try:
            rows: RowArray | None = self._call(*args)
            if rows is not None and not (type(rows) is np.ndarray and rows.shape == _NONE):
                self._check(rows, size)
        except PluginFailedError:
            raise  # by a filter that was evaluated with nominated pods: it is named already
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            prefix = f"running {self._point} plugin"
            raise PluginFailedError(self.name, failed(prefix, self.name, error)) from error
        return rows

    def _check(self, rows: Any, size: int) -> None:
        if not isinstance(rows, np.ndarray) or rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "ui"):
            raise TypeError(f"{self._method} returned {shape_of(rows)}; expected an array of row numbers or None")
        if not len(rows) or (rows is self._checked and size == self._size and not rows.flags.writeable):
            return
        if len(rows) <= _FEW:
            few = rows.tolist()
            outside = min(few) < 0 or max(few) >= size
        else:
            # As unsigned numbers, negative ones are beyond every table.
            outside = int(np.maximum.reduce(rows.astype(np.intp, copy=False).view(np.uintp))) >= size
        if outside:
            row = next(row for row in rows.tolist() if not 0 <= row < size)
            raise TypeError(f"{self._method} returned row {row}; there are {size} rows")
        self._checked, self._size = rows, size

"""What a result offers in Python besides its fields: plain data, tables, data frames, plots, and its look in a notebook.

Base class of :class:`~.result.Result`, which does not need the libraries that these views need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from .frames import frame_of
from .html_view import html_of
from .plots import plot
from .tables import Columns, table

if TYPE_CHECKING:
    from .result import Result

__all__ = ["Views"]


class Views:
    """Views of a result."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the names of the JSON output."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def to_json(self) -> str:
        """The JSON output, without line breaks."""
        return msgspec.json.encode(self).decode()

    def table(self, name: str = "pods") -> Columns:
        """Column name to values, of ``pods``, ``nodes``, ``resources``, ``series``, ``pending`` or ``preemptions``.

        Raises:
            ValueError: when no table has this name.
        """
        return table(self._result, name)

    def to_frame(self, name: str = "pods", library: str | None = None) -> Any:
        """:meth:`table` as a data frame of ``pandas`` or ``polars``; of the one that is installed when not said.

        Raises:
            ValueError: when no table or library has this name.
            ImportError: when the library is not installed.
        """
        return frame_of(self.table(name), library)

    def plot(self, kind: str | None = None, *, resource: str | None = None, axes: Any = None) -> Any:
        """A matplotlib figure: ``utilisation``, ``queue``, ``fragmentation``, ``waits`` or ``nodes``, or an overview.

        Into given ``axes``, which are then returned. ``resource`` draws one resource only.

        Raises:
            ValueError: when no plot or no resource has this name, or axes are given for an overview.
            ImportError: when matplotlib is not installed.
        """
        return plot(self._result, kind, resource=resource, axes=axes)

    def _repr_html_(self) -> str:
        return html_of(self._result)

    @property
    def _result(self) -> Result:
        return cast("Result", self)

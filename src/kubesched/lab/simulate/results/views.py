"""Views of a result in Python: plain data, tables, data frames, plots, and its look in a notebook.

The libraries that some views need are imported when they are used. Callers: :mod:`..entry` and :mod:`..stepping`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubesched.base.large_json import large_json

from .frames import frame_of
from .html_report import notebook_view
from .plots import plot
from .result import Result
from .summary import summary
from .tables import Columns, table

__all__ = ["SimulationResult"]


class SimulationResult(Result, frozen=True, kw_only=True):
    """Result of a whole simulation: the fields of :class:`~.result.Result`, and views of them."""

    @classmethod
    def of(cls, result: Result) -> SimulationResult:
        """Return the result with the views."""
        return cls(**{name: getattr(result, name) for name in result.__struct_fields__})

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with the names of the JSON output."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def to_json(self) -> str:
        """Return the JSON output, without line breaks."""
        return large_json(self).decode()

    def table(self, name: str = "pods") -> Columns:
        """Return values by column name, of one of the tables.

        They are ``pods``, ``nodes``, ``resources``, ``series``, ``pending``, ``groups``, ``preemptions``, ``events``
        and ``node_groups``.

        Raises:
            ValueError: when no table has this name.
        """
        return table(self, name)

    def to_frame(self, name: str = "pods", library: str | None = None) -> Any:
        """Return :meth:`table` as a data frame of ``pandas`` or ``polars``; by default of the one that is installed.

        Raises:
            ValueError: when no table or library has this name.
            ImportError: when the library is not installed.
        """
        return frame_of(self.table(name), library)

    def to_pandas(self, name: str = "pods") -> Any:
        """Return :meth:`to_frame` of pandas."""
        return self.to_frame(name, "pandas")

    def to_polars(self, name: str = "pods") -> Any:
        """Return :meth:`to_frame` of polars."""
        return self.to_frame(name, "polars")

    def plot(self, kind: str | None = None, *, resource: str | None = None, axes: Any = None) -> Any:
        """Return a matplotlib figure with one plot, or with an overview.

        The plots are ``utilisation``, ``queue``, ``fragmentation``, ``waits`` and ``nodes``, and of a run with node
        groups ``node_groups`` and ``cost``.

        With ``axes`` the plot is drawn there, and they are returned. ``resource`` draws one resource only.

        Raises:
            ValueError: when no plot or no resource has this name, or axes are given for an overview.
            ImportError: when matplotlib is not installed.
        """
        return plot(self, kind, resource=resource, axes=axes)

    def _repr_html_(self) -> str:
        return notebook_view(self)

    def __repr__(self) -> str:
        return summary(self)

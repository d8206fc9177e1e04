"""Views of a comparison in Python: plain data, tables, data frames, a page, its look in a notebook. Caller: :mod:`.compare`."""

from __future__ import annotations

from typing import Any

import msgspec

from kubesched.base.large_json import large_json

from ..simulate.results.frames import frame_of
from .page import content, render_page
from .report import ComparisonReport, Figure, PodDifference, WorkloadDifference

__all__ = ["Comparison"]


class Comparison(ComparisonReport, frozen=True, kw_only=True):
    """Comparison of two sides: the fields of :class:`~.report.ComparisonReport`, and views of them."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with the names of the JSON output."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def to_json(self) -> str:
        """Return the JSON output, without line breaks."""
        return large_json(self).decode()

    def to_html(self) -> str:
        """Return a page of HTML that loads nothing from elsewhere."""
        return render_page(self)

    def table(self, name: str = "pods") -> dict[str, list[Any]]:
        """Return values by column name, of ``pods``, ``figures`` or ``workloads``.

        Raises:
            ValueError: when no table has this name.
        """
        kinds: dict[str, type[msgspec.Struct]]
        kinds = {"pods": PodDifference, "figures": Figure, "workloads": WorkloadDifference}
        if name not in kinds:
            raise ValueError(f"no table is named {name!r}; there are {', '.join(kinds)}")
        rows = getattr(self, name)
        return {column: [getattr(row, column) for row in rows] for column in kinds[name].__struct_fields__}

    def to_frame(self, name: str = "pods", library: str | None = None) -> Any:
        """Return :meth:`table` as a data frame of ``pandas`` or ``polars``; by default of the one that is installed.

        Raises:
            ValueError: when no table or library has this name.
            ImportError: when the library is not installed.
        """
        return frame_of(self.table(name), library)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in self.counts.items() if count) or "no pods"
        changed = sum(one.a != one.b for one in self.figures)
        return "\n".join(
            (
                f"Comparison of {self.a.name} ({self.a.form}) and {self.b.name} ({self.b.form})",
                f"pods: {counts}",
                f"figures that differ: {changed} of {len(self.figures)}",
                ".table('pods', 'figures' or 'workloads'), .to_frame(name), .to_dict(), .to_html()",
            )
        )

    def _repr_html_(self) -> str:
        return content(self)

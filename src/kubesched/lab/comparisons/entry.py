"""Python interface of comparisons: ``kubesched.diff(a, b)``. Caller: programs, and ``kubesched diff``."""

from __future__ import annotations

from typing import Any

from .compare import compare
from .sides import side_of
from .views import Comparison

__all__ = ["diff"]


def diff(a: Any, b: Any, *, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Compare two results of simulations, clusters as they stand, or recorded runs.

    Args:
        a: a result of ``kubesched.simulate``, a ``Simulation``, or a path: a result as JSON or YAML, a file of
            decisions, a dump, a saved cluster, manifests. Also objects in any form that ``simulate`` takes.
        b: the other side, in any of these forms.
        names: names of sides that have no path.

    Returns:
        The figures of both sides, and the pods that differ, with why as far as the sides tell.

    Raises:
        ManifestError: for a side that cannot be read.
        DecisionsError: for a damaged file of decisions.
    """
    return compare(side_of(a, names[0]), side_of(b, names[1]))

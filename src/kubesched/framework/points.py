"""The table of extension points: their names, the methods that extend them, and how answers are treated.

The runner in :mod:`.runtime` is one function driven by these rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["BIND", "PERMIT", "POINTS", "PRE_BIND", "PRE_SCORE", "RESERVE", "Point", "capabilities"]


@dataclass(frozen=True, slots=True)
class Point:
    """One extension point.

    ``key`` is the name in configuration files, ``label`` the name in messages and metrics; a plugin extends
    the point when it defines any of ``methods``. ``error`` is the text before a failing plugin's error.
    """

    key: str
    label: str
    methods: tuple[str, ...]
    error: str = ""
    #: Rejections are passed on as they are; elsewhere they are errors.
    may_reject: bool = False


PRE_ENQUEUE: Final = Point("preEnqueue", "PreEnqueue", ("pre_enqueue",), "running PreEnqueue plugin", may_reject=True)
PRE_SCORE: Final = Point("preScore", "PreScore", ("pre_score",), "running PreScore plugin")
RESERVE: Final = Point("reserve", "Reserve", ("reserve", "unreserve"), "running Reserve plugin", may_reject=True)
PERMIT: Final = Point("permit", "Permit", ("permit",), "running Permit plugin", may_reject=True)
PRE_BIND: Final = Point("preBind", "PreBind", ("pre_bind",), "running PreBind plugin", may_reject=True)
BIND: Final = Point("bind", "Bind", ("bind",), "running Bind plugin", may_reject=True)

#: All points, in the order in which configuration errors are looked for.
POINTS: Final[tuple[Point, ...]] = (
    Point("preFilter", "PreFilter", ("pre_filter",), "running PreFilter plugin", may_reject=True),
    Point("filter", "Filter", ("filter", "filter_rows"), "running {} filter plugin", may_reject=True),
    Point("postFilter", "PostFilter", ("post_filter",), may_reject=True),
    RESERVE,
    PRE_SCORE,
    Point("score", "Score", ("score", "score_rows"), "running Score plugins: plugin"),
    PRE_BIND,
    BIND,
    Point("postBind", "PostBind", ("post_bind",)),
    PERMIT,
    PRE_ENQUEUE,
    Point("queueSort", "QueueSort", ("less",)),
)


def capabilities(plugin: type) -> frozenset[str]:
    """The keys of the points a plugin class extends."""
    return frozenset(point.key for point in POINTS if any(hasattr(plugin, method) for method in point.methods))

"""Table of the extension points: their names, the methods that extend them, and the treatment of answers.

The driver in :mod:`.driver` is one loop that these rows direct.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .answers import Reader, node_names, node_sets, post_filter_result, pre_flight, scores, status_only, waiting_time
from .question import Question, defines

__all__ = [
    "ADD_POD",
    "BIND",
    "PERMIT",
    "PLACEMENT_GENERATE",
    "PLACEMENT_SCORE",
    "POINTS",
    "POST_BIND",
    "POST_FILTER",
    "PRE_BIND",
    "PRE_BIND_PRE_FLIGHT",
    "PRE_ENQUEUE",
    "PRE_FILTER",
    "PRE_SCORE",
    "REMOVE_POD",
    "RESERVE",
    "UNRESERVE",
    "Point",
    "asked_points",
    "capabilities",
]


@dataclass(frozen=True, slots=True)
class Point:
    """Extension point: a row of the table.

    Attributes:
        key: name in configuration files.
        label: name in messages and metrics.
        methods: names of methods; a plugin extends the point if it defines one of them.
        error: text before a failing plugin's error; without it the error stands alone.
        may_reject: True if a rejection is passed on as it is, False if it becomes an error.
        read: function that reads an answer, and refuses one of the wrong form.
    """

    key: str
    label: str
    methods: tuple[str, ...]
    error: str = ""
    may_reject: bool = False
    read: Reader = status_only


PRE_ENQUEUE: Final = Point("preEnqueue", "PreEnqueue", ("pre_enqueue",), "running PreEnqueue plugin", may_reject=True)
PRE_FILTER: Final = Point("preFilter", "PreFilter", ("pre_filter",), "running PreFilter plugin", read=node_names)
POST_FILTER: Final = Point("postFilter", "PostFilter", ("post_filter",), may_reject=True, read=post_filter_result)
PRE_SCORE: Final = Point("preScore", "PreScore", ("pre_score",), "running PreScore plugin")
RESERVE: Final = Point("reserve", "Reserve", ("reserve", "unreserve"), "running Reserve plugin", may_reject=True)
PERMIT: Final = Point("permit", "Permit", ("permit",), "running Permit plugin", may_reject=True, read=waiting_time)
PRE_BIND: Final = Point("preBind", "PreBind", ("pre_bind",), "running PreBind plugin", may_reject=True)
BIND: Final = Point("bind", "Bind", ("bind",), "running Bind plugin", may_reject=True)
POST_BIND: Final = Point("postBind", "PostBind", ("post_bind",))
PLACEMENT_GENERATE: Final = Point(
    "placementGenerate", "PlacementGenerate", ("placements",), may_reject=True, read=node_sets
)
PLACEMENT_SCORE: Final = Point("placementScore", "PlacementScore", ("score_placements",), read=scores)

#: All points, in the order in which the configuration is checked.
POINTS: Final[tuple[Point, ...]] = (
    PRE_FILTER,
    Point("filter", "Filter", ("filter",), "running {} filter plugin", may_reject=True),
    POST_FILTER,
    RESERVE,
    PRE_SCORE,
    Point("score", "Score", ("score",), "running Score plugins: plugin"),
    PRE_BIND,
    BIND,
    POST_BIND,
    PERMIT,
    PRE_ENQUEUE,
    Point("queueSort", "QueueSort", ("less",)),
    PLACEMENT_GENERATE,
    PLACEMENT_SCORE,
)

# Further methods that plugins of a point may define. The driver calls each of them as if it were a point.
ADD_POD: Final = Point("preFilter", "PreFilter", ("add_pod",), "running AddPod on PreFilter plugin")
REMOVE_POD: Final = Point("preFilter", "PreFilter", ("remove_pod",), "running RemovePod on PreFilter plugin")
UNRESERVE: Final = Point("reserve", "Unreserve", ("unreserve",))
PRE_BIND_PRE_FLIGHT: Final = Point(
    "preBind", "PreBindPreFlight", ("pre_bind_pre_flight",), "running PreBindPreFlight", read=pre_flight
)


#: Method of a question to the point that it extends.
_ASKED: Final = {"pre_filter": "preFilter", "verdicts": "filter", "pre_score": "preScore", "scores": "score"}


def asked_points(asks: type[Question]) -> frozenset[str]:
    """Return the keys of the points that a class of questions answers."""
    return frozenset(point for method, point in _ASKED.items() if defines(asks, method))


def capabilities(plugin: type) -> frozenset[str]:
    """Return the keys of the points that a plugin class extends, by itself or by its questions."""
    asked = asked_points(getattr(plugin, "asks", Question))
    return asked | frozenset(point.key for point in POINTS if any(hasattr(plugin, method) for method in point.methods))

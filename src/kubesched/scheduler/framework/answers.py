"""Readers of plugins' answers: one for each form of answer that an extension point has.

A reader takes the method's name and the answer, and returns (value, status). The value is specific to the point. The
status decides how the attempt goes on; None is success. For an answer of another form, the reader raises TypeError with
a message to the plugin's author. Used by the table in :mod:`.points`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .interface import PostFilterResult, PreBindPreFlight
from .status import Status

__all__ = [
    "Answer",
    "Reader",
    "node_names",
    "node_sets",
    "post_filter_result",
    "pre_flight",
    "scores",
    "status_only",
    "waiting_time",
]

Answer = tuple[Any, Status | None]
Reader = Callable[[str, Any], Answer]


def status_only(method: str, answer: Any) -> Answer:
    """Read None or a Status."""
    if answer is None or isinstance(answer, Status):
        return None, answer
    raise _unexpected(method, answer, "None or a Status")


def node_names(method: str, answer: Any) -> Answer:
    """Read an answer of PreFilter; the value is the names of the only nodes to filter, or None."""
    if answer is None or isinstance(answer, Status):
        return None, answer
    if isinstance(answer, frozenset | set):
        return frozenset(answer), None
    raise _unexpected(method, answer, "None, a Status or a frozenset of node names")


def post_filter_result(method: str, answer: Any) -> Answer:
    """Read an answer of PostFilter; the value is a PostFilterResult or None."""
    if isinstance(answer, tuple) and len(answer) == 2:
        result, status = answer
        if (result is None or isinstance(result, PostFilterResult)) and (status is None or isinstance(status, Status)):
            return result, status
    raise _unexpected(method, answer, "a pair of result and status")


def waiting_time(method: str, answer: Any) -> Answer:
    """Read an answer of Permit; the value is the time that the plugin wants to wait, in seconds, or None."""
    if not (isinstance(answer, tuple) and len(answer) == 2):
        return status_only(method, answer)
    answer, seconds = answer
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise TypeError(f"returned a waiting time of {seconds!r} from {method}; expected seconds")
    _, status = status_only(method, answer)
    return max(0.0, seconds), status


def pre_flight(method: str, answer: Any) -> Answer:
    """Read an answer of PreBindPreFlight; the value is a PreBindPreFlight or None."""
    preflight, status = answer if isinstance(answer, tuple) and len(answer) == 2 else (None, answer)
    if not (status is None or isinstance(status, Status)):
        raise _unexpected(method, answer, "None, a Status or a pair")
    return preflight if isinstance(preflight, PreBindPreFlight) else None, status


def node_sets(method: str, answer: Any) -> Answer:
    """Read an answer of PlacementGenerate; the value is a list of (name, nodes), or None for one set of all nodes."""
    if answer is None or isinstance(answer, Status):
        return None, answer
    try:
        found = [(str(name), nodes) for name, nodes in answer]
    except (TypeError, ValueError):
        raise _unexpected(method, answer, "None, a Status or pairs of name and nodes") from None
    return found, None


def scores(method: str, answer: Any) -> Answer:
    """Read an answer of PlacementScore; the value is a list of ints."""
    if isinstance(answer, Status):
        return None, answer
    if isinstance(answer, Sequence) and all(isinstance(each, int) for each in answer):
        return list(answer), None
    raise _unexpected(method, answer, "a Status or a list of ints")


def _unexpected(method: str, answer: Any, expected: str) -> TypeError:
    return TypeError(f"returned {answer!r} from {method}; expected {expected}")

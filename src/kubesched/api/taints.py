"""Taints, and the tolerations that tolerate them (rules/node-plugins §3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from .resource import DeviceTaint, DeviceToleration
from .selectors import parse_int64
from .types import Taint, Toleration

__all__ = [
    "NO_EXECUTE",
    "NO_SCHEDULE",
    "PREFER_NO_SCHEDULE",
    "do_not_schedule",
    "first_untolerated",
    "tolerated",
    "tolerates",
]

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"

_CANONICAL_INTEGER: Final = re.compile(r"^(?:0|-?[1-9][0-9]*)\Z", re.ASCII)


def _canonical_int(text: str) -> int | None:
    return parse_int64(text) if _CANONICAL_INTEGER.match(text) else None


def tolerates(
    toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint, *, comparison_operators: bool = False
) -> bool:
    """True if one toleration tolerates one taint, of a node or of a device.

    ``comparison_operators`` is the gate ``TaintTolerationComparisonOperators`` (Gt and Lt), off by default.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt" if comparison_operators:
            bound, value = _canonical_int(toleration.value), _canonical_int(taint.value)
            if bound is None or value is None:
                return False
            return value > bound if toleration.operator == "Gt" else value < bound
    return False


def tolerated(
    taint: Taint | DeviceTaint,
    tolerations: Iterable[Toleration | DeviceToleration],
    *,
    comparison_operators: bool = False,
) -> bool:
    """True if any of the tolerations tolerates the taint."""
    return any(tolerates(item, taint, comparison_operators=comparison_operators) for item in tolerations)


def do_not_schedule(taint: Taint) -> bool:
    """True if the taint keeps pods away: effects NoSchedule and NoExecute."""
    return taint.effect in (NO_SCHEDULE, NO_EXECUTE)


def first_untolerated(
    taints: Sequence[Taint],
    tolerations: Sequence[Toleration],
    counts: Callable[[Taint], bool] = do_not_schedule,
    *,
    comparison_operators: bool = False,
) -> Taint | None:
    """Return the first taint that counts and is not tolerated, or None."""
    for taint in taints:
        if counts(taint) and not tolerated(taint, tolerations, comparison_operators=comparison_operators):
            return taint
    return None

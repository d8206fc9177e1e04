"""Members that a golden vector may have. An unknown member is an error, because it would pass without a comparison.

The format is described in the README next to the golden files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["MODES", "RecordError", "check_members"]

JSON = dict[str, Any]


class RecordError(ValueError):
    """Vector that does not have the golden format. The text names the member."""


#: Names of members; True for required ones.
_Members = Mapping[str, bool]


def _members(required: str, optional: str = "") -> _Members:
    return {**dict.fromkeys(required.split(), True), **dict.fromkeys(optional.split(), False)}


_VECTOR: Final = _members("name area mode scenario expected", "gates kind note")
_CLUSTER: Final = _members("config nodes pods objects", "pending")
_SCENARIO: Final = {
    "independent": _CLUSTER,
    "sequential": _CLUSTER,
    "hints": _members("config nodes pods objects pod plugin event old new", "pending"),
    "config": _members("document"),
    "body": _members("body"),
    "phases": _members("gates config phases"),
    "api": _members("gates config phases"),
}
_EXPECTED: Final = {
    "independent": _members("pods"),
    "sequential": _members("steps"),
    "hints": _members("matched hint", "error derivedEvents"),
    "config": _members("", "stage errors defaulted effective"),
    "phases": _members("", "phases startError"),
    "api": _members("phases"),
}
_PHASE: Final = _members("phase exact", "allowed groupsAllowed live liveSettled")
#: Modes of vectors.
MODES: Final = tuple(_SCENARIO)

_ATTEMPT: Final = _members(
    "pod outcome",
    "preEnqueue preFilter filters feasible nominatedNodeUsed scoreSkipped scores totals best message "
    "unschedulablePlugins pendingPlugins preemption volumes devices",
)
_STEP: Final = {**_ATTEMPT, **_members("pass", "node clearedNominations reserve")}
_STATUS: Final = _members("code", "plugin reasons")
_PARTS: Final = {
    "preEnqueue": _members("plugin code reasons"),
    "preFilter": _members("code", "plugin reasons nodes skipped"),
    "preemption": _members("status nominated", "cleared candidates rejected offsetMatters"),
    "reserve": _STATUS,
}
_PER_NODE: Final = {
    "filters": _members("plugin code reasons"),
    "candidates": _members("victims numPDBViolations"),
    "rejected": _members("code reasons", "plugin"),
}


def check_members(vector: JSON) -> None:
    """Refuse a vector with an unknown or missing member.

    Raises:
        RecordError: naming the first one.
    """
    _check(vector, _VECTOR, "vector")
    gates = vector.get("gates", {})
    if not isinstance(gates, dict) or not all(isinstance(value, bool) for value in gates.values()):
        raise RecordError(f"gates: {gates!r} is not an object of feature gates, each true or false")
    mode = vector["mode"]
    if not isinstance(mode, str) or mode not in _SCENARIO:
        raise RecordError(f"mode: {mode!r} is unknown; known modes: {', '.join(MODES)}")
    _check(vector["scenario"], _SCENARIO[mode], "scenario")
    if mode == "body":
        return  # the expected member is the object itself
    expected = vector["expected"]
    _check(expected, _EXPECTED[mode], "expected")
    for number, phase in enumerate(expected.get("phases", ())):
        _check(phase, _PHASE, f"expected.phases[{number}]")
    if mode == "hints":
        _check(vector["scenario"]["event"], _members("resource action"), "scenario.event")
    for name, known in (("pods", _ATTEMPT), ("steps", _STEP)):
        if name in _EXPECTED[mode]:
            _list(expected[name], f"expected.{name}")
            for number, attempt in enumerate(expected[name]):
                _check_attempt(attempt, known, f"expected.{name}[{number}]")


def _check_attempt(attempt: Any, known: _Members, path: str) -> None:
    _check(attempt, known, path)
    for name, members in _PARTS.items():
        if attempt.get(name) is not None:
            _check(attempt[name], members, f"{path}.{name}")
    _check_nodes(attempt, "filters", path)
    preemption = attempt.get("preemption")
    if preemption is not None:
        _check(preemption["status"], _STATUS, f"{path}.preemption.status")
        _check_nodes(preemption, "candidates", f"{path}.preemption")
        _check_nodes(preemption, "rejected", f"{path}.preemption")


def _check_nodes(owner: JSON, name: str, path: str) -> None:
    for node, entry in (owner.get(name) or {}).items():
        _check(entry, _PER_NODE[name], f"{path}.{name}.{node}")


def _list(value: Any, path: str) -> None:
    if not isinstance(value, list):
        raise RecordError(f"{path}: {value!r} is not a list")


def _check(value: Any, known: _Members, path: str) -> None:
    if not isinstance(value, dict):
        raise RecordError(f"{path}: {value!r} is not an object")
    for name in value:
        if name not in known:
            raise RecordError(f"{path}: unknown member {name!r}; known members: {', '.join(sorted(known))}")
    for name, is_required in known.items():
        if is_required and name not in value:
            raise RecordError(f"{path}: member {name!r} is missing")

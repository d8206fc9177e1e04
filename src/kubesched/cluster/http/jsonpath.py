"""The little of JSONPath that printer columns and scale paths use: ``.a.b``, ``['a.b']``, ``[0]``, ``[*]`` and
``[?(@.type=="X")]``.

Callers: :mod:`.cells`, :mod:`.tables`, :mod:`.scaling`. A path that cannot be read finds nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from ...api.selectors import parse_int64

__all__ = ["dotted", "find", "found_all"]

_STEP: Final = re.compile(
    r"""\.(?P<name>[\w\-/]+(?:\\\.[\w\-/]+)*)
    |\[(?P<quoted>'[^']*'|"[^"]*")\]
    |\[(?P<index>\d+)\]
    |\[(?P<star>\*)\]
    |\[\?\(@(?P<key>\.[\w.]+)\s*==\s*(?P<value>'[^']*'|"[^"]*")\)\]""",
    re.VERBOSE,
)
#: A member's name, an index, None for everything, or the path and value that chosen items have.
Step = str | int | tuple[str, str] | None


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[Step, ...]:
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[Step] = []
    position = 0
    for match in _STEP.finditer(text):
        if match.start() != position:
            return ()
        position = match.end()
        if match["index"] is not None:
            steps.append(-1 if (index := parse_int64(match["index"])) is None else index)
        elif match["key"] is not None:
            steps.append((match["key"], match["value"][1:-1]))
        else:
            name = match["name"] or (match["quoted"] or "")[1:-1]
            steps.append(None if match["star"] else name.replace("\\.", "."))
    return tuple(steps) if position == len(text) else ()


@lru_cache(maxsize=1024)
def _names(path: str) -> tuple[str, ...]:
    """The members that a path consists of; nothing for other paths."""
    names = tuple(step for step in _steps(path) if isinstance(step, str))
    return names if len(names) == len(_steps(path)) else ()


def found_all(data: Any, path: str) -> list[Any]:
    """The values at a path."""
    steps = _steps(path)
    found = [data] if steps else []
    for step in steps:
        found = [value for item in found for value in _take(item, step)]
    return found


def find(data: Any, path: str) -> Any:
    """The value at a path; several are joined with commas; None when there is none."""
    names = _names(path)
    if names:  # as most paths are
        for name in names:
            data = data.get(name) if isinstance(data, dict) else None
        return data
    found = found_all(data, path)
    if len(found) > 1:
        return ",".join(map(str, found))
    return found[0] if found else None


def _take(item: Any, step: Step) -> list[Any]:
    if isinstance(item, dict):
        if step is None:
            return list(item.values())
        return [item[step]] if isinstance(step, str) and step in item else []
    if not isinstance(item, list) or isinstance(step, str):
        return []
    if isinstance(step, int):
        return item[step : step + 1] if step >= 0 else []
    return list(item) if step is None else [one for one in item if find(one, step[0]) == step[1]]


def dotted(path: str) -> list[str]:
    """The names of a plain path such as ``.spec.replicas``."""
    return [part for part in path.split(".") if part]

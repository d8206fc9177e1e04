"""The little of JSONPath that printer columns and scale paths use: ``.a.b``, ``['a.b']``, ``[0]``, ``[*]`` and
``[?(@.type=="X")]``.

Caller: :mod:`.tables`, :mod:`.scaling`. A path that cannot be read finds nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from ...api.selectors import parse_int64

__all__ = ["dotted", "find"]

_STEP: Final = re.compile(
    r"""\.(?P<name>[\w\-/]+(?:\\\.[\w\-/]+)*)
    |\[(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)")\]
    |\[(?P<index>\d+)\]
    |\[(?P<star>\*)\]
    |\[\?\(@\.(?P<key>[\w.]+)\s*==\s*(?:"(?P<value>[^"]*)"|'(?P<other>[^']*)')\)\]""",
    re.VERBOSE,
)


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[re.Match[str], ...]:
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps, position = [], 0
    for match in _STEP.finditer(text):
        if match.start() != position:
            return ()
        steps.append(match)
        position = match.end()
    return tuple(steps) if position == len(text) else ()


def find(data: Any, path: str) -> Any:
    """The value at a path; several are joined with commas; None when there is none."""
    steps = _steps(path)
    if not steps:
        return None
    found = [data]
    for step in steps:
        found = [value for item in found for value in _take(item, step)]
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    return ",".join(str(item) for item in found)


def _take(item: Any, step: re.Match[str]) -> list[Any]:
    if step["name"] is not None or step["single"] is not None or step["double"] is not None:
        name = step["name"] or step["single"] or step["double"] or ""
        name = name.replace("\\.", ".")
        return [item[name]] if isinstance(item, dict) and name in item else []
    if step["index"] is not None:
        index = parse_int64(step["index"])
        return [item[index]] if isinstance(item, list) and index is not None and index < len(item) else []
    if step["star"] is not None:
        return list(item.values()) if isinstance(item, dict) else list(item) if isinstance(item, list) else []
    wanted = step["value"] if step["value"] is not None else step["other"]
    return [one for one in item if _at(one, step["key"]) == wanted] if isinstance(item, list) else []


def _at(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


def dotted(path: str) -> list[str]:
    """The names of a plain path such as ``.spec.replicas``."""
    return [part for part in path.split(".") if part]

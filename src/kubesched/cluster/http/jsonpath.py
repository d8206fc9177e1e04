"""Reader of JSONPath, limited to the part that printer columns and scale paths use.

``.a.b``, ``['a.b']``, ``[0]``, ``[*]`` and ``[?(@.type=="X")]``. An invalid path finds nothing. Callers: :mod:`.cells`,
:mod:`.tables`, :mod:`.writing`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from kubesched.base.kept import remembered

__all__ = ["find", "found_all"]

_STEP: Final = re.compile(
    r"""\.(?P<name>[\w\-/]+(?:\\\.[\w\-/]+)*)
    |\[(?P<quoted>'[^']*'|"[^"]*")\]
    |\[(?P<index>\d{1,9})\]
    |\[(?P<star>\*)\]
    |\[\?\(@(?P<key>\.[\w.]+)\s*==\s*(?P<value>'[^']*'|"[^"]*")\)\]""",
    re.VERBOSE,
)
#: Step of a path: name of a member, an index, None for all members or items, or (path, value) to select the items with
#: that value.
Step = str | int | tuple[str, str] | None


@remembered(1 << 18)
def _steps(path: str) -> tuple[tuple[Step, ...], bool]:
    """Return the steps of a path, and True if all are names, as in most paths."""
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            return (), False
        position = match.end()
        if match["index"] is not None:
            steps.append(int(match["index"]))
        elif match["key"] is not None:
            steps.append((match["key"], match["value"][1:-1]))
        else:
            name = match["name"] or (match["quoted"] or "")[1:-1]
            steps.append(None if match["star"] else name.replace("\\.", "."))
    return tuple(steps), all(isinstance(step, str) for step in steps) and bool(steps)


def found_all(data: Any, path: str) -> list[Any]:
    """Return the values at a path."""
    steps, _ = _steps(path)
    found = [data] if steps else []
    for step in steps:
        found = [value for item in found for value in _take(item, step)]
    return found


def find(data: Any, path: str) -> Any:
    """Return the value at a path. Several values are joined with commas. None when there is no value."""
    names, is_plain = _steps(path)
    if not is_plain:
        found = found_all(data, path)
        return ",".join(map(str, found)) if len(found) > 1 else next(iter(found), None)
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _take(item: Any, step: Step) -> list[Any]:
    if isinstance(item, dict):
        if step is None:
            return list(item.values())
        return [item[step]] if isinstance(step, str) and step in item else []
    if not isinstance(item, list) or isinstance(step, str):
        return []
    if isinstance(step, int):
        return item[step : step + 1]
    return list(item) if step is None else [one for one in item if find(one, step[0]) == step[1]]

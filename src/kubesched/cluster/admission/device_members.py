"""What the checks of claims and of slices and classes have in common: members, lists, names, selectors, quantities.

Callers: :mod:`.device_claims`, :mod:`.device_supply`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from ...cel import CompilationError, MissingLibraryError
from ...cel.device_expressions import compile_device_expression
from .validation import Causes

__all__ = [
    "Data",
    "check_duplicate",
    "check_selectors",
    "entries",
    "limit",
    "member",
]

Data = dict[str, Any]

_LONGEST_EXPRESSION: Final = 10_240


def member(owner: Data, field: str) -> Data:
    """A member that is an object; absent reads as empty."""
    value: Data | None = owner.get(field)
    return value or {}


def entries(owner: Data, field: str, path: str) -> Iterator[tuple[str, Data]]:
    """The objects of a list with their paths."""
    for index, value in enumerate(owner.get(field) or ()):
        yield f"{path}[{index}]", value


def limit(owner: Data, field: str, path: str, most: int, causes: Causes) -> None:
    size = len(owner.get(field) or ())
    if size > most:
        causes.too_many(path, size, most)


def check_selectors(owner: Data, path: str, causes: Causes) -> None:
    for where, selector in entries(owner, "selectors", f"{path}.selectors"):
        cel = selector.get("cel")
        if cel is not None:
            _check_expression(member(selector, "cel").get("expression"), f"{where}.cel", causes)


def _check_expression(expression: Any, path: str, causes: Causes) -> None:
    if not expression:
        causes.required(f"{path}.expression")
    elif len(expression.encode()) > _LONGEST_EXPRESSION:
        text = f"Too long: may not be more than {_LONGEST_EXPRESSION} bytes"
        causes.append((f"{path}.expression", "FieldValueTooLong", text))
    else:
        problem = _compile_problem(expression)
        if problem:
            causes.invalid(f"{path}.expression", expression, problem)


@lru_cache(maxsize=1024)
def _compile_problem(expression: str) -> str:
    """Why an expression cannot be compiled; nothing when it can."""
    try:
        compile_device_expression(expression, lists=True)
    except (CompilationError, MissingLibraryError) as error:
        return str(error)
    return ""


def check_duplicate(name: Any, path: str, causes: Causes, seen: set[str]) -> None:
    if name and name in seen:
        causes.duplicate(path, name)
    seen.add(name or "")

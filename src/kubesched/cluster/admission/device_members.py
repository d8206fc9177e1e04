"""What the checks of claims and of slices and classes have in common: members, lists, names, selectors, quantities.

Callers: :mod:`.device_claims`, :mod:`.device_supply`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from ...api.quantity import QuantityError, parse_quantity
from ...api.wire import ApiError
from ...cel import CompilationError, MissingLibraryError
from ...cel.device_expressions import compile_device_expression
from .validation import LABEL_TEXT, QUANTITY_TEXT, Causes, is_dns_label

__all__ = [
    "EFFECTS",
    "Data",
    "check_config",
    "check_name",
    "check_quantity",
    "check_selectors",
    "entries",
    "limit",
    "member",
]

Data = dict[str, Any]

EFFECTS: Final = ("NoSchedule", "NoExecute", "None")
#: Most entries of a list or map.
_MOST: Final = {
    "requests": 32,
    "constraints": 32,
    "config": 32,
    "firstAvailable": 8,
    "selectors": 32,
    "tolerations": 16,
    "taints": 16,
    "reservedFor": 256,
    "sharedCounters": 8,
    "counters": 32,
    "consumesCounters": 2,
    "bindingConditions": 4,
    "bindingFailureConditions": 4,
    "results": 32,
}
_LONGEST_EXPRESSION: Final = 10_240


def member(owner: Data, field: str, path: str) -> Data:
    value = owner.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ApiError.bad_request(f"{path}: must be an object, got {value!r}")
    return value


def entries(owner: Data, field: str, path: str) -> Iterator[tuple[str, Data]]:
    """The objects of a list with their paths."""
    values = owner.get(field) or []
    if not isinstance(values, list):
        raise ApiError.bad_request(f"{path}: must be a list, got {values!r}")
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise ApiError.bad_request(f"{path}[{index}]: must be an object, got {value!r}")
        yield f"{path}[{index}]", value


def limit(owner: Data, field: str, path: str, causes: Causes, most: int = 0) -> None:
    most = most or _MOST[field]
    size = len(owner.get(field) or ())
    if size > most:
        causes.append((path, "FieldValueTooLong", f"Too many: {size}: must have at most {most} items"))


def check_selectors(owner: Data, path: str, causes: Causes) -> None:
    limit(owner, "selectors", f"{path}.selectors", causes)
    for where, selector in entries(owner, "selectors", f"{path}.selectors"):
        cel = selector.get("cel")
        if cel is None:
            causes.required(f"{where}.cel")
        else:
            _check_expression(member(selector, "cel", f"{where}.cel").get("expression"), f"{where}.cel", causes)


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


def check_name(name: Any, path: str, causes: Causes, seen: set[str]) -> None:
    if not name:
        causes.required(path)
    elif not is_dns_label(name):
        causes.invalid(path, name, LABEL_TEXT)
    elif name in seen:
        causes.duplicate(path, name)
    seen.add(name or "")


def check_config(config: Data, path: str, causes: Causes) -> None:
    if config.get("opaque") is None:
        causes.required(f"{path}.opaque")
    elif not member(config, "opaque", f"{path}.opaque").get("driver"):
        causes.required(f"{path}.opaque.driver")


def check_quantity(value: Any, path: str, causes: Causes) -> None:
    try:
        parse_quantity(value)
    except QuantityError:
        causes.invalid(path, value, QUANTITY_TEXT)

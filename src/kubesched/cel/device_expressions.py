"""Selectors of devices: which variables they have, and what they may result in (spec "DynamicResources plugin", section 9).

Callers: the allocator, which evaluates them, and the embedded cluster's admission, which refuses those that cannot be
compiled.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from .environment import CompilationError, Environment, children
from .syntax import Checked, Expr, Ident, Select

__all__ = ["VARIABLES", "compile_device_expression"]

VARIABLES: Final = {
    "device": "map<string,dyn>",
    "device.driver": "string",
    "device.allowMultipleAllocations": "bool",
    "device.attributes": "map<string,map<string,any>>",
    "device.capacity": "map<string,map<string,kubernetes.Quantity>>",
}


@cache
def _environment() -> Environment:
    return Environment(VARIABLES)


def compile_device_expression(expression: str, *, lists: bool = False) -> Checked:
    """Parse and check a selector; ``lists`` lets it result in a value of unknown type, as attributes with lists need.

    Raises:
        CompilationError: it cannot be compiled, or does not result in a bool.
        MissingLibraryError: the CEL library is not installed.
    """
    environment = _environment()
    checked = environment.compile(expression)
    unknown = _unknown_field(checked.expr)
    if unknown is not None:
        raise environment.error_at(expression, checked, unknown, f"undefined field '{unknown.field}'")
    kind = checked.types.get(checked.expr.id, "dyn")
    if kind not in ("bool", "any", *(("dyn",) if lists else ())):
        raise CompilationError(f"must evaluate to bool or the unknown type, not {kind}")
    return checked


def _unknown_field(expr: Expr) -> Select | None:
    """A field of ``device`` that does not exist."""
    if isinstance(expr, Select) and isinstance(expr.operand, Ident) and expr.operand.name == "device":
        return None if f"device.{expr.field}" in VARIABLES else expr
    return next((found for part in children(expr) if (found := _unknown_field(part)) is not None), None)

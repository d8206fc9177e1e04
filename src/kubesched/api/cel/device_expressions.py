"""Selectors of devices: their variables, and the types of their results (rules/devices §9).

Callers: the allocator, which evaluates selectors, and the embedded cluster's admission, which refuses selectors that
cannot be compiled.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from .environment import CompilationError, Environment
from .syntax import Checked, Expr, Ident, Select, children

__all__ = ["VARIABLES", "compile_device_expression"]

VARIABLES: Final = {
    "device": "map<string,dyn>",
    "device.driver": "string",
    "device.allowMultipleAllocations": "bool",
    "device.attributes": "map<string,map<string,any>>",
    "device.capacity": "map<string,map<string,kubernetes.Quantity>>",
}

#: Most bytes of a selector, as in the API server.
_LONGEST: Final = 10 * 1024
#: String literals and comments, which stay as they are, and tests of the fields of ``device``.
_TOKENS: Final = re.compile(
    r"""[bB]?[rR][bB]?(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')"""
    r"""|\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
    r"""|//[^\n]*"""
    r"""|(?P<test>(?<![\w.])has\s*\(\s*device\s*\.\s*(?:driver|attributes|capacity|allowMultipleAllocations)\s*\))""",
    re.DOTALL,
)
_OWN_VARIABLE: Final = re.compile(r"[(,]\s*device\s*,")


@cache
def _environment() -> Environment:
    return Environment(VARIABLES)


def compile_device_expression(expression: str, *, lists: bool = False) -> Checked:
    """Parse and check a selector. With ``lists`` the result may have an unknown type, as attributes with lists need.

    Raises:
        CompilationError: if it cannot be compiled, or does not result in a bool.
        MissingLibraryError: if the CEL library is not installed.
    """
    if len(expression.encode()) > _LONGEST:
        raise CompilationError(f"may not be more than {_LONGEST} bytes")
    environment = _environment()
    text = _without_tests_of_fields(expression)
    try:
        checked = environment.compile(text)
    except CompilationError as error:
        raise CompilationError(_quoting(expression, text, str(error))) from None
    unknown = _unknown_field(checked.expr)
    if unknown is not None:
        raise environment.error_at(expression, checked, [(unknown, f"undefined field '{unknown.field}'")])
    kind = checked.types.get(checked.expr.id, "dyn")
    if kind not in ("bool", "any", *(("dyn",) if lists else ())):
        raise CompilationError(f"must evaluate to bool or the unknown type, not {kind}")
    return checked


def _without_tests_of_fields(expression: str) -> str:
    """Replace ``has(device.driver)`` and the like by ``true``. All other text keeps its place.

    The fields of a device always exist. They are declared as variables with dotted names, which the library cannot
    distinguish from a tested field.
    """
    if _OWN_VARIABLE.search(expression):
        return expression  # a variable of a macro may be called ``device``

    def replaced(match: re.Match[str]) -> str:
        found = match[0]
        return found if match["test"] is None else "true" + re.sub(r"[^\n]", " ", found[4:])

    return _TOKENS.sub(replaced, expression)


def _quoting(expression: str, text: str, message: str) -> str:
    """Return a message about ``text`` that quotes the original expression instead."""
    for line, original in zip(text.split("\n"), expression.split("\n"), strict=True):
        if line != original:
            message = message.replace(f" | {line}", f" | {original}")
    return message


def _unknown_field(expr: Expr) -> Select | None:
    """Return a part that selects a field of ``device`` that does not exist, or None."""
    if isinstance(expr, Select) and isinstance(expr.operand, Ident) and expr.operand.name == "device":
        return None if f"device.{expr.field}" in VARIABLES else expr
    return next((found for part in children(expr) if (found := _unknown_field(part)) is not None), None)

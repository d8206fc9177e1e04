"""Selectors of devices: which variables they have, and what they may result in (rules/devices §9).

Callers: the allocator, which evaluates them, and the embedded cluster's admission, which refuses those that cannot be
compiled.
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

#: The bytes that a selector may have, as the API server has it.
_LONGEST: Final = 10 * 1024
#: String literals and comments, which are left alone, and tests of the fields of ``device``.
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
    """Parse and check a selector; ``lists`` lets it result in a value of unknown type, as attributes with lists need.

    Raises:
        CompilationError: it cannot be compiled, or does not result in a bool.
        MissingLibraryError: the CEL library is not installed.
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
    """The expression with ``true`` in place of ``has(device.driver)`` and the like, everything else in its place.

    The fields of a device are always there. They are declared as variables with dotted names, which the library cannot
    distinguish from a field that is tested for.
    """
    if _OWN_VARIABLE.search(expression):
        return expression  # a macro's variable may have the name

    def replaced(match: re.Match[str]) -> str:
        found = match[0]
        return found if match["test"] is None else "true" + re.sub(r"[^\n]", " ", found[4:])

    return _TOKENS.sub(replaced, expression)


def _quoting(expression: str, text: str, message: str) -> str:
    """A message about ``text`` that quotes the expression it was made from."""
    for line, original in zip(text.split("\n"), expression.split("\n"), strict=True):
        if line != original:
            message = message.replace(f" | {line}", f" | {original}")
    return message


def _unknown_field(expr: Expr) -> Select | None:
    """A field of ``device`` that does not exist."""
    if isinstance(expr, Select) and isinstance(expr.operand, Ident) and expr.operand.name == "device":
        return None if f"device.{expr.field}" in VARIABLES else expr
    return next((found for part in children(expr) if (found := _unknown_field(part)) is not None), None)

"""Expressions of selectors, compiled, with the attributes of devices that they read.

The attributes are found in the syntax tree. Caller: :mod:`.selectors`, at the first selector that it needs; this module
loads CEL.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kubesched.api.cel.device_expressions import VARIABLES, compile_device_expression
from kubesched.api.cel.environment import CompilationError
from kubesched.api.cel.program import Program
from kubesched.api.cel.syntax import Call, Constant, Expr, Ident, Select, children

__all__ = ["Compiled", "compiled"]

_MAPS: Final = ("device.attributes", "device.capacity")

#: Variable, domain and ID of an attribute that an expression reads, with None for "all of them".
Read = tuple[str, str | None, str | None]


class Compiled(NamedTuple):
    """Expression that can be evaluated, or the error that prevents it.

    ``attributes`` are the attributes that it reads, as (domain, ID) pairs; None when they are unknown.
    """

    program: Program | None
    attributes: tuple[tuple[str, str], ...] | None
    error: str = ""


def compiled(expression: str, *, lists: bool) -> Compiled:
    """Compile an expression. With ``lists`` its result may be of unknown type.

    Raises:
        MissingLibraryError: see :func:`kubesched.api.cel.device_expressions.compile_device_expression`.
    """
    try:
        checked = compile_device_expression(expression, lists=lists)
    except CompilationError as error:
        return Compiled(None, (), str(error))
    return Compiled(Program(checked), _attributes_of(_reads_of(checked.expr)))


def _attributes_of(reads: Iterable[Read]) -> tuple[tuple[str, str], ...] | None:
    """Attributes among the reads of an expression. All other data is equal for all models of a frame."""
    found: set[tuple[str, str]] = set()
    for name, domain, key in reads:
        if name == "device.attributes":
            if domain is None or key is None:
                return None
            found.add((domain, key))
    return tuple(sorted(found))


def _reads_of(expr: Expr) -> set[Read]:
    """Parts of the device that an expression reads. Constant keys in the expression narrow them down."""
    match expr:
        case Ident(name=name) if name in VARIABLES:
            if name == "device":
                return {(other, None, None) for other in VARIABLES if other != "device"}
            return {(name, None, None)}
        case Select(operand=operand, field=field):
            domain = _domain(operand)
            if domain is not None:
                return {(*domain, field)}
            if isinstance(operand, Ident) and operand.name in _MAPS:
                return {(operand.name, field, None)}
        case Call(function="_[_]" | "_[?_]" | "_?._", args=(operand, Constant(value=str(key)))):
            domain = _domain(operand)
            if domain is not None:
                return {(*domain, key)}
            if isinstance(operand, Ident) and operand.name in _MAPS:
                return {(operand.name, key, None)}
        case Call(function="@in", args=(Constant(value=str(key)), operand)):
            domain = _domain(operand)
            if domain is not None:
                return {(*domain, key)}
    reads: set[Read] = set()
    for part in children(expr):
        reads |= _reads_of(part)
    return reads


def _domain(expr: Expr) -> tuple[str, str] | None:
    """Variable and domain of ``device.attributes["domain"]`` with a constant domain, or None."""
    match expr:
        case Call(function="_[_]", args=(Ident(name=name), Constant(value=str(domain)))) if name in _MAPS:
            return name, domain
        case Select(operand=Ident(name=name), field=domain, test_only=False) if name in _MAPS:
            return name, domain
    return None

"""Checks of a compiled expression that upstream makes in addition to types (cel-go's AST validators).

Literals of durations, times and regular expressions must be valid. A list or map must be written with elements of one
type. The arguments of ``format`` must be accepted by its clauses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from .formatting import ACCEPTED, clauses, complaint
from .functions import call
from .meter import COST_LIMIT, EvaluationCancelledError, Meter
from .regex import search, states
from .syntax import Call, Checked, Constant, Expr, ListExpr, MapExpr, children
from .values import EvaluationError

__all__ = ["problems"]

Problem = tuple[Expr, str]
Types = Mapping[int, str]

_OPEN: Final = ("dyn", "any", "error", "null_type")
#: Names of types that differ in messages about values.
_NAMES: Final = {"any": "google.protobuf.Any"}


def problems(checked: Checked, styles: Mapping[str, bool]) -> list[Problem]:
    """Return the defects of an expression: part, and reason.

    ``styles`` are the functions that are always called as members (True), or never (False).
    """
    called = [*_against_style(checked.expr, checked.types, styles)]
    return called or [*_check(checked.expr, checked.types, Meter(COST_LIMIT // 50), in_format=False)]


def _against_style(expr: Expr, types: Types, styles: Mapping[str, bool]) -> Iterator[Problem]:
    """Yield calls in the wrong style: a function called as a member that is not one, or the reverse."""
    if isinstance(expr, Call) and styles.get(expr.function, expr.is_member) is not expr.is_member:
        names = [types.get(part.id, "dyn") for part in expr.args]
        applied = f"{names[0]}.({', '.join(names[1:])})" if expr.is_member else f"({', '.join(names)})"
        yield expr, f"found no matching overload for '{expr.function}' applied to '{applied}'"
    for part in children(expr):
        yield from _against_style(part, types, styles)


def _check(expr: Expr, types: Types, meter: Meter, *, in_format: bool) -> Iterator[Problem]:
    literal = isinstance(expr, ListExpr | MapExpr)
    if literal and not in_format:
        yield from _mixed(expr, types)
    if isinstance(expr, Call):
        yield from _literals(expr, meter)
        if expr.function == "format" and expr.is_member:
            yield from _format(expr, types)
    # Lists in the arguments of a format may have elements of several types.
    held = (isinstance(expr, Call) and expr.function == "format") or (in_format and literal)
    for part in children(expr):
        yield from _check(part, types, meter, in_format=held)


def _mixed(expr: Expr, types: Types) -> Iterator[Problem]:
    """Yield the first element of a list or map that differs in type from the elements before it."""
    groups: list[tuple[Expr, ...]] = []
    if isinstance(expr, ListExpr):
        groups = [expr.elements]
    elif isinstance(expr, MapExpr):
        groups = [tuple(entry.key for entry in expr.entries), tuple(entry.value for entry in expr.entries)]
    for group in groups:
        first = next((types[part.id] for part in group if types.get(part.id, "dyn") not in _OPEN), None)
        for part in group:
            found = types.get(part.id, "dyn")
            if first is not None and found not in _OPEN and found != first:
                yield part, f"expected type '{first}' but found '{found}'"
                break


def _literals(expr: Call, meter: Meter) -> Iterator[Problem]:
    """Yield a constant argument that the function cannot read."""
    args = expr.args[1:] if expr.is_member else expr.args
    if not args or not isinstance(args[0], Constant):
        return
    literal, value = args[0], args[0].value
    try:
        if expr.function in ("duration", "timestamp"):
            call(meter, expr.function, [value])
        elif expr.function == "matches" and type(value) is str:
            meter.step(states(value))
            search.matches("", value)
    except EvaluationCancelledError:
        yield literal, "the regular expressions up to here are too large together"
    except EvaluationError:
        yield literal, f"invalid {expr.function} argument"


def _format(expr: Call, types: Types) -> Iterator[Problem]:
    """Yield the defect of a constant format: an argument that its clause refuses, or a wrong number of arguments."""
    match expr.args:
        case (Constant(value=str(text)), ListExpr(elements=elements)):
            pass
        case _:
            return
    given = 0
    try:
        for _, verb, _ in clauses(text):
            if not verb:
                continue
            if given >= len(elements):
                raise EvaluationError(f"index {given} out of range")
            refused = _refused(verb, elements[given], types)
            if refused is not None:
                yield refused, complaint(verb, _type_name(refused, types))
                return
            given += 1
    except EvaluationError as error:
        yield expr, str(error)
        return
    if given < len(elements):
        yield expr, f"too many arguments supplied to string.format (expected {given}, got {len(elements)})"


def _refused(verb: str, part: Expr, types: Types) -> Expr | None:
    """Return the part of an argument that a clause does not accept, or None. A dyn part is checked at evaluation."""
    name = _type_name(part, types)
    if name != "dyn" and name not in ACCEPTED[verb.lower()][0]:
        return part
    if verb == "s" and isinstance(part, ListExpr | MapExpr):
        return next((found for one in children(part) if (found := _refused(verb, one, types)) is not None), None)
    return None


def _type_name(part: Expr, types: Types) -> str:
    name = types.get(part.id, "dyn").partition("(")[0]
    return _NAMES.get(name, name)

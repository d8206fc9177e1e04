"""CEL selectors of devices (spec "DynamicResources plugin", section 9).

An expression is compiled once. Its result for a device depends on what it reads of it only: that is found in the
syntax tree, so that devices which differ in other attributes (serial numbers) share one evaluation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

from kubesched.cel import (
    COST_LIMIT,
    Call,
    CompilationError,
    Constant,
    EvaluationError,
    EvaluationInterruptedError,
    Expr,
    Ident,
    Program,
    Select,
    children,
    kind_of,
)
from kubesched.cel.device_expressions import VARIABLES, compile_device_expression

from .profiles import MOST_REMEMBERED, Profile

__all__ = ["Selector", "SelectorCache", "SelectorError"]

_MAPS: Final = ("device.attributes", "device.capacity")
#: Five evaluations that go to their limit: as many seconds, at half of the time in which a lease has to be renewed.
_ATTEMPT_COST: Final = 5 * COST_LIMIT
#: Compiled expressions that are kept.
_MOST: Final = 1024


class SelectorError(Exception):
    """A selector that cannot be compiled or evaluated: ``CEL compile error: …`` or ``CEL runtime error: …``."""


class Allowance:
    """What the selectors of one scheduling attempt may cost together; each may have upstream's limit besides.

    The process does nothing else meanwhile, and has a lease to renew. What was evaluated is remembered: the next attempt
    goes on from there.
    """

    def __init__(self, interrupted: Callable[[], bool] = lambda: False) -> None:
        """``interrupted`` ends an evaluation by True, for reasons of its own."""
        self._interrupted = interrupted
        self._left = _ATTEMPT_COST

    def renew(self) -> None:
        """Begin an attempt."""
        self._left = _ATTEMPT_COST

    def spend(self, program: Program, variables: Mapping[str, Any]) -> Any:
        """Evaluate a program.

        Raises:
            EvaluationError: see :meth:`kubesched.cel.Program.evaluate`.
            EvaluationInterruptedError: there is nothing left, or ``interrupted`` said so.
        """
        if self._left <= 0:
            raise EvaluationInterruptedError
        evaluation = program.begin(variables, interrupted=self._interrupted)
        try:
            return evaluation.result()
        finally:
            self._left -= evaluation.total


#: The variable, domain and id that an expression reads, with None for "all of them".
Read = tuple[str, str | None, str | None]


class Selector:
    """A compiled expression, with the results known so far."""

    def __init__(
        self,
        program: Program | None,
        reads: frozenset[Read],
        error: str = "",
        allowance: Allowance | None = None,
    ) -> None:
        """``allowance`` may end an evaluation."""
        self._program = program
        self._allowance = allowance or Allowance()
        self._error = error
        self._by_projection: dict[Hashable, bool | SelectorError] = {}
        #: The attributes that are read, as domain and id; None when that cannot be said.
        self.attributes = _attributes_of(reads)
        #: How often the expression was evaluated.
        self.evaluations = 0

    def result(self, profile: Profile) -> bool | SelectorError:
        """Whether devices of a profile are selected, or why that cannot be said.

        Raises:
            EvaluationInterruptedError: the allowance ended it; nothing is remembered then.
        """
        key = profile.id if self.attributes is None else profile.projection(self.attributes)
        known = self._by_projection.get(key)
        if known is None:
            if len(self._by_projection) >= MOST_REMEMBERED:
                self._by_projection.clear()
            known = self._by_projection[key] = self._evaluate(profile)
        return known

    def _evaluate(self, profile: Profile) -> bool | SelectorError:
        if self._program is None:
            return SelectorError(f"CEL compile error: {self._error}")
        try:
            variables = profile.variables
        except EvaluationError as error:
            return SelectorError(f"CEL runtime error: {error}")
        return self._run(self._program, variables)

    def _run(self, program: Program, variables: dict[str, Any]) -> bool | SelectorError:
        self.evaluations += 1
        try:
            value = self._allowance.spend(program, variables)
        except EvaluationError as error:
            return SelectorError(f"CEL runtime error: {error}")
        if isinstance(value, bool):
            return value
        kind = kind_of(value)
        conversion = (
            "unsupported native conversion from string to 'bool'"
            if kind == "string"
            else f"unsupported type conversion from '{kind}' to bool"
        )
        return SelectorError(
            f"CEL runtime error: CEL result of type {kind} could not be converted to bool: {conversion}"
        )


def _attributes_of(reads: Iterable[Read]) -> tuple[tuple[str, str], ...] | None:
    """The attributes among what an expression reads. The rest is the same for all profiles of a frame."""
    found: set[tuple[str, str]] = set()
    for name, domain, key in reads:
        if name == "device.attributes":
            if domain is None or key is None:
                return None
            found.add((domain, key))
    return tuple(sorted(found))


def _reads_of(expr: Expr) -> set[Read]:
    """What of the device an expression reads, as narrow as its constants say."""
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
    """``device.attributes["domain"]`` with a constant domain, or None."""
    match expr:
        case Call(function="_[_]", args=(Ident(name=name), Constant(value=str(domain)))) if name in _MAPS:
            return name, domain
        case Select(operand=Ident(name=name), field=domain, test_only=False) if name in _MAPS:
            return name, domain
    return None


class SelectorCache:
    """Compiles expressions and keeps the compiled ones; the least recently used one goes first."""

    def __init__(self, *, list_type_attributes: bool = False, interrupted: Callable[[], bool] = lambda: False) -> None:
        """``interrupted``: see :class:`Allowance`."""
        self.allowance = Allowance(interrupted)
        self._lists = list_type_attributes
        self._selectors: OrderedDict[str, Selector] = OrderedDict()

    def selector(self, expression: str) -> Selector:
        """The compiled expression. One that does not compile results in its error for every device."""
        selector = self._selectors.get(expression)
        if selector is None:
            selector = self._selectors[expression] = self._compile(expression)
            if len(self._selectors) > _MOST:
                self._selectors.popitem(last=False)
        else:
            self._selectors.move_to_end(expression)
        return selector

    def _compile(self, expression: str) -> Selector:
        try:
            checked = compile_device_expression(expression, lists=self._lists)
        except CompilationError as error:
            return Selector(None, frozenset(), str(error))
        return Selector(Program(checked), frozenset(_reads_of(checked.expr)), allowance=self.allowance)

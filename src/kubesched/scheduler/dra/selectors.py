"""CEL selectors of devices (rules/devices §9).

An expression is compiled when it is first needed (:mod:`.expressions`). Its result for a device depends only on the
attributes that it reads, so that devices which differ in other attributes (serial numbers) share one evaluation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kubesched.api.cel.meter import COST_LIMIT, EvaluationInterruptedError
from kubesched.api.cel.values import EvaluationError, kind_of

from .models import MOST_REMEMBERED, DeviceModel

if TYPE_CHECKING:
    from kubesched.api.cel.program import Program

    from .expressions import Compiled

__all__ = ["Selector", "SelectorCache", "SelectorError"]

#: Cost that one attempt may spend: five evaluations up to their limit, about five seconds. A lease has to be renewed
#: within twice that time.
_ATTEMPT_COST: Final = 5 * COST_LIMIT
#: Cost of compiling one byte of an expression. A claim may have a megabyte of expressions, which takes 15 s.
_COMPILE_COST: Final = 15
#: Most expressions that are kept.
_MOST: Final = 1024


class SelectorError(Exception):
    """A selector cannot be compiled or evaluated: ``CEL compile error: …`` or ``CEL runtime error: …``."""


class Allowance:
    """Cost that the selectors of a scheduling attempt may spend together; each also has upstream's limit.

    The process does nothing else while a selector is evaluated, and has a lease to renew. Results are remembered, so
    the next attempt goes on from there.
    """

    def __init__(self, interrupted: Callable[[], bool] = lambda: False) -> None:
        """An evaluation ends when ``interrupted`` returns True."""
        self._interrupted = interrupted
        self._left = _ATTEMPT_COST

    def renew(self) -> None:
        """Renew the allowance at the beginning of an attempt."""
        self._left = _ATTEMPT_COST

    def compile(self, expression: str, *, lists: bool) -> Compiled:
        """Compile an expression.

        Raises:
            MissingLibraryError: see :func:`kubesched.api.cel.device_expressions.compile_device_expression`.
            EvaluationInterruptedError: see :meth:`spend`.
        """
        if self._left <= 0 or self._interrupted():
            raise EvaluationInterruptedError
        self._left -= _COMPILE_COST * len(expression)
        from .expressions import compiled  # noqa: PLC0415 - most clusters have no selectors, and never load CEL

        return compiled(expression, lists=lists)

    def spend(self, program: Program, variables: Mapping[str, Any]) -> Any:
        """Evaluate a program.

        Raises:
            EvaluationError: see :meth:`kubesched.api.cel.Program.evaluate`.
            EvaluationInterruptedError: when the allowance is used up, or ``interrupted`` returned True.
        """
        if self._left <= 0:
            raise EvaluationInterruptedError
        evaluation = program.begin(variables, interrupted=self._interrupted)
        try:
            return evaluation.result()
        finally:
            self._left -= evaluation.total


class Selector:
    """Expression with its results so far. An expression that does not compile results in its error for every device."""

    def __init__(self, expression: str, allowance: Allowance, *, lists: bool) -> None:
        """``allowance`` limits compiling and evaluating. With ``lists`` a result may be of unknown type."""
        self._expression = expression
        self._allowance = allowance
        self._lists = lists
        self._known: Compiled | None = None
        self._by_projection: dict[Hashable, bool | SelectorError] = {}
        #: Number of evaluations of the expression.
        self.evaluations = 0

    def _compiled(self) -> Compiled:
        if self._known is None:
            self._known = self._allowance.compile(self._expression, lists=self._lists)
        return self._known

    @property
    def attributes(self) -> tuple[tuple[str, str], ...] | None:
        """The attributes that are read, as (domain, ID) pairs; None when they are unknown.

        Raises:
            EvaluationInterruptedError: when the allowance does not suffice to compile the expression.
        """
        return self._compiled().attributes

    def result(self, model: DeviceModel) -> bool | SelectorError:
        """True if devices of a model are selected, False if not, the error if the selector fails.

        Raises:
            EvaluationInterruptedError: when the allowance ended the evaluation; nothing is remembered then.
        """
        attributes = self.attributes
        key = model.id if attributes is None else model.projection(attributes)
        known = self._by_projection.get(key)
        if known is None:
            if len(self._by_projection) >= MOST_REMEMBERED:
                self._by_projection.clear()
            known = self._by_projection[key] = self._evaluate(model)
        return known

    def _evaluate(self, model: DeviceModel) -> bool | SelectorError:
        program, _, error = self._compiled()
        if program is None:
            return SelectorError(f"CEL compile error: {error}")
        try:
            variables = model.variables
        except EvaluationError as failure:
            return SelectorError(f"CEL runtime error: {failure}")
        return self._run(program, variables)

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


class SelectorCache:
    """Cache of selectors by expression; the least recently used are dropped."""

    def __init__(self, *, list_type_attributes: bool = False, interrupted: Callable[[], bool] = lambda: False) -> None:
        """For ``interrupted`` see :class:`Allowance`."""
        self.allowance = Allowance(interrupted)
        self._lists = list_type_attributes
        self._selectors: OrderedDict[str, Selector] = OrderedDict()

    def selector(self, expression: str) -> Selector:
        selector = self._selectors.get(expression)
        if selector is None:
            selector = self._selectors[expression] = Selector(expression, self.allowance, lists=self._lists)
            if len(self._selectors) > _MOST:
                self._selectors.popitem(last=False)
        else:
            self._selectors.move_to_end(expression)
        return selector

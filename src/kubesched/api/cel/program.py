"""Program of an expression: its checked tree as nested Python functions, which count the cost as they evaluate.

The library that parses and checks has an evaluator as well. But it does not count cost, cannot hold values of types
that it does not know (quantities, versions), and its messages differ. Semantics: the CEL language definition. Costs:
:mod:`.cost`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from . import containers, formatting, library, network, standard, strings, timelib  # noqa: F401 - they fill the table of functions
from .cost import LIST_COST, MAP_COST, SELECT_COST, call_cost, call_steps
from .equality import equal, key_of, key_value
from .functions import call
from .meter import COST_LIMIT, ELEMENT, EvaluationCancelledError, Meter
from .syntax import Call, Checked, Comprehension, Constant, Expr, Ident, ListExpr, MapExpr, Select, children
from .values import NO_VALUE, OWN_KINDS, DefaultMap, EvaluationError, Optional, TypeValue, UInt, kind_of, quoted

__all__ = ["Evaluation", "Program"]

_TYPE_NAMES: Final = {
    name: TypeValue(name)
    for name in ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type")
}


class Evaluation(Meter):
    """One evaluation: its variables, and the cost and steps so far."""

    __slots__ = ("_code", "variables")

    def __init__(
        self, code: _Code, variables: dict[str, Any], limit: int, interrupted: Callable[[], bool] | None = None
    ) -> None:
        super().__init__(limit, interrupted)
        self._code = code
        self.variables = variables

    def result(self) -> Any:
        """Return the expression's value.

        Raises:
            EvaluationError: if the evaluation ends with an error, or costs more than the limit.
            EvaluationInterruptedError: if ``interrupted`` returned True.
        """
        try:
            return self._code(self)
        except RecursionError:
            raise EvaluationCancelledError("operation cancelled: values are nested too deeply") from None


_Code = Callable[["Evaluation"], Any]


class Program:
    """Compiled expression. Evaluations of one program are independent of each other."""

    def __init__(self, checked: Checked) -> None:
        self._code = _compile(checked.expr)

    def begin(
        self,
        variables: Mapping[str, Any],
        *,
        cost_limit: int = COST_LIMIT,
        interrupted: Callable[[], bool] | None = None,
    ) -> Evaluation:
        """Begin an evaluation. ``interrupted`` is called now and then, and ends a long evaluation by returning True."""
        return Evaluation(self._code, dict(variables), cost_limit, interrupted)

    def evaluate(self, variables: Mapping[str, Any], *, cost_limit: int = COST_LIMIT) -> Any:
        """Return the expression's value.

        Raises:
            EvaluationError: see :meth:`Evaluation.result`.
        """
        return self.begin(variables, cost_limit=cost_limit).result()

    def cost(self, variables: Mapping[str, Any]) -> int:
        """Return the cost of an evaluation."""
        evaluation = self.begin(variables)
        evaluation.result()
        return evaluation.cost


def _compile(expr: Expr) -> _Code:
    return _COMPILERS[type(expr)](expr)


def _constant(expr: Constant) -> _Code:
    value = expr.value
    return lambda run: value


def _ident(expr: Ident) -> _Code:
    name = expr.name
    cost = SELECT_COST * (1 + name.count("."))

    def code(run: Evaluation) -> Any:
        run.charge(cost)
        try:
            return run.variables[name]
        except KeyError:
            known = _TYPE_NAMES.get(name)
            if known is not None:
                return known
            raise EvaluationError(f"no such attribute(s): {name}") from None

    return code


def _field(run: Evaluation, value: Any, key: Any) -> Any:
    """Return ``value[key]`` for maps and lists, without optional values."""
    if isinstance(value, dict):
        try:
            return value[key_of(key, run)]
        except KeyError:
            shown = key if not isinstance(key, bool) else str(key).lower()
            raise EvaluationError(f"no such key: {shown}") from None
    if type(value) is list:
        if type(key) is float and key.is_integer():
            key = int(key)
        if type(key) not in (int, UInt):
            raise EvaluationError(f"unsupported index type '{kind_of(key)}' in list")
        if not 0 <= key < len(value):
            raise EvaluationError(f"index out of bounds: {key}")
        return value[key]
    raise EvaluationError("no such overload")


def _optional_field(run: Evaluation, value: Any, key: Any) -> Optional:
    """Return ``value[?key]``: no value, instead of an error, if the key is missing."""
    if type(value) is Optional:
        return _optional_field(run, value.value, key) if value.present else NO_VALUE
    if isinstance(value, dict):
        found = key_of(key, run)
        return Optional(value[found]) if found in value or type(value) is DefaultMap else NO_VALUE
    if type(value) is list and type(key) in (int, UInt):
        return Optional(value[key]) if 0 <= key < len(value) else NO_VALUE
    raise EvaluationError("no such overload")


def _index(run: Evaluation, value: Any, key: Any) -> Any:
    return _optional_field(run, value, key) if type(value) is Optional else _field(run, value, key)


def _select(expr: Select) -> _Code:
    operand, field = _compile(expr.operand), expr.field
    if expr.test_only:

        def test(run: Evaluation) -> Any:
            value = operand(run)
            run.charge(SELECT_COST)
            if type(value) is Optional:
                return value.present and isinstance(value.value, dict) and field in value.value
            if not isinstance(value, dict):
                raise EvaluationError("no such overload")
            return field in value or type(value) is DefaultMap

        return test

    def code(run: Evaluation) -> Any:
        value = operand(run)
        run.charge(SELECT_COST)
        if isinstance(value, dict):
            try:
                return value[field]
            except KeyError:
                raise EvaluationError(f"no such key: {field}") from None
        return _index(run, value, field)

    return code


def _logic(expr: Call, decisive: bool) -> _Code:
    """Compile ``&&`` or ``||``. An operand that decides wins over an error of the other operand, on either side."""
    left, right = map(_compile, expr.args)

    def code(run: Evaluation) -> Any:
        error: EvaluationError | None = None
        for operand in (left, right):
            try:
                value = operand(run)
            except EvaluationCancelledError:
                raise
            except EvaluationError as failure:
                error = error or failure
                continue
            if value is decisive:
                return decisive
            if value is not (not decisive):
                error = error or EvaluationError("no such overload")
        if error is not None:
            raise error
        return not decisive

    return code


def _conditional(expr: Call) -> _Code:
    return _choice(*map(_compile, expr.args))


def _choice(condition: _Code, yes: _Code, no: _Code) -> _Code:
    def code(run: Evaluation) -> Any:
        value = condition(run)
        if value is True:
            return yes(run)
        if value is False:
            return no(run)
        raise EvaluationError("no such overload")

    return code


def _not_strictly_false(expr: Call) -> _Code:
    operand = _compile(expr.args[0])

    def code(run: Evaluation) -> Any:
        try:
            return operand(run) is not False
        except EvaluationCancelledError:
            raise
        except EvaluationError:
            return True

    return code


def _equality(expr: Call, wanted: bool) -> _Code:
    left, right = map(_compile, expr.args)
    cost = call_cost(expr.function)
    assert cost is not None

    def code(run: Evaluation) -> Any:
        a, b = left(run), right(run)
        run.charge(cost((a, b), run))
        if b is not None and (kind := kind_of(a)) in OWN_KINDS and kind_of(b) != kind:
            raise EvaluationError("no such overload")  # the types of Kubernetes compare with themselves only
        return equal(a, b, run) is wanted

    return code


def _subscript(expr: Call) -> _Code:
    operand, key = map(_compile, expr.args)

    def code(run: Evaluation) -> Any:
        value, found = operand(run), key(run)
        run.charge(SELECT_COST)
        return _index(run, value, found)

    return code


def _optional_subscript(expr: Call) -> _Code:
    operand, key = map(_compile, expr.args)

    def code(run: Evaluation) -> Any:
        value, found = operand(run), key(run)
        run.charge(SELECT_COST)
        return _optional_field(run, value, found)

    return code


def _or_value(expr: Call) -> _Code:
    """Compile ``orValue`` or ``or``, which evaluate their argument only if it is needed."""
    target, other = map(_compile, expr.args)
    unwrap = expr.function == "orValue"

    def code(run: Evaluation) -> Any:
        value = target(run)
        if type(value) is not Optional:
            raise EvaluationError("no such overload")
        if not value.present:
            return other(run)
        return value.value if unwrap else value

    return code


def _call(expr: Call) -> _Code:
    special = _SPECIAL.get((expr.function, len(expr.args)))
    if special is not None:
        return special(expr)
    name = expr.function
    args = tuple(map(_compile, expr.args))
    cost, steps = call_cost(name), call_steps(name)

    def code(run: Evaluation) -> Any:
        values = [arg(run) for arg in args]
        run.charge(1 if cost is None else cost(values, run))
        if steps is not None:
            run.step(steps(values))
        return call(run, name, values)

    return code


def _list(expr: ListExpr) -> _Code:
    elements = tuple((_compile(item), index in expr.optional) for index, item in enumerate(expr.elements))

    def code(run: Evaluation) -> Any:
        values = []
        run.charge(LIST_COST)
        run.step(len(elements))
        for element, optional in elements:
            value = element(run)
            if not optional:
                values.append(value)
            elif type(value) is not Optional:
                raise EvaluationError(
                    f"cannot initialize optional list element from non-optional value {quoted(value)}"
                )
            elif value.present:
                values.append(value.value)
        return values

    return code


def _map(expr: MapExpr) -> _Code:
    if expr.message:
        raise ValueError(f"messages are not supported: {expr.message}")
    entries = tuple((_compile(entry.key), _compile(entry.value), entry.optional) for entry in expr.entries)

    def code(run: Evaluation) -> Any:
        result: dict[Any, Any] = {}
        run.charge(MAP_COST)
        run.step(len(entries))
        for key_code, value_code, optional in entries:
            key, value = key_of(key_code(run), run), value_code(run)
            if optional:
                if type(value) is not Optional:
                    raise EvaluationError(
                        f"cannot initialize optional entry '{quoted(key_value(key))}' from non-optional value {quoted(value)}"
                    )
                if not value.present:
                    continue
                value = value.value
            if key in result:
                raise EvaluationError(f"Failed with repeated key: {quoted(key_value(key))}")
            result[key] = value
        return result

    return code


def _step(expr: Expr, accu: str) -> _Code:
    """Compile the step of a loop. Adding to the accumulator is done in place: no other value refers to it yet."""
    match expr:
        case Call(function="_+_", args=(Ident(name=name), ListExpr() as added)) if name == accu:
            items, cost = _compile(added), SELECT_COST + 1

            def extend(run: Evaluation) -> Any:
                value = run.variables[accu]
                value += items(run)
                run.charge(cost)
                return value

            return extend
        case Call(function="cel.@mapInsert", args=(Ident(name=name), key, value)) if name == accu:
            key_code, value_code = _compile(key), _compile(value)

            def insert(run: Evaluation) -> Any:
                found = key_of(key_code(run), run)
                run.charge(SELECT_COST + 1)
                return containers.inserted(run.variables[accu], {found: value_code(run)})

            return insert
        case Call(function="cel.@mapInsert", args=(Ident(name=name), mapping)) if name == accu:
            other_code = _compile(mapping)

            def merge(run: Evaluation) -> Any:
                other = other_code(run)
                run.charge(SELECT_COST + 1)
                if not isinstance(other, dict):
                    raise EvaluationError("no such overload")
                run.step(ELEMENT * len(other))
                return containers.inserted(run.variables[accu], other)

            return merge
        case Call(function="_?_:_", args=(condition, yes, Ident(name=name) as no)) if name == accu:
            return _choice(_compile(condition), _step(yes, accu), _compile(no))
    return _compile(expr)


def _parts(expr: Expr) -> int:
    """Return the number of parts of an expression: the steps of evaluating it once, even if that costs nothing."""
    return 1 + sum(map(_parts, children(expr)))


def _comprehension(expr: Comprehension) -> _Code:
    iter_range, init = _compile(expr.iter_range), _compile(expr.accu_init)
    condition, result = _compile(expr.condition), _compile(expr.result)
    step = _step(expr.step, expr.accu_var)
    first, second, accu = expr.iter_var, expr.iter_var2, expr.accu_var
    parts = _parts(expr.condition) + _parts(expr.step)

    def code(run: Evaluation) -> Any:
        items = iter_range(run)
        if isinstance(items, dict):
            pairs: Any = ((key_value(key), value) for key, value in items.items())
        elif type(items) is list:
            pairs = enumerate(items)
        else:
            raise EvaluationError("no such overload")
        is_map = isinstance(items, dict)
        variables = run.variables
        outside = {name: variables[name] for name in (first, second, accu) if name in variables}
        inner = dict(variables)
        try:
            value = init(run)
            run.variables = inner
            inner[accu] = value
            for key, item in pairs:
                run.step(parts)
                if second:
                    inner[first], inner[second] = key, item
                else:
                    inner[first] = key if is_map else item
                if condition(run) is False:
                    break
                inner[accu] = step(run)
            for name in (first, second):
                if name and name in outside:
                    inner[name] = outside[name]
                else:
                    inner.pop(name, None)
            return result(run)
        finally:
            run.variables = variables

    return code


_SPECIAL: Final[Mapping[tuple[str, int], Callable[[Call], _Code]]] = {
    ("_&&_", 2): lambda expr: _logic(expr, False),
    ("_||_", 2): lambda expr: _logic(expr, True),
    ("_?_:_", 3): _conditional,
    ("@not_strictly_false", 1): _not_strictly_false,
    ("_==_", 2): lambda expr: _equality(expr, True),
    ("_!=_", 2): lambda expr: _equality(expr, False),
    ("_[_]", 2): _subscript,
    ("_[?_]", 2): _optional_subscript,
    ("_?._", 2): _optional_subscript,
    ("orValue", 2): _or_value,
    ("or", 2): _or_value,
}
_COMPILERS: Final[Mapping[type, Callable[[Any], _Code]]] = {
    Constant: _constant,
    Ident: _ident,
    Select: _select,
    Call: _call,
    ListExpr: _list,
    MapExpr: _map,
    Comprehension: _comprehension,
}

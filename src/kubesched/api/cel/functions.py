"""Table of functions, from name and kinds of the arguments to an implementation.

A function is *metered* if its work depends on more than the size of its arguments. It receives the meter of the
evaluation before its arguments, and charges work before doing it. The work of other functions is in :mod:`.cost`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from .meter import Meter
from .values import EvaluationError, kind_of

__all__ = ["ANY", "OPERATORS", "call", "call_free", "function", "metered"]

F = TypeVar("F", bound=Callable[..., Any])

ANY: Final = "*"

#: Operators, whose error is just "no such overload". For functions the error names the function and the kinds.
OPERATORS: Final = frozenset(
    ["_+_", "_-_", "_*_", "_/_", "_%_", "-_", "!_", "_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_", "@in", "_[_]"]
)

#: An implementation, and True if it is metered.
_Entry = tuple[Callable[..., Any], bool]
_TABLE: Final[dict[tuple[str, ...], _Entry]] = {}
_METERED: Final[set[Callable[..., Any]]] = set()
_WILD: Final[dict[tuple[str, int], list[tuple[tuple[str, ...], _Entry]]]] = {}


def function(name: str, *kinds: str) -> Callable[[F], F]:
    """Register an implementation. ``*`` accepts every kind, ``int|uint`` both. The target of a member comes first."""

    def register(implementation: F) -> F:
        entry = implementation, implementation in _METERED

        def expand(done: tuple[str, ...], rest: tuple[str, ...]) -> None:
            if not rest:
                if ANY in done:
                    _WILD.setdefault((name, len(done)), []).append((done, entry))
                else:
                    _TABLE[(name, *done)] = entry
                return
            for kind in rest[0].split("|"):
                expand((*done, kind), rest[1:])

        expand((), kinds)
        return implementation

    return register


def metered(implementation: F) -> F:
    """Mark an implementation as metered: it receives the meter before its arguments. Goes below ``@function``."""
    _METERED.add(implementation)
    return implementation


def call(meter: Meter, name: str, args: list[Any]) -> Any:
    """Call the implementation for these arguments.

    Raises:
        EvaluationError: if there is none, or if it failed.
    """
    kinds = tuple(map(kind_of, args))
    entry = _TABLE.get((name, *kinds)) or _wild(name, kinds)
    if entry is None:
        raise EvaluationError(
            "no such overload" if name in OPERATORS else f"no such overload: {name}({', '.join(kinds)})"
        )
    implementation, is_metered = entry
    try:
        return implementation(meter, *args) if is_metered else implementation(*args)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # The author of an expression must not be able to end more than its evaluation.
        raise EvaluationError(f"internal error in {name}: {type(error).__name__}: {error}") from error


def _wild(name: str, kinds: tuple[str, ...]) -> _Entry | None:
    for pattern, candidate in _WILD.get((name, len(kinds)), ()):
        if all(want in (ANY, kind) for want, kind in zip(pattern, kinds, strict=True)):
            return candidate
    return None


def call_free(name: str, args: list[Any]) -> Any:
    """Call an implementation outside of an evaluation, for small values."""
    return call(Meter(), name, args)

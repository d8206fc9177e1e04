"""The table of functions: name and kinds of the arguments to an implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from .values import EvaluationError, kind_of

__all__ = ["ANY", "OPERATORS", "FunctionTable", "function"]

F = TypeVar("F", bound=Callable[..., Any])

ANY: Final = "*"

#: Operators say only "no such overload"; functions say which.
OPERATORS: Final = frozenset(
    ["_+_", "_-_", "_*_", "_/_", "_%_", "-_", "!_", "_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_", "@in", "_[_]"]
)

FunctionTable = dict[tuple[str, ...], Callable[..., Any]]
_TABLE: Final[FunctionTable] = {}
_WILD: Final[dict[tuple[str, int], list[tuple[tuple[str, ...], Callable[..., Any]]]]] = {}


def function(name: str, *kinds: str) -> Callable[[F], F]:
    """Register an implementation; ``*`` accepts every kind, ``int|uint`` either. The target of a member is first."""

    def register(implementation: F) -> F:
        def expand(done: tuple[str, ...], rest: tuple[str, ...]) -> None:
            if not rest:
                if ANY in done:
                    _WILD.setdefault((name, len(done)), []).append((done, implementation))
                else:
                    _TABLE[(name, *done)] = implementation
                return
            for kind in rest[0].split("|"):
                expand((*done, kind), rest[1:])

        expand((), kinds)
        return implementation

    return register


def call(name: str, args: list[Any]) -> Any:
    """Call the implementation for these arguments.

    Raises:
        EvaluationError: there is none, or it failed.
    """
    kinds = tuple(map(kind_of, args))
    implementation = _TABLE.get((name, *kinds))
    if implementation is not None:
        return implementation(*args)
    for pattern, candidate in _WILD.get((name, len(args)), ()):
        if all(want in (ANY, kind) for want, kind in zip(pattern, kinds, strict=True)):
            return candidate(*args)
    if name in OPERATORS:
        raise EvaluationError("no such overload")
    raise EvaluationError(f"no such overload: {name}({', '.join(kinds)})")

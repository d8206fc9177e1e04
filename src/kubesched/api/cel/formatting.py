"""``format``: its clauses, the values they accept, and the text they produce (upstream: cel-go's strings extension)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from .functions import call, function, metered
from .meter import ELEMENT, Meter
from .values import EvaluationError, TypeValue, UInt, kind_of

__all__ = ["ACCEPTED", "clauses", "complaint"]

_DEFAULT_PRECISION: Final = 6
#: Most digits in the text of a number, apart from its precision.
_LONGEST_NUMBER: Final = 330
#: Most digits of a precision, so that it fits an int of 64 bits.
_PRECISION_DIGITS: Final = 18
#: Steps for finding the way in which an element is written.
_SHOWN: Final = 5 * ELEMENT
_VERBS: Final = frozenset("sdfebxXo")
#: Texts that the clauses for doubles accept.
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
_CLAUSE: Final = re.compile(
    r"%(?:(?P<percent>%)|(?P<dot>\.(?P<precision>[0-9]*))?(?P<verb>.)|\Z)", re.DOTALL | re.ASCII
)

#: Kinds that each clause accepts, and the complaint about other kinds.
ACCEPTED: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "s": (
        frozenset(
            [
                "list",
                "map",
                "int",
                "uint",
                "double",
                "bool",
                "string",
                "bytes",
                "type",
                "null_type",
                "google.protobuf.Timestamp",
                "google.protobuf.Duration",
            ]
        ),
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
    ),
    "d": (frozenset(("int", "uint")), "decimal clause can only be used on integers"),
    "f": (frozenset(("double", "string")), "fixed-point clause can only be used on doubles"),
    "e": (frozenset(("double", "string")), "scientific clause can only be used on doubles"),
    "b": (frozenset(("int", "uint", "bool")), "only integers and bools can be formatted as binary"),
    "o": (frozenset(("int", "uint")), "octal clause can only be used on integers"),
    "x": (
        frozenset(("int", "uint", "string", "bytes")),
        "only integers, byte buffers, and strings can be formatted as hex",
    ),
}


def complaint(verb: str, kind: str) -> str:
    """Return the error for a value that a clause does not accept."""
    return f"error during formatting: {ACCEPTED[verb.lower()][1]}, was given {kind}"


def clauses(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield the parts of a format: a text, the verb of the clause after it ("" for none), and its precision.

    Raises:
        EvaluationError: if a clause cannot be read.
    """
    at = 0
    for match in _CLAUSE.finditer(text):
        before, at = text[at : match.start()], match.end()
        verb, precision = match["verb"], match["precision"]
        if match["percent"]:
            yield f"{before}%", "", 0
        elif verb is None:
            raise EvaluationError("unexpected end of string")
        elif verb not in _VERBS:
            raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
        elif match["dot"] and not 0 < len(precision) <= _PRECISION_DIGITS:
            problem = "value out of range" if precision else "invalid syntax"
            raise EvaluationError(
                "could not parse formatting clause: error while parsing precision: error while converting precision "
                f'to integer: strconv.Atoi: parsing "{precision}": {problem}'
            )
        else:
            yield before, verb, int(precision) if precision else _DEFAULT_PRECISION
    yield text[at:], "", 0


@function("format", "string", "list")
@metered
def _format(meter: Meter, text: str, args: list[Any]) -> str:
    rest = iter(args)
    parts: list[str] = []
    meter.step(len(text))
    for before, verb, precision in clauses(text):
        parts.append(before)
        if verb:
            try:
                value = next(rest)
            except StopIteration:
                raise EvaluationError(f"index {len(args)} out of range") from None
            parts.append(_FORMATTERS[verb](meter, value, precision))
    return "".join(parts)


def _decimal(meter: Meter, value: Any, precision: int) -> str:
    return str(int(value)) if type(value) in (int, UInt) else _refused("d", value)


def _floating(verb: str) -> Callable[[Meter, Any, int], str]:
    def write(meter: Meter, value: Any, precision: int) -> str:
        if value in _NO_NUMBERS:
            return str(value)
        if type(value) is not float:
            return _refused(verb, value)
        meter.step(_LONGEST_NUMBER + precision)
        return f"{value:.{precision}{verb}}"

    return write


def _binary(meter: Meter, value: Any, precision: int) -> str:
    return f"{int(value):b}" if type(value) in (int, UInt, bool) else _refused("b", value)


def _octal(meter: Meter, value: Any, precision: int) -> str:
    return f"{int(value):o}" if type(value) in (int, UInt) else _refused("o", value)


def _hex(meter: Meter, value: Any, precision: int) -> str:
    if type(value) in (int, UInt):
        return f"{int(value):x}"
    if type(value) is str or type(value) is bytes:
        meter.step(8 * len(value))
        return (value if isinstance(value, bytes) else value.encode()).hex()
    return _refused("x", value)


def _refused(verb: str, value: Any) -> str:
    raise EvaluationError(complaint(verb, kind_of(value)))


def _shown(meter: Meter, value: Any, precision: int = 0) -> str:
    meter.step(_SHOWN)
    if type(value) is list:
        return f"[{', '.join([_shown(meter, item) for item in value])}]"
    if isinstance(value, dict):
        items = sorted(f"{_shown(meter, key)}: {_shown(meter, item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if value is None:
        return "null"
    if type(value) is TypeValue:
        return value.name
    if type(value) is str or type(value) is bytes:
        meter.step(len(value))
    return str(call(meter, "string", [value]))


_FORMATTERS: Final[Mapping[str, Callable[[Meter, Any, int], str]]] = {
    "s": _shown,
    "d": _decimal,
    "f": _floating("f"),
    "e": _floating("e"),
    "b": _binary,
    "o": _octal,
    "x": _hex,
    "X": lambda meter, value, precision: _hex(meter, value, precision).upper(),
}

"""Typed reader of the members of an object that a person wrote. Errors name the place, the value and a correct form.

Callers: :mod:`.stages` and the descriptions of device pools.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kubesched.base.times import parse_duration

__all__ = ["Entry"]

T = TypeVar("T")


class Entry:
    """Object at a place in a text. ``error`` turns a message into the exception to raise.

    Raises:
        Exception: made by ``error``, here for data that is no object, in the methods for a member of another type.
    """

    def __init__(self, data: Any, where: str, error: Callable[[str], Exception], wanted: str = "an object") -> None:
        if not isinstance(data, dict):
            raise error(f"{where}: must be {wanted}, got {data!r}")
        self.data: dict[str, Any] = data
        self.where = where
        self._error = error

    def refusal(self, name: str, text: str) -> Exception:
        """Return the exception for a member, or for the whole object without a name."""
        return self._error(f"{self.where}{'.' if name else ''}{name}: {text}")

    def only(self, *known: str) -> None:
        """Refuse members with other names than these."""
        for key in self.data:
            if key not in known:
                raise self.refusal("", f"{key!r} is not known here; there are {', '.join(known)}")

    def entry(self, name: str) -> Entry:
        """Return a member that is an object; empty when absent."""
        value = self.data.get(name)
        return Entry({} if value is None else value, f"{self.where}.{name}", self._error)

    def _member(self, name: str, type_: type[T], wanted: str) -> T | None:
        value = self.data.get(name)
        if value is not None and not isinstance(value, type_):
            raise self.refusal(name, f"must be {wanted}, got {value!r}")
        return value

    def text(self, name: str) -> str:
        """Return a text; empty when absent."""
        return self._member(name, str, "a string") or ""

    def items(self, name: str, what: str = "") -> list[Any]:
        """Return a list; empty when absent."""
        return self._member(name, list, f"a list{what}") or []

    def entries(self, name: str, wanted: str) -> list[Entry]:
        """Return the items of a list, which must be objects."""
        found = enumerate(self.items(name))
        return [Entry(one, f"{self.where}.{name}[{index}]", self._error, wanted) for index, one in found]

    def flag(self, name: str) -> bool | None:
        """Return True or False; None when absent."""
        return self._member(name, bool, "true or false")

    def named(self, name: str, advice: str) -> str:
        """Return a required text; ``advice`` says what to write."""
        value = self.data.get(name)
        if not isinstance(value, str) or not value:
            raise self.refusal(name, f"is missing; {advice}")
        return value

    def texts(self, name: str, known: Sequence[str] = (), what: str = "") -> list[str]:
        """Return one text or several as a list.

        If ``known`` is not empty, other texts are refused; ``what`` completes the message ("... is not a phase").
        """
        value = self.data.get(name)
        values = [value] if isinstance(value, str) else value or []
        if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
            raise self.refusal(name, f"must be a string or a list of strings, got {value!r}")
        for one in values:
            if known and one not in known:
                raise self.refusal(name, f"{one!r} {what}; there are {', '.join(known)}")
        return values

    def choice(self, name: str, known: Sequence[str], what: str, default: str = "") -> str:
        """Return one of some texts; ``default`` when absent."""
        return (self.texts(name, known, what) if self.text(name) else [default])[0]

    def number(self, name: str, default: float = 0.0, most: float = math.inf) -> float:
        """Return a number that is finite, not negative, and not above ``most``."""
        value = self.data.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            limit = f"between 0 and {most:g}" if math.isfinite(most) else "a number that is not negative"
            raise self.refusal(name, f"must be {limit}, got {value!r}")
        if not math.isfinite(value):  # a duration of hundreds of digits is infinite
            raise self.refusal(name, f"must be a finite number, got {value!r}")
        return float(value)

    def count(self, name: str, default: int) -> int:
        """Return a whole number that is not negative."""
        value = self.data.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.refusal(name, f"must be an integer that is not negative, got {value!r}")
        return value

    def seconds(self, name: str) -> float:
        """Return a number of seconds, or a duration such as ``1m30s`` in seconds."""
        value = self.data.get(name)
        if not isinstance(value, str):
            return self.number(name)
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            raise self.refusal(name, str(error)) from None
        return Entry({name: seconds}, self.where, self._error).number(name)

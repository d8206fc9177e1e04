"""The members of an object that a person wrote, read by type; errors name the place, the value and what would be right.

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
    """One object at a place. ``error`` makes what is raised of a message.

    Raises:
        Exception: ``error``, here for data that is no object, below for a member of another type.
    """

    def __init__(self, data: Any, where: str, error: Callable[[str], Exception], wanted: str = "an object") -> None:
        if not isinstance(data, dict):
            raise error(f"{where}: must be {wanted}, got {data!r}")
        self.data: dict[str, Any] = data
        self.where = where
        self._error = error

    def refusal(self, name: str, text: str) -> Exception:
        """What to raise for a member, or for the whole without a name."""
        return self._error(f"{self.where}{'.' if name else ''}{name}: {text}")

    def only(self, *known: str) -> None:
        """Refuse members of other names."""
        for key in self.data:
            if key not in known:
                raise self.refusal("", f"{key!r} is not known here; there are {', '.join(known)}")

    def entry(self, name: str) -> Entry:
        """A member that is an object; an absent one is empty."""
        value = self.data.get(name)
        return Entry({} if value is None else value, f"{self.where}.{name}", self._error)

    def _member(self, name: str, type_: type[T], wanted: str) -> T | None:
        value = self.data.get(name)
        if value is not None and not isinstance(value, type_):
            raise self.refusal(name, f"must be {wanted}, got {value!r}")
        return value

    def text(self, name: str) -> str:
        """A text; empty when absent."""
        return self._member(name, str, "a string") or ""

    def items(self, name: str, what: str = "") -> list[Any]:
        """A list; empty when absent."""
        return self._member(name, list, f"a list{what}") or []

    def entries(self, name: str, wanted: str) -> list[Entry]:
        """The members of a list, which are objects."""
        found = enumerate(self.items(name))
        return [Entry(one, f"{self.where}.{name}[{index}]", self._error, wanted) for index, one in found]

    def flag(self, name: str) -> bool | None:
        """True or false; None when absent."""
        return self._member(name, bool, "true or false")

    def named(self, name: str, advice: str) -> str:
        """A text that has to be there; ``advice`` says what to write."""
        value = self.data.get(name)
        if not isinstance(value, str) or not value:
            raise self.refusal(name, f"is missing; {advice}")
        return value

    def texts(self, name: str, known: Sequence[str] = (), what: str = "") -> list[str]:
        """One text or several, of those that are known if some are; ``what`` says of one that is not what it is not."""
        value = self.data.get(name)
        values = [value] if isinstance(value, str) else value or []
        if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
            raise self.refusal(name, f"must be a string or a list of strings, got {value!r}")
        for one in values:
            if known and one not in known:
                raise self.refusal(name, f"{one!r} {what}; there are {', '.join(known)}")
        return values

    def choice(self, name: str, known: Sequence[str], what: str, default: str = "") -> str:
        """One of some texts; ``default`` when absent."""
        return (self.texts(name, known, what) if self.text(name) else [default])[0]

    def number(self, name: str, default: float = 0.0, most: float = math.inf) -> float:
        """A number that is finite, not negative, and not above ``most``."""
        value = self.data.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            limit = f"between 0 and {most:g}" if math.isfinite(most) else "a number that is not negative"
            raise self.refusal(name, f"must be {limit}, got {value!r}")
        if not math.isfinite(value):  # a duration of hundreds of digits
            raise self.refusal(name, f"must be a finite number, got {value!r}")
        return float(value)

    def count(self, name: str, default: int) -> int:
        """A whole number that is not negative."""
        value = self.data.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.refusal(name, f"must be an integer that is not negative, got {value!r}")
        return value

    def seconds(self, name: str) -> float:
        """A number of seconds, or a duration such as ``1m30s``."""
        value = self.data.get(name)
        if not isinstance(value, str):
            return self.number(name)
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            raise self.refusal(name, str(error)) from None
        return Entry({name: seconds}, self.where, self._error).number(name)

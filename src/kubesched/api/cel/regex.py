"""Regular expressions, by the RE2 inside the CEL library: linear in time, and with upstream's syntax."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Final

from .engine import library
from .values import EvaluationError

__all__ = ["search", "states"]

_CONFIG = """
name: regex
extensions:
- name: optional
- name: regex
variables:
- name: text
  type_name: string
- name: pattern
  type_name: string
"""


#: Number of automaton states for one part of a pattern: for a character, an ASCII set, another set, a class of Unicode.
_CHARACTER: Final = 1
_ASCII_SET: Final = 3
_SET: Final = 10
_CLASS: Final = 2_500
#: Most states of an automaton. Larger automata are refused: making one of this size already takes long.
_MOST_STATES: Final = 1_000_000
#: Most characters of a pattern.
_LONGEST_PATTERN: Final = 100_000
_PARTS: Final = re.compile(
    r"(?P<class>\\[pP](?:\{[^}]*\}|.)|\\X)|\\.|(?P<set>\[\^?\]?(?:\\.|\[:|[^\]\\])*\]?|\.)|(?P<open>\()|(?P<close>\))"
    r"|\{(?P<low>[0-9]*),?(?P<high>[0-9]*)\}|.",
    re.DOTALL,
)


def states(pattern: str) -> int:
    """Return a rough upper bound of the states of a pattern's automaton.

    The bound is computed from the pattern alone, because making the automaton takes longer.
    """
    if len(pattern) > _LONGEST_PATTERN:
        return _MOST_STATES
    outer: list[int] = []
    total = last = 0
    plain = _SET if "(?" in pattern and "i" in pattern else _CHARACTER  # with a flag "i", letters match in both cases
    for part in _PARTS.finditer(pattern):
        if part["open"]:
            outer.append(total)
            total = last = 0
        elif part["close"]:
            last, total = total, total + (outer.pop() if outer else 0)
        elif part["low"] is not None:
            times = max(1, *(int(text[:4] or "0") for text in (part["low"], part["high"])))
            total += last * (times - 1)
            last *= times
        else:
            last = _CLASS if part["class"] else plain if part["set"] is None else _states_of_set(part["set"])
            total += last
        if total > _MOST_STATES:
            return _MOST_STATES
    return min(_MOST_STATES, total + sum(outer))


def _states_of_set(text: str) -> int:
    if "\\p" in text or "\\P" in text:
        return _CLASS
    return _ASCII_SET if text.isascii() and text != "." and "^" not in text else _SET


def _without_groups(pattern: str) -> str:
    """Return the pattern with groups that capture nothing. If there is a group, the library would extract only the text
    of the group.
    """
    parts: list[str] = []
    index, in_class = 0, False
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            parts.append(pattern[index : index + 2])
            index += 2
            continue
        if char == "[":
            in_class = True
        elif char == "]":
            in_class = False
        if char == "(" and not in_class:
            if not pattern.startswith("?", index + 1):
                parts.append("(?:")
                index += 1
                continue
            if pattern.startswith(("?P<", "?<"), index + 1):
                parts.append("(?:")
                index = max(pattern.find(">", index), index) + 1
                continue
        parts.append(char)
        index += 1
    return "".join(parts)


class _Search:
    """Functions ``matches``, ``find`` and ``findAll``.

    The library's programs are made when the first expression needs them.
    """

    @cached_property
    def _programs(self) -> tuple[Any, Any, Any]:
        cel = library()
        environment = cel.NewEnv(config=cel.NewEnvConfigFromYaml(_CONFIG))
        return (
            environment.compile("text.matches(pattern)"),
            environment.compile('regex.extract(text, pattern).orValue("")'),
            environment.compile("regex.extractAll(text, pattern)"),
        )

    def _run(self, which: int, text: str, pattern: str) -> Any:
        if len(pattern) > _LONGEST_PATTERN:
            raise EvaluationError(f"error parsing regexp: longer than {_LONGEST_PATTERN} characters")
        try:
            value = self._programs[which].eval(data={"text": text, "pattern": pattern})
            failed = value.type().name() == "ERROR"
            result = value.plain_value()
        except RuntimeError as error:
            raise EvaluationError(f"error parsing regexp: {pattern}: {error}") from None
        if failed:
            raise EvaluationError(f"error parsing regexp: `{pattern}`")
        return result

    def matches(self, text: str, pattern: str) -> bool:
        return bool(self._run(0, text, pattern))

    def find(self, text: str, pattern: str) -> str:
        return str(self._run(1, text, _without_groups(pattern[: _LONGEST_PATTERN + 1])))

    def find_all(self, text: str, pattern: str) -> list[str]:
        return list(self._run(2, text, _without_groups(pattern[: _LONGEST_PATTERN + 1])))


search = _Search()

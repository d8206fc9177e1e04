"""Regular expressions, by the RE2 inside the CEL library: linear in time, and of the same syntax as upstream's."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from .environment import library
from .values import EvaluationError

__all__ = ["search"]

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


def _without_groups(pattern: str) -> str:
    """The pattern with groups that capture nothing: the library extracts a group where there is one."""
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
            following = pattern[index + 1 :]
            if not following.startswith("?"):
                parts.append("(?:")
                index += 1
                continue
            if following.startswith(("?P<", "?<")):
                parts.append("(?:")
                index = pattern.index(">", index) + 1 if ">" in following else index + 1
                continue
        parts.append(char)
        index += 1
    return "".join(parts)


class _Search:
    """``matches``, ``find`` and ``findAll``. The library's objects are made when the first expression needs them."""

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
        return str(self._run(1, text, _without_groups(pattern)))

    def find_all(self, text: str, pattern: str) -> list[str]:
        return list(self._run(2, text, _without_groups(pattern)))


search = _Search()

"""Functions for strings: of standard CEL and its strings extension, and the regular expressions of Kubernetes."""

from __future__ import annotations

from typing import Any, Final

from .functions import function
from .regex import search
from .values import EvaluationError, quoted


@function("startsWith", "string", "string")
def _starts(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


@function("endsWith", "string", "string")
def _ends(text: str, suffix: str) -> bool:
    return text.endswith(suffix)


@function("contains", "string", "string")
def _contains(text: str, part: str) -> bool:
    return part in text


@function("matches", "string", "string")
def _matches(text: str, pattern: str) -> bool:
    return search.matches(text, pattern)


@function("find", "string", "string")
def _find(text: str, pattern: str) -> str:
    return search.find(text, pattern)


@function("findAll", "string", "string")
def _find_all(text: str, pattern: str) -> list[str]:
    return search.find_all(text, pattern)


@function("findAll", "string", "string", "int")
def _find_some(text: str, pattern: str, limit: int) -> list[str]:
    found = search.find_all(text, pattern)
    return found if limit < 0 else found[:limit]


@function("charAt", "string", "int")
def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


@function("indexOf", "string", "string")
def _index_of(text: str, part: str) -> int:
    return text.find(part)


@function("indexOf", "string", "string", "int")
def _index_from(text: str, part: str, start: int) -> int:
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start)


@function("lastIndexOf", "string", "string")
def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


@function("lastIndexOf", "string", "string", "int")
def _last_index_until(text: str, part: str, end: int) -> int:
    if not 0 <= end <= len(text):
        raise EvaluationError(f"index out of range: {end}")
    return text.rfind(part, 0, end + len(part))


_LOWER: Final = {upper: upper + 32 for upper in range(65, 91)}
_UPPER: Final = {lower: lower - 32 for lower in range(97, 123)}


@function("lowerAscii", "string")
def _lower(text: str) -> str:
    return text.translate(_LOWER)


@function("upperAscii", "string")
def _upper(text: str) -> str:
    return text.translate(_UPPER)


@function("replace", "string", "string", "string")
def _replace(text: str, old: str, new: str) -> str:
    return text.replace(old, new)


@function("replace", "string", "string", "string", "int")
def _replace_some(text: str, old: str, new: str, limit: int) -> str:
    return text.replace(old, new, limit)


@function("split", "string", "string")
def _split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


@function("split", "string", "string", "int")
def _split_some(text: str, separator: str, limit: int) -> list[str]:
    if limit == 0:
        return []
    if limit < 0:
        return _split(text, separator)
    if separator:
        return text.split(separator, limit - 1)
    return [*text[: limit - 1], text[limit - 1 :]] if len(text) >= limit else list(text)


@function("join", "list")
def _join(items: list[Any]) -> str:
    return _join_with(items, "")


@function("join", "list", "string")
def _join_with(items: list[Any], separator: str) -> str:
    for item in items:
        if type(item) is not str:
            raise EvaluationError(f"join: invalid input: {quoted(item)}")
    return separator.join(items)


@function("substring", "string", "int")
def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text[start:]


@function("substring", "string", "int", "int")
def _substring_until(text: str, start: int, end: int) -> str:
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise EvaluationError(f"index out of range: {index}")
    return text[start:end]


@function("trim", "string")
def _trim(text: str) -> str:
    return text.strip()


_ESCAPES: Final = str.maketrans(
    {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""}
)


@function("strings.quote", "string")
def _quote(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'

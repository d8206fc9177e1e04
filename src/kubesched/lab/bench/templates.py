"""Object templates of the benchmark format: ``{{.Index}}``, ``{{.Count}}`` and a few sums, then YAML.

Source: rules/benchmark-format §3. Only the actions that occur in workload files are supported; others are refused. A
template without actions is parsed once. Caller: :mod:`.execute`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from kubesched.api.yamltext import TextError, read_single

from .workloads import WorkloadError

__all__ = ["Template"]

_MOST_PARSED: Final = 4096
_ACTION: Final = re.compile(r"\{\{(.*?)\}\}")


def _divide(left: float, right: float) -> float:
    if right == 0:
        raise WorkloadError("division by zero")
    return left / right


_FUNCTIONS: Final[dict[str, Callable[..., float]]] = {
    "AddInt": lambda *numbers: math.trunc(sum(numbers)),
    "AddFloat": lambda *numbers: sum(numbers),
    "MultiplyInt": lambda *numbers: math.trunc(math.prod(numbers)),
    "MultiplyFloat": lambda *numbers: math.prod(numbers),
    "SubtractInt": lambda left, right: math.trunc(left - right),
    "SubtractFloat": lambda left, right: left - right,
    "DivideInt": lambda left, right: math.trunc(_divide(left, right)),
    "DivideFloat": _divide,
    "Mod": lambda left, right: int(math.fmod(math.trunc(left), math.trunc(right))),
}


class Template:
    """Template of an object that is made many times."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        #: Actions often give one of a few texts: each text is parsed once.
        self._parsed = lru_cache(_MOST_PARSED)(self._parse)
        self._fixed = None if _ACTION.search(text) else self._parse(text)

    @classmethod
    def read(cls, path: Path) -> Template:
        """Read a template.

        Raises:
            WorkloadError: when the file cannot be read or parsed.
        """
        try:
            return cls(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise WorkloadError(f"template {path}: {getattr(error, 'strerror', None) or error}") from None

    def make(self, index: int, count: int) -> dict[str, Any]:
        """Return object number ``index`` of ``count``. It is shared between equal texts: do not change it.

        Raises:
            WorkloadError: for an action that is not understood, or text that is not an object afterwards.
        """
        if self._fixed is not None:
            return self._fixed
        return self._parsed(_ACTION.sub(lambda match: self._action(match[1], index, count), self._text))

    def _action(self, text: str, index: int, count: int) -> str:
        variables = {".Index": index, ".Count": count}
        words = text.split()
        if len(words) == 1 and words[0] in variables:
            return str(variables[words[0]])
        if len(words) > 1 and words[0] in _FUNCTIONS:
            try:
                numbers = [float(variables.get(word, word.strip('"'))) for word in words[1:]]
                value = _FUNCTIONS[words[0]](*numbers)
            except (ValueError, TypeError, WorkloadError) as error:
                raise WorkloadError(f"template {self._source}: {{{{{text}}}}}: {error}") from None
            return f"{value:g}" if isinstance(value, float) and not value.is_integer() else str(int(value))
        known = ", ".join((*variables, *_FUNCTIONS))
        raise WorkloadError(f"template {self._source}: {{{{{text}}}}} is not understood; there are {known}")

    def _parse(self, text: str) -> dict[str, Any]:
        try:
            data = read_single(text, "template")
        except TextError as error:
            raise WorkloadError(error.in_file(f"template {self._source}")) from None
        if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
            raise WorkloadError(f"template {self._source}: expected one Kubernetes object with apiVersion and kind")
        return data

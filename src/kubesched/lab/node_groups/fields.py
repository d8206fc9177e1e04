"""Fields of a mapping, read one by one; every bad one is reported by file, path and value.

Callers: the readers of node groups, catalogues and Karpenter's manifests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from kubesched.api.quantity import QuantityError, parse_quantity
from kubesched.api.requests import is_scalar_resource
from kubesched.api.selectors import is_label_value, is_qualified_name
from kubesched.base.times import parse_duration

__all__ = ["EFFECTS", "Fields", "amount_problem", "taint_of"]

_NATIVE: Final = ("cpu", "memory", "ephemeral-storage", "pods")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT: Final = re.compile(r"([^=:\s]+)(?:=([^:\s]*))?:(\w+)")
_SHOWN: Final = 60


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def amount_problem(name: str, amount: object) -> str:
    """Return the problem of an amount of a node's resource; empty when there is none."""
    if name not in _NATIVE and not (is_scalar_resource(name) and is_qualified_name(name)):
        return (
            "is no resource of nodes; there are cpu, memory, ephemeral-storage, pods, and names such as nvidia.com/gpu"
        )
    if isinstance(amount, bool) or not isinstance(amount, str | int | float):
        return f"{_shown(amount)}: expected an amount such as 500m, 4 or 16Gi"
    try:
        quantity = parse_quantity(str(amount))
    except QuantityError:
        return f"{_shown(amount)}: expected an amount such as 500m, 4 or 16Gi"
    if quantity.nanos < 0:
        return f"{_shown(amount)}: must not be negative"
    if quantity.nanos % 10**9 and name not in ("cpu", "memory", "ephemeral-storage"):
        return f"{_shown(amount)}: must be a whole number"
    return ""


def taint_of(text: str) -> dict[str, str] | None:
    """Return a taint written as ``key=value:Effect``; None for another text."""
    match = _TAINT.fullmatch(text)
    if match is None or match[3] not in EFFECTS:
        return None
    return {"key": match[1], **({"value": match[2]} if match[2] else {}), "effect": match[3]}


class Fields:
    """Mapping of a document, with its place; problems are collected in a list."""

    def __init__(self, data: object, where: str, path: str, problems: list[str]) -> None:
        """``where`` is file and document, ``path`` the path of the mapping; "" for the document itself."""
        self.where, self.path, self.problems = where, path, problems
        self._data: Mapping[str, Any] = {}
        self._read: set[str] = set()
        if isinstance(data, Mapping):
            self._data = data
        elif data is not None:
            self.problems.append(f"{where}: {path or 'the document'}: {_shown(data)}: expected a mapping")

    def bad(self, name: str, value: object, right: str) -> None:
        """Report a value; ``right`` is what would be right."""
        place = ".".join(filter(None, (self.path, name)))
        self.problems.append(f"{self.where}: {place}: {_shown(value)}: {right}")

    def has(self, name: str) -> bool:
        return self._data.get(name) is not None

    def raw(self, name: str) -> Any:
        """Return a value of any type; None when it is not there."""
        self._read.add(name)
        return self._data.get(name)

    def within(self, name: str) -> Fields:
        """Return the fields of a mapping inside."""
        return Fields(self.raw(name), self.where, ".".join(filter(None, (self.path, name))), self.problems)

    def text(self, name: str, default: str = "") -> str:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, str) or not value:
            self.bad(name, value, "expected a text; write it in quotes")
            return default
        return value

    def whole(self, name: str, default: int, *, most: int, least: int = 0) -> int:
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.bad(name, value, f"expected a whole number from {least} to {most}")
            return default
        return value

    def number(self, name: str, default: float) -> float:
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            self.bad(name, value, "expected a number of 0 or more, such as 0.192")
            return default
        return float(value)

    def seconds(self, name: str, default: float) -> float:
        value = self.raw(name)
        if value is None:
            return default
        try:
            found = parse_duration(value) if isinstance(value, str) else float(value)
        except (TypeError, ValueError):
            found = -1.0
        if isinstance(value, bool) or not 0 <= found < math.inf:
            self.bad(name, value, "expected seconds, or a duration such as 90s or 5m")
            return default
        return found

    def labels(self, name: str) -> dict[str, str]:
        value = self.raw(name)
        if value is None:
            return {}
        found = value if isinstance(value, Mapping) else {}
        if found is not value:
            self.bad(name, value, "expected a mapping of labels to texts")
        for key, one in found.items():
            if not isinstance(key, str) or not is_qualified_name(key):
                self.bad(name, key, "is no label; letters, digits, -, _ and ., after a domain and / if there is one")
            elif not isinstance(one, str) or not is_label_value(one):
                self.bad(f"{name}.{key}", one, "expected a text of letters, digits, -, _ and ., at most 63")
        return {key: one for key, one in found.items() if isinstance(key, str) and isinstance(one, str)}

    def amounts(self, name: str) -> dict[str, str]:
        value = self.raw(name)
        if value is None:
            return {}
        found = value if isinstance(value, Mapping) else {}
        if found is not value:
            self.bad(name, value, "expected a mapping of resources to amounts, such as {cpu: 4, memory: 16Gi}")
        for key, one in found.items():
            problem = amount_problem(str(key), one)
            if problem:
                self.problems.append(f"{self.where}: {'.'.join(filter(None, (self.path, name)))}.{key}: {problem}")
        return {str(key): str(one) for key, one in found.items()}

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.raw(name)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
            self.bad(name, value, "expected a list of texts")
            return ()
        return tuple(value)

    def taints(self, name: str) -> list[dict[str, str]]:
        """Return taints, written as in a Node or as ``key=value:Effect``."""
        value = self.raw(name)
        if value is None:
            return []
        found = []
        for index, one in enumerate(value if isinstance(value, list) else [value]):
            taint = taint_of(one) if isinstance(one, str) else one
            if (
                not isinstance(taint, Mapping)
                or taint.get("effect") not in EFFECTS
                or not is_qualified_name(str(taint.get("key")))
            ):
                place = f"{name}[{index}]" if isinstance(value, list) else name
                self.bad(place, one, "expected key=value:Effect, or key, value and effect; NoSchedule is an effect")
            else:
                found.append({key: str(text) for key, text in taint.items() if key in ("key", "value", "effect")})
        return found

    def close(self) -> None:
        """Report fields that no one asked for."""
        for name in self._data:
            if name not in self._read:
                near = get_close_matches(str(name), sorted(self._read), n=1)
                known = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(self._read))}"
                place = ".".join(filter(None, (self.path, str(name))))
                self.problems.append(f"{self.where}: {place}: there is no such field; {known}")

"""The checks of an object: the rules of its fields, then what relates the members of each object in it.

A check belongs to a type of the schema and is called for every object of that type, wherever it is: a toleration is
checked alike in a pod, in a Deployment's template and in a CronJob's. One row in a table adds a type. Callers:
:mod:`.kind_validation`, and :mod:`.admission` and :mod:`.updates` for pods. The form of the data has been checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

from ..schema import field_rules, holders, types
from .device_checks import DEVICE_CHECKS
from .kind_checks import KIND_CHECKS
from .pod_checks import POD_CHECKS
from .validation import Causes
from .values import check_values, dotted
from .volumes import check_mounts

__all__ = ["check_object", "check_pod_spec"]

Data = dict[str, Any]

#: What is wrong with an object of a type, at a path.
_CHECKS: Final[Mapping[str, Callable[[Data, str, Causes], None]]] = {**POD_CHECKS, **KIND_CHECKS, **DEVICE_CHECKS}


def check_object(type_: str, data: Data, path: str, causes: Causes) -> None:
    """Check an object of a type and everything in it; ``path`` is where it is, such as ``spec`` for a PodSpec.

    Raises:
        ApiError: 400 for values that cannot be decoded.
    """
    check_values(type_, data, path, causes)
    _visit(type_, data, path, causes)


def check_pod_spec(spec: Data, causes: Causes) -> None:
    """The spec of a pod, defaults filled in."""
    check_object("PodSpec", spec, "spec", causes)
    check_mounts(spec, "spec", causes)


def _visit(type_: str, data: Data, path: str, causes: Causes) -> None:
    check = _CHECKS.get(type_)
    if check is not None:
        check(data, path, causes)
    for name, shape, inner, unique in _members(type_):
        value = data.get(name)
        if value is None:
            continue
        where = dotted(path, [name])
        for keys in unique:
            _check_unique(value, keys, where, causes)
        if not inner:
            continue
        if not shape:
            _visit(inner, value, where, causes)
        else:
            for key, item in enumerate(value) if shape == "list" else value.items():
                _visit(inner, item, f"{where}[{key}]", causes)


@cache
def _members(type_: str) -> tuple[tuple[str, str, str, tuple[tuple[str, ...], ...]], ...]:
    """The fields of a type to look into: name, shape, the type of what they hold if it is checked, and unique keys."""
    checked, rules = _checked_types(), field_rules(type_)
    found = []
    for name, field in types()[type_].fields.items():
        inner, unique = field.type if field.type in checked else "", rules[name].unique if name in rules else ()
        if inner or unique:
            found.append((name, field.shape, inner, unique))
    return tuple(found)


@cache
def _checked_types() -> frozenset[str]:
    """The types that have checks, or hold such types."""
    unique = {name for name in types() if any(rules.unique for rules in field_rules(name).values())}
    return holders(frozenset(unique | _CHECKS.keys()))


def _check_unique(items: Iterable[Data], keys: tuple[str, ...], path: str, causes: Causes) -> None:
    """Items of a list that a member distinguishes, or several together; those without it are not compared."""
    seen: set[tuple[Any, ...]] = set()
    for index, item in enumerate(items):
        key = tuple(item.get(name) for name in keys)
        if key in seen and key[0]:
            where = f"{path}[{index}]"
            if len(keys) == 1:
                causes.duplicate(f"{where}.{keys[0]}", key[0])
            else:
                causes.duplicate(where, dict(zip(keys, key, strict=True)))
        seen.add(key)

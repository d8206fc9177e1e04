"""LimitRange: defaults and bounds for the resources of containers, per namespace.

Callers: :mod:`.admission` for a new pod, ``store`` for a claim. Rules and texts: upstream
``plugin/pkg/admission/limitranger`` (the two spaces before "No" are upstream's).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kubesched.api.kinds import CLAIMS, PODS
from kubesched.api.quantity import Quantity, QuantityError, binary_text, parse_quantity
from kubesched.api.wire import ApiError

from ..schema import Document, Stored, open_section
from .formats import QUANTITY_TEXT
from .validation import forbidden

__all__ = ["Limits", "ObjectTable", "fill_container", "show_amount"]

Rule = dict[str, Any]


class ObjectTable(Protocol):
    """Objects of one kind, as admission reads them from the store. ``end`` is different after every change."""

    @property
    def objects(self) -> Mapping[tuple[str, str], Stored]:
        """Objects by (namespace, name)."""
        ...

    @property
    def end(self) -> int: ...

    def items(self, namespace: str = "") -> Sequence[Stored]:
        """All objects in key order, or only the objects of one namespace."""
        ...


class Limits:
    """The limit ranges of one store."""

    def __init__(self, table: ObjectTable) -> None:
        self._table = table
        self._of = -1
        self._rules: dict[str, list[Rule]] = {}

    def rules(self, namespace: str) -> list[Rule]:
        """Return the limit ranges of a namespace."""
        if self._of != self._table.end:
            self._of = self._table.end
            self._rules = {}
            for item in self._table.items():
                found = (item.section("spec") or {}).get("limits") or []
                self._rules.setdefault(item.namespace, []).extend(rule for rule in found if isinstance(rule, dict))
        return self._rules.get(namespace, [])

    def apply(self, namespace: str, spec: dict[str, Any], name: str) -> None:
        """Fill in the namespace's defaults for a new pod in place, and check its bounds.

        The spec has the general defaults already.

        Raises:
            ApiError: 403 when a bound is not kept, 400 for an amount that cannot be read.
        """
        rules = self.rules(namespace)
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        for rule in rules:
            if rule.get("type") == "Container":
                for container in containers:
                    fill_container(container, rule)
        problems: list[str] = []
        for rule in rules:
            if rule.get("type") == "Container":
                for container in containers:
                    resources = container.get("resources") or {}
                    problems += _problems(rule, resources.get("requests") or {}, resources.get("limits") or {})
            elif rule.get("type") == "Pod":
                problems += _problems(rule, _sum(spec, "requests"), _sum(spec, "limits"))
        if problems:
            raise forbidden(PODS, name, _joined(problems))

    def check_claim(self, document: Document, name: str) -> None:
        """Check the bounds on a claim's storage.

        Raises:
            ApiError: 403.
        """
        rules = self.rules(document["metadata"].get("namespace") or "")
        requests = ((open_section(document, "spec") or {}).get("resources") or {}).get("requests") or {}
        problems: list[str] = []
        for rule in rules:
            if rule.get("type") == CLAIMS.kind:
                problems += _problems(rule, requests, requests, "request")
        if problems:
            raise forbidden(CLAIMS, name, _joined(problems))


def fill_container(container: dict[str, Any], rule: Rule) -> None:
    """Fill in defaults of one container.

    Limits: ``default`` or ``max``. Requests: ``defaultRequest``, else the limits.
    """
    limits = {**(rule.get("max") or {}), **(rule.get("default") or {})}
    requests = {**(rule.get("min") or {}), **limits, **(rule.get("defaultRequest") or {})}
    if not limits and not requests:
        return
    resources = container["resources"] = dict(container.get("resources") or {})
    for field, defaults in (("limits", limits), ("requests", requests)):
        if defaults:
            resources[field] = {**defaults, **(resources.get(field) or {})}


def _sum(spec: Mapping[str, Any], field: str) -> dict[str, str]:
    """Return a pod's requests or limits: the sum of its containers, or its largest init container."""
    total: dict[str, int] = {}
    for containers, combine in (("containers", operator.add), ("initContainers", max)):
        for container in spec.get(containers) or ():
            for name, text in ((container.get("resources") or {}).get(field) or {}).items():
                total[name] = combine(total.get(name, 0), _nanos(text))
    return {name: f"{amount}n" for name, amount in total.items()}


def _nanos(text: Any) -> int:
    try:
        return parse_quantity(text).nanos
    except QuantityError:
        raise ApiError.bad_request(f"{text!r}: {QUANTITY_TEXT}") from None


def _problems(rule: Rule, requests: Mapping[str, Any], limits: Mapping[str, Any], only: str = "") -> Iterable[str]:
    """Yield the bounds of one rule that are exceeded. ``only`` is "request" for kinds without limits."""
    what = rule.get("type")
    sides = [("request", requests)] if only else [("limit", limits), ("request", requests)]
    for bound, word in (("min", "minimum"), ("max", "maximum")):
        for name, text in sorted((rule.get(bound) or {}).items()):
            edge = _nanos(text)
            head = f"{word} {name} usage per {what} is {show_amount(name, edge)}"
            must = "request" if bound == "min" or only else "limit"
            given = requests if must == "request" else limits
            if name not in given:
                yield f"{head}.  No {must} is specified"
                continue
            for side, amounts in sides:
                if name in amounts:
                    amount = _nanos(amounts[name])
                    if amount < edge if bound == "min" else amount > edge:
                        yield f"{head}, but {side} is {show_amount(name, amount)}"
                        break
    for name, text in sorted((rule.get("maxLimitRequestRatio") or {}).items()):
        head = f"{name} max limit to request ratio per {what} is {text}"
        if name not in requests or name not in limits or not _nanos(requests[name]):
            yield f"{head}, but no request is specified or request is 0"
            continue
        ratio = _nanos(limits[name]) / _nanos(requests[name])
        if ratio > _nanos(text) / 10**9:
            yield f"{head}, but provided ratio is {ratio:f}"


def _joined(problems: list[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def show_amount(name: str, nanos: int) -> str:
    """An amount as upstream writes it: bytes with binary suffixes, everything else in decimal."""
    whole, rest = divmod(nanos, 10**9)
    if (
        not rest
        and whole >= 1024
        and whole % 1024 == 0
        and ("memory" in name or "storage" in name or "hugepages" in name)
    ):
        return binary_text(whole)
    return str(Quantity(nanos))

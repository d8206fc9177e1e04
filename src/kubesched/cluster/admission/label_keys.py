"""What the API server makes of matchLabelKeys and mismatchLabelKeys when a pod is created.

The values of the pod's own labels become requirements of the selector in the same term, so the scheduler need not
know these fields in pod affinity at all. Source: spec "Topology plugins" A.2 and B.2 (upstream
``pkg/registry/core/pod/strategy.go``). Called by :mod:`.store` with specs that passed validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..schema import encode

__all__ = ["merge_label_keys"]


def merge_label_keys(spec: msgspec.Raw, labels: Mapping[str, str]) -> msgspec.Raw:
    """A pod spec with the keys written into its selectors; the same object when it names none."""
    if b"atchLabelKeys" not in bytes(spec):
        return spec
    data = msgspec.json.decode(spec)
    for term in _terms(data):
        _merge(term, labels)
    for constraint in data.get("topologySpreadConstraints") or ():
        _merge(constraint, labels)
    return msgspec.Raw(encode(data))


def _terms(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every pod affinity and anti-affinity term."""
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(side) or {}
        yield from rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for item in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            if item.get("podAffinityTerm"):
                yield item["podAffinityTerm"]


def _merge(term: dict[str, Any], labels: Mapping[str, str]) -> None:
    """Keys that the pod has no label for are ignored, and so are all of them without a selector."""
    selector = term.get("labelSelector")
    if selector is None:
        return
    more = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(field) or ()
        if key in labels
    ]
    if more:
        selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *more]

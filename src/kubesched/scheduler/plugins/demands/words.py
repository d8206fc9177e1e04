"""Words of explanations: amounts, label selectors and long lists as a person writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kubesched.api.quantity import format_bytes, format_milli
from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from kubesched.api.selectors import Operator, Selector
from kubesched.api.types import LabelSelector, LabelSelectorRequirement, NodeSelectorRequirement

from ...framework.question import RowArray

__all__ = [
    "MOST_APART",
    "always",
    "amount_text",
    "as_label_selector",
    "compiled_text",
    "counted",
    "listed",
    "requirement_text",
    "selector_text",
]

#: Most labels, requirements or terms of a pod that are demands of their own; more of them are one demand.
MOST_APART: Final = 20


def always(text: str) -> Callable[[RowArray], str]:
    """Text that does not depend on the rows."""
    return lambda rows: text


def amount_text(resource: str, amount: int) -> str:
    """An amount of a resource: ``500m`` of cpu, ``1.5Gi`` of memory, ``8`` of anything else."""
    if resource == CPU:
        return format_milli(amount)
    if resource in (MEMORY, EPHEMERAL_STORAGE):
        return format_bytes(amount)
    return str(amount)


def counted(count: int, word: str) -> str:
    """A number of things: ``1 node``, ``1,200 nodes``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def listed(shown: Sequence[str], count: int) -> str:
    """A list, with the number of the items of ``count`` that are left out."""
    text = ", ".join(shown)
    return text if count <= len(shown) else f"{text} and {count - len(shown):,} more"


def requirement_text(requirement: NodeSelectorRequirement | LabelSelectorRequirement) -> str:
    """A requirement of a selector: ``zone In (a, b)``."""
    values = f" ({', '.join(requirement.values)})" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def selector_text(selector: LabelSelector | None) -> str:
    """A label selector: ``app=web and tier In (a, b)``."""
    if selector is None:
        return "no label at all"
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    parts += map(requirement_text, selector.match_expressions)
    return " and ".join(parts) or "any labels"


def as_label_selector(selector: Selector) -> LabelSelector:
    """A compiled label selector as it would be written."""
    labels, expressions = {}, []
    for one in selector.requirements:
        if one.operator is Operator.IN and len(one.values) == 1 and one.key not in labels:
            (labels[one.key],) = one.values
        else:
            expressions.append(LabelSelectorRequirement(one.key, one.operator, tuple(sorted(one.values))))
    return LabelSelector(labels, tuple(expressions))


def compiled_text(selector: Selector) -> str:
    """A compiled label selector in words."""
    return selector_text(None if selector.matches_nothing else as_label_selector(selector))

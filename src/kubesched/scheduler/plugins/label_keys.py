"""Keys of waiting pods. By them an event about another pod finds the waiting pods whose selectors may match that pod.

See :class:`~kubesched.scheduler.framework.events.KeyedHint`. A selector that demands a label value has this pair as
its key. Any other selector, and any pod whose rejection labels cannot lift, has a key that all events have. Used by the
hints of PodTopologySpread and InterPodAffinity.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubesched.api.selectors import Selector
from kubesched.api.types import Pod

from ..nodes.term_lookup import narrowest

__all__ = ["ANY", "demanded_by_all", "demanded_by_one", "keys_of_pods", "own_key"]

#: A key of every event; no label has it.
ANY: Final = ""


def _keys(selector: Selector) -> list[str]:
    """Label pairs of which every matching pod has at least one; empty if the selector demands no label value."""
    return [f"{key}={value}" for key, value in narrowest(selector)]


def demanded_by_all(selectors: Iterable[Selector]) -> list[str]:
    """Keys of the pods that may match all of these selectors; an empty list if there is no selector."""
    found = None
    for selector in selectors:
        found = _keys(selector)
        if found:
            return found
    return [ANY] if found is not None else []


def demanded_by_one(selectors: Iterable[Selector]) -> list[str]:
    """Keys of the pods that may match at least one of these selectors."""
    return [key for selector in selectors for key in _keys(selector) or [ANY]]


def keys_of_pods(*pods: Pod | None) -> set[str]:
    """Keys of an event about a pod, given its versions before and after; they include the pod's own key."""
    found = {ANY}
    for pod in pods:
        if pod is not None:
            meta = pod.metadata
            found.add(own_key(meta.uid))
            found.update([f"{key}={value}" for key, value in meta.labels.items()])
    return found


def own_key(uid: str) -> str:
    """Key that only events about this pod have: no label key begins with a slash."""
    return f"/{uid}"

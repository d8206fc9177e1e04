"""Topology spread constraints, compiled: the pod's own, or the default constraints of the profile.

Source: rules/topology §B.2 (defaults of fields, matchLabelKeys) and rules/topology §B.3 (the default selector: the
pod's Services and the object that owns it). Used by :mod:`.pod_topology_spread` and its hints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubesched.api.selectors import (
    EVERYTHING,
    Operator,
    Requirement,
    Selector,
    SelectorError,
    compile_label_selector,
    label_selector_problem,
    selector_from_map,
)
from kubesched.api.types import Labels, LabelSelector, TopologySpreadConstraint

from ..framework.interface import Handle
from ..nodes.podinfo import PodInfo

__all__ = [
    "HARD",
    "HOSTNAME",
    "SOFT",
    "SYSTEM_DEFAULTS",
    "Constraint",
    "DefaultSelectors",
    "compile_constraints",
    "service_selectors",
]

HARD: Final = "DoNotSchedule"
SOFT: Final = "ScheduleAnyway"
HOSTNAME: Final = "kubernetes.io/hostname"
_ZONE: Final = "topology.kubernetes.io/zone"
#: Most selectors of each kind that are kept.
_MOST_SELECTORS: Final = 4096
_HONOR: Final = "Honor"

#: Default constraints of pods without their own, unless configured otherwise.
SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable=SOFT, max_skew=3),
    TopologySpreadConstraint(topology_key=_ZONE, when_unsatisfiable=SOFT, max_skew=5),
)


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint with every default filled in. ``selector`` includes the demands of matchLabelKeys."""

    key: str
    max_skew: int
    min_domains: int
    selector: Selector
    honors_affinity: bool
    honors_taints: bool


def compile_constraints(
    listed: Sequence[TopologySpreadConstraint], kind: str, labels: Labels, selector: Selector | None = None
) -> tuple[Constraint, ...]:
    """Compile the constraints of a kind (HARD or SOFT) for a pod with these labels. ``selector`` replaces their own.

    Raises:
        SelectorError: ``obtaining pod's hard topology spread constraints: …``
    """
    found = []
    for item in listed:
        if item.when_unsatisfiable != kind:
            continue
        if selector is None:
            try:
                means = _with_match_label_keys(item, labels)
            except SelectorError:
                word = "hard" if kind == HARD else "soft"
                problem = label_selector_problem(item.label_selector)
                raise SelectorError(f"obtaining pod's {word} topology spread constraints: {problem}") from None
        else:
            means = selector
        found.append(
            Constraint(
                key=item.topology_key,
                max_skew=item.max_skew,
                min_domains=1 if item.min_domains is None else item.min_domains,
                selector=means,
                honors_affinity=item.node_affinity_policy in (None, _HONOR),
                honors_taints=item.node_taints_policy == _HONOR,
            )
        )
    return tuple(found)


def _with_match_label_keys(item: TopologySpreadConstraint, labels: Labels) -> Selector:
    selector = compile_label_selector(item.label_selector)
    if not item.match_label_keys or selector.matches_nothing:
        return selector
    more = [Requirement(key, Operator.IN, frozenset((labels[key],))) for key in item.match_label_keys if key in labels]
    return Selector((*selector.requirements, *more)) if more else selector


class DefaultSelectors:
    """Selectors of the pods that belong together with a pod that has no constraints of its own."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        #: (owner object as last seen, its selector) by (kind, namespace/name).
        self._owners: dict[tuple[str, str], tuple[Any, Selector]] = {}
        #: Selectors of pods with all of some labels, by these labels.
        self._of_labels: dict[tuple[tuple[str, str], ...], Selector] = {}

    def is_empty(self, pod: PodInfo) -> bool:
        """True if :meth:`of` is EVERYTHING: there is no Service and no known owner."""
        if not pod.pod.metadata.owner_references and not self._handle.informed_in("services", pod.namespace):
            return True
        return self.of(pod).is_empty

    def of(self, pod: PodInfo) -> Selector:
        """Merge the selectors of the pod's Services and its controller; EVERYTHING when there are none."""
        owners = pod.metadata.owner_references
        if not owners and not self._handle.informed_in("services", pod.namespace):
            return EVERYTHING
        merged: Labels = {}
        for selector in service_selectors(self._handle, pod) if pod.labels else ():
            merged |= selector
        owner = next((item for item in owners if item.controller), None) if owners else None
        if owner is None:
            return self._selector(merged)
        kind = (owner.api_version, owner.kind)
        if kind == ("v1", "ReplicationController"):
            found = self._handle.informed("replicationcontrollers").get(f"{pod.namespace}/{owner.name}")
            return self._selector({**merged, **_map_selector(found)} if found is not None else merged)
        if kind in (("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")):
            more = self._owner(owner.kind.lower() + "s", f"{pod.namespace}/{owner.name}")
            if more.requirements:
                return Selector((*self._selector(merged).requirements, *more.requirements)) if merged else more
        return self._selector(merged)

    def _selector(self, labels: Labels) -> Selector:
        """Selector of pods with all of these labels; EVERYTHING without any."""
        if not labels:
            return EVERYTHING
        key = tuple(labels.items())
        found = self._of_labels.get(key)
        if found is None:
            if len(self._of_labels) >= _MOST_SELECTORS:
                self._of_labels.clear()
            found = self._of_labels[key] = selector_from_map(labels)
        return found

    def _owner(self, plural: str, key: str) -> Selector:
        """Selector of a ReplicaSet or StatefulSet; EVERYTHING when it is unknown or cannot be used."""
        owner = self._handle.informed(plural).get(key)
        known = self._owners.get((plural, key))
        if known is not None and known[0] is owner:
            return known[1]
        selector = EVERYTHING
        raw = _spec(owner).get("selector") if owner is not None else None
        if raw is not None:
            try:
                selector = compile_label_selector(msgspec.convert(raw, LabelSelector))
            except (SelectorError, msgspec.ValidationError):
                selector = EVERYTHING  # such a selector adds no demand, as upstream
        if len(self._owners) > _MOST_SELECTORS:
            self._owners.clear()
        self._owners[plural, key] = (owner, selector)
        return selector


def service_selectors(handle: Handle, pod: PodInfo) -> list[Labels]:
    """Selectors of the Services that select a pod, in the order of the Services."""
    selectors = (_map_selector(service) for service in handle.informed_in("services", pod.namespace))
    return [selector for selector in selectors if selector and selector.items() <= pod.labels.items()]


def _spec(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = obj.get("spec")
    return spec if isinstance(spec, dict) else {}


def _map_selector(obj: Mapping[str, Any]) -> dict[str, str]:
    """Selector of a Service or ReplicationController. If it is no map of strings, it is empty and is therefore
    ignored.
    """
    selector = _spec(obj).get("selector")
    if not isinstance(selector, dict) or not all(isinstance(value, str) for value in selector.values()):
        return {}
    return selector

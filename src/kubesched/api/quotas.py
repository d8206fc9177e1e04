"""Arithmetic of ResourceQuota: what a quota bounds, which pods it counts, and how much of it a pod uses.

Counted are pods with their requests and limits. Rules: upstream ``apiserver/admission/plugin/resourcequota`` and
``quota/v1``. Callers: the embedded cluster, which admits by it, and explanations.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from .quantity import QuantityError, parse_quantity
from .requests import is_extended_resource, pod_limit_amounts, pod_request_amounts
from .types import Affinity, Container, Pod, ResourceRequirements

__all__ = ["ONE", "Amounts", "QuotaRules", "nanos", "pod_use"]

#: Resources that every container must request if a quota limits them.
_MUST_ASK: Final = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
#: One object, as an amount.
ONE: Final = 10**9

#: Amounts in billionths, by the name of the limited resource.
Amounts = dict[str, int]


class QuotaRules:
    """Limits and scopes of a quota.

    Attributes:
        hard: the limits.
        scopes: the scopes, each with ``scopeName`` and perhaps ``operator`` and ``values``.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """``spec`` is that of a ResourceQuota, in wire names."""
        self.hard: Amounts = {name: nanos(text) for name, text in (spec.get("hard") or {}).items()}
        self.scopes: list[Mapping[str, Any]] = [{"scopeName": name} for name in spec.get("scopes") or ()]
        self.scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()

    def covers(self, pod: Pod | None, *, ends: bool = False) -> bool:
        """True if an object counts. Scopes are about pods, so a quota with scopes counts only pods.

        ``ends`` is true for a pod with ``activeDeadlineSeconds``, which the typed form lacks.
        """
        if pod is None or not self.scopes:
            return not self.scopes
        given = _scopes_of(pod, ends=ends)
        for term in self.scopes:
            value, operator = given.get(term.get("scopeName", "")), term.get("operator", "Exists")
            found = value in (term.get("values") or ()) if operator in ("In", "NotIn") else value is not None
            if found is not (operator in ("In", "Exists")):
                return False
        return True

    def unasked(self, pod: Pod) -> list[str]:
        """Return the amounts that the pod's containers have to ask for and do not, such as ``requests.cpu for: main``."""
        missing: list[str] = []
        whole = pod.spec.resources or ResourceRequirements()
        for name in sorted(set(_MUST_ASK) & self.hard.keys()):
            bare = name.rpartition(".")[2]
            asked = attrgetter("limits" if name.startswith("limits.") else "requests")
            without = sorted(item.name for item in _containers(pod) if bare not in asked(item.resources))
            if without and bare not in asked(whole):
                missing.append(f"{name} for: {','.join(without)}")
        return missing

    def exceeded(self, more: Amounts, used: Amounts) -> list[str]:
        """The limited resources, sorted, of which there would be too much with ``more`` besides ``used``."""
        asked = sorted(name for name, amount in more.items() if amount > 0 and name in self.hard)
        return [name for name in asked if used.get(name, 0) + more[name] > self.hard[name]]


def nanos(text: Any) -> int:
    """Return a quantity in billionths; 0 for a text that is none."""
    try:
        return parse_quantity(text).nanos
    except QuantityError:
        return 0


def pod_use(pod: Pod) -> Amounts:
    """Return the use of a pod; a finished pod uses nothing but its place among the objects."""
    amounts: Amounts = {"count/pods": ONE}
    if pod.status.phase in ("Succeeded", "Failed"):
        return amounts
    amounts["pods"] = ONE
    for name, amount in pod_request_amounts(pod).items():
        amounts[f"requests.{name}"] = amount.nanos
        if not is_extended_resource(name):
            amounts[name] = amount.nanos
    limits = pod_limit_amounts(pod)
    return amounts | {f"limits.{name}": limits[name].nanos for name in _PLAIN if name in limits}


def _containers(pod: Pod) -> tuple[Container, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _scopes_of(pod: Pod, *, ends: bool) -> dict[str, str]:
    """Return the scopes of a pod, with its value in each."""
    asks = any(item.resources.requests or item.resources.limits for item in _containers(pod))
    scopes = {"NotBestEffort" if asks else "BestEffort": "", "VolumeAttributesClass": ""}
    scopes["Terminating" if ends else "NotTerminating"] = ""
    if pod.spec.priority_class_name:
        scopes["PriorityClass"] = pod.spec.priority_class_name
    affinity = pod.spec.affinity or Affinity()
    for side in filter(None, (affinity.pod_affinity, affinity.pod_anti_affinity)):
        for term in (*side.required, *(weighted.pod_affinity_term for weighted in side.preferred)):
            if term.namespaces or term.namespace_selector is not None:
                scopes["CrossNamespacePodAffinity"] = ""
    return scopes

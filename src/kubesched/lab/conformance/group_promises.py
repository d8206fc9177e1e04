"""Rules about scenarios with pod groups: when a recording is a defect of Kubernetes, and what holds in spite of it.

A rule looks at the scenario and at what was recorded, never at a vector's name. Called by :mod:`.groups`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["CHANCE", "broken_promises", "contended", "promised", "told_otherwise", "without_nodes", "without_words"]

JSON = dict[str, Any]

CHANCE: Final = "chance: nodes with equal scores"
_SHARED: Final = "members that share a claim go where its devices are, and none of them fails because another was first"
_COMPANY: Final = "a member stays away from one that refuses its company"
_QUORUM: Final = "members that fit are bound at once if they are enough, whatever the others need"
_UNTOLD: Final = (
    "a group is tried again when something may help it, not after every backoff: until then it is told nothing"
)

_UNGATED: Final = "a member without gates that is held back is not told of gates"
_CONTENDED: Final = "chance: whose pods are evicted follows from earlier choices where several groups contend"

_WAITS: Final = "pod group is waiting for preemption to complete"
_NODE: Final = re.compile(r"( to | on node )[\w.-]+$")


def promised(vector: JSON) -> str:
    """Return the declared difference for which only what always holds is compared; "" if there is none."""
    pods = list(_created(vector, "Pod"))
    members = [pod for pod in pods if "schedulingGroup" in pod["spec"]]
    claims = [_claims(pod) for pod in members]
    if any(first & second for at, first in enumerate(claims) for second in claims[at + 1 :]):
        return _SHARED
    for pod in members:
        refused = [pod_term["labelSelector"]["matchLabels"] for pod_term in _refusals(pod)]
        for other in members:
            labels = other["metadata"].get("labels", {})
            if (
                other is not pod
                and not list(_refusals(other))
                and any(each.items() <= labels.items() for each in refused)
            ):
                return _COMPANY
    return ""


def contended(vector: JSON) -> str:
    """Return the reason to compare only what always holds as a last resort; "" if there is none."""
    groups = sum(1 for _ in _created(vector, "PodGroup"))
    evicts = any(phase["exact"].get("evicted") for phase in vector["expected"]["phases"])
    return _CONTENDED if groups > 1 and evicts else ""


def told_otherwise(vector: JSON) -> str:
    """Return the declared difference because of which members are told something else; "" if there is none."""
    for phase in vector["expected"]["phases"]:
        if any(_WAITS in event.get("note", "") for event in phase["exact"].get("events", ())):
            return _QUORUM
    if any("schedulingGates" in repr(operation.get("patch")) for operation in _operations(vector)):
        return _UNGATED
    for phase in vector["expected"]["phases"]:
        if sum(phase["exact"].get("cycles", [0, 1])[1:]):
            return _UNTOLD
    return ""


def broken_promises(vector: JSON, got: JSON) -> Iterator[str]:
    """Yield what does not hold in facts of ours although it always should."""
    least = {
        f"{group['metadata']['namespace']}/{group['metadata']['name']}": gang["minCount"]
        for group in _created(vector, "PodGroup")
        if (gang := group["spec"]["schedulingPolicy"].get("gang")) is not None
    }
    created = Counter(
        f"{pod['metadata']['namespace']}/{pod['spec']['schedulingGroup']['podGroupName']}"
        for pod in _created(vector, "Pod")
        if "schedulingGroup" in pod["spec"]
    )
    for key, group in got["groups"].items():
        if group["members"] < created[key]:
            continue  # members were deleted or evicted, and a gang whose quorum was reached once goes on without them
        if 0 < group["placed"] < least.get(key, 0):
            yield f"{group['placed']} of at least {least[key]} members of {key} are placed"
    pools = {device.split()[1].split("/")[1] for claim in got["resourceClaims"].values() for device in claim["devices"]}
    with_claims = {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in _created(vector, "Pod") if _claims(pod)
    }
    for each in got["pods"]:
        nodes = {outcome["node"] for outcome in each["outcomes"] if outcome.get("node")}
        if with_claims & set(each["pods"]) and not nodes <= pools:
            yield f"{each['pods']} are on {sorted(nodes)}, their devices on {sorted(pools)}"


def _operations(vector: JSON) -> Iterator[JSON]:
    for phase in vector["scenario"]["phases"]:
        yield from phase["ops"]


def _created(vector: JSON, kind: str) -> Iterator[JSON]:
    for operation in _operations(vector):
        obj = operation.get("object")
        if obj is not None and obj["kind"] == kind:
            yield obj


def _claims(pod: JSON) -> set[str]:
    return {each["resourceClaimName"] for each in pod["spec"].get("resourceClaims", ()) if "resourceClaimName" in each}


def _refusals(pod: JSON) -> Iterator[JSON]:
    terms = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    for term in terms.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
        if "matchLabels" in term.get("labelSelector", {}):
            yield term


# -- facts with less in them -----------------------------------------------------------------------------


def without_nodes(value: Any) -> Any:
    """Return a fact without the names of nodes and domains."""
    if isinstance(value, list):
        return [without_nodes(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "outcomes" in value:
        return {**value, "outcomes": _counted([without_nodes(each) for each in value["outcomes"]])}
    if "note" in value:
        return {**value, "note": _NODE.sub(r"\1", value["note"])}
    if "n" in value:
        hidden = {name: "somewhere" for name in ("node", "nominated") if value.get(name)}
        return {**value, **hidden}
    if "domains" in value:
        return {**value, "domains": sorted(value["domains"].values())}
    if value and all(isinstance(each, int) for each in value.values()):
        return sum(value.values())
    return {key: without_nodes(each) for key, each in value.items()}


def without_words(value: Any) -> Any:
    """Return a fact without reasons and messages."""
    if isinstance(value, list):
        return [without_words(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "outcomes" in value:
        return {**value, "outcomes": _counted([without_words(each) for each in value["outcomes"]])}
    return {key: without_words(each) for key, each in value.items() if key not in ("reason", "message")}


def _counted(outcomes: list[JSON]) -> list[JSON]:
    """Return outcomes that have become equal as one, with the sum of their numbers."""
    numbers: dict[str, int] = {}
    for each in outcomes:
        text = json.dumps({name: value for name, value in each.items() if name != "n"}, sort_keys=True)
        numbers[text] = numbers.get(text, 0) + each["n"]
    return [{"n": number, **json.loads(text)} for text, number in sorted(numbers.items())]

"""Golden vectors about queueing hints: does this event make that plugin's rejection worth another attempt?"""

from __future__ import annotations

from typing import Any

from kubesched.api.decode import from_builtins
from kubesched.api.types import Node, Pod
from kubesched.framework.enqueue import registrations
from kubesched.framework.events import ACTION_NAMES, ActionType, ClusterEvent, QueueingHint, node_events, pod_events
from kubesched.framework.podinfo import PodInfo

from .world import World, complete

__all__ = ["replay_hints"]

JSON = dict[str, Any]
_ACTIONS = {name: ActionType(action) for action, name in ACTION_NAMES.items()}


def _typed(obj: JSON | None, resource: str) -> Any:
    if obj is None:
        return None
    if resource in ("AssignedPod", "UnschedulablePod", "Pod"):
        return from_builtins(complete(obj, "Pod"), Pod)
    if resource == "Node":
        return from_builtins(complete(obj, "Node"), Node)
    return complete(obj, obj.get("kind", ""))


def replay_hints(world: World, vector: JSON) -> list[str]:
    """Compare the matched registrations, the hint, and the events that an update stands for."""
    scenario, expected = vector["scenario"], vector["expected"]
    name = scenario["plugin"]
    if name not in world.registry:
        return []
    resource = scenario["event"]["resource"]
    event = ClusterEvent(resource, _ACTIONS[scenario["event"]["action"]])
    pod = PodInfo(from_builtins(complete(scenario["pod"], "Pod"), Pod))
    old, new = _typed(scenario["old"], resource), _typed(scenario["new"], resource)
    plugin = world.frameworks[pod.spec.scheduler_name].plugins[name]
    matched = [item for item in registrations(plugin) if item.event.matches(event)]
    differences = []
    names = sorted(item.event.describe() for item in matched)
    if names != expected.get("matched", []):
        differences.append(f"matched: expected {expected.get('matched')}, got {names}")
    hint = None
    for item in matched:
        try:
            answer = QueueingHint.QUEUE if item.hint is None else item.hint(pod, old, new)
        except Exception:
            answer = QueueingHint.QUEUE
        hint = QueueingHint.QUEUE if QueueingHint.QUEUE in (hint, answer) else answer
    got = hint.value if hint is not None else None
    if got != expected.get("hint"):
        differences.append(f"hint: expected {expected.get('hint')}, got {got}")
    if "derivedEvents" in expected and old is not None and new is not None:
        derived = node_events(old, new) if resource == "Node" else pod_events(old, new)
        described = [f"{item.resource}/{ACTION_NAMES[int(item.action)]}" for item in derived]
        if described != expected["derivedEvents"]:
            differences.append(f"derivedEvents: expected {expected['derivedEvents']}, got {described}")
    return differences

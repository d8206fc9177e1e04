"""Golden vectors about queueing hints: an event, a plugin's rejection, and the hint that says if another attempt is
worthwhile.
"""

from __future__ import annotations

from typing import Any

from kubesched.api.decode import from_builtins
from kubesched.api.kinds import kind_of
from kubesched.api.types import Node, Pod
from kubesched.scheduler.framework.enqueue import registrations
from kubesched.scheduler.framework.events import (
    ACTION_NAMES,
    ActionType,
    ClusterEvent,
    QueueingHint,
    node_events,
    pod_events,
)

from .comparison import Comparison
from .members import RecordError
from .needs import not_built
from .world import World, complete

__all__ = ["compare_hint"]

JSON = dict[str, Any]
_ACTIONS = {name: ActionType(action) for action, name in ACTION_NAMES.items()}


def _typed(obj: JSON | None, resource: str) -> Any:
    if obj is None:
        return None
    if resource in ("AssignedPod", "UnschedulablePod", "Pod"):
        return from_builtins(complete(obj, "Pod"), Pod)
    if resource == "Node":
        return from_builtins(complete(obj, "Node"), Node)
    kind = kind_of(obj.get("apiVersion", ""), obj.get("kind", ""))
    data = complete(obj, obj.get("kind", ""))
    return data if kind is None or kind.type is None else from_builtins(data, kind.type)


def compare_hint(comparison: Comparison, world: World, vector: JSON) -> None:
    """Compare the matched registrations, the hint, and the events that an update represents.

    Raises:
        RecordError: when the event's action is unknown.
    """
    scenario, expected = vector["scenario"], vector["expected"]
    resource, action = scenario["event"]["resource"], scenario["event"]["action"]
    if action not in _ACTIONS:
        raise RecordError(f"scenario.event.action: {action!r} is unknown; known actions: {', '.join(_ACTIONS)}")
    old, new = _typed(scenario["old"], resource), _typed(scenario["new"], resource)
    if "derivedEvents" in expected:
        derived = (node_events if resource == "Node" else pod_events)(old, new)
        described = [f"{item.resource}/{ACTION_NAMES[int(item.action)]}" for item in derived]
        comparison.check("derivedEvents", "derivedEvents", expected["derivedEvents"], described)
    name = scenario["plugin"]
    if name not in world.registry:
        comparison.leave("matched", not_built(name))
        comparison.leave("hint", not_built(name))
        return
    pod = world.pod_of(scenario["pod"])
    plugin = world.frameworks[pod.spec.scheduler_name].plugins[name]
    event = ClusterEvent(resource, _ACTIONS[action])
    matched = [item for item in registrations(plugin) if item.event.matches(event)]
    comparison.check("matched", "matched", expected["matched"], sorted(item.event.describe() for item in matched))
    hint = None
    for item in matched:
        try:
            answer = QueueingHint.QUEUE if item.hint is None else item.hint(pod, old, new)
        except Exception as error:
            if "error" not in expected:
                comparison.fail("hint", f"hint: {item.event.describe()} failed: {type(error).__name__}: {error}")
                return
            answer = QueueingHint.QUEUE  # a recorded error counts as Queue
        hint = QueueingHint.QUEUE if QueueingHint.QUEUE in (hint, answer) else answer
    comparison.check("hint", "hint", expected["hint"], hint.value if hint is not None else None)

"""Events that lift plugins' rejections: the map from events to plugins' hints that the queue is built with.

Source: rules/queue §10.1, rules/framework §4.3.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from ..nodes.podinfo import PodInfo
from .events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, HintFn, QueueingHint
from .registry import PluginError

__all__ = ["queueing_hints", "registrations", "watched_actions"]

#: Resources of the events of a plugin that declares none: every action on them counts.
_DEFAULT_RESOURCES: Final = (
    EventResource.POD,
    EventResource.NODE,
    EventResource.PERSISTENT_VOLUME,
    EventResource.PERSISTENT_VOLUME_CLAIM,
    EventResource.CSI_NODE,
    EventResource.CSI_DRIVER,
    EventResource.CSI_STORAGE_CAPACITY,
    EventResource.STORAGE_CLASS,
    EventResource.RESOURCE_CLAIM,
    EventResource.DEVICE_CLASS,
)


#: Names of the resources that events can be about.
_RESOURCES: Final = tuple(each.value for each in EventResource)


def registrations(plugin: Any) -> list[ClusterEventWithHint]:
    """Return the events that a plugin receives.

    A plugin that registers for added nodes also receives updates of taints: a node is often added with a taint that is
    removed later.

    Raises:
        PluginError: when the plugin cannot list its events, or lists anything else.
    """
    if not hasattr(plugin, "events_to_register"):
        return [
            ClusterEventWithHint(
                ClusterEvent(resource, ActionType.ALL),
                _more_than_own_status if resource == EventResource.POD else None,
            )
            for resource in _DEFAULT_RESOURCES
        ]
    try:
        events = list(plugin.events_to_register())
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginError(f'plugin "{plugin.name}" cannot list its events: {error}') from error
    for item in events:
        if not isinstance(item, ClusterEventWithHint):
            raise PluginError(
                f'plugin "{plugin.name}": events_to_register returned {item!r}; expected ClusterEventWithHint objects'
            )
        _check_event(plugin.name, item)
    actions = ActionType.NONE
    for item in events:
        if item.event.resource == EventResource.NODE:
            actions |= item.event.action
    if actions & ActionType.ADD and not actions & ActionType.UPDATE_NODE_TAINT:
        events.append(ClusterEventWithHint(ClusterEvent(EventResource.NODE, ActionType.UPDATE_NODE_TAINT)))
    return events


def _check_event(plugin: str, item: ClusterEventWithHint) -> None:
    """Refuse an event that never happens, and a hint that cannot be called."""
    if item.event.resource not in _RESOURCES:
        raise PluginError(
            f'plugin "{plugin}": events_to_register names the resource {item.event.resource!r}; '
            f"expected one of EventResource: {', '.join(_RESOURCES)}"
        )
    if item.hint is None:
        return
    try:
        inspect.signature(item.hint).bind("pod", "old", "new")
    except TypeError as error:
        raise PluginError(
            f'plugin "{plugin}": the hint for {item.event.describe()} is {item.hint!r}, which cannot be called as '
            f"hint(pod, old, new) -> QueueingHint: {error}"
        ) from error


def _more_than_own_status(pod: PodInfo, old: Any, new: Any) -> QueueingHint:
    """Skip an event if only the status of the rejected pod itself changed; queue the pod for any other event.

    The scheduler writes that status after each rejection. Upstream requeues the pod for it. Here such a pod would leave
    its backoff early, and would be tried without a pause as long as its message or nomination keeps changing.
    """
    own = old is not None and new is not None and old.uid == new.uid == pod.uid
    if own and old.spec == new.spec and _but_for_version(old) == _but_for_version(new):
        return QueueingHint.SKIP
    return QueueingHint.QUEUE


def _but_for_version(pod: Any) -> Any:
    return msgspec.structs.replace(pod.metadata, resource_version="")


def queueing_hints(plugins: Iterable[Any]) -> dict[ClusterEvent, list[tuple[str, HintFn | None]]]:
    """Return the hints of one profile: registered event to (plugin name, hint function).

    Raises:
        PluginError: from :func:`registrations`.
    """
    hints: dict[ClusterEvent, list[tuple[str, HintFn | None]]] = {}
    for plugin in plugins:
        for item in registrations(plugin):
            hints.setdefault(item.event, []).append((plugin.name, item.hint))
    return hints


def watched_actions(events: Iterable[ClusterEvent]) -> dict[str, ActionType]:
    """Return the registered actions by resource: the resources have to be watched for them."""
    watched: dict[str, ActionType] = {}
    for event in events:
        watched[event.resource] = watched.get(event.resource, ActionType.NONE) | event.action
    return watched

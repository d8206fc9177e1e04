"""Facts about a cluster after a phase of a scenario with pod groups, in the form of the recorded ones.

Called by :mod:`.groups`; :mod:`.group_play` is the player. The format is described in the README next to the golden
files.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubesched.api.kinds import NODES, POD_GROUPS, PODS, RESOURCE_CLAIMS
from kubesched.api.types import Pod

from .group_play import Event, Player

__all__ = ["classes_of", "facts_of"]

JSON = dict[str, Any]


def classes_of(player: Player) -> dict[str, list[str]]:
    """Return the classes of interchangeable pods: the class as it is written, to the keys of its pods, by name."""
    alike: dict[str, list[str]] = {}
    for key, (phase, obj) in player.created.items():
        metadata = {name: value for name, value in obj["metadata"].items() if name != "name"}
        content = (
            key
            if key in player.named
            else json.dumps([phase, metadata, obj.get("spec"), obj.get("status")], sort_keys=True)
        )
        alike.setdefault(content, []).append(key)
    return {f"{keys[0]} +{len(keys) - 1}" if len(keys) > 1 else keys[0]: keys for keys in map(sorted, alike.values())}


def facts_of(player: Player, answers: Sequence[JSON], events: Sequence[Event], domain_keys: bool) -> JSON:
    """Return the facts after a phase. ``domain_keys``: topology keys of groups count, since their gate is on."""
    pods = {item.typed.key: item.typed for item in player.store.list(PODS).items}
    classes = classes_of(player)
    outcomes = {name: [_outcome(player, pods.get(key), key) for key in keys] for name, keys in classes.items()}
    groups = {f"{each.metadata.namespace}/{each.metadata.name}": each for each in _objects(player, POD_GROUPS)}
    written = _events(player, classes, events)
    return {
        "ops": list(answers),
        "pods": _multisets(classes, outcomes, messages=True),
        "podsCoarse": _multisets(classes, outcomes, messages=False),
        "nodes": {
            name: dict(Counter(each["node"] for each in found if each.get("node"))) for name, found in outcomes.items()
        },
        "placed": {name: sum(1 for each in found if each.get("node")) for name, found in outcomes.items()},
        "groupNodes": _group_nodes(player, pods),
        "groups": _groups(player, pods, groups if domain_keys else {}),
        "podGroups": {key: _group(each) for key, each in groups.items()},
        "evicted": _evicted(player, classes, pods),
        "events": written,
        "eventsCoarse": _distinct([{k: v for k, v in each.items() if k != "note"} for each in written]),
        "resourceClaims": {
            f"{each.metadata.namespace}/{each.metadata.name}": _claim(each)
            for each in _objects(player, RESOURCE_CLAIMS)
        },
    }


def _objects(player: Player, kind: Any) -> list[Any]:
    return [item.typed for item in player.store.list(kind).items]


# -- pods ------------------------------------------------------------------------------------------------


def _outcome(player: Player, pod: Pod | None, key: str) -> JSON:
    if pod is None:
        return {"gone": "deleted" if key in player.deleted else "evicted"}
    outcome: JSON = {"node": pod.spec.node_name or None, "nominated": pod.status.nominated_node_name or None}
    if pod.spec.node_name:
        outcome["nominated"] = None
    for member, type_ in (("scheduled", "PodScheduled"), ("disruptionTarget", "DisruptionTarget")):
        condition = next((each for each in pod.status.conditions if each.type == type_), None)
        if condition is not None:
            shown = {"status": condition.status, "reason": condition.reason, "message": condition.message}
            outcome[member] = {name: value for name, value in shown.items() if value}
    if pod.metadata.deletion_timestamp is not None:
        outcome["terminating"] = True
    return outcome


def _multisets(classes: Mapping[str, list[str]], outcomes: Mapping[str, list[JSON]], *, messages: bool) -> list[JSON]:
    result = []
    for name, keys in classes.items():
        counts = Counter(json.dumps(each if messages else _coarse(each), sort_keys=True) for each in outcomes[name])
        result.append({"pods": keys, "outcomes": [{"n": n, **json.loads(text)} for text, n in sorted(counts.items())]})
    return result


def _coarse(outcome: JSON) -> JSON:
    return {
        name: {k: v for k, v in value.items() if k != "message"} if isinstance(value, dict) else value
        for name, value in outcome.items()
    }


def _evicted(player: Player, classes: Mapping[str, list[str]], pods: Mapping[str, Pod]) -> dict[str, int]:
    def is_evicted(key: str) -> bool:
        return key not in player.deleted and key not in pods

    counts = {name: sum(map(is_evicted, keys)) for name, keys in classes.items()}
    return {name: count for name, count in counts.items() if count}


# -- groups ----------------------------------------------------------------------------------------------


def _members(player: Player, pods: Mapping[str, Pod]) -> dict[str, list[Pod]]:
    """Return the present members of every group that a pod was ever a member of."""
    members: dict[str, list[Pod]] = {}
    for key, (_, obj) in player.created.items():
        if group := obj["spec"].get("schedulingGroup"):
            found = members.setdefault(f"{key.partition('/')[0]}/{group['podGroupName']}", [])
            if key in pods:
                found.append(pods[key])
    return members


def _groups(player: Player, pods: Mapping[str, Pod], groups: Mapping[str, Any]) -> JSON:
    labels = {each.metadata.name: each.metadata.labels for each in _objects(player, NODES)}
    found: JSON = {}
    for key, members in _members(player, pods).items():
        placed = [pod for pod in members if pod.spec.node_name]
        found[key] = {"members": len(members), "placed": len(placed)}
        group = groups.get(key)
        constraints = group.spec.scheduling_constraints if group is not None else None
        if constraints is not None and constraints.topology:
            label = constraints.topology[0].key
            domains = Counter(labels.get(pod.spec.node_name, {}).get(label, "") for pod in placed)
            found[key]["domains"] = dict(domains)
    return found


def _group_nodes(player: Player, pods: Mapping[str, Pod]) -> JSON:
    return {
        key: dict(Counter(pod.spec.node_name for pod in members if pod.spec.node_name))
        for key, members in _members(player, pods).items()
    }


def _group(group: Any) -> JSON:
    shown: JSON = {"conditions": [
        {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
        for each in group.status.conditions
    ]}  # fmt: skip
    if group.metadata.deletion_timestamp is not None:
        shown["terminating"] = True
    return shown


def _claim(claim: Any) -> JSON:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return {
        "devices": [f"{each.request} {each.driver}/{each.pool}/{each.device}" for each in results],
        "reservedFor": sorted(map(_consumer, claim.status.reserved_for)),
    }


def _consumer(each: Any) -> str:
    resource = f"{each.api_group}/{each.resource}" if each.api_group else each.resource
    return f"{resource} {each.name}"


# -- events ----------------------------------------------------------------------------------------------


def _events(player: Player, classes: Mapping[str, list[str]], events: Sequence[Event]) -> list[JSON]:
    written = {key: f"{{{name}}}" if len(keys) > 1 else name for name, keys in classes.items() for key in keys}
    uids = {}
    for uid, named in player.uids.items():
        kind, _, key = named.partition(" ")
        uids[uid] = f"<uid of {kind} {written.get(key, key) if kind == 'pod' else key}>"
    return _distinct([_event(each, written, uids) for each in events])


def _event(event: Event, written: Mapping[str, str], uids: Mapping[str, str]) -> JSON:
    note = event.note
    for uid, text in uids.items():
        note = note.replace(uid, text)
    for key in sorted(written, key=len, reverse=True):
        if written[key] != key:
            note = re.sub(rf"(?<![\w{{/.-]){re.escape(key)}(?![\w.-])(?! \+)", written[key], note)
    shown = {
        "regarding": _name(event.regarding, written),
        "type": event.type,
        "reason": event.reason,
        "action": event.action,
        "note": note,
    }
    if event.related is not None:
        related = _name(event.related, written)
        # Upstream's event names the preemptor by its Go type.
        shown["related"] = (
            related.replace("Pod ", "podExecutorPreemptor ", 1) if related.startswith("Pod ") else related
        )
    return shown


def _name(obj: Any, written: Mapping[str, str]) -> str:
    key = f"{obj.metadata.namespace}/{obj.metadata.name}"
    return f"Pod {written.get(key, key)}" if isinstance(obj, Pod) else f"PodGroup {key}"


def _distinct(items: Iterable[JSON]) -> list[JSON]:
    return [json.loads(text) for text in sorted({json.dumps(each, sort_keys=True) for each in items})]

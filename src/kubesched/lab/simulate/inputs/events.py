"""Events by time: drains, failures, changes of nodes and deletions, from a file of kind ``Events`` or from plain data.

    - {at: "09:00", do: fail, nodes: {zone: zone-b}, for: 2h}
    - {at: 30m, do: drain, nodes: [n1, n2]}

Callers: ``kubesched simulate --events``, ``kubesched.simulate(events=...)`` and :class:`..stepping.Simulation`;
:mod:`..run.happenings` carries the events out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeAlias

from kubesched.api.documents import TextError
from kubesched.api.kinds import KINDS, Kind
from kubesched.api.selectors import SelectorError, is_label_value, is_qualified_name, parse_selector_text
from kubesched.api.types import Node
from kubesched.api.yamltext import read_single
from kubesched.base.times import parse_duration, parse_time, timestamp
from kubesched.cluster.files import ManifestError, read_text
from kubesched.scheduler.config import ConfigError, KubeSchedulerConfiguration

from .arrivals import DEFAULT_EPOCH
from .given import wrong_amount

__all__ = ["ACTIONS", "EventList", "NodeChoice", "PlannedEvent", "kind_named", "node_choice", "planned_events"]
__all__ += ["with_configurations"]

#: Events in any form: a path, the document of a file, or a list of events as plain data.
EventList: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]]

#: Actions, each with the fields that it takes besides ``at``, ``do`` and ``nodes``.
ACTIONS: Final[dict[str, tuple[str, ...]]] = {
    "cordon": ("for",),
    "uncordon": (),
    "drain": ("for", "force", "timeout"),
    "fail": ("for",),
    "recover": (),
    "resize": ("for", "resources"),
    "label": ("for", "labels"),
    "taint": ("for", "taints"),
    "untaint": ("taints",),
    "delete": ("for", "object"),
    "configure": ("for", "config"),
}
_API: Final = "kubesched.io/v1alpha1"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ZONE: Final = "topology.kubernetes.io/zone"
_CHOICE: Final = ("names", "zone", "labels", "selector", "count")
_TIME_OF_DAY: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Choice of nodes at the time of an event. A node must meet every part that is given.

    ``names`` may have the wildcards of file names. ``count`` chooses that many of the nodes at random.
    """

    names: tuple[str, ...] = ()
    zone: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    matches_labels: Callable[[Mapping[str, str]], bool] | None = None
    count: int | None = None
    text: str = ""

    def matches(self, node: Node) -> bool:
        """True for a node that meets every part; ``count`` is not looked at."""
        labels = node.metadata.labels
        return (
            (not self.names or any(fnmatchcase(node.name, name) for name in self.names))
            and (not self.zone or labels.get(_ZONE) == self.zone)
            and all(labels.get(key) == value for key, value in self.labels.items())
            and (self.matches_labels is None or self.matches_labels(labels))
        )


@dataclass(frozen=True, slots=True)
class PlannedEvent:
    """Event that is to happen ``at`` seconds after the start.

    ``lasts`` are the seconds after which it is undone; None for never. ``details`` are the further fields of its
    action. ``where`` is its place in the input.
    """

    at: float
    action: str
    nodes: NodeChoice | None
    lasts: float | None
    details: Mapping[str, Any]
    where: str


def planned_events(given: EventList, name: str = "events") -> list[PlannedEvent]:
    """Return the events of an input in the order of their times; ``name`` is the name of the argument in messages.

    Raises:
        ManifestError: with every field that cannot be used, by file, path, value and what would be right.
    """
    if isinstance(given, str | os.PathLike):
        name = os.fspath(given)
        try:
            given = read_single(read_text(Path(name)), name)
        except TextError as error:
            raise ManifestError(str(error)) from None
    problems: list[str] = []
    if isinstance(given, Mapping):
        given = _items_of(given, name, problems)
        name = f"{name}: events"
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ManifestError(f"{name}: expected a list of events, found {given!r}")
    found = [_Reader(one, f"{name}[{index}]", problems).event() for index, one in enumerate(given)]
    if problems:
        raise ManifestError(*problems)
    return sorted((one for one in found if one is not None), key=lambda one: one.at)


def _items_of(document: Mapping[str, Any], name: str, problems: list[str]) -> Any:
    for key, right in (("apiVersion", _API), ("kind", "Events")):
        if document.get(key) != right:
            problems.append(f"{name}: {key}: {document.get(key)!r}; a file of events has {key}: {right}")
    problems += [
        f"{name}: {key}: is not known; there is events" for key in document.keys() - {"apiVersion", "kind", "events"}
    ]
    return document.get("events") or []


def with_configurations(
    events: Iterable[PlannedEvent], load: Callable[[Any], KubeSchedulerConfiguration]
) -> list[PlannedEvent]:
    """Return the events; those of the action ``configure`` with the configuration that ``load`` returns for theirs.

    Raises:
        ManifestError: when a configuration cannot be used.
    """

    def loaded(event: PlannedEvent) -> PlannedEvent:
        if event.action != "configure":
            return event
        try:
            return replace(event, details={"config": load(event.details["config"])})
        except ConfigError as error:
            raise ManifestError(f"{event.where}.config: {error}") from None

    return [loaded(event) for event in events]


def node_choice(given: Any, where: str = "nodes") -> NodeChoice:
    """Return the choice of nodes for a name, a list of names, or a mapping with ``zone``, ``labels`` and so on.

    Raises:
        ManifestError: when it is none of these.
    """
    problems: list[str] = []
    found = _Reader({"nodes": given}, where, problems).choice(where)
    if problems or found is None:
        raise ManifestError(*problems)
    return found


def kind_named(text: str) -> Kind | None:
    """Return the kind with this name, such as ``Pod``, ``pods`` or ``pod``; None when there is none."""
    given = text.lower()
    return next((one for one in KINDS if given in (one.kind.lower(), one.plural, one.singular)), None)


class _Reader:
    """Reader of one event; problems are collected."""

    def __init__(self, given: Any, where: str, problems: list[str]) -> None:
        self._given = given
        self._where = where
        self._problems = problems

    def _bad(self, path: str, value: Any, right: str) -> None:
        self._problems.append(f"{self._where}.{path}: {value!r}: expected {right}")

    def event(self) -> PlannedEvent | None:
        before = len(self._problems)
        if not isinstance(self._given, Mapping):
            self._problems.append(
                f"{self._where}: {self._given!r}: expected an event, such as {{at: 1h, do: drain, nodes: [n1]}}"
            )
            return None
        given = self._given
        action = given.get("do")
        if action not in ACTIONS:
            self._bad("do", action, f"one of {', '.join(ACTIONS)}")
            return None
        allowed = ("at", "do", "nodes", *ACTIONS[action])
        for key in given:
            if key not in allowed:
                self._problems.append(f"{self._where}.{key}: is not known for {action}; there are {', '.join(allowed)}")
        at = self._moment(given.get("at", 0))
        lasts = self._seconds("for", given["for"]) if "for" in given else None
        has_nodes = action != "configure" and not (action == "delete" and "object" in given)
        nodes = self.choice(f"{self._where}.nodes") if has_nodes else None
        details = self._details(action)
        if len(self._problems) > before:
            return None
        return PlannedEvent(at, action, nodes, lasts, details, self._where)

    def _seconds(self, path: str, value: Any) -> float:
        try:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError
            seconds = parse_duration(value) if isinstance(value, str) else float(value)
            if not 0 <= seconds < float("inf"):
                raise ValueError
        except ValueError:
            self._bad(path, value, "a number of seconds, or a duration such as 90s, 1h30m")
            return 0.0
        return seconds

    def _moment(self, value: Any) -> float:
        """Return seconds after the start: from a number, a duration, a time of day, or a timestamp."""
        text = value if isinstance(value, str) else ""
        of_day = _TIME_OF_DAY.fullmatch(text)
        if of_day is not None:
            hours, minutes, seconds = (int(part or 0) for part in of_day.groups())
            return float((3600 * hours + 60 * minutes + seconds - DEFAULT_EPOCH % _DAY) % _DAY)
        if "T" in text:
            try:
                after = parse_time(text) - DEFAULT_EPOCH
            except ValueError:
                after = -1.0
            if after >= 0:
                return after
        try:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError
            seconds_after = parse_duration(value) if isinstance(value, str) else float(value)
            if not 0 <= seconds_after < float("inf"):
                raise ValueError
        except ValueError:
            right = 'seconds or a duration after the start (90m), a time of day ("09:00"), or a timestamp'
            self._bad("at", value, f"{right} not before {timestamp(DEFAULT_EPOCH)}")
            return 0.0
        return seconds_after

    def choice(self, where: str) -> NodeChoice | None:
        given = self._given.get("nodes")
        if isinstance(given, str):
            given = [given]
        if isinstance(given, list | tuple):
            given = {"names": list(given)}
        right = f"a list of names, or a mapping with {', '.join(_CHOICE)}"
        if not isinstance(given, Mapping) or not given or any(key not in _CHOICE for key in given):
            self._problems.append(f"{where}: {given!r}: expected {right}")
            return None
        before = len(self._problems)
        names, labels = given.get("names", []), given.get("labels", {})
        if (
            not isinstance(names, list)
            or not all(isinstance(one, str) and one for one in names)
            or ("names" in given and not names)
        ):
            self._problems.append(f"{where}.names: {names!r}: expected a list of names of nodes")
        if not isinstance(labels, Mapping) or not all(isinstance(one, str) for one in (*labels, *labels.values())):
            self._problems.append(f"{where}.labels: {labels!r}: expected labels and their values as texts")
        zone, count, matches = given.get("zone", ""), given.get("count"), None
        if not isinstance(zone, str):
            self._problems.append(f"{where}.zone: {zone!r}: expected the name of a zone")
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            self._problems.append(f"{where}.count: {count!r}: expected a whole number, 1 or more")
        if "selector" in given:
            try:
                matches = parse_selector_text(str(given["selector"])).matches
            except SelectorError as error:
                self._problems.append(f"{where}.selector: {given['selector']!r}: {error}")
        if len(self._problems) > before:
            return None
        text = (
            ", ".join(names)
            if "names" in given and len(given) == 1
            else ", ".join(f"{k}: {v}" for k, v in given.items())
        )
        return NodeChoice(tuple(names), zone, dict(labels), matches, count, text)

    def _details(self, action: str) -> dict[str, Any]:
        given: Mapping[str, Any] = self._given
        if action == "resize":
            return {"resources": self._resources(given.get("resources"))}
        if action == "label":
            return {"labels": self._labels(given.get("labels"))}
        if action in ("taint", "untaint"):
            return {"taints": self._taints(given.get("taints"), needs_effect=action == "taint")}
        if action == "delete" and "object" in given:
            return {"object": self._object(given["object"])}
        if action == "drain":
            if not isinstance(given.get("force", False), bool):
                self._bad("force", given["force"], "true or false")
            timeout = self._seconds("timeout", given["timeout"]) if "timeout" in given else None
            return {"force": given.get("force", False), "timeout": timeout}
        if action == "configure":
            if not isinstance(given.get("config"), str | os.PathLike | Mapping):
                self._bad("config", given.get("config"), "the path of a KubeSchedulerConfiguration, or its content")
            return {"config": given.get("config")}
        return {}

    def _resources(self, given: Any) -> dict[str, str]:
        if not isinstance(given, Mapping) or not given:
            self._bad("resources", given, "amounts such as {cpu: 16, memory: 64Gi}")
            return {}
        for key, amount in given.items():
            problem = wrong_amount(key, amount)
            if problem:
                self._problems.append(f"{self._where}.resources.{key}: {amount!r}: {problem}")
        return {str(key): str(amount) for key, amount in given.items()}

    def _labels(self, given: Any) -> dict[str, str | None]:
        if not isinstance(given, Mapping) or not given:
            self._bad("labels", given, "labels such as {pool: spot}; null removes one")
            return {}
        for key, value in given.items():
            if not isinstance(key, str) or not is_qualified_name(key):
                self._bad("labels", key, "the name of a label")
            elif value is not None and not (isinstance(value, str) and is_label_value(value)):
                self._bad(f"labels.{key}", value, "the value of a label as a text, or null")
        return dict(given)

    def _taints(self, given: Any, *, needs_effect: bool) -> list[dict[str, str]]:
        if not isinstance(given, list | tuple) or not given or not all(isinstance(one, Mapping) for one in given):
            self._bad("taints", given, "a list such as [{key: team, value: red, effect: NoSchedule}]")
            return []
        for index, one in enumerate(given):
            if not isinstance(one.get("key"), str) or not is_qualified_name(one["key"]):
                self._bad(f"taints[{index}].key", one.get("key"), "the name of a taint")
            if (needs_effect or "effect" in one) and one.get("effect") not in _EFFECTS:
                self._bad(f"taints[{index}].effect", one.get("effect"), f"one of {', '.join(_EFFECTS)}")
        return [{str(key): str(value) for key, value in one.items()} for one in given]

    def _object(self, given: Any) -> dict[str, str]:
        if not isinstance(given, Mapping) or not all(isinstance(given.get(key), str) for key in ("kind", "name")):
            self._bad("object", given, "an object such as {kind: Deployment, namespace: shop, name: web}")
            return {}
        if kind_named(given["kind"]) is None:
            self._bad("object.kind", given["kind"], "a kind such as Deployment or Pod")
        return {"kind": given["kind"], "name": given["name"], "namespace": str(given.get("namespace", "default"))}

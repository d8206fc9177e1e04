"""Informers of one scheduler: they watch kinds of objects, and plugins look objects up in them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from kubesched.api.groups import PodGroup, group_key
from kubesched.api.kinds import KINDS, POD_GROUPS, PODS, Kind
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError

from .config import FeatureGates
from .core.port import Informer, InformerHandler, Port
from .framework.events import EventResource
from .framework.gated_fields import pod_view
from .framework.group_reading import GroupReader
from .framework.registry import PluginError
from .nodes.pod_groups import PodGroupStates
from .read_groups import GroupSources, ReadGroups, grouped_view

__all__ = ["Informers", "kind_of_event", "kinds_informed"]

_log = logging.getLogger("kubesched.scheduler")

#: Event resource to the kind of object that it is about, without pods and nodes.
_EVENT_KINDS: Final[dict[str, str]] = {
    EventResource.PERSISTENT_VOLUME: "PersistentVolume",
    EventResource.PERSISTENT_VOLUME_CLAIM: "PersistentVolumeClaim",
    EventResource.CSI_NODE: "CSINode",
    EventResource.CSI_DRIVER: "CSIDriver",
    EventResource.VOLUME_ATTACHMENT: "VolumeAttachment",
    EventResource.CSI_STORAGE_CAPACITY: "CSIStorageCapacity",
    EventResource.STORAGE_CLASS: "StorageClass",
    EventResource.RESOURCE_CLAIM: "ResourceClaim",
    EventResource.RESOURCE_SLICE: "ResourceSlice",
    EventResource.DEVICE_CLASS: "DeviceClass",
    EventResource.POD_GROUP: "PodGroup",
}

_KINDS: Final = [kind for kind in KINDS if kind.group != "events.k8s.io" and not kind.custom]
_BY_PLURAL: Final = {kind.plural: kind for kind in _KINDS}
_BY_NAMESPACE: Final = "namespace"

#: Field selector of the pods that the scheduler watches: pods that have not finished.
_UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"


class Source(Protocol):
    """Source of watch events: an informer, or a plugin's handler that passes events on."""

    def add_handler(self, handler: InformerHandler) -> None: ...


def kind_of_event(resource: str) -> Kind | None:
    """Return the kind that an event resource is about; None for pods and nodes, which are always watched."""
    name = _EVENT_KINDS.get(resource)
    return None if name is None else next(kind for kind in _KINDS if kind.kind == name)


def kinds_informed(plugin: Any) -> list[Kind]:
    """Return the kinds in a plugin's ``informs``: the plugin looks up objects of these kinds.

    Raises:
        PluginError: when there is no such kind.
    """
    plurals: tuple[str, ...] = getattr(plugin, "informs", ())
    try:
        return [_kind_by_plural(plural) for plural in plurals]
    except PluginError as error:
        raise PluginError(f"plugin {plugin.name}: informs: {error}") from None


def _kind_by_plural(plural: str) -> Kind:
    kind = _BY_PLURAL.get(plural)
    if kind is None:
        raise PluginError(f"{plural!r} is no kind of object; known are {', '.join(sorted(_BY_PLURAL))}")
    return kind


class Informers(Mapping[str, Informer]):
    """Informers by plural resource name; an informer is made when its kind is first needed."""

    def __init__(self, port: Port, gates: FeatureGates) -> None:
        """If some ``gates`` are off, pods are shown without the fields of these gates."""
        self._port = port
        self._informers: dict[str, Informer] = {}
        self._views: dict[str, Mapping[str, Any]] = {}
        #: Informers to be left out if their kind is not served.
        self._if_served: dict[str, Kind] = {}
        #: Plural to informer, for kinds that plugins look up by namespace.
        self._indexed: dict[str, Informer] = {}
        #: Plural to the plugin's handler that passes on the events of the kind.
        self._relays: dict[str, Source] = {}
        #: Informer of all pods that have not finished.
        self.pods = self.of(PODS, _UNFINISHED)
        self._view = pod_view(gates)
        if self._view is not None:
            self.pods.show_as(self._view)

    def __getitem__(self, plural: str) -> Informer:
        return self._informers[plural]

    def __iter__(self) -> Iterator[str]:
        return iter(self._informers)

    def __len__(self) -> int:
        return len(self._informers)

    @property
    def are_behind(self) -> bool:
        """True if an object has to be delivered to a handler again."""
        return any(informer.behind for informer in self._informers.values())

    def live_pod(self, namespace: str, name: str) -> Pod | None:
        """Return the pod as the API server last showed it, or None."""
        pod: Pod | None = self.pods.get(namespace, name)
        return pod

    def live_version(self, pod: Pod) -> Pod | None:
        """Return the pod as the API server last showed it; None if it is gone, even if another pod has its name."""
        live = self.live_pod(pod.namespace, pod.name)
        return live if live is not None and live.uid == pod.uid else None

    def seen(self, pod: Pod) -> Pod:
        """Return a pod of the API server as the scheduler sees it."""
        return pod if self._view is None else self._view(pod)

    def group_of(self, pod: Pod) -> PodGroup | None:
        """Return the group of a pod that :meth:`seen` returned."""
        groups = self.objects(POD_GROUPS.plural)
        group: PodGroup | None = groups.of(pod) if isinstance(groups, ReadGroups) else groups.get(group_key(pod))
        return group

    def read_groups(self, readers: Mapping[str, GroupReader], states: PodGroupStates) -> None:
        """Read pod groups by plugins, which are given by scheduler name. Call it before any informer runs."""
        first = next(iter(readers.values()))
        found = [self.of(POD_GROUPS)]
        for kind in first.group_kinds:
            informer = self._port.informer(kind)
            informer.show_as(first.group_of)
            self._informers[kind.group_resource] = informer
            found.append(informer)
        native, *others = (_InformerView(informer) for informer in found)
        self._views[POD_GROUPS.plural] = ReadGroups(native, others, states, readers)
        self._relays[POD_GROUPS.plural] = GroupSources(found)
        self._if_served = {POD_GROUPS.plural: POD_GROUPS, **{kind.group_resource: kind for kind in first.group_kinds}}
        self._view = grouped_view(readers, self._view)
        self.pods.show_as(self._view)

    async def leave_out_unserved(self) -> None:
        """Drop the informers of groups whose kinds cannot be listed, and log it.

        Only if a plugin reads groups: without one, the API server has to serve PodGroup objects.
        """
        for plural, kind in self._if_served.items():
            try:
                why = "" if await self._port.is_served(kind) else "the API server does not serve them"
            except ApiError as error:
                why = str(error) if error.code == 403 else ""
            except OSError:
                why = ""  # the informer waits for the connection
            if why:
                _log.warning("%s %s are not read: %s", kind.api_version, kind.plural, why)
                del self._informers[plural]

    def of(self, kind: Kind, field_selector: str = "") -> Informer:
        """Return the informer of a kind. ``field_selector`` only counts in the call that makes it."""
        informer = self._informers.get(kind.plural)
        if informer is None:
            informer = self._informers[kind.plural] = self._port.informer(kind, field_selector)
        return informer

    def watch(self, plural: str, handler: Any, relays: bool) -> None:
        """Add a plugin's handler for the changes of a kind.

        ``relays``: the queue receives the changes that this handler passes on, instead of the changes of the informer.

        Raises:
            PluginError: when there is no such kind.
        """
        self.of(_kind_by_plural(plural)).add_handler(handler)
        if relays:
            self._relays[plural] = handler

    def source(self, kind: Kind) -> Source:
        """Return the source of a kind's events for the queue: the informer, or the handler that relays them."""
        relay = self._relays.get(kind.plural)
        return relay if relay is not None else self.of(kind)  # a relay may be empty

    def index_by_namespace(self, kind: Kind) -> None:
        """Index a kind by namespace, for lookups of plugins."""
        informer = self._indexed[kind.plural] = self.of(kind)
        informer.add_index(_BY_NAMESPACE, _namespace_of)

    def objects(self, plural: str) -> Mapping[str, Any]:
        """Return the objects of a kind, by key; empty for a kind that is not watched."""
        view = self._views.get(plural)
        if view is None:
            informer = self._informers.get(plural)
            if informer is None:
                return {}
            view = self._views[plural] = _InformerView(informer)
        return view

    def objects_in(self, plural: str, namespace: str) -> Sequence[Any]:
        """Return the objects of a kind in a namespace; empty for a kind that is not indexed by namespace."""
        informer = self._indexed.get(plural)
        return () if informer is None else informer.by_index(_BY_NAMESPACE, namespace)


def _namespace_of(obj: Any) -> Sequence[str]:
    if isinstance(obj, dict):
        return (obj["metadata"].get("namespace", ""),)
    return (obj.metadata.namespace,)


class _InformerView(Mapping[str, Any]):
    """Read-only mapping of an informer's objects, by key."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def __getitem__(self, key: str) -> Any:
        obj = self._informer.get_by_key(key)
        if obj is None:
            raise KeyError(key)
        return obj

    def get(self, key: str, default: Any = None) -> Any:
        obj = self._informer.get_by_key(key)
        return obj if obj is not None else default

    def __iter__(self) -> Any:
        return iter(self._informer.keys())

    def __len__(self) -> int:
        return len(self._informer.keys())

"""The informers of one scheduler: which kinds are watched, and what plugins may look up in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from kubesched.api.kinds import KINDS, PODS, Kind
from kubesched.api.types import Pod

from .config import FeatureGates
from .core.port import Informer, InformerHandler, Port
from .framework.events import EventResource
from .framework.gated_fields import pod_view
from .framework.registry import PluginError

__all__ = ["Informers", "kind_of_event", "kinds_informed"]

#: Event resources beyond pods and nodes, by the kind of object they are about.
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
}

_KINDS: Final = [kind for kind in KINDS if kind.group != "events.k8s.io"]
_BY_PLURAL: Final = {kind.plural: kind for kind in _KINDS}
_BY_NAMESPACE: Final = "namespace"

#: Pods that have finished are invisible to the scheduler.
_UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"


class Source(Protocol):
    """Where events come from."""

    def add_handler(self, handler: InformerHandler) -> None: ...


def kind_of_event(resource: str) -> Kind | None:
    """The kind that an event resource is about; None for pods and nodes, which are always watched."""
    name = _EVENT_KINDS.get(resource)
    return None if name is None else next(kind for kind in _KINDS if kind.kind == name)


def kinds_informed(plugin: Any) -> list[Kind]:
    """The kinds that a plugin looks up objects of, as its ``informs`` names them.

    Raises:
        PluginError: when it names one that does not exist.
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
    """Plural resource name to informer; one is made when its kind is first needed."""

    def __init__(self, port: Port, gates: FeatureGates) -> None:
        """Under some ``gates`` pods are shown without some of their fields."""
        self._port = port
        self._informers: dict[str, Informer] = {}
        self._views: dict[str, _InformerView] = {}
        #: Those of kinds that plugins look up by namespace.
        self._indexed: dict[str, Informer] = {}
        #: Handlers of plugins that pass on the events of a kind, by plural.
        self._relays: dict[str, Source] = {}
        #: All pods that have not finished.
        self.pods = self.of(PODS, _UNFINISHED)
        if (view := pod_view(gates)) is not None:
            self.pods.show_as(view)

    def __getitem__(self, plural: str) -> Informer:
        return self._informers[plural]

    def __iter__(self) -> Iterator[str]:
        return iter(self._informers)

    def __len__(self) -> int:
        return len(self._informers)

    @property
    def are_behind(self) -> bool:
        """Whether some object is to be delivered to a handler again."""
        return any(informer.behind for informer in self._informers.values())

    def live_pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as the API server last showed it, or None."""
        pod: Pod | None = self.pods.get(namespace, name)
        return pod

    def live_version(self, pod: Pod) -> Pod | None:
        """Live state of this very pod; None as well when another has its name."""
        live = self.live_pod(pod.namespace, pod.name)
        return live if live is not None and live.uid == pod.uid else None

    def of(self, kind: Kind, field_selector: str = "") -> Informer:
        """The informer of a kind; ``field_selector`` counts when it is made."""
        informer = self._informers.get(kind.plural)
        if informer is None:
            informer = self._informers[kind.plural] = self._port.informer(kind, field_selector)
        return informer

    def watch(self, plural: str, handler: Any, relays: bool) -> None:
        """Let a plugin receive the changes of a kind, and the queue those that the plugin's handler relays, if it does.

        Raises:
            PluginError: when there is no such kind.
        """
        self.of(_kind_by_plural(plural)).add_handler(handler)
        if relays:
            self._relays[plural] = handler

    def source(self, kind: Kind) -> Source:
        """Where the queue receives the events of a kind from: its informer, or the handler that relays them."""
        return self._relays.get(kind.plural) or self.of(kind)

    def index_by_namespace(self, kind: Kind) -> None:
        """Let plugins look up a kind by namespace."""
        informer = self._indexed[kind.plural] = self.of(kind)
        informer.add_index(_BY_NAMESPACE, _namespace_of)

    def objects(self, plural: str) -> Mapping[str, Any]:
        """The objects of a watched kind by key; empty for one that is not watched."""
        view = self._views.get(plural)
        if view is None:
            informer = self._informers.get(plural)
            if informer is None:
                return {}
            view = self._views[plural] = _InformerView(informer)
        return view

    def objects_in(self, plural: str, namespace: str) -> Sequence[Any]:
        """The objects of a namespace; empty for a kind without that index."""
        informer = self._indexed.get(plural)
        return () if informer is None else informer.by_index(_BY_NAMESPACE, namespace)


def _namespace_of(obj: Any) -> Sequence[str]:
    if isinstance(obj, dict):
        return (obj["metadata"].get("namespace", ""),)
    return (obj.metadata.namespace,)


class _InformerView(Mapping[str, Any]):
    """An informer's objects as a read-only mapping."""

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

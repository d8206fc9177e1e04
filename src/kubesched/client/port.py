"""Port: all that a scheduler asks of an API server, on top of any transport.

The command line assembles a port from a transport and passes it to the scheduler, which knows it only by shape. The
same assembly runs the informers and the event broadcaster in tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, Final

from kubesched.api.kinds import CLAIMS, PODS, VOLUMES, Kind
from kubesched.api.storage import PersistentVolume, PersistentVolumeClaim
from kubesched.api.types import Pod, PodCondition
from kubesched.api.wire import MERGE_PATCH, STRATEGIC_PATCH, ApiError, Item, PatchOptions, Transport
from kubesched.base.times import Clock

from .backoff import TokenBucket, is_other_uid, retry_write
from .event_writer import CACHE_SIZE
from .events import QUEUE_SIZE, REFRESH_SECONDS, EventBroadcaster, EventRecorder
from .informer import Informer
from .metered import MeteredTransport
from .patches import StatusPatches, claim_patch, has_condition, volume_patch
from .reflector import PAGE_SIZE, WATCH_TIMEOUT

__all__ = ["ApiPort"]

#: Codes that a refused deletion has if the pod is gone. 409: another pod has its name now.
_GONE: Final = (404, 409)


class ApiPort:
    """Informers, bindings, status patches and events through one API server.

    Requests and events each have a rate limiter, as upstream's two clients do; None means no limit. The limiters are
    attributes of ``transport`` and ``event_transport`` and may be changed at any time. ``requests`` counts the requests
    of both by (HTTP method, code).

    With an ``event_transport`` events have connections of their own, so that events and bindings do not wait for each
    other. With ``watch_list`` informers read their list from the beginning of a watch (upstream's gate
    WatchListClient). ``connection`` logs errors of the connection, for all informers together.

    The owner runs ``events.run()`` in a task. Until then recorded events wait in the queue.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        rng: Random,
        event_transport: Transport | None = None,
        hostname: str = "localhost",
        limiter: TokenBucket | None = None,
        event_limiter: TokenBucket | None = None,
        event_queue_size: int = QUEUE_SIZE,
        event_cache_size: int = CACHE_SIZE,
        event_refresh_seconds: float = REFRESH_SECONDS,
        watch_list: bool = False,
        on_request: Callable[[str, str, float], None] | None = None,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._hostname = hostname
        self._watch_list = watch_list
        self.requests: dict[tuple[str, str], int] = {}
        self.transport = MeteredTransport(transport, limiter=limiter, requests=self.requests, on_request=on_request)
        self.event_transport = MeteredTransport(
            event_transport or transport, limiter=event_limiter, requests=self.requests, on_request=on_request
        )
        self.events = EventBroadcaster(
            self.event_transport,
            clock,
            rng=Random(rng.getrandbits(64)),
            queue_size=event_queue_size,
            cache_size=event_cache_size,
            refresh_seconds=event_refresh_seconds,
        )
        self._recorders: dict[str, EventRecorder] = {}
        self._patches = StatusPatches()

    @property
    def at_once(self) -> bool:
        return self.transport.at_once

    def informer(
        self,
        kind: Kind,
        field_selector: str = "",
        *,
        namespace: str = "",
        label_selector: str = "",
        page_size: int = PAGE_SIZE,
        watch_timeout: tuple[float, float] | None = WATCH_TIMEOUT,
        on_error: Callable[[Exception], None] | None = None,
    ) -> Informer:
        """Return a new informer. The caller adds handlers and runs it.

        When a pod's change and deletion arrive together, handlers receive only the deletion: waiters for a change of a
        pod also wait for its deletion. For other kinds the change matters: a claim frees its devices when it is
        deallocated, before its deletion.
        """
        return Informer(
            self.transport,
            kind,
            rng=Random(self._rng.getrandbits(64)),
            namespace=namespace,
            field_selector=field_selector,
            label_selector=label_selector,
            page_size=page_size,
            watch_timeout=watch_timeout,
            watch_list=self._watch_list,
            skip_ended=kind is PODS,
            on_error=on_error,
        )

    def recorder(self, scheduler_name: str) -> EventRecorder:
        """Return the event recorder of a profile, the same one at each call."""
        recorder = self._recorders.get(scheduler_name)
        if recorder is None:
            instance = f"{scheduler_name}-{self._hostname}"
            recorder = self._recorders[scheduler_name] = EventRecorder(self.events, scheduler_name, instance)
        return recorder

    async def is_served(self, kind: Kind) -> bool:
        """Return False if the API server does not know the kind."""
        try:
            await self.transport.list(kind, limit=1)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    def bind(self, pod: Pod, node_name: str) -> Coroutine[Any, Any, None]:
        """Bind exactly this pod, by UID. Not retried.

        Raises:
            ApiError: 404 if the pod was deleted, 409 if it is bound already or has been re-created.
            OSError: if the server cannot be reached; the pod may or may not be bound.
        """
        meta = pod.metadata
        return self.transport.bind(meta.namespace, meta.name, meta.uid, node_name)

    async def read_pod(self, pod: Pod) -> Pod | None:
        """Return exactly this pod, by UID, as the API server has it now; None if it is gone.

        The pod is read with a list, because the scheduler's role lists pods, and gets none.

        Raises:
            ApiError: if the server refuses.
            OSError: if the server cannot be reached.
        """
        meta = pod.metadata
        page = await self.transport.list(PODS, meta.namespace, field_selector=f"metadata.name={meta.name}")
        return next((item.typed for item in page.items if item.uid == meta.uid), None)

    def is_written(
        self, pod: Pod, *, condition: PodCondition | None = None, nominated_node_name: str | None = None
    ) -> bool:
        """True if the status already has all that :meth:`patch_pod_status` would write."""
        status = pod.status
        if nominated_node_name is not None and nominated_node_name != status.nominated_node_name:
            return False
        return condition is None or has_condition(status, condition)

    async def patch_pod_status(
        self, pod: Pod, *, condition: PodCondition | None = None, nominated_node_name: str | None = None
    ) -> Item | None:
        """Write a condition and a nomination into the pod's status, in one patch. Return the pod as written.

        None if there was nothing to write. ``pod`` is the state to start from. The condition's transition time and
        observed generation are filled in here. ``nominated_node_name`` None leaves the field, "" clears it. Up to four
        tries on conflict, internal error, unavailability and refused connections.

        Raises:
            ApiError: if the server refuses; 404 if the pod was deleted, even if another pod has its name now.
            OSError: if the server cannot be reached.
        """
        meta, patch = pod.metadata, self._patches.patch(pod, condition, nominated_node_name, self._clock.now())
        if patch is None:
            return None
        try:
            return await retry_write(
                lambda: self.transport.patch(PODS, meta.namespace, meta.name, patch, subresource="status"), self._rng
            )
        except ApiError as error:
            if is_other_uid(error):
                raise ApiError.not_found(PODS, meta.name) from error
            raise

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume:
        """Write a volume's claimRef, and the mark of an automatic binding. Return the volume as written. Not retried.

        Raises:
            ApiError: 404 if the volume is gone, 409 if it has another version than the given one.
            OSError: if the server cannot be reached; the volume may or may not be bound.
        """
        patch = volume_patch(volume)
        item = await self.transport.patch(VOLUMES, "", volume.name, patch, patch_type=MERGE_PATCH)
        written: PersistentVolume = item.typed
        return written

    async def select_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Write the node that a claim is to be provisioned for. Return the claim as written. Not retried.

        Raises:
            ApiError: 404 if the claim is gone, 409 if it has another version than the given one.
            OSError: if the server cannot be reached; the node may or may not be written.
        """
        meta, patch = claim.metadata, claim_patch(claim)
        item = await self.transport.patch(CLAIMS, meta.namespace, meta.name, patch, patch_type=MERGE_PATCH)
        written: PersistentVolumeClaim = item.typed
        return written

    async def delete_pod(self, pod: Pod) -> bool:
        """Delete exactly this pod, by UID, with its own grace period. Return False if it was gone already.

        Raises:
            ApiError: if the server refuses.
            OSError: if the server cannot be reached.
        """
        meta = pod.metadata
        try:
            await self.transport.delete(PODS, meta.namespace, meta.name, uid=meta.uid)
        except ApiError as error:
            if error.code not in _GONE:
                raise
            return False
        return True

    # -- objects that plugins write ------------------------------------------------------------------------
    #
    # Not retried: only the caller knows the meaning of a second try. All raise ApiError if the server refuses (404, 409
    # for another version or UID, 422, …) and OSError if it cannot be reached.

    async def get_object(self, kind: Kind, namespace: str, name: str) -> Any:
        """Return an object as it is now, decoded as the kind's informer decodes it."""
        return (await self.transport.get(kind, namespace, name)).typed

    async def create_object(self, kind: Kind, namespace: str, obj: Mapping[str, Any]) -> Any:
        """Add an object, given in wire names. Return the object as stored."""
        return (await self.transport.create(kind, namespace, obj)).typed

    async def patch_object(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
        merge: bool = True,
    ) -> Any:
        """Change an object by a merge patch, or by a strategic merge patch. Return the object as stored.

        ``metadata.resourceVersion`` and ``metadata.uid`` in the patch are preconditions.
        """
        kind_of_patch = MERGE_PATCH if merge else STRATEGIC_PATCH
        options: PatchOptions = {"patch_type": kind_of_patch, "subresource": subresource}
        return (await self.transport.patch(kind, namespace, name, patch, **options)).typed

    async def delete_object(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete exactly this object, by UID."""
        await self.transport.delete(kind, namespace, name, uid=uid)

"""Store of the embedded cluster: every object of every kind, with versions, watches and the verbs on them.

Synchronous and single-threaded: a verb runs to its end, so there is nothing to lock. Objects are kept as JSON bytes;
see :mod:`..objects`. ``inprocess`` wraps the verbs into a transport, :mod:`..http` into a server. Reading is in
:mod:`.records`; deletion continues in :mod:`.deletion`, binding and eviction in :mod:`.pod_actions`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from random import Random
from typing import Any, Final, Unpack

import msgspec

from kubesched.api.equality import same_json
from kubesched.api.event_record import EventRecord
from kubesched.api.groups import GATES
from kubesched.api.kinds import (
    CORE_EVENTS,
    EVENTS,
    LIMIT_RANGES,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    SERVICES,
    Kind,
)
from kubesched.api.wire import STRATEGIC_PATCH, ApiError
from kubesched.base.times import Clock

from ..admission import (
    STATUS_KINDS,
    Admission,
    Causes,
    ServiceAddresses,
    admit_new,
    changed_metadata,
    check_kind,
    check_metadata,
    checked_spec_change,
    default_kind,
    forbidden,
    new_metadata,
)
from ..schema import (
    Document,
    Stored,
    check_form,
    decode_document,
    encode_clean,
    new_uid,
    open_section,
    random_suffix,
    same_section,
)
from .bodies import HEAD, body_metadata, combined, patched
from .deletion import Deleting, Deletion
from .events import EventExpiry, RecordedEvent, check_event, event_as, event_sections, new_item
from .pod_actions import PodActions
from .quota import Quotas
from .records import MOST_BYTES, Records
from .replicas import Replicas, request_of
from .table import Table

__all__ = ["Store"]

FIRST_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_NODE_CRITICAL: Final = "Used for system critical pods that must not be moved from their current node."
_FIRST_PRIORITY_CLASSES: Final = (
    ("system-cluster-critical", 2_000_000_000, "Used for system critical pods that must run in the cluster."),
    ("system-node-critical", 2_000_001_000, _NODE_CRITICAL),
)
#: Events kept for each pod, if this allows more than ``most_events``.
_EVENTS_PER_POD: Final = 2
#: Most events that are removed at a time. Removing all expired ones at once could hold up the event loop.
_EXPIRED_AT_ONCE: Final = 512
_POD_HEAD: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


class Store(Records):
    """Store of all objects of an embedded cluster.

    ``history`` is the number of past changes of one kind at which a new watch may start; an older start gets 410.
    ``backlog`` is the number of changes by which a live watch may lag. ``auto_namespaces`` creates a namespace when an
    object is created in it; ``default_tolerations``, ``priority_admission`` and ``taint_new_nodes`` are admission
    rules. ``features`` are the feature gates of pod groups that are on. Every verb raises :class:`ApiError` when it
    refuses. With ``dry_run`` a verb does everything but store the result.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        random: Random,
        history: int = 5_000,
        backlog: int = 1_000_000,
        auto_namespaces: bool = False,
        default_tolerations: bool = True,
        priority_admission: bool = True,
        taint_new_nodes: bool = False,
        features: Iterable[str] = GATES,
    ) -> None:
        super().__init__(clock, history, backlog)
        self._random = random
        self._auto_namespaces = auto_namespaces
        self._namespaces = self._tables[NAMESPACES].objects
        #: Resources whose status is written through its subresource only; custom resources may join.
        self.status_kinds = set(STATUS_KINDS)
        self.admission = Admission(
            self.table,
            now=self.now,
            default_tolerations=default_tolerations,
            priority_admission=priority_admission,
            taint_new_nodes=taint_new_nodes,
            features=features,
        )
        #: Most events that are kept, each for an hour at most. The oldest are dropped first.
        self.most_events = math.inf
        self._events = self._tables[CORE_EVENTS]
        self._pods = self._tables[PODS]
        self._follow_changes()
        for name in FIRST_NAMESPACES:
            self.create(NAMESPACES, "", {"metadata": {"name": name}})
        for name, value, description in _FIRST_PRIORITY_CLASSES:
            data = {"metadata": {"name": name}, "value": value, "description": description}
            self.create(PRIORITY_CLASSES, "", data)

    def _follow_changes(self) -> None:
        """Register the followers of changes: owners and namespaces, quotas, the expiry of events."""
        self._quotas = Quotas(self)
        self._deletion = Deletion(self)
        self._event_expiry = EventExpiry(self._events.objects)
        self._pod_actions = PodActions(self, self._deletion)
        #: Verbs of the binding and eviction subresources; see :class:`.pod_actions.PodActions`.
        self.bind, self.evict = self._pod_actions.bind, self._pod_actions.evict
        self._services = ServiceAddresses()
        self._replicas: Replicas[tuple[str, bytes]] = Replicas(self.now)
        self.forget_followers()
        self.follow(self._event_written, CORE_EVENTS.__eq__)
        self.follow(self._deletion.follow)
        self.follow(self._quotas.changed, RESOURCE_QUOTAS.__eq__)
        self.follow(self._services.changed, SERVICES.__eq__)
        self.follow(self._replicas.forget, {LIMIT_RANGES, PRIORITY_CLASSES, RUNTIME_CLASSES}.__contains__)

    def _event_written(self, item: Stored | None, old: Stored | None) -> None:
        if item is not None:
            self._event_expiry.written(self.clock.now(), item)

    # -- writing ---------------------------------------------------------------------------------------

    def create(
        self, kind: Kind, namespace: str, obj: Mapping[str, Any], *, dry_run: bool = False, restore: bool = False
    ) -> Stored:
        """Add an object. The caller's data is never changed and never kept.

        ``restore`` is for importing a saved cluster: UID, creation time, status and priority are taken from the object
        instead of being decided here.
        """
        given = body_metadata(kind, obj)
        if kind is PODS and not (dry_run or restore):
            return self._create_pod(namespace, given, obj)
        if kind.group == EVENTS.group:
            event = event_as(CORE_EVENTS, event_sections(kind, obj))
            return new_item(self._create(CORE_EVENTS, namespace, given, event, dry_run=dry_run, restore=restore))
        if kind is CORE_EVENTS:
            obj = event_sections(kind, obj)
        return self._create(kind, namespace, given, obj, dry_run=dry_run, restore=restore)

    def _create_pod(self, namespace: str, given: Mapping[str, Any], obj: Mapping[str, Any]) -> Stored:
        """Add a pod. It is copied from the last pod of an equal request, unless a quota has to be checked."""
        request = request_of(namespace, given, obj)
        like = self._replicas.like(request) if request is not None else None
        if like is None or not self._quotas.is_free(like.namespace):
            item = self._create(PODS, namespace, given, obj, dry_run=False, restore=False)
            if request is not None:
                self._replicas.add(request, item)
            return item
        name = self._new_name(self._pods, like.namespace, given)
        uid = new_uid(self._random)
        self._check_place(self._pods, like.namespace, name, dry_run=False)
        item = self.adopt(self._pods, like.copy(name, uid, self._version + 1))
        self.settle_later()
        return item

    def record(self, event: EventRecord) -> bool:
        """Add an event as it was recorded. Its form needs no check, and its bytes may never be read.

        Returns False, and does nothing, if a quota has to be charged: the caller then creates the event as an object.
        """
        if not self._quotas.is_free(event.namespace):
            return False
        self._check_place(self._events, event.namespace, event.name, dry_run=False)
        self.adopt(self._events, RecordedEvent(event, new_uid(self._random), self.now(), self._version + 1))
        self.expire_events()
        self.settle_later()
        return True

    def _create(
        self,
        kind: Kind,
        namespace: str,
        given: Mapping[str, Any],
        obj: Mapping[str, Any],
        *,
        dry_run: bool,
        restore: bool,
    ) -> Stored:
        """Add an object with the metadata ``given``. For an event, ``obj`` has sections that were checked."""
        table = self.table(kind)
        if kind.namespaced:
            if given.get("namespace") not in (None, "", namespace) and namespace:
                raise ApiError.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            namespace = namespace or given.get("namespace") or "default"
        else:
            namespace = ""
        if given.get("resourceVersion") and not restore:
            raise ApiError.bad_request("resourceVersion should not be set on objects to be created")
        name = self._new_name(table, namespace, given)
        uid = (given.get("uid") if restore else None) or new_uid(self._random)
        created = (given.get("creationTimestamp") if restore else None) or self.now()
        metadata = new_metadata(kind, namespace, given, name, uid, created)
        self._check_place(table, namespace, name, dry_run=dry_run)
        causes = Causes(kind, name)
        check_metadata(kind, metadata, causes)
        document: Document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        if kind is PODS:
            causes.raise_if_any(kind, name)
            self._add_pod(document, namespace, obj, restore=restore)
        elif kind is CORE_EVENTS:
            document.update((section, value) for section, value in obj.items() if section not in HEAD)
            if not restore:
                check_event(namespace, document, causes)
            causes.raise_if_any(kind, name)
        else:
            rest = {key: value for key, value in obj.items() if key not in HEAD}
            raw = encode_clean(rest, nulls=kind.custom)
            check_form(kind, raw)
            document.update(msgspec.json.decode(raw))
            default_kind(kind, document, self.admission, keep_status=restore)
            check_kind(kind, document, causes, self.admission)
            if kind is SERVICES and not restore:
                self._services.assign(document, None, causes)
            causes.raise_if_any(kind, name)
            if not restore:
                admit_new(kind, document, self.admission)
        if not restore:
            self._quotas.admit(kind, document)
        item = self.commit(kind, document, dry_run=dry_run, most=math.inf if restore else MOST_BYTES)
        if kind is CORE_EVENTS and not dry_run:
            self.expire_events()
        self.settle_later()
        return item

    def _add_pod(self, document: Document, namespace: str, obj: Mapping[str, Any], *, restore: bool) -> None:
        """Add the other sections of a pod, as admission leaves them. A restored pod keeps its status."""
        metadata = document["metadata"]
        given = obj.get("spec") or {}
        if restore and isinstance(given, dict) and given.get("nodeName"):
            given = {"nodeName": given["nodeName"], **given}  # first: the rest is then shared by equal pods
        prepared = self.admission.pod_spec(namespace, encode_clean(given), metadata["name"], restored=restore)
        labels = metadata.get("labels") or {}
        document["spec"] = prepared.spec if restore else self.admission.merged(prepared.spec, labels)
        document["status"] = prepared.status
        if restore and obj.get("status"):
            check_form(PODS, encode_clean({"status": obj["status"]}))
            document["status"] = obj["status"]
        if len(obj) > 3:
            document.update((key, value) for key, value in obj.items() if key not in _POD_HEAD)

    def expire_events(self) -> bool:
        """Remove expired events, some at a time. Returns True if there may be more.

        Creating an event does this too; a caller with a timer may do it from time to time. The limit is
        ``most_events``, or two for each pod if that is more.
        """
        now, most = self.clock.now(), max(self.most_events, _EVENTS_PER_POD * len(self._pods.objects))
        if not self._event_expiry.is_due(now, most):
            return False
        for old in islice(self._event_expiry.due(now, most), _EXPIRED_AT_ONCE):
            if isinstance(old, RecordedEvent) and (last := old.at(self._version + 1)) is not None:
                self.removed(last, old)
            elif old is not None:
                self.remove(old.document(), old)
        return self._event_expiry.is_due(now, most)

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        obj: Mapping[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Stored:
        """Replace an object, or its status or resize subresource.

        A ``resourceVersion`` in the body that is not the current one is 409. Without one, or with "0", the write is
        unconditional; objects of some kinds need one.
        """
        body_metadata(kind, obj)
        if kind.group == EVENTS.group:
            check_form(kind, encode_clean(obj))
            return new_item(self.update(CORE_EVENTS, namespace, name, event_as(CORE_EVENTS, obj), dry_run=dry_run))
        old = self.get(kind, namespace, name)
        document = decode_document(encode_clean(obj, nulls=kind.custom))
        open_section(document, "metadata")
        return self._replace(old, old.document(), document, subresource, dry_run=dry_run)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Any,
        *,
        patch_type: str = STRATEGIC_PATCH,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Stored:
        """Change an object by a patch of one of the three types; the patch is never changed.

        Raises:
            ApiError: 415 for another patch type, 400 or 422 for a patch that cannot be applied.
        """
        old = self.get(kind, namespace, name)
        if kind is PODS and subresource == "status" and patch_type == STRATEGIC_PATCH and not dry_run:
            item = self._pod_actions.patch_status(old, patch)
            if item is not None:
                return item
        before = old.document()
        document = patched(old, before, patch, patch_type)
        if kind.group == EVENTS.group:
            whole = {key: open_section(document, key) for key in document}
            return new_item(self.update(CORE_EVENTS, namespace, name, event_as(CORE_EVENTS, whole), dry_run=dry_run))
        return self._replace(old, before, document, subresource, dry_run=dry_run)

    def _replace(self, old: Stored, before: Document, document: Document, subresource: str, *, dry_run: bool) -> Stored:
        """Replace the parts of ``old`` that the (sub)resource allows to change by ``document``.

        ``before`` is the document of ``old``. A write that leaves the metadata alone shares it with ``before``.
        """
        kind = old.kind
        for field, value in (("apiVersion", kind.api_version), ("kind", kind.kind)):
            found = open_section(document, field)
            if found is not None and found != value:
                raise ApiError.bad_request(f"{field}: must be {value}, got {found!r}")
        if document["metadata"] is before["metadata"]:
            metadata, has_new_metadata = dict(before["metadata"]), False
        else:
            metadata = changed_metadata(kind, old, before["metadata"], document["metadata"], subresource)
            has_new_metadata = not same_json(metadata, before["metadata"])
        after = combined(
            kind, metadata, before, document, subresource, has_status=kind.group_resource in self.status_kinds
        )
        changed = [
            name
            for name in before.keys() | after.keys()
            if name not in HEAD and not same_section(before.get(name), after.get(name))
        ]
        causes = Causes(kind, old.name)
        if has_new_metadata:
            check_metadata(kind, metadata, causes)
        elif not changed:
            return old
        if changed:
            check_form(kind, encode_clean({name: after[name] for name in changed if name in after}))
            checked_spec_change(self.admission, old, before, after, changed, causes, resize=subresource == "resize")
            # Labels may be filled in from a template.
            has_new_metadata = has_new_metadata and not same_json(metadata, before["metadata"])
            if kind is SERVICES and "spec" in changed:
                self._services.assign(after, old, causes)
            same_spec = same_section(before.get("spec"), after.get("spec"))
            if not same_spec and "generation" in metadata:
                metadata["generation"] += 1
                has_new_metadata = True
            elif (
                same_spec
                and not has_new_metadata
                and not causes
                and "status" not in changed
                and all(same_section(before.get(name), after.get(name)) for name in changed)
            ):
                return old  # the new object lacked only defaults
        causes.raise_if_any(kind, old.name)
        if self._deletion.is_finished(kind, metadata):
            item = old if dry_run else self.remove(after, old)
        else:
            if "spec" in changed:
                self._quotas.admit(kind, after, old)
            # The server's limit does not apply: controllers write most statuses, and cannot shrink the rest of the
            # object.
            most = 2 * MOST_BYTES if subresource else MOST_BYTES
            item = self.commit(kind, after, old, dry_run=dry_run, same_metadata=not has_new_metadata, most=most)
        self.settle_later()
        return item

    def delete(self, kind: Kind, namespace: str, name: str, **options: Unpack[Deleting]) -> Stored:
        """Delete an object, or begin to: pods with a grace period and objects with finalizers stay for a while.

        Returns the last state. The object is still stored if this state has a deletion timestamp.

        Raises:
            ApiError: 404, or 409 when a precondition does not hold.
        """
        old = self.get(kind if kind.group != EVENTS.group else CORE_EVENTS, namespace, name)
        item = self._deletion.delete(old, **options)
        self.settle_later()
        return item

    # -- restoring ---------------------------------------------------------------------------------------

    def load(self, items: Iterable[Stored], resource_version: int) -> None:
        """Replace everything by saved objects, with their versions. See :mod:`..snapshot_file`.

        No history is loaded with them: watches begin at ``resource_version``. The generator of UIDs and names gets a
        new seed, so that a store of the same seed does not give out the same UIDs again. Deletions that had begun go
        on, and events expire an hour after they were written, by this store's clock.

        Raises:
            RuntimeError: when this store is already watched.
        """
        tables = [table for kind, table in self._tables.items() if kind == table.kind]
        if any(table.watches for table in tables):
            raise RuntimeError("a saved cluster can only be loaded into a store without watches")
        for table in tables:
            table.reset(resource_version)
        self._background.clear()
        self._follow_changes()
        for item in items:
            self.table(item.kind).load(item)
            self._deletion.follow(item, None)
            self._services.changed(item, None)
            self._deletion.resume(item)
        self._version = resource_version
        self._quotas.resume()
        self._event_expiry.resume()
        self.change_identities()
        self.settle_later()

    def change_identities(self, salt: int = 0) -> None:
        """Reseed the generator of UIDs and names: restored objects may have used its next values."""
        self._random.seed(self._random.getrandbits(64) ^ (self._version << 64) ^ salt)

    def _new_name(self, table: Table, namespace: str, given: Mapping[str, Any]) -> str:
        name: Any = given.get("name")
        if name:
            if not isinstance(name, str):
                raise ApiError.bad_request(f"metadata.name: must be a string, got {name!r}")
            return name
        prefix = given.get("generateName")
        if not prefix or not isinstance(prefix, str):
            causes = Causes()
            causes.required("metadata.name", "name or generateName is required")
            raise ApiError.invalid(table.kind, "", causes)
        for _ in range(8):
            generated = prefix[:58] + random_suffix(self._random)
            if (namespace, generated) not in table.objects:
                break
        return generated

    def _check_place(self, table: Table, namespace: str, name: str, *, dry_run: bool) -> None:
        """Refuse a new object in a terminating namespace, or with the name of an existing object."""
        spaced = table.kind.namespaced
        if spaced and ("", namespace) not in self._namespaces:
            if not self._auto_namespaces or dry_run:
                raise ApiError.not_found(NAMESPACES, namespace)
            self.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        elif spaced and namespace in self._deletion.terminating:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            error = forbidden(table.kind, name, why)
            message = f"namespace {namespace} is being terminated"
            error.details["causes"] = [
                {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            ]
            raise error
        if (namespace, name) in table.objects:
            raise ApiError.already_exists(table.kind, name)

"""Deletion of objects: grace periods, finalizers, owner references, and namespaces with their content.

Caller: ``store`` for every delete, and for every write that may have removed the last finalizer. The slow part (garbage
collection, emptying a namespace) is deferred to the background work of :mod:`.records`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Unpack

from kubesched.api.decode import DecodeError
from kubesched.api.kinds import NAMESPACES, PODS, PRIORITY_CLASSES, Kind
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError, DeleteOptions
from kubesched.base.kept import remembered
from kubesched.base.times import parse_time, timestamp

from ..admission import SYSTEM_PRIORITIES, Causes, check_preconditions, forbidden
from ..schema import Document, Stored, StoredPod, open_section
from .records import Records
from .table import Table

__all__ = ["Deleting", "Deletion"]

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
#: Longest grace period, in seconds (68 years). Clients may write any number, but timestamps have an end.
_LONGEST_GRACE: Final = (1 << 31) - 1
_POLICIES: Final = ("Background", "Foreground", "Orphan")
#: Finalizer in the spec of every namespace, which the work here removes, and texts of the conditions until then.
_KUBERNETES: Final = "kubernetes"
_DELETED_TEXT: Final = "All content successfully deleted, may be waiting on finalization"
_KEPT_TEXT: Final = "Some content in the namespace has finalizers remaining"
_FREE_TEXT: Final = "All content-preserving finalizers finished"
_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})


@remembered(1 << 20, is_timed=True)
def _has_finalizers(metadata: bytes) -> bool:
    """True if a shared text of metadata has finalizers."""
    return b'"finalizers"' in metadata


class Deleting(DeleteOptions, total=False):
    """Options of a deletion.

    ``resource_version`` is a precondition; "" matches any version.
    """

    resource_version: str
    dry_run: bool


class Deletion:
    """Deletion rules of one store, with the owner index that they need."""

    def __init__(self, records: Records) -> None:
        self._records = records
        #: Owners being deleted in the foreground, by UID, in their state when the deletion began.
        self._waiting_owners: dict[str, Stored] = {}
        #: Keys of dependents by the owner's UID and by kind, in order. To save memory, the objects' own key texts are
        #: used.
        self._dependents: dict[str, dict[Kind, dict[str, None]]] = {}
        self._population: Counter[str] = Counter()
        #: Namespaces in which nothing new may be created.
        self.terminating: set[str] = set()
        #: Pods that a terminating namespace still has. Everything else in it goes after them.
        self._pods_left: dict[str, int] = {}

    # -- index -----------------------------------------------------------------------------------------

    def follow(self, item: Stored | None, old: Stored | None) -> None:
        """Note a stored or removed object, and queue the consequences of a removal."""
        if item is None:
            if old is not None:
                self._forget(old)
            return
        if old is None:
            if item.namespace:
                self._population[item.namespace] += 1
            self._add_owners(item)
        elif item.kind is NAMESPACES and item.name in self.terminating:
            self._records.defer(self._purge(item.name))  # its last finalizer may be gone
        elif item.owners != old.owners:
            self._drop_owners(old)
            self._add_owners(item)
            self._owners_wait_less(old)

    def _add_owners(self, item: Stored) -> None:
        for uid in item.owners:
            self._dependents.setdefault(uid, {}).setdefault(item.kind, {})[item.key] = None

    def _drop_owners(self, old: Stored) -> None:
        for uid in old.owners:
            kinds = self._dependents.get(uid, {})
            kinds.get(old.kind, {}).pop(old.key, None)
            if not kinds.get(old.kind):
                kinds.pop(old.kind, None)
            if not kinds:
                self._dependents.pop(uid, None)

    def _forget(self, old: Stored) -> None:
        self._waiting_owners.pop(old.uid, None)
        self._drop_owners(old)
        if old.uid in self._dependents:
            self._records.defer(self._collect(old.uid))
        self._owners_wait_less(old)
        namespace = old.namespace
        if namespace:
            self._population[namespace] -= 1
            if namespace in self._pods_left and old.kind == PODS:
                self._pods_left[namespace] -= 1
                if not self._pods_left[namespace]:
                    self._records.defer(self._purge(namespace))
            if not self._population[namespace] and namespace in self.terminating:
                self._records.defer(self._purge(namespace))
        elif old.kind == NAMESPACES:
            self.terminating.discard(old.name)
            del self._population[old.name]

    def _owners_wait_less(self, old: Stored) -> None:
        """Look again at the owners that waited for a dependent, which is gone or has other owners now."""
        for uid in old.owners:
            if uid in self._waiting_owners:
                self._records.defer(self._finish_foreground(self._waiting_owners[uid]))

    def resume(self, item: Stored) -> None:
        """Continue a deletion that had begun when a cluster was saved."""
        metadata = item.section("metadata") if b'"deletionTimestamp"' in item.raw else {}
        if "deletionTimestamp" in metadata:
            self._begin(item, metadata.get("finalizers") or ())

    def _begin(self, item: Stored, finalizers: Collection[str]) -> None:
        """Begin the work that a deleted object waits for: deletion of its dependents, or of a namespace's content."""
        if item.kind == NAMESPACES:
            self.terminating.add(item.name)
            self._records.defer(self._purge(item.name))
            return
        if FOREGROUND in finalizers:
            self._waiting_owners[item.uid] = item
            self._records.defer(self._delete_dependents(item))
        if ORPHAN in finalizers:
            self._records.defer(self._orphan(item))

    @staticmethod
    def is_finished(kind: Kind, metadata: dict[str, Any]) -> bool:
        """True if an object being deleted has nothing left to wait for."""
        return (
            "deletionTimestamp" in metadata
            and not metadata.get("finalizers")
            and not metadata.get("deletionGracePeriodSeconds")
            and kind != NAMESPACES
        )

    # -- delete ----------------------------------------------------------------------------------------

    def delete(self, old: Stored, **options: Unpack[Deleting]) -> Stored:
        """Delete or begin to delete; see :meth:`.store.Store.delete`."""
        policy, dry_run = options.get("propagation_policy", ""), options.get("dry_run", False)
        asked, records, kind = options.get("grace_period_seconds"), self._records, old.kind
        check_preconditions(kind, old, options.get("uid", ""), options.get("resource_version", ""))
        if policy and policy not in _POLICIES:
            causes = Causes()
            causes.unsupported("propagationPolicy", policy, _POLICIES)
            raise ApiError.invalid(kind, old.name, causes)
        if isinstance(old, StoredPod) and not policy and not dry_run:
            texts = old.texts
            if texts is not None and not _has_finalizers(texts[0]) and not self._grace(old, {}, asked):
                # Nothing to wait for: only the version changes.
                return records.removed(old.next_version(records.resource_version + 1), old)
        document = old.document()
        metadata = document["metadata"]
        if kind == PRIORITY_CLASSES and old.name in SYSTEM_PRIORITIES:
            raise forbidden(kind, old.name, "this is a system priority class and cannot be deleted")
        if kind == NAMESPACES:
            return self._delete_namespace(old, document, dry_run=dry_run)
        known = metadata.get("finalizers") or []
        finalizers = [*known]
        if policy == "Foreground" and self._blocking(old.uid) and FOREGROUND not in finalizers:
            finalizers.append(FOREGROUND)
        if policy == "Orphan" or ORPHAN in finalizers:
            finalizers = [item for item in finalizers if item != ORPHAN]
            if old.uid in self._dependents:
                finalizers.append(ORPHAN)
        metadata["finalizers"] = finalizers
        if not finalizers:
            del metadata["finalizers"]
        grace = self._grace(old, metadata, asked) if kind is PODS else 0
        if grace == 0 and not finalizers:
            return old if dry_run else records.remove(document, old)
        if not self._mark(metadata, grace) and finalizers == known:
            return old
        item = records.commit(kind, document, old, dry_run=dry_run)
        if not dry_run:
            self._begin(old, finalizers)
        return item

    @staticmethod
    def _grace(stored: Stored, metadata: Mapping[str, Any], asked: int | None) -> int:
        """Return the grace period of a pod; 0 if it has nothing to stop (upstream ``CheckGracefulDelete``)."""
        try:
            pod: Pod = stored.typed
        except DecodeError:
            return 0  # no kubelet runs a pod that cannot be decoded
        if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
            return 0
        own = pod.spec.termination_grace_period_seconds
        wanted = min(asked if asked is not None else 30 if own is None else own, _LONGEST_GRACE)
        if wanted < 0:
            wanted = 1  # as upstream, which lets clients write negative periods
        if "deletionTimestamp" in metadata:  # a second deletion can only shorten the grace period
            current = min(int(metadata.get("deletionGracePeriodSeconds") or 0), _LONGEST_GRACE)
            return current if asked is None else min(wanted, current)
        return wanted

    def _mark(self, metadata: dict[str, Any], grace: int) -> bool:
        """Set the deletion timestamp, or bring it forward. Returns False when nothing changed."""
        if "deletionTimestamp" not in metadata:
            begun = self._records.clock.now()
            if "generation" in metadata:
                metadata["generation"] += 1
        else:
            current = min(metadata.get("deletionGracePeriodSeconds") or 0, _LONGEST_GRACE)
            if grace >= current:
                return False
            begun = parse_time(metadata["deletionTimestamp"]) - current
        metadata |= {"deletionTimestamp": timestamp(begun + grace), "deletionGracePeriodSeconds": grace}
        return True

    # -- owners ----------------------------------------------------------------------------------------

    def _blocking(self, uid: str) -> bool:
        """True if dependents hold up a foreground deletion of their owner."""
        return any(
            reference.get("uid") == uid and reference.get("blockOwnerDeletion")
            for item in self._each_dependent(uid)
            for reference in item.section("metadata").get("ownerReferences") or ()
        )

    def _each_dependent(self, uid: str) -> Iterator[Stored]:
        """Yield the present dependents.

        Each dependent is read at its turn, so dependents that were deleted before their turn are left out.
        """
        dependents = [(kind, key) for kind, keys in self._dependents.get(uid, {}).items() for key in keys]
        for kind, key in dependents:
            namespace, _, name = key.rpartition("/")
            item = self._records.tables[kind].objects.get((namespace, name))
            if item is not None and uid in item.owners:
                yield item

    def _collect(self, uid: str) -> Iterator[None]:
        """Delete the dependents of an owner that is gone. A dependent with a living owner only loses the reference."""
        for item in self._each_dependent(uid):
            if not self._kept(item) and "deletionTimestamp" not in item.section("metadata"):
                self.delete(item)
            yield

    def _kept(self, item: Stored) -> bool:
        """True if an owner of a dependent stays. The dependent then loses its references to those that go or are gone.

        An owner stays if it exists, by kind, namespace, name and UID, and does not wait for its dependents' deletion.
        An owner of a kind that is not served counts as one that stays: upstream tries again until it can find out.
        """
        tables = {(kind.group, kind.kind): table for kind, table in self._records.tables.items()}
        going = set()
        for reference in item.section("metadata").get("ownerReferences") or ():
            uid = reference.get("uid", "")
            table = tables.get(((reference.get("apiVersion") or "").rpartition("/")[0], reference.get("kind")))
            if table is None:
                continue
            owner = table.objects.get((item.namespace if table.kind.namespaced else "", reference.get("name", "")))
            if owner is None or owner.uid != uid or uid in self._waiting_owners:
                going.add(uid)
        if going.issuperset(item.owners):
            return False
        if going:
            self._without_owners(item, going)
        return True

    def _without_owners(self, item: Stored, uids: Collection[str]) -> None:
        document = item.document()
        metadata = document["metadata"]
        left = [reference for reference in metadata.get("ownerReferences") or () if reference.get("uid") not in uids]
        metadata.pop("ownerReferences", None)
        if left:
            metadata["ownerReferences"] = left
        self._records.commit(item.kind, document, item)

    def _orphan(self, owner: Stored) -> Iterator[None]:
        """Remove the owner reference from all dependents, then release the owner."""
        for item in self._each_dependent(owner.uid):
            self._without_owners(item, (owner.uid,))
            yield
        self._release(owner, ORPHAN)

    def _delete_dependents(self, owner: Stored) -> Iterator[None]:
        """Delete the dependents of an owner that waits for that, except those that another owner keeps."""
        for item in self._each_dependent(owner.uid):
            if not self._kept(item):
                circle = any(dependent.uid in self._waiting_owners for dependent in self._each_dependent(item.uid))
                present = self._unblocked(item) if circle else item  # each would wait for the other
                if "deletionTimestamp" not in present.section("metadata"):
                    self.delete(present, propagation_policy="Foreground")
            yield
        yield from self._finish_foreground(owner)

    def _unblocked(self, item: Stored) -> Stored:
        """Let no owner wait for a dependent."""
        document = item.document()
        for reference in document["metadata"]["ownerReferences"]:
            reference.pop("blockOwnerDeletion", None)
        return self._records.commit(item.kind, document, item)

    def _finish_foreground(self, owner: Stored) -> Iterator[None]:
        """Remove an owner that waited for its dependents, when none blocks it any more."""
        if not self._blocking(owner.uid):
            self._release(owner, FOREGROUND)
        yield

    def _release(self, item: Stored, finalizer: str) -> None:
        """Remove a finalizer of an owner, and the owner if that was the last one. Does nothing when it is gone."""
        owner = self._records.tables[item.kind].objects.get((item.namespace, item.name))
        if owner is None or owner.uid != item.uid:
            return
        document = owner.document()
        metadata = document["metadata"]
        if finalizer not in (metadata.get("finalizers") or ()):
            return
        metadata["finalizers"] = [item for item in metadata["finalizers"] if item != finalizer]
        if self.is_finished(owner.kind, metadata):
            self._records.remove(document, owner)
        else:
            self._records.commit(owner.kind, document, owner)

    # -- namespaces ------------------------------------------------------------------------------------

    def _delete_namespace(self, old: Stored, document: Document, *, dry_run: bool) -> Stored:
        if old.name in _IMMORTAL:
            raise forbidden(NAMESPACES, old.name, "this namespace may not be deleted")
        if not self._mark(document["metadata"], 0):
            return old
        document["status"] = {**(open_section(document, "status") or {}), "phase": "Terminating"}
        item = self._records.commit(NAMESPACES, document, old, dry_run=dry_run)
        if not dry_run:
            self._begin(old, ())
        return item

    def _purge(self, namespace: str) -> Iterator[None]:
        """Delete the content of a terminating namespace, pods first; remove the namespace once it is empty."""
        records, pods = self._records, self._records.table(PODS)
        if self._population.get(namespace):
            yield from self._delete_all(pods, namespace)
            left = len(pods.present().within(namespace).keys)
            self._pods_left.pop(namespace, None)
            if left:
                self._pods_left[namespace] = left
            for kind, table in list(records.tables.items()) if not left else ():
                if kind.namespaced and kind == table.kind:
                    yield from self._delete_all(table, namespace)
        old = records.table(NAMESPACES).objects.get(("", namespace))
        if old is None:
            self._pods_left.pop(namespace, None)
            return
        document = old.document()
        kept = {*((open_section(document, "spec") or {}).get("finalizers") or ())} - {_KUBERNETES}
        if self._population.get(namespace):
            self._note_content(old, document)
        elif not document["metadata"].get("finalizers") and not kept:
            self._pods_left.pop(namespace, None)
            records.remove(document, old)

    def _delete_all(self, table: Table, namespace: str) -> Iterator[None]:
        for key in table.present().within(namespace).keys:
            item = table.objects.get(key)
            if item is not None and "deletionTimestamp" not in item.section("metadata"):
                self.delete(item)
            yield

    def _note_content(self, old: Stored, document: Document) -> None:
        """Say in the conditions of a terminating namespace what is left, and which finalizers keep it.

        Rules: upstream ``pkg/controller/namespace/deletion/status_condition_utils.go``.
        """
        resources: Counter[str] = Counter()
        finalizers: Counter[str] = Counter()
        for kind, table in self._records.tables.items():
            for item in table.items(old.name) if kind.namespaced and kind == table.kind else ():
                resources[f"{kind.plural}.{kind.group}"] += 1
                if b'"finalizers"' in item.raw:
                    finalizers.update(item.section("metadata").get("finalizers") or ())
        more = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(resources.items()))
        keep = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
        rows = [
            ("DiscoveryFailure", "", "ResourcesDiscovered", "All resources successfully discovered"),
            ("GroupVersionParsingFailure", "", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ("ContentFailure", "", "ContentDeleted", _DELETED_TEXT),
            ("ContentRemaining", more, "SomeResourcesRemain", f"Some resources are remaining: {more}"),
            ("FinalizersRemaining", keep, "SomeFinalizersRemain", f"{_KEPT_TEXT}: {keep}")
            if keep
            else ("FinalizersRemaining", "", "ContentHasNoFinalizers", _FREE_TEXT),
        ]
        status, now = open_section(document, "status") or {}, self._records.now()
        known = {one.get("type"): one for one in status.get("conditions") or ()}
        for name, is_true, reason, message in rows:
            type_ = f"Namespace{name}" if name.endswith("Remaining") else f"NamespaceDeletion{name}"
            on = str(bool(is_true))
            before = known.get(type_) or {}
            time = before.get("lastTransitionTime", now) if before.get("status") == on else now
            condition = {"type": type_, "status": on, "lastTransitionTime": time, "reason": reason, "message": message}
            known[type_] = condition
        if list(known.values()) != (status.get("conditions") or []):
            document["status"] = {**status, "conditions": list(known.values())}
            self._records.commit(NAMESPACES, document, old)

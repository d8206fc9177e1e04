"""Deployment: one ReplicaSet per template, rolled from old to new within maxSurge and maxUnavailable.

The new set is found by comparing templates, so that a rollback finds the old set again. Status and conditions are
those that ``kubectl rollout status`` reads. Scaling arithmetic is in :mod:`.rollout`; next: :mod:`.replica_sets`.
"""

from __future__ import annotations

from typing import Any, Final

from ...api.equality import same_json
from ...api.kinds import DEPLOYMENTS, PODS, REPLICA_SETS
from ...api.times import parse_time
from ...api.wire import ApiError, Item
from ...client.event_writer import NORMAL
from .base import ObjectController
from .context import BY_OWNER, Context, Data, owner_key
from .pods import conditions_with, is_finished, owner_reference, template_hash
from .rollout import Member, Rollout, plan_rolling, plan_scaling

__all__ = ["Deployments", "replica_set_body"]

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
_MAXIMUM: Final = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED: Final = frozenset(
    {
        REVISION,
        _DESIRED,
        _MAXIMUM,
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
    }
)


def _bare_template(template: Any) -> Any:
    """A template without the hash label, for comparing."""
    template = template or {}
    metadata = {key: value for key, value in (template.get("metadata") or {}).items() if value}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != HASH_LABEL}
    metadata.pop("labels", None)
    if labels:
        metadata["labels"] = labels
    return {"metadata": metadata, "spec": template.get("spec")}


def replica_set_body(owner: Item, spec: Data, digest: str) -> Data:
    """The ReplicaSet of a deployment's template: its pods and its selector have the hash as a label."""
    labels, template, selector = {HASH_LABEL: digest}, spec.get("template") or {}, spec.get("selector") or {}
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    selector = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **labels}}
    own = {"name": f"{owner.name}-{digest}", "labels": metadata["labels"], "ownerReferences": [owner_reference(owner)]}
    return {"metadata": own, "spec": {"selector": selector, "template": {**template, "metadata": metadata}}}


class Deployments(ObjectController):
    """Rolls each deployment towards its template and replica count."""

    name = "deployment"
    component = "deployment-controller"
    kind = DEPLOYMENTS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._sets = context.owned_cache(REPLICA_SETS)
        self.watch(REPLICA_SETS, self.enqueue_owner)
        self.watch(PODS, self._pod_changed)

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Only Recreate waits for pods to be gone; everything else shows in the sets' status."""
        owner = self._sets.get(owner_key(item, REPLICA_SETS)) if new is None else None
        if owner is not None:
            self.enqueue_owner(owner, owner, owner)

    async def reconcile_object(self, item: Item, data: Data) -> None:
        if "deletionTimestamp" in data["metadata"]:
            return
        rollout = Rollout.of(data["spec"])
        members = sorted(
            (Member(owned) for owned in self._sets.indexed(BY_OWNER, item.uid)), key=lambda member: member.order
        )
        bare = _bare_template(data["spec"].get("template"))
        new = next((member for member in members if same_json(_bare_template(member.spec.get("template")), bare)), None)
        old = [member for member in members if member is not new]
        if rollout.paused:
            await self._scale(item, rollout, [*old, *([new] if new else [])])
        elif not rollout.recreate or not self._still_there(old):
            revision = max((member.revision for member in old), default=0) + 1
            new = await self._new_set(item, data, rollout, new, revision, members)
            if self._is_scaling(rollout, [*old, new]):
                await self._scale(item, rollout, [*old, new])
            elif rollout.recreate:
                await self._resize(item, new, rollout.replicas, rollout)
            else:
                for member, replicas in plan_rolling(rollout, new, old):
                    await self._resize(item, member, replicas, rollout)
        if rollout.recreate and not rollout.paused:
            for member in old:
                await self._resize(item, member, 0, rollout)
        await self._finish(item.key, item.uid, rollout, new, old)

    def _still_there(self, old: list[Member]) -> bool:
        """Whether pods of old sets exist, or still will: Recreate waits for them."""
        return any(
            member.replicas or any(not is_finished(pod.typed) for pod in self.context.owned_pods(member.item.uid))
            for member in old
        )

    # -- replica sets ----------------------------------------------------------------------------------

    async def _new_set(
        self,
        item: Item,
        data: Data,
        rollout: Rollout,
        new: Member | None,
        revision: int,
        members: list[Member],
    ) -> Member:
        """The set of the current template, made when there is none, with the newest revision."""
        if new is not None:
            annotations = self._annotations(data, max(revision, new.revision), rollout)
            current = new.data["metadata"].get("annotations") or {}
            if any(current.get(name) != value for name, value in annotations.items() if name != _DESIRED):
                annotations.pop(_DESIRED)  # written when the scale is
                changed = await self.context.patch(new.item, {"metadata": {"annotations": annotations}})
                new = Member(changed)
        else:
            new = await self._make_set(item, data, rollout, revision, members)
        await self._note_revision(item.key, new.revision)
        return new

    async def _make_set(self, item: Item, data: Data, rollout: Rollout, revision: int, members: list[Member]) -> Member:
        spec = data["spec"]
        template = spec.get("template") or {}
        collisions = int((data.get("status") or {}).get("collisionCount") or 0)
        while True:
            digest = template_hash(_bare_template(template), collisions)
            name = f"{item.name}-{digest}"
            if self._sets.get(f"{item.namespace}/{name}") is None:
                break
            collisions += 1
        total = sum(member.replicas for member in members)
        allowed = rollout.replicas + rollout.surge - total
        replicas = rollout.replicas if rollout.recreate else max(0, min(rollout.replicas, allowed))
        body = replica_set_body(item, spec, digest)
        body["metadata"]["annotations"] = self._annotations(data, revision, rollout)
        body["spec"]["replicas"] = replicas
        if spec.get("minReadySeconds"):
            body["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        made = Member(await self.context.create(REPLICA_SETS, item.namespace, body))
        if replicas:
            await self._record_scaled(item, name, 0, replicas)
        return made

    @staticmethod
    def _annotations(data: Data, revision: int, rollout: Rollout) -> dict[str, str]:
        kept = {
            name: value
            for name, value in (data["metadata"].get("annotations") or {}).items()
            if name not in _NOT_COPIED
        }
        return {**kept, REVISION: str(revision), **_scale_annotations(rollout)}

    async def _note_revision(self, key: str, revision: int) -> None:
        item = self.cache.get(key)
        if item is None:
            return
        current = (item.data()["metadata"].get("annotations") or {}).get(REVISION)
        if current != str(revision):
            await self.context.patch(item, {"metadata": {"annotations": {REVISION: str(revision)}}})

    @staticmethod
    def _is_scaling(rollout: Rollout, members: list[Member]) -> bool:
        """Whether the replica count was changed since a set that has pods was last scaled."""
        return any(
            member.replicas and member.annotation(_DESIRED) not in ("", str(rollout.replicas)) for member in members
        )

    async def _scale(self, item: Item, rollout: Rollout, members: list[Member]) -> None:
        for member, replicas in plan_scaling(rollout, members):
            await self._resize(item, member, replicas, rollout)

    async def _resize(self, item: Item, member: Member, replicas: int, rollout: Rollout) -> None:
        annotations = _scale_annotations(rollout)
        stale = any(member.annotation(name) != value for name, value in annotations.items())
        if replicas == member.replicas and not (stale and replicas):
            return
        patch = {"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}}
        before = member.replicas
        member.refresh(await self.context.patch(member.item, patch))
        if replicas != before:
            await self._record_scaled(item, member.item.name, before, replicas)

    async def _record_scaled(self, item: Item, name: str, before: int, after: int) -> None:
        way = "up" if after > before else "down"
        text = f"Scaled {way} replica set {name} from {before} to {after}"
        await self.record(item, NORMAL, "ScalingReplicaSet", text)

    # -- status ----------------------------------------------------------------------------------------

    async def _finish(self, key: str, uid: str, rollout: Rollout, new: Member | None, old: list[Member]) -> None:
        """Write the status; when all is done, drop old empty sets beyond the history limit."""
        item = self.cache.get(key)
        if item is None or item.uid != uid:
            return
        data = item.data()
        before = data.get("status") or {}
        now = self.context.now_text()
        members = [*old, *([new] if new else [])]
        total = sum(member.count("replicas") for member in members)
        available = sum(member.count("availableReplicas") for member in members)
        updated = new.count("replicas") if new else 0
        status: Data = {
            "observedGeneration": data["metadata"].get("generation", 0),
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": sum(member.count("readyReplicas") for member in members),
            "availableReplicas": available,
            "unavailableReplicas": max(0, total_wanted(members) - available),
            "collisionCount": before.get("collisionCount"),
        }
        status = {name: value for name, value in status.items() if value or name == "observedGeneration"}
        enough = available >= rollout.replicas - rollout.unavailable
        conditions = conditions_with(
            before.get("conditions"),
            "Available",
            "True" if enough else "False",
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            f"Deployment {'has' if enough else 'does not have'} minimum availability.",
            now,
            updated=True,
        )
        failure = next(
            (entry for member in members for entry in member.conditions if entry.get("type") == "ReplicaFailure"), None
        )
        conditions = [entry for entry in conditions if entry.get("type") != "ReplicaFailure"]
        if failure is not None:
            conditions.append({**failure, "lastUpdateTime": failure.get("lastTransitionTime", now)})
        complete = updated == rollout.replicas == total == available
        if not rollout.paused:
            conditions = self._progress(key, before, status, conditions, rollout, new, now, complete=complete)
        status["conditions"] = conditions
        await self.context.write_status(item, data, status)
        if complete:
            await self._clean_up(rollout, old)

    def _progress(
        self,
        key: str,
        before: Data,
        status: Data,
        conditions: list[Data],
        rollout: Rollout,
        new: Member | None,
        now: str,
        *,
        complete: bool,
    ) -> list[Data]:
        """The Progressing condition: moved on, arrived, or out of time."""
        name = new.item.name if new else ""
        if complete:
            text = f'ReplicaSet "{name}" has successfully progressed.'
            return conditions_with(conditions, "Progressing", "True", "NewReplicaSetAvailable", text, now, updated=True)
        current = next((entry for entry in conditions if entry.get("type") == "Progressing"), None)
        counts = ("updatedReplicas", "readyReplicas", "availableReplicas")
        moved = any(status.get(field, 0) > before.get(field, 0) for field in counts) or (
            status.get("replicas", 0) - status.get("updatedReplicas", 0)
            < before.get("replicas", 0) - before.get("updatedReplicas", 0)
        )
        done_before = current is not None and current.get("reason") == "NewReplicaSetAvailable"
        changed_spec = before.get("observedGeneration") != status["observedGeneration"]
        if current is None or moved or (done_before and changed_spec):
            kept = [entry for entry in conditions if entry.get("type") != "Progressing"]
            fresh = conditions_with(
                kept,
                "Progressing",
                "True",
                "ReplicaSetUpdated",
                f'ReplicaSet "{name}" is progressing.',
                now,
                updated=True,
            )
            if current is not None and current.get("status") == "True":
                fresh[-1]["lastTransitionTime"] = current.get("lastTransitionTime", now)
            self.queue.add_after(key, rollout.deadline + 1, quiet=True)
            return fresh
        if done_before or current.get("reason") == "ProgressDeadlineExceeded":
            return conditions
        left = parse_time(current.get("lastUpdateTime") or now) + rollout.deadline - self.context.now()
        if left > 0:
            self.queue.add_after(key, left + 1, quiet=True)
            return conditions
        text = f'ReplicaSet "{name}" has timed out progressing.'
        return conditions_with(conditions, "Progressing", "False", "ProgressDeadlineExceeded", text, now, updated=True)

    async def _clean_up(self, rollout: Rollout, old: list[Member]) -> None:
        empty = [member for member in old if not member.replicas and not member.count("replicas")]
        for member in sorted(empty, key=lambda member: member.revision)[: max(0, len(empty) - rollout.history)]:
            try:
                await self.context.delete(member.item)
            except ApiError as error:
                self.context.note_problem(f"{self.name}: {member.item.key}: {error}")


def total_wanted(members: list[Member]) -> int:
    """How many pods the sets are to have."""
    return sum(member.replicas for member in members)


def _scale_annotations(rollout: Rollout) -> dict[str, str]:
    return {_DESIRED: str(rollout.replicas), _MAXIMUM: str(rollout.replicas + rollout.surge)}

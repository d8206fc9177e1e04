"""Deployment: one ReplicaSet per template, rolled from old to new within maxSurge and maxUnavailable.

The new set is found by comparing templates, so that a rollback finds the old set again. Status and conditions are
those that ``kubectl rollout status`` reads. Rules: upstream ``deployment/rolling.go``, ``sync.go`` (proportional
scaling) and ``progress.go``. Next: :mod:`.replica_sets`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kubesched.api.equality import same_json
from kubesched.api.kinds import DEPLOYMENTS, PODS, REPLICA_SETS
from kubesched.api.selectors import parse_int64
from kubesched.api.wire import ApiError, Item
from kubesched.base.times import parse_time
from kubesched.client.event_writer import NORMAL

from .base import ObjectController
from .context import BY_OWNER, Context, Data, data_of, owner_key, spec_of, status_of
from .ownership import Ownership
from .pods import is_finished, owner_reference, resolve_count, template_hash

__all__ = ["Deployments", "Rollout", "replica_set_body"]

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
_MAXIMUM: Final = "deployment.kubernetes.io/max-replicas"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_NOT_COPIED: Final = frozenset({REVISION, _DESIRED, _MAXIMUM, _LAST_APPLIED, "deprecated.deployment.rollback.to"})


def _bare_template(template: Any) -> Any:
    """Return a template without the hash label, for comparing."""
    template = template or {}
    metadata = {key: value for key, value in (template.get("metadata") or {}).items() if value}
    labels = {key: value for key, value in metadata.pop("labels", {}).items() if key != HASH_LABEL}
    return {"metadata": {**metadata, **({"labels": labels} if labels else {})}, "spec": template.get("spec")}


def replica_set_body(owner: Item, spec: Data, digest: str) -> Data:
    """Return the ReplicaSet of a deployment's template. Its pods and its selector carry the hash as a label."""
    labels, template, selector = {HASH_LABEL: digest}, spec.get("template") or {}, spec.get("selector") or {}
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    selector = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **labels}}
    own = {"name": f"{owner.name}-{digest}", "labels": metadata["labels"], "ownerReferences": [owner_reference(owner)]}
    return {"metadata": own, "spec": {"selector": selector, "template": {**template, "metadata": metadata}}}


def _own_annotations(item: Item) -> dict[str, str]:
    return data_of(item)["metadata"].get("annotations") or {}


def _annotations(item: Item, rollout: Rollout, revision: int) -> dict[str, str]:
    """Return the annotations of a set: the deployment's own, the revision and the scale."""
    copied = {name: value for name, value in _own_annotations(item).items() if name not in _NOT_COPIED}
    return {**copied, REVISION: str(revision), **rollout.scale}


class Rollout:
    """Settings in a deployment's spec, percentages resolved. Defaults: 25 % and 25 %, 600 s, 10 old sets."""

    def __init__(self, spec: dict[str, Any]) -> None:
        strategy = spec.get("strategy") or {}
        rolling = strategy.get("rollingUpdate") or {}
        self.replicas = int(spec.get("replicas", 1))
        self.recreate = strategy.get("type") == "Recreate"
        self.surge = self.unavailable = 0
        if not self.recreate:
            self.surge = resolve_count(rolling.get("maxSurge", "25%"), self.replicas, up=True)
            unavailable = resolve_count(rolling.get("maxUnavailable", "25%"), self.replicas, up=False)
            # If surge and unavailable were both 0, nothing could ever move.
            self.unavailable = min(unavailable, self.replicas) or int(not self.surge)
        #: Annotations that record the scale of a set.
        self.scale = {_DESIRED: str(self.replicas), _MAXIMUM: str(self.replicas + self.surge)}
        self.paused = bool(spec.get("paused"))
        self.deadline = float(spec.get("progressDeadlineSeconds") or 600)
        self.history = int(spec.get("revisionHistoryLimit", 10))


class Member:
    """ReplicaSet of a deployment. Members are ordered by ``order``, oldest first."""

    def __init__(self, item: Item) -> None:
        self.refresh(item)

    def refresh(self, item: Item) -> None:
        """Adopt a newer version."""
        metadata = data_of(item)["metadata"]
        self.item, self.spec, self.status = item, spec_of(item), status_of(item)
        self.annotations: dict[str, str] = metadata.get("annotations") or {}
        self.replicas = int(self.spec.get("replicas", 1))
        self.revision = max(0, parse_int64(self.annotations.get(REVISION, "")) or 0)
        self.order = (metadata.get("creationTimestamp") or "", item.name)

    def count(self, field: str) -> int:
        """Return a count from its status."""
        return int(self.status.get(field) or 0)


def plan_rolling(rollout: Rollout, new: Member, old: list[Member]) -> list[tuple[Member, int]]:
    """Return the sizes to set now: the new set grows up to the surge, and old sets shrink within the limit of
    availability.
    """
    total = sum(member.replicas for member in [*old, new])
    grown = min(rollout.replicas, new.replicas + max(0, rollout.replicas + rollout.surge - total))
    if grown != new.replicas:
        # One step at a time, as upstream: old sets shrink once the new set has its pods.
        return [(new, grown)]
    sizes = [member.replicas for member in old]
    available = [member.count("availableReplicas") for member in old]
    new_available = new.count("availableReplicas")
    minimum = rollout.replicas - rollout.unavailable
    most = total - minimum - (new.replicas - new_available)
    if most > 0:
        # Pods that never became available go first: removing them costs no availability.
        _shrink(sizes, (size - ready for size, ready in zip(sizes, available, strict=True)), most)
        _shrink(sizes, sizes, sum(available) + new_available - minimum)
    return [*zip(old, sizes, strict=True), (new, new.replicas)]


def _shrink(sizes: list[int], limits: Iterable[int], most: int) -> None:
    """Lower each size by at most its limit, and all sizes together by at most ``most``, from the first one on."""
    for index, limit in enumerate(limits):
        drop = max(0, min(limit, most))
        sizes[index] -= drop
        most -= drop


def plan_scaling(rollout: Rollout, members: list[Member]) -> list[tuple[Member, int]]:
    """Return the sizes after the replica count changed: spread over the sets in proportion, the largest first."""
    active = [member for member in members if member.replicas]
    if len(active) <= 1:
        return [(target, rollout.replicas) for target in (active or members)[-1:]]
    total = sum(member.replicas for member in active)
    allowed = rollout.replicas + (rollout.surge if rollout.replicas else 0)
    left = allowed - total
    ordered = sorted(active, key=lambda member: (-member.replicas, member.order))
    sizes: list[int] = []
    for member in ordered:
        step = round(member.replicas * allowed / total) - member.replicas
        step = max(min(step, left), 0) if left > 0 else min(max(step, left), 0)
        sizes.append(member.replicas + step)
        left -= step
    sizes[0] = max(0, sizes[0] + left)
    return list(zip(ordered, sizes, strict=True))


class Deployments(ObjectController):
    """Controller that rolls each deployment towards its template and replica count."""

    name = "deployment"
    kind = DEPLOYMENTS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._sets = context.owned_cache(REPLICA_SETS)
        context.watch(REPLICA_SETS, self.enqueue_owner)
        context.watch(PODS, self._pod_changed)
        self._ownership = Ownership(self, self._sets)

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Enqueue a Recreate deployment when a pod is gone. All other changes show in the status of the sets."""
        owner = self._sets.get(owner_key(item, REPLICA_SETS)) if new is None else None
        if owner is not None:
            self.enqueue_owner(owner, owner, owner)

    async def reconcile_object(self, item: Item) -> None:
        if self.context.is_going(item):
            return
        await self._ownership.settle(item)
        spec = spec_of(item)
        rollout = Rollout(spec)
        members = sorted(map(Member, self._sets.indexed(BY_OWNER, item.uid)), key=lambda member: member.order)
        bare = _bare_template(spec.get("template"))
        new = next((member for member in members if same_json(_bare_template(member.spec.get("template")), bare)), None)
        old = [member for member in members if member is not new]
        plan: list[tuple[Member, int]] = []
        if rollout.paused:
            plan = plan_scaling(rollout, [*old, new] if new else old)
        elif not rollout.recreate or not self._still_there(old):
            new = await self._new_set(item, rollout, new, old)
            known = ("", str(rollout.replicas))
            if any(member.replicas and member.annotations.get(_DESIRED, "") not in known for member in [*old, new]):
                # The replica count has changed since a set with pods was last scaled.
                plan = plan_scaling(rollout, [*old, new])
            else:
                plan = [(new, rollout.replicas)] if rollout.recreate else plan_rolling(rollout, new, old)
        if rollout.recreate and not rollout.paused:
            plan += [(member, 0) for member in old]
        for member, replicas in plan:
            await self._resize(item, member, replicas, rollout)
        if (fresh := self.current(item)) is not None:
            await self._write_status(fresh, rollout, new, old)

    def _still_there(self, old: list[Member]) -> bool:
        """True if pods of old sets exist or will still be created. Recreate waits until they are gone."""
        return any(
            member.replicas or any(not is_finished(pod.typed) for pod in self.context.owned_pods(member.item.uid))
            for member in old
        )

    async def _new_set(self, item: Item, rollout: Rollout, new: Member | None, old: list[Member]) -> Member:
        """Return the set of the current template with the newest revision. Creates the set if necessary."""
        revision = max((member.revision for member in old), default=0) + 1
        if new is None:
            new = await self._make_set(item, rollout, revision, old)
        else:
            wanted = _annotations(item, rollout, max(revision, new.revision))
            del wanted[_DESIRED]  # written together with the scale
            if not wanted.items() <= new.annotations.items():
                new = Member(await self.context.patch(new.item, {"metadata": {"annotations": wanted}}))
        fresh = self.current(item)
        number = str(new.revision)
        if fresh is not None and _own_annotations(fresh).get(REVISION) != number:
            await self.context.patch(fresh, {"metadata": {"annotations": {REVISION: number}}})
        return new

    async def _make_set(self, item: Item, rollout: Rollout, revision: int, old: list[Member]) -> Member:
        spec, collisions = spec_of(item), int(status_of(item).get("collisionCount") or 0)
        bare = _bare_template(spec.get("template"))
        while self._sets.get(f"{item.namespace}/{item.name}-{template_hash(bare, collisions)}") is not None:
            collisions += 1
        body = replica_set_body(item, spec, template_hash(bare, collisions))
        body["metadata"]["annotations"] = _annotations(item, rollout, revision)
        unused = rollout.replicas + rollout.surge - sum(member.replicas for member in old)
        replicas = rollout.replicas if rollout.recreate else max(0, min(rollout.replicas, unused))
        body["spec"]["replicas"] = replicas
        if spec.get("minReadySeconds"):
            body["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        made = await self.context.create(REPLICA_SETS, item.namespace, body)
        await self._record_scaled(item, made.name, 0, replicas)
        return Member(made)

    async def _resize(self, item: Item, member: Member, replicas: int, rollout: Rollout) -> None:
        before = member.replicas
        if replicas != before or (replicas and not rollout.scale.items() <= member.annotations.items()):
            patch = {"metadata": {"annotations": rollout.scale}, "spec": {"replicas": replicas}}
            member.refresh(await self.context.patch(member.item, patch))
            await self._record_scaled(item, member.item.name, before, replicas)

    async def _record_scaled(self, item: Item, name: str, before: int, after: int) -> None:
        if after != before:
            text = f"Scaled {'up' if after > before else 'down'} replica set {name} from {before} to {after}"
            await self.record(item, NORMAL, "ScalingReplicaSet", text)

    async def _write_status(self, item: Item, rollout: Rollout, new: Member | None, old: list[Member]) -> None:
        """Write the status. When the rollout is complete, delete old empty sets beyond the history limit."""
        before, now = status_of(item), self.context.now_text()
        members = [*old, new] if new else old

        def count(field: str) -> int:
            return sum(member.count(field) for member in members)

        total, available = count("replicas"), count("availableReplicas")
        updated = new.count("replicas") if new else 0
        status = {
            "observedGeneration": data_of(item)["metadata"].get("generation", 0),
            "replicas": total or None,
            "updatedReplicas": updated or None,
            "readyReplicas": count("readyReplicas") or None,
            "availableReplicas": available or None,
            "unavailableReplicas": max(0, sum(member.replicas for member in members) - available) or None,
            "collisionCount": before.get("collisionCount") or None,
        }
        enough = available >= rollout.replicas - rollout.unavailable
        reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
        text = f"Deployment {'has' if enough else 'does not have'} minimum availability."
        known, condition = before.get("conditions"), ("Available", str(enough), reason, text)
        conditions = self.context.with_condition(known, *condition, updated=True)
        conditions = [entry for entry in conditions if entry.get("type") != "ReplicaFailure"]
        reported = (entry for member in members for entry in member.status.get("conditions") or ())
        failure = next((entry for entry in reported if entry.get("type") == "ReplicaFailure"), None)
        if failure is not None:
            conditions.append({**failure, "lastUpdateTime": failure.get("lastTransitionTime", now)})
        complete = updated == rollout.replicas == total == available
        status["conditions"] = self._paused(conditions, paused=rollout.paused)
        if not rollout.paused:
            name = new.item.name if new else ""
            status["conditions"] = self._progress(item, rollout, status, name, complete=complete)
        await self.context.write_status(item, status)
        if complete:
            await self._clean_up(rollout, old)

    def _paused(self, conditions: list[Data], *, paused: bool) -> list[Data]:
        """Return the conditions with Progressing saying that the deployment was paused, or resumed.

        Rules: upstream ``checkPausedConditions``.
        """
        known = next((entry.get("reason") for entry in conditions if entry.get("type") == "Progressing"), "")
        if known == "ProgressDeadlineExceeded" or paused is (known == "DeploymentPaused"):
            return conditions
        word = "paused" if paused else "resumed"
        condition = ("Progressing", "Unknown", f"Deployment{word.capitalize()}", f"Deployment is {word}")
        return self.context.with_condition(conditions, *condition, updated=True)

    def _progress(self, item: Item, rollout: Rollout, status: Data, name: str, *, complete: bool) -> list[Data]:
        """Return the conditions with Progressing set: progressed, complete, or past the deadline."""
        conditions: list[Data] = status["conditions"]
        before, now = status_of(item), self.context.now_text()

        def progressing(known: list[Data], status: str, reason: str, what: str) -> list[Data]:
            text = f'ReplicaSet "{name}" {what}.'
            return self.context.with_condition(known, "Progressing", status, reason, text, updated=True)

        if complete:
            return progressing(conditions, "True", "NewReplicaSetAvailable", "has successfully progressed")
        current = next((entry for entry in conditions if entry.get("type") == "Progressing"), None)
        done_before = current is not None and current.get("reason") == "NewReplicaSetAvailable"
        changed_spec = before.get("observedGeneration") != status["observedGeneration"]
        if current is None or _has_moved(before, status) or (done_before and changed_spec):
            # The old condition is dropped, so that the new condition is dated now even if both are equal.
            rest = [entry for entry in conditions if entry.get("type") != "Progressing"]
            fresh = progressing(rest, "True", "ReplicaSetUpdated", "is progressing")
            if current is not None and current.get("status") == "True":
                fresh[-1]["lastTransitionTime"] = current.get("lastTransitionTime", now)
            self.queue.add_after(item.key, rollout.deadline + 1, quiet=True)
            return fresh
        if done_before or current.get("reason") == "ProgressDeadlineExceeded":
            return conditions
        left = parse_time(current.get("lastUpdateTime") or now) + rollout.deadline - self.context.now()
        if left > 0:
            self.queue.add_after(item.key, left + 1, quiet=True)
            return conditions
        return progressing(conditions, "False", "ProgressDeadlineExceeded", "has timed out progressing")

    async def _clean_up(self, rollout: Rollout, old: list[Member]) -> None:
        empty = [member for member in old if not member.replicas and not member.count("replicas")]
        for member in sorted(empty, key=lambda member: member.revision)[: max(0, len(empty) - rollout.history)]:
            try:
                await self.context.delete(member.item)
            except ApiError as error:
                self.context.problems.note(f"{self.name}: {member.item.key}: {error}")


def _has_moved(before: Data, status: Data) -> bool:
    """True if more pods are new, ready or available than before, or fewer are old."""
    counts = ("updatedReplicas", "readyReplicas", "availableReplicas")
    if any((status.get(field) or 0) > before.get(field, 0) for field in counts):
        return True
    old_before, old_now = ((one.get("replicas") or 0) - (one.get("updatedReplicas") or 0) for one in (before, status))
    return bool(old_now < old_before)

"""The claims of pods' generic ephemeral volumes: made for the pod, owned by it, deleted with it.

Next: the scheduler finds the claim and places the pod; :mod:`.volumes` binds.
"""

from __future__ import annotations

from ...api.kinds import CLAIMS, PODS
from ...api.storage import claims_of
from ...api.types import Pod
from ...api.wire import ApiError, Item
from .base import Controller
from .context import Context, Data
from .pods import is_finished, owner_reference

__all__ = ["EphemeralVolumes"]


class EphemeralVolumes(Controller):
    """Keys are pods."""

    name = "ephemeral-volume"
    component = "ephemeral-volume-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = context.cache(CLAIMS)
        self.watch(PODS, self._pod_changed)
        self.watch(CLAIMS, self._claim_changed)

    def _pod_changed(self, old: Item | None, new: Item | None) -> None:
        if new is not None and old is None and any(volume.ephemeral is not None for volume in new.typed.spec.volumes):
            self.queue.add(new.key)

    def _claim_changed(self, old: Item | None, new: Item | None) -> None:
        if new is None and old is not None:
            for owner in old.data()["metadata"].get("ownerReferences") or ():
                if owner.get("kind") == "Pod":
                    self.queue.add(f"{old.namespace}/{owner.get('name', '')}")

    async def reconcile(self, key: str) -> None:
        item = self.context.pods.get(key)
        if item is None or is_finished(item.typed) or self.context.is_going(item):
            return
        for claim, template in claims_of(item.typed):
            if template is not None and self._claims.get(claim) is None:
                await self._make(item, claim.partition("/")[2], template)

    async def _make(self, item: Item, name: str, template: Data) -> None:
        pod: Pod = item.typed
        given = template.get("metadata") or {}
        metadata = {key: given[key] for key in ("labels", "annotations") if given.get(key)}
        metadata |= {"name": name, "namespace": pod.namespace, "ownerReferences": [owner_reference(item)]}
        try:
            await self.context.create(CLAIMS, pod.namespace, {"metadata": metadata, "spec": template.get("spec") or {}})
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

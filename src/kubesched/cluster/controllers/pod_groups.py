"""Protection of pod groups: a group in use keeps a finalizer, so that it outlives its members.

    group with a member that has not ended ──▶ finalizer ``scheduling.k8s.io/podgroup-protection``
    deleted group, all members ended or gone ──▶ finalizer removed

Works with the feature gate GenericWorkload. Upstream's admission adds the finalizer to every new group; here a group
without members has none. Rules: rules/groups §5.1.
"""

from __future__ import annotations

from typing import ClassVar

from kubesched.api.groups import PROTECTION, group_key
from kubesched.api.kinds import POD_GROUPS, PODS
from kubesched.api.wire import Item

from .base import Controller
from .context import Context, version_of
from .pods import is_finished

__all__ = ["PodGroupProtection"]


class PodGroupProtection(Controller):
    """Controller of the finalizers of pod groups."""

    name: ClassVar[str] = "podgroup-protection"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        if "GenericWorkload" in context.settings.features:
            self._groups = context.watch(POD_GROUPS, self._group_changed)
            context.watch(PODS, self._pod_changed)
            self.each(self._groups, self._reconcile_group)

    def _group_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None:
            self.queue.add(item.key)

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        """Enqueue the group of a pod that came, ended or went."""
        key = group_key(item.typed)
        if key and (old is None or new is None or is_finished(old.typed) is not is_finished(new.typed)):
            self.queue.add(key)

    async def _reconcile_group(self, item: Item) -> None:
        finalizers = item.typed.metadata.finalizers
        used = any(not is_finished(pod.typed) for pod in self.context.members(item.key))
        if used is (PROTECTION in finalizers):
            return
        if used and not self.context.is_going(item):
            finalizers = (*finalizers, PROTECTION)
        elif not used and self.context.is_going(item):
            finalizers = tuple(one for one in finalizers if one != PROTECTION)
        else:
            return
        metadata = {**version_of(item), "finalizers": list(finalizers) or None}
        await self.context.patch(item, {"metadata": metadata})

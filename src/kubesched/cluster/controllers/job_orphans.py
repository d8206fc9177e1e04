"""Pods of deleted jobs: their tracking finalizer is removed, which would keep them from being deleted.

A job that is deleted in the background is removed before its pods, one that is deleted with ``--cascade=orphan`` leaves them
behind; either way :mod:`.jobs` has no job left to count for. Rules: ``syncOrphanPod`` of upstream's job controller.
"""

from __future__ import annotations

from ...api.kinds import JOBS, PODS
from ...api.wire import Item
from .base import Controller
from .context import Context, controller_of
from .jobs import TRACKING, release_pod

__all__ = ["JobOrphans"]


class JobOrphans(Controller):
    """Keys are those of pods."""

    name = "joborphan"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._jobs = self.watch(JOBS, self._job_changed)
        self.watch(PODS, self._pod_changed)

    def _job_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is None:
            for pod in self.context.owned_pods(item.uid):
                self.queue.add(pod.key)

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        if new is not None and TRACKING in new.typed.metadata.finalizers and not self._job_is_known(new):
            self.queue.add(new.key)

    def _job_is_known(self, pod: Item) -> bool:
        reference = controller_of(pod)
        if reference is None or reference.kind != JOBS.kind:
            return False
        job = self._jobs.get(f"{pod.namespace}/{reference.name}")
        return job is not None and job.uid == reference.uid

    async def reconcile(self, key: str) -> None:
        pod = self.context.pods.get(key)
        if pod is None or TRACKING not in pod.typed.metadata.finalizers or self._job_is_known(pod):
            return
        reference = controller_of(pod)
        if reference is not None and reference.kind == JOBS.kind:
            # The cache may lag behind: only the server knows that a job is gone.
            job = await self.context.get(JOBS, pod.namespace, reference.name)
            if job is not None and job.uid == reference.uid:
                return
        await release_pod(self.context, pod)

"""DefaultBinder: write the pod's node to the API server (Bind)."""

from __future__ import annotations

from collections.abc import Awaitable

from kubesched.base.at_once import begin

from ..framework.cycle_state import CycleState
from ..framework.interface import Plugin
from ..framework.status import Status
from ..nodes.podinfo import PodInfo

__all__ = ["DefaultBinder"]


class DefaultBinder(Plugin):
    """Writer of Bindings. Each carries the pod's UID, so that a later pod of the same name is not bound by mistake."""

    name = "DefaultBinder"

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Awaitable[Status | None] | Status | None:
        return begin(self._bind(pod, node_name), self.handle.client.at_once)

    async def _bind(self, pod: PodInfo, node_name: str) -> Status | None:
        try:
            await self.handle.client.bind(pod.pod, node_name)
        except Exception as error:  # the status carries the error of the API or the network
            return Status.from_error(error)
        return None

"""Hollow kubelets: pods run, finish and stop by simple rules and a heap of timers; no containers.

    bound ──startup_delay──▶ Running ──kubesched.io/duration──▶ Succeeded | Failed
      └──────── deleted ──grace period──▶ gone (force delete)

One watch of pods, one of nodes and one timer task serve all nodes. Everything happens on the event loop's clock, so
under virtual time a day of pods takes seconds. Caller: the command line and simulations; works on any transport.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ..api.kinds import NODES, PODS, Kind
from ..api.types import Pod
from ..api.wire import ApiError, Item, Transport, WatchEvent
from .times import Clock, parse_duration, timestamp

__all__ = ["DURATION", "EXIT", "HollowKubelets"]

#: How long a pod runs before it finishes, such as ``30s``; without it a pod runs until deleted.
DURATION: Final = "kubesched.io/duration"
#: How it finishes: ``Succeeded`` (default) or ``Failed``.
EXIT: Final = "kubesched.io/exit"

_RETRY_SECONDS: Final = 1.0


class _Address(msgspec.Struct):
    type: str = ""
    address: str = ""


class _NodeStatus(msgspec.Struct):
    addresses: list[_Address] = []


class _NodeView(msgspec.Struct):
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


_node_view = msgspec.json.Decoder(_NodeView).decode


@dataclass(slots=True)
class _Running:
    """What is known of one pod on a node: its latest version and the timer that counts for it."""

    item: Item
    node: str
    token: int = 0
    due: float = 0.0
    action: str = ""
    started: float | None = None
    ip: str = ""


class HollowKubelets:
    """Run the pods of all nodes that exist.

    ``startup_delay`` seconds from binding to Running; ``stop_delay`` seconds from deletion to gone, None for the
    pod's whole grace period. A pod with the annotation ``kubesched.io/duration`` finishes after it, whatever its
    restart policy, with the phase that ``kubesched.io/exit`` names.

    Pods on nodes that do not exist are left alone until the node appears.
    """

    def __init__(
        self, client: Transport, clock: Clock, *, startup_delay: float = 1.0, stop_delay: float | None = None
    ) -> None:
        self._client = client
        self._clock = clock
        self._startup_delay = startup_delay
        self._stop_delay = stop_delay
        self._pods: dict[str, _Running] = {}
        self._on_node: dict[str, set[str]] = {}
        self._nodes: dict[str, str] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._token = 0
        self._addresses = 0
        self._wake = asyncio.Event()
        self._in_action = False
        #: Problems met and survived, newest last; bounded.
        self.problems: list[str] = []

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(NODES, ""), name="hollow-nodes")
            group.create_task(self._follow(PODS, "spec.nodeName!="), name="hollow-pods")
            group.create_task(self._run_timers(), name="hollow-timers")

    def next_timer(self) -> float | None:
        """When something will happen next, on the event loop's clock; None when nothing will by itself."""
        self._forget_stale()
        if self._in_action:
            return asyncio.get_running_loop().time()
        return self._heap[0][0] if self._heap else None

    # -- watching --------------------------------------------------------------------------------------

    async def _follow(self, kind: Kind, field_selector: str) -> None:
        """List, then watch, for ever; start over when the version has expired or anything else fails."""
        while True:
            try:
                page = await self._client.list(kind, field_selector=field_selector)
                self._replace(kind, page.items)
                version = page.resource_version
                while True:
                    stream: AsyncIterator[Any] = self._client.watch(
                        kind, resource_version=version, field_selector=field_selector
                    )
                    begun, batches = asyncio.get_running_loop().time(), 0
                    async for batch in stream:
                        batches += 1
                        for event in batch:
                            self._event(kind, event)
                            version = str(event.item.resource_version)
                    if not batches and asyncio.get_running_loop().time() == begun:
                        await asyncio.sleep(_RETRY_SECONDS)
            except (ApiError, OSError) as error:
                self._note(f"watching {kind}: {error}")
                if not (isinstance(error, ApiError) and error.code == 410):
                    await asyncio.sleep(_RETRY_SECONDS)

    def _replace(self, kind: Kind, items: list[Item]) -> None:
        """The truth after a list: what is not in it has gone."""
        names = {item.key for item in items}
        if kind == NODES:
            for name in [name for name in self._nodes if name not in names]:
                del self._nodes[name]
        else:
            for key in [key for key in self._pods if key not in names]:
                self._drop(key)
        for item in items:
            self._event(kind, WatchEvent("ADDED", item))

    def _event(self, kind: Kind, event: WatchEvent) -> None:
        if event.type == "BOOKMARK":
            return
        if kind == NODES:
            self._node_event(event)
        elif event.type == "DELETED":
            known = self._pods.get(event.item.key)
            if known is not None and known.item.uid == event.item.uid:
                self._drop(event.item.key)
        else:
            self._pod_changed(event.item)

    def _node_event(self, event: WatchEvent) -> None:
        name = event.item.name
        if event.type == "DELETED":
            self._nodes.pop(name, None)
            return
        fresh = name not in self._nodes
        addresses = _node_view(event.item.raw).status.addresses
        self._nodes[name] = next((item.address for item in addresses if item.type == "InternalIP"), "")
        if fresh:
            for key in sorted(self._on_node.get(name, ())):
                self._plan(key, self._pods[key])

    def _pod_changed(self, item: Item) -> None:
        pod: Pod = item.typed
        known = self._pods.get(item.key)
        if known is not None and known.item.uid != item.uid:
            self._drop(item.key)
            known = None
        if known is None:
            known = self._pods[item.key] = _Running(item, pod.spec.node_name)
            self._on_node.setdefault(known.node, set()).add(item.key)
        elif item.resource_version < known.item.resource_version:
            return  # a late copy of something already seen
        known.item = item
        if known.node in self._nodes:
            self._plan(item.key, known)

    def _drop(self, key: str) -> None:
        known = self._pods.pop(key)
        keys = self._on_node[known.node]
        keys.discard(key)
        if not keys:
            del self._on_node[known.node]

    # -- deciding --------------------------------------------------------------------------------------

    def _plan(self, key: str, known: _Running) -> None:
        """Set the one timer that a pod in this state needs."""
        pod: Pod = known.item.typed
        now = asyncio.get_running_loop().time()
        if pod.metadata.deletion_timestamp is not None:
            grace = float(pod.metadata.deletion_grace_period_seconds or 0)
            if pod.metadata.deletion_grace_period_seconds == 0:
                return  # waits for finalizers, not for us
            wait = grace if self._stop_delay is None else min(grace, self._stop_delay)
            if known.action == "stop":
                if now + wait < known.due:
                    self._set_timer(key, known, now + wait, "stop")
            else:
                self._set_timer(key, known, now + wait, "stop")
        elif pod.status.phase in ("Pending", ""):
            if known.action != "start":
                self._set_timer(key, known, now + self._startup_delay, "start")
        elif pod.status.phase == "Running":
            duration = self._duration(pod)
            if duration is not None and known.action != "finish":
                begun = known.started if known.started is not None else now
                self._set_timer(key, known, begun + duration, "finish")

    def _duration(self, pod: Pod) -> float | None:
        text = pod.metadata.annotations.get(DURATION)
        if not text:
            return None
        try:
            return max(0.0, parse_duration(text))
        except ValueError as error:
            self._note(f"pod {pod.key}: annotation {DURATION}: {error}")
            return None

    def _set_timer(self, key: str, known: _Running, due: float, action: str) -> None:
        self._token += 1
        known.token, known.due, known.action = self._token, due, action
        heapq.heappush(self._heap, (due, self._token, key))
        if self._heap[0][1] == self._token:
            self._wake.set()

    def _forget_stale(self) -> None:
        """Drop timers that were replaced, or whose pod or node is gone."""
        heap = self._heap
        while heap:
            _, token, key = heap[0]
            known = self._pods.get(key)
            if known is not None and known.token == token:
                if known.node in self._nodes:
                    return
                known.token, known.action = 0, ""  # planned afresh when the node comes back
            heapq.heappop(heap)

    # -- doing -----------------------------------------------------------------------------------------

    async def _run_timers(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            self._forget_stale()
            if not self._heap:
                await self._wake.wait()
                continue
            wait = self._heap[0][0] - loop.time()
            if wait > 0:
                handle = loop.call_later(wait, self._wake.set)
                await self._wake.wait()
                handle.cancel()
                continue
            _, _, key = heapq.heappop(self._heap)
            self._in_action = True
            try:
                await self._act(key, self._pods[key])
            finally:
                self._in_action = False

    async def _act(self, key: str, known: _Running) -> None:
        action, pod = known.action, known.item.typed
        known.token = 0
        if (action, pod.status.phase) in (("start", "Running"), ("finish", "Succeeded"), ("finish", "Failed")):
            return  # a lost answer: the write had taken effect
        try:
            if action == "stop":
                await self._client.delete(PODS, pod.namespace, pod.name, uid=pod.uid, grace_period_seconds=0)
                return
            if action == "start":
                known.started = asyncio.get_running_loop().time()
                status = self._running_status(known, pod)
            else:
                status = self._finished_status(pod)
            body = {"metadata": {"uid": pod.uid}, "status": status}
            await self._client.patch(PODS, pod.namespace, pod.name, body, subresource="status")
        except (ApiError, OSError) as error:
            if isinstance(error, ApiError) and error.code in (404, 409):
                return  # deleted or replaced meanwhile: the watch brings the rest
            self._note(f"{action} {key}: {error}")
            if self._pods.get(key) is known and known.action == action and not known.token:
                self._set_timer(key, known, asyncio.get_running_loop().time() + _RETRY_SECONDS, action)

    def _running_status(self, known: _Running, pod: Pod) -> dict[str, Any]:
        now = timestamp(self._clock.now())
        if not known.ip:
            self._addresses += 1
            number = self._addresses
            known.ip = f"10.{(number >> 16) & 255}.{(number >> 8) & 255}.{number & 255}"
        host = self._nodes.get(known.node, "")
        ip = host if pod.spec.host_network and host else known.ip
        status: dict[str, Any] = {
            "phase": "Running",
            "startTime": now,
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [
                {"type": type_, "status": "True", "lastTransitionTime": now}
                for type_ in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {
                    "name": container.name,
                    "image": container.image,
                    "imageID": "",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
                for container in pod.spec.containers
            ],
        }
        if host:
            status["hostIP"] = host
            status["hostIPs"] = [{"ip": host}]
        return status

    def _finished_status(self, pod: Pod) -> dict[str, Any]:
        now = timestamp(self._clock.now())
        failed = pod.metadata.annotations.get(EXIT) == "Failed"
        reason, code = ("Error", 1) if failed else ("Completed", 0)
        started = pod.status.start_time or now
        return {
            "phase": "Failed" if failed else "Succeeded",
            "conditions": [
                {"type": type_, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now}
                for type_ in ("ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {
                    "name": container.name,
                    "image": container.image,
                    "imageID": "",
                    "ready": False,
                    "started": False,
                    "restartCount": 0,
                    "state": {
                        "terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}
                    },
                }
                for container in pod.spec.containers
            ],
        }

    def _note(self, text: str) -> None:
        self.problems.append(text)
        if len(self.problems) > 1000:
            del self.problems[:500]

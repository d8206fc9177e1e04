"""Hollow kubelets: pods run, finish and stop by stage rules and a heap of timers; no containers.

    bound ──pod-start──▶ Running ──pod-finish──▶ Succeeded | Failed
                            └──────── deleted ──pod-stop──▶ gone (force delete)

One watch of pods, one of nodes, one timer task and one task for heartbeats serve all nodes. Everything happens on the
event loop's clock, so under virtual time a day of pods takes seconds. :mod:`.stages` reads the rules,
:mod:`.pod_status` makes the statuses, :mod:`.heartbeats` sends heartbeats. Caller: the command line and simulations;
works on any transport.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from kubesched.api.kinds import NODES, PODS, RESOURCE_CLAIMS, Kind
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError, Item, Transport
from kubesched.base.tasks import Supervisor
from kubesched.base.times import Clock, parse_duration, timestamp
from kubesched.client.event_counting import Counts
from kubesched.client.event_writer import WARNING, EventWriter

from .heartbeats import Heartbeats
from .nodes import NodeImages
from .pod_status import finished_status, pod_ip, ready_condition, ready_status, running_status
from .prerequisites import FAILED_PREPARE, Prerequisites, claim_names
from .stages import DURATION, EXIT, Next, Stage, choose, rules_of
from .watch_cache import Handler, Problems, WatchCache

__all__ = ["DURATION", "EXIT", "FAILED", "RUN_BY", "HollowKubelets"]

_RETRY_SECONDS: Final = 1.0
#: Expired timers handled before other tasks run, for transports that never wait.
_YIELD_INTERVAL: Final = 32
_FINISHED: Final = ("Succeeded", "Failed")
_EXITS: Final = ("Running", *_FINISHED)
#: Stage of a running pod whose node was marked NotReady: its kubelet reports it ready again.
_REVIVE: Final = Stage("pod-revive", next=Next(ready=True))


#: Label of a node that kubelets outside of the cluster's process run; its value is their name.
RUN_BY: Final = "kubesched.io/kubelets"
#: Annotation of a node that fails it with the value "true"; removing it brings the node back.
FAILED: Final = "kubesched.io/failed"


@dataclass(slots=True)
class _Running:
    """Pod on a node: its latest version and the stage that waits for it."""

    item: Item
    node: str
    token: int = 0
    due: float = 0.0
    stage: Stage | None = None
    started: float | None = None
    ip: str = ""
    complaint: str = ""
    prepared: bool = False


class HollowKubelets:
    """Hollow kubelets of all nodes that exist and whose label :data:`RUN_BY` has their name: they run the pods.

    Args:
        stages: rules; those for pods replace the built-in ones, see :func:`.stages.default_stages`.
        rng: for jitter, weights and failure rates.
        heartbeat_seconds: time between renewals of a node's Lease; None for quiet heartbeats, see :mod:`.heartbeats`.
        report_images: True if a node lists the images that pods have run there.
        image_sizes: bytes of images by name; others get a size derived from their name.
        await_attachments: True if pods wait until their CSI volumes are attached; needs the attach controller.
        name: value of the nodes' label; empty for the nodes without the label.

    With the built-in stages a pod with the annotation ``kubesched.io/duration`` finishes after that time with the phase
    that ``kubesched.io/exit`` names. Its restart policy has no effect on that. Pods on nodes that do not exist, or that
    have failed, are left alone until the node appears or recovers.
    """

    def __init__(
        self,
        client: Transport,
        clock: Clock,
        *,
        stages: Sequence[Stage] = (),
        rng: Random | None = None,
        heartbeat_seconds: float | None = None,
        report_images: bool = False,
        image_sizes: Mapping[str, int] | None = None,
        await_attachments: bool = False,
        name: str = "",
    ) -> None:
        self._client = client
        self._clock = clock
        self._name = name
        self._stages = rules_of("Pod", stages)
        self._random = rng if rng is not None else Random(0)
        self.problems = Problems("kubesched.cluster", "hollow kubelets", "is left alone: {}")
        self._images = NodeImages(client, image_sizes or {}, self.problems.note) if report_images else None
        self._pods: dict[str, _Running] = {}
        self._on_node: dict[str, set[str]] = {}
        self._nodes: dict[str, str] = {}
        self._annotated: set[str] = set()
        self._heap: list[tuple[float, int, str]] = []
        self._token = 0
        self._addresses = 0
        self._wake = asyncio.Event()
        self._in_action = False
        labels = {RUN_BY: name} if name else {}
        self._heartbeats = Heartbeats(client, clock, heartbeat_seconds, self.problems.note, labels)
        self._recorder = EventWriter(client, clock, Counts(), rng=self._random, report=self.problems.note)
        self._complaints: deque[tuple[_Running, str, str]] = deque()
        self._caches: list[WatchCache] = []
        nodes = self._watch(NODES, self._node_changed)
        self._pod_cache = self._watch(PODS, self._pod_changed, "spec.nodeName!=")
        self._prerequisites = Prerequisites(
            stages,
            self._random,
            nodes,
            lambda kind: self._watch(kind, self._prerequisite_changed),
            attachments=await_attachments,
        )

    def _watch(self, kind: Kind, handler: Handler, fields: str = "") -> WatchCache:
        cache = WatchCache(self._client, kind, self.problems, self._random, fields)
        cache.add_handler(handler)
        self._caches.append(cache)
        return cache

    async def run(self) -> None:
        """Work until cancelled."""
        async with Supervisor("kubelets") as tasks:
            for one in self._caches:
                tasks.spawn(one.run(), f"hollow-{one.kind.plural}")
            tasks.spawn(self._run_timers(), "hollow-timers")
            tasks.spawn(self._heartbeats.run(), "hollow-heartbeats")
            await tasks.ended()

    def fail_node(self, name: str) -> None:
        """Make a node stop responding: no heartbeats, and nothing on it starts, ends or is stopped until it recovers.

        Raises:
            ValueError: when there is no such node, or none known yet.
        """
        if name not in self._nodes:
            raise ValueError(f"there is no node {name!r}")
        self._heartbeats.fail(name)

    def recover_node(self, name: str) -> None:
        """Bring a failed node back.

        It reports Ready, carries out the deletions that were requested meanwhile, and its pods go on.

        Raises:
            ValueError: when the node has not failed.
        """
        if name not in self._heartbeats.failed:
            raise ValueError(f"node {name!r} has not failed")
        self._heartbeats.recover(name)
        self._plan_node(name)

    @property
    def failed_nodes(self) -> frozenset[str]:
        """Names of the nodes that have failed and not recovered."""
        return frozenset(self._heartbeats.failed)

    def next_timer(self) -> float | None:
        """Return the time of the next event, on the event loop's clock; None when nothing is due by itself."""
        self._forget_stale()
        if self._in_action or self._complaints:
            return asyncio.get_running_loop().time()
        times = (self._heap[0][0] if self._heap else None, self._heartbeats.next_timer())
        return min((time for time in times if time is not None), default=None)

    # -- watching --------------------------------------------------------------------------------------

    def _obey(self, name: str, *, failed: bool) -> None:
        """Fail or recover a node by its annotation. A node that was failed by a call is left alone."""
        if failed and name not in self._heartbeats.failed:
            self._annotated.add(name)
            self.fail_node(name)
        elif not failed and name in self._annotated:
            self._annotated.discard(name)
            if name in self._heartbeats.failed:
                self.recover_node(name)

    def _node_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        name = item.name
        if new is None or item.typed.metadata.labels.get(RUN_BY, "") != self._name:
            self._annotated.discard(name)
            if self._nodes.pop(name, None) is not None:
                self._heartbeats.node_removed(name)
            return
        fresh = name not in self._nodes
        should_fail = item.typed.metadata.annotations.get(FAILED) == "true"
        status = item.data().get("status") or {}
        addresses = status.get("addresses") or ()
        self._nodes[name] = next((one["address"] for one in addresses if one.get("type") == "InternalIP"), "")
        self._heartbeats.node_changed(name, status.get("conditions") or (), fresh=fresh)
        if fresh:
            self._plan_node(name)
        self._obey(name, failed=should_fail)

    def _plan_node(self, name: str) -> None:
        for key in sorted(self._on_node.get(name, ())):
            self._plan(key, self._pods[key])

    def _works(self, node: str) -> bool:
        return node in self._nodes and node not in self._heartbeats.failed

    def _pod_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        key = item.key
        known = self._pods.get(key)
        if new is None:
            if known is not None:
                self._drop(key, known)
            return
        pod: Pod = item.typed
        if known is None:
            known = self._pods[key] = _Running(item, pod.spec.node_name)
            is_new = pod.status.start_time is None and pod.status.phase in ("", "Pending")
            if not (is_new or pod.spec.host_network):
                self._note_address(known)
            self._on_node.setdefault(known.node, set()).add(key)
        known.item = item
        if self._works(known.node):
            self._plan(key, known)

    def _prerequisite_changed(self, item: Item, old: Item | None, new: Item | None) -> None:
        for key in self._prerequisites.released_by(item) if new is not None else ():
            known = self._pods.get(key)
            if known is not None and self._works(known.node):
                self._plan(key, known)

    def _drop(self, key: str, known: _Running) -> None:
        del self._pods[key]
        self._prerequisites.pod_gone(key)
        keys = self._on_node[known.node]
        keys.discard(key)
        if not keys:
            del self._on_node[known.node]

    # -- deciding --------------------------------------------------------------------------------------

    def _plan(self, key: str, known: _Running) -> None:
        """Set the timer for a pod in its present state, or keep its timer if that still fits."""
        pod: Pod = known.item.typed
        now = asyncio.get_running_loop().time()
        candidates, stage = self._candidates(pod, known), known.stage
        if stage is not None and stage in candidates:
            left = self._delay(stage, pod, known, now) if stage.delay.grace else None
            if left is not None and now + left < known.due:
                self._set_timer(key, known, now + left, stage)  # a second deletion may shorten the wait
            return
        known.stage, stage = None, choose(candidates, self._random)
        delay = self._delay(stage, pod, known, now) if stage is not None else None
        if stage is None or delay is None:
            return
        self._set_timer(key, known, now + delay, stage)
        exit_ = pod.metadata.annotations.get(stage.next.phase_from, "")
        if exit_ not in ("", *_EXITS):
            text = (
                f"{exit_!r} is no phase of a finished pod; write Succeeded or Failed; it counts as {stage.next.phase}"
            )
            self._complain(known, f"annotation {stage.next.phase_from}: {text}")

    def _complain(self, known: _Running, text: str, reason: str = "InvalidAnnotation") -> None:
        """Record a problem of a pod as event, once for each text, such as an annotation that cannot be read."""
        if text != known.complaint:
            known.complaint = text
            self.problems.note(f"pod {known.item.key}: {text}")
            self._complaints.append((known, reason, text))
            self._wake.set()

    def _candidates(self, pod: Pod, known: _Running) -> list[Stage]:
        """Return the stages that match the state of a pod. A pod with claims first gets its devices prepared."""
        condition = ready_condition(pod)
        ready = condition is not None and condition.status == "True"
        deleted = pod.metadata.deletion_timestamp is not None
        if deleted and pod.metadata.deletion_grace_period_seconds == 0 and pod.status.phase in _FINISHED:
            return []  # waits for finalizers, which kubelets do not remove
        if not deleted and condition is not None and condition.reason == "NodeNotReady" and not ready:
            return [_REVIVE]
        starting = not deleted and not known.prepared and pod.status.phase in ("", "Pending")
        if starting and ((claims := claim_names(pod)) or pod.spec.volumes):
            if self._prerequisites.are_missing(known.item.key, pod):
                return []
            stage, problem = self._prerequisites.preparation(known.item.key, pod, claims)
            if problem:
                self._complain(known, problem, FAILED_PREPARE)
                return []
            if stage is not None:
                return [stage]
            known.prepared = bool(claims)
        return [stage for stage in self._stages if stage.matches(pod, ready=ready)]

    def _delay(self, stage: Stage, pod: Pod, known: _Running, now: float) -> float | None:
        """Return the seconds until a stage fires; None when the annotation with the time cannot be read."""
        delay = stage.delay
        seconds = delay.seconds
        if delay.grace:
            seconds = float(pod.metadata.deletion_grace_period_seconds or 0)
            if delay.most is not None:
                seconds = min(seconds, delay.most)
        elif delay.seconds_from:
            text = pod.metadata.annotations.get(delay.seconds_from, "")
            try:
                seconds = parse_duration(text) if text else seconds
                if seconds < 0:
                    raise ValueError(f"{text!r} is negative; write how long it lasts, such as 30s")
            except ValueError as error:
                self._complain(known, f"annotation {delay.seconds_from}: {error}; until then it does not finish")
                return None
            begun = known.started if known.started is not None else now
            seconds += begun - now
        if delay.jitter:
            seconds += self._random.uniform(0.0, delay.jitter)
        return max(0.0, seconds)

    def _set_timer(self, key: str, known: _Running, due: float, stage: Stage) -> None:
        self._token += 1
        known.token, known.due, known.stage = self._token, due, stage
        heapq.heappush(self._heap, (due, self._token, key))
        if self._heap[0][1] == self._token:
            self._wake.set()

    def _forget_stale(self) -> None:
        """Drop timers that were replaced, or whose pod or node is gone."""
        heap = self._heap
        while heap:
            _, token, key = heap[0]
            known = self._pods.get(key)
            if known is not None and known.token == token and known.stage is not None:
                if self._works(known.node):
                    return
                known.stage = None  # planned again when the node recovers
            heapq.heappop(heap)

    # -- doing -----------------------------------------------------------------------------------------

    async def _run_timers(self) -> None:
        loop = asyncio.get_running_loop()
        acted = 0
        while True:
            self._wake.clear()
            while self._complaints:
                one, reason, text = self._complaints.popleft()
                await self._recorder.record(one.item, "kubelet", WARNING, reason, text, host=one.node)
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
            acted += 1
            if acted % _YIELD_INTERVAL == 0:
                await asyncio.sleep(0)

    async def _act(self, key: str, known: _Running) -> None:
        """Do the action of a stage. Try again later if it is refused, unless the pod is gone."""
        stage, pod = known.stage, known.item.typed
        known.stage = None
        if stage is None:
            return
        if stage.kind == RESOURCE_CLAIMS.kind:
            self._prepare(stage, key, known)
            return
        try:
            if stage.next.delete:
                await self._stop(pod)
            else:
                await self._write(stage, known, pod)
        except (ApiError, OSError) as error:
            if isinstance(error, ApiError) and error.code in (404, 409):
                return  # deleted or replaced meanwhile: a watch event follows
            self.problems.note(f"{stage.name} {key}: {error}")
            if (
                self._pods.get(key) is known
                and known.stage is None
                and stage in self._candidates(known.item.typed, known)
            ):
                self._set_timer(key, known, asyncio.get_running_loop().time() + _RETRY_SECONDS, stage)

    def _prepare(self, stage: Stage, key: str, known: _Running) -> None:
        """Prepare the devices of a pod. A failure is reported and tried again."""
        if stage.fails(self._random):
            known.complaint = ""  # so that every failure is reported, even if the words are equal
            text = f"Failed to prepare dynamic resources: NodePrepareResources failed: {stage.failure.reason}"
            self._complain(known, text, FAILED_PREPARE)
            due = asyncio.get_running_loop().time() + max(_RETRY_SECONDS, stage.seconds(self._random))
            self._set_timer(key, known, due, stage)
        else:
            known.prepared = True
            self._plan(key, known)

    async def _patch(self, pod: Pod, status: Mapping[str, Any]) -> Item:
        body = {"metadata": {"uid": pod.uid}, "status": status}
        return await self._client.patch(PODS, pod.namespace, pod.name, body, subresource="status")

    async def _stop(self, pod: Pod) -> None:
        """Remove a pod. A pod with finalizers gets its last status first, as from a kubelet."""
        if pod.metadata.finalizers and pod.status.phase not in _FINISHED:
            now = timestamp(self._clock.now())
            await self._patch(pod, finished_status(pod, now, phase="Failed", reason="Error", exit_code=137))
        await self._client.delete(PODS, pod.namespace, pod.name, uid=pod.uid, grace_period_seconds=0)

    async def _write(self, stage: Stage, known: _Running, pod: Pod) -> None:
        status = self._status(stage, known, pod)
        item = await self._patch(pod, status)
        if self._pods.get(item.key) is known:
            self._pod_cache.note(item)
        if self._images is not None and status.get("phase") == "Running":
            await self._images.add(known.node, pod)

    def _status(self, stage: Stage, known: _Running, pod: Pod) -> dict[str, Any]:
        """Return the status that a stage leads to. Random outcomes are drawn here."""
        now, action, failed = timestamp(self._clock.now()), stage.next, stage.fails(self._random)
        exit_ = pod.metadata.annotations.get(action.phase_from, "")
        phase = stage.failure.phase if failed else exit_ if exit_ in _EXITS else action.phase
        status: dict[str, Any] = {}
        if phase == "Running":
            known.started = asyncio.get_running_loop().time()
            status = running_status(pod, now, self._address(known), self._nodes.get(known.node, ""))
        elif phase in _FINISHED:
            if failed:
                reason, code = stage.failure.reason, stage.failure.exit_code
            else:
                reason, code = ("Completed", 0) if phase == "Succeeded" else ("Error", 1)
            status = finished_status(pod, now, phase=phase, reason=reason, exit_code=code)
        elif phase:
            status = {"phase": phase}
        if action.ready is not None and phase not in _FINISHED:
            status.update(ready_status(now, ready=action.ready))
        if not failed:
            status.update(action.status)
        return status

    def _note_address(self, known: _Running) -> None:
        """Keep the address of a pod that was started before, in a saved cluster. Later pods get addresses above it."""
        ip = pod_ip(known.item)
        parts = ip.split(".")
        if len(parts) == 4 and parts[0] == "10" and all(part.isdecimal() and int(part) < 256 for part in parts):
            known.ip = ip
            self._addresses = max(self._addresses, int(parts[1]) << 16 | int(parts[2]) << 8 | int(parts[3]))

    def _address(self, known: _Running) -> str:
        if not known.ip:
            self._addresses += 1
            number = self._addresses
            known.ip = f"10.{(number >> 16) & 255}.{(number >> 8) & 255}.{number & 255}"
        return known.ip

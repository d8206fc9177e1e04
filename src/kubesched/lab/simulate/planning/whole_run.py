"""Count by a run of the whole cluster in virtual time: pods are created, and queue, kubelets and controllers do the rest.

It serves pods about which more than the scheduling cycle decides, and counting with preemption. One kind of pod comes in
batches that grow; a mix comes copy by copy, so that its order is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from msgspec.structs import replace

from kubesched.api.kinds import PODS
from kubesched.api.types import Pod
from kubesched.cluster.files import Manifest
from kubesched.explain.report import Pending
from kubesched.explain.workloads import Workloads
from kubesched.scheduler.config import KubeSchedulerConfiguration
from kubesched.scheduler.config.types import Plugin, PluginSet

from ..inputs.storing import store_objects
from ..run.simulation import Session
from .question import Question

__all__ = ["Counted", "count_by_run", "settled_start", "unqueued", "without_preemption"]

#: Most pods that are created at once.
_MOST_AT_ONCE: Final = 512
#: Virtual seconds that the cluster's own pods get to find a node, and that each batch gets.
_START_SECONDS: Final = 60.0
_BATCH_SECONDS: Final = 7_200.0


@dataclass(slots=True)
class Counted:
    """Result of counting: nodes of the placed pods by number of the kind of pod, in order, and why it ended."""

    copies: int = 0
    placed: list[list[str]] = field(default_factory=list)
    stopped: Literal["full", "most", "refused"] = "full"
    stops: list[Pending] = field(default_factory=list)
    refused: str = ""
    victims: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(map(len, self.placed))


def without_preemption(config: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """Return the configuration without any PostFilter plugin."""
    nothing = PluginSet(disabled=(Plugin(name="*"),))
    profiles = tuple(
        replace(profile, plugins=replace(profile.plugins, post_filter=nothing)) for profile in config.profiles
    )
    return replace(config, profiles=profiles)


def unqueued(pending: Iterable[Pending]) -> list[Pending]:
    """Return explanations without the pods' places in the queue of a run."""
    return [replace(one, queue=None) for one in pending]


async def settled_start(session: Session, *, running: bool = False) -> None:
    """Let the cluster's own pods find their nodes: everything that happens at once, and a minute if more is under way.

    With ``running``, pods that have a node get a minute to run, too, as budgets count them only then.
    """
    await session.quiet()
    scheduler, controllers = session.embedded.scheduler, session.embedded.controllers
    if running or not scheduler.is_idle or (controllers is not None and controllers.next_timer() is not None):
        await session.until_settled(session.now + _START_SECONDS)


async def count_by_run(
    session: Session, question: Question, most: int, on_progress: Callable[[int], None] = lambda done: None
) -> Counted:
    """Create copies of the mix until a pod has no node; at most ``most`` copies."""
    counted = Counted(placed=[[] for _ in question.pods])
    workloads = Workloads(session.embedded.objects)
    there = {pod.uid: workloads.of(pod) or pod.key for pod in session.embedded.pods() if pod.spec.node_name}
    alone = len(question.pods) == 1 and question.pods[0].share == 1
    batch = 1
    while counted.copies < most:
        size = min(batch, most - counted.copies)
        complete = await _batch(session, question, counted, size)
        on_progress(counted.total)
        if not complete:
            break
        counted.copies += size
        batch = min(2 * batch, _MOST_AT_ONCE) if alone else 1
    else:
        counted.stopped = "most"
    if alone:
        counted.copies = counted.total
    left = {pod.uid for pod in session.embedded.pods()}
    for uid, name in there.items():
        if uid not in left:
            counted.victims[name] = counted.victims.get(name, 0) + 1
    return counted


async def _batch(session: Session, question: Question, counted: Counted, size: int) -> bool:
    """Create some copies and wait. Return True if all their pods have nodes."""
    store = session.embedded.store
    made: list[tuple[int, Manifest]] = []
    for copy in range(counted.copies, counted.copies + size):
        for index, asked in enumerate(question.pods):
            for number in range(copy * asked.share, (copy + 1) * asked.share):
                objects = asked.make(number)
                made.append((index, objects[-1]))
                refused = store_objects(store, objects)
                if refused:
                    counted.stopped, counted.refused = "refused", refused[0].message
    await session.until_settled(session.now + _BATCH_SECONDS)
    waiting: list[Pod] = []
    for index, item in made:
        stored = store.table(PODS).objects.get((item.namespace, item.name))
        pod: Pod | None = stored.typed if stored is not None else None
        if pod is not None and pod.spec.node_name:
            counted.placed[index].append(pod.spec.node_name)
        elif pod is not None:
            waiting.append(pod)
    if waiting:
        first: dict[int, str] = {}
        by_key = {f"{item.namespace}/{item.name}": index for index, item in made}
        for pod in waiting:
            first.setdefault(by_key[pod.key], pod.key)
        counted.stopped = "full"
        counted.stops = unqueued(session.explain(list(first.values())).pending)
    return not waiting and not counted.refused

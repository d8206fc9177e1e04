"""Capacity for given pods: the scheduler counts how many more fit, one pod after another, until one has no node.

    question ──▶ Trial (the scheduling cycle over the standing cluster) ──▶ Answer
                   └─ a pod that needs more: a run of the whole cluster (:mod:`.whole_run`)

Callers: ``kubesched capacity``, ``kubesched.capacity`` and ``Simulation.capacity``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubesched.api.decode import from_builtins
from kubesched.api.kinds import CRON_JOBS, JOBS, NAMESPACES
from kubesched.api.requests import pod_requests
from kubesched.api.types import Pod
from kubesched.base.collector import collector_off
from kubesched.cluster.files import Manifest, Manifests
from kubesched.explain.explainer import Explainer
from kubesched.explain.report import Pending
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates, default_config

from ..embedded import Embedded
from ..inputs.given import OWN_KINDS
from ..results.outcome import node_uses
from ..results.pod_times import amounts
from ..results.result import NodeUse, Stopped
from ..run.simulation import Session, simulate
from ..run.virtual_time import run_virtual
from ..trials.trial import NeedsRunError, RefusedPodError, Trial, TriedPod, admitted
from .capacity_report import Amount, Answer, Asked, Capacity, NodeFit, Preempting, ZoneFit
from .question import Question
from .timeless import timeless
from .whole_run import Counted, count_by_run, settled_start, without_preemption

__all__ = [
    "MOST",
    "QUIET",
    "Counting",
    "capacity_now",
    "capacity_of",
    "copied",
    "missing_objects",
    "run_of",
    "sizes_of",
]

#: Most copies that are counted by default.
MOST: Final = 1_000_000
#: Arguments of a run whose pods are no progress, and in which plugins work for long without a pause.
QUIET: Final[dict[str, Any]] = {"on_progress": lambda done, total: None, "on_slow_plugin": None}
#: Pods between two calls of ``on_progress``.
_STEP: Final = 256


class Counting(msgspec.Struct, frozen=True, kw_only=True):
    """Way of counting.

    Attributes:
        together: the mix is asked about; otherwise each kind of pod alone.
        preemption: count with preemption, too.
        most: most copies that are counted.
    """

    together: bool = True
    preemption: bool = False
    most: int = MOST

    def parts(self, question: Question) -> list[Question]:
        return [question] if self.together else question.alone()


def capacity_of(
    arguments: Mapping[str, Any],
    question: Question,
    counting: Counting = Counting(),  # noqa: B008 - immutable
    on_progress: Callable[[int], None] = lambda done: None,
) -> Capacity:
    """Count on a cluster of its own. ``arguments`` are those of :func:`..run.simulation.simulate`.

    Must not be called inside a running event loop.

    Raises:
        ManifestError, ConfigError, TaskCrashedError: see :func:`..run.simulation.simulate`.
        PluginFailedError: when a plugin fails.
    """
    given = with_objects(arguments, question.objects)
    given["manifests"] = timeless(given["manifests"])
    parts = counting.parts(question)
    with collector_off():
        found, (nodes, pods, pending), warnings = _standing(given, parts, counting, on_progress)
        answers = []
        for part, answer in zip(parts, found, strict=True):
            if answer.why_run:
                answer = _by_run(given, part, counting, answer, on_progress)  # noqa: PLW2901 - the better one
            if counting.preemption:
                more = _with_preemption(given, part, counting, on_progress)
                answer = msgspec.structs.replace(answer, preempting=more)  # noqa: PLW2901
            answers.append(answer)
    return Capacity(
        answers=answers,
        cluster_nodes=nodes,
        cluster_pods=pods,
        pending=pending,
        seed=int(arguments.get("seed", 0)),
        warnings=warnings,
    )


def with_objects(arguments: Mapping[str, Any], objects: Sequence[Manifest]) -> dict[str, Any]:
    """Return the arguments with objects added to the manifests, apart from those that are there already."""
    manifests: Manifests = arguments["manifests"]
    known = {(item.kind, item.namespace, item.name) for item in manifests.objects}
    new = [item for item in objects if (item.kind, item.namespace, item.name) not in known]
    if not new:
        return dict(arguments)
    return {**arguments, "manifests": Manifests([*manifests.objects, *new], manifests.warnings, manifests.problems)}


def copied(embedded: Embedded) -> Manifests:
    """Return the objects of a cluster, without Jobs and CronJobs, which would go on."""
    store = embedded.store
    store.settle()
    objects = [
        Manifest(kind, item.data(), "the simulation")
        for kind, table in store.tables.items()
        if kind == table.kind and kind not in OWN_KINDS and kind not in (JOBS, CRON_JOBS)
        for item in table.objects.values()
    ]
    return Manifests(objects)


# -- over the standing cluster -----------------------------------------------------------------------------


def _standing(
    arguments: Mapping[str, Any], parts: Sequence[Question], counting: Counting, on_progress: Callable[[int], None]
) -> tuple[list[Answer], tuple[int, int, int], list[str]]:
    """Return an answer for each part, the sizes of the cluster, and remarks. Some answers only say ``why_run``."""
    answers: list[Answer] = []
    sizes = (0, 0, 0)

    async def drive(session: Session) -> Stopped:
        nonlocal answers, sizes
        await settled_start(session)
        ensure_namespaces(session.embedded, parts)
        await session.quiet()
        gates = arguments.get("gates", DEFAULT_GATES)
        sizes = sizes_of(session.embedded)
        answers = answers_now(session.embedded, parts, counting, gates, on_progress, last=True)
        return "settled"

    result = run_virtual(simulate(**{**arguments, **QUIET, "drive": drive}))
    return answers, sizes, list(result.warnings)


def sizes_of(embedded: Embedded) -> tuple[int, int, int]:
    """Return the numbers of nodes, of pods, and of pods without a node that have not finished."""
    pods = embedded.pods()
    waiting = sum(not pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed") for pod in pods)
    return len(embedded.nodes()), len(pods), waiting


def ensure_namespaces(embedded: Embedded, parts: Sequence[Question]) -> None:
    """Create the namespaces of asked pods that do not exist."""
    for name in sorted({asked.namespace for part in parts for asked in part.pods}):
        if ("", name) not in embedded.store.table(NAMESPACES).objects:
            embedded.store.create(NAMESPACES, "", {"metadata": {"name": name}})


def missing_objects(embedded: Embedded, question: Question) -> list[str]:
    """Return what a question needs and the cluster lacks, as ``Kind name``."""
    tables = embedded.store.table
    found = [
        f"{item.kind.kind} {item.name}"
        for item in question.objects
        if (item.namespace, item.name) not in tables(item.kind).objects
    ]
    spaces = sorted({asked.namespace for asked in question.pods})
    return found + [f"Namespace {name}" for name in spaces if ("", name) not in tables(NAMESPACES).objects]


def capacity_now(
    embedded: Embedded, question: Question, counting: Counting, gates: FeatureGates = DEFAULT_GATES
) -> Capacity | None:
    """Return the document for the cluster as it is, which stays as it is; None if only a run can give an answer."""
    with collector_off():
        answers = answers_now(embedded, counting.parts(question), counting, gates)
    if any(answer.why_run for answer in answers):
        return None
    nodes, pods, pending = sizes_of(embedded)
    return Capacity(answers=answers, cluster_nodes=nodes, cluster_pods=pods, pending=pending)


def answers_now(
    embedded: Embedded,
    parts: Sequence[Question],
    counting: Counting,
    gates: FeatureGates = DEFAULT_GATES,
    on_progress: Callable[[int], None] = lambda done: None,
    *,
    last: bool = False,
) -> list[Answer]:
    """Return an answer for each part, by the scheduling cycle over the cluster as it is now.

    The cluster stays as it is, except that it is forgotten after the ``last`` question.

    An answer that only a run can give says ``why_run``, and nothing else.

    Raises:
        PluginFailedError: when a plugin fails.
    """
    answers = []
    for number, part in enumerate(parts, 1):
        trial = Trial(embedded, gates)
        before = node_uses(embedded)
        with trial.begun(last=last and number == len(parts)):
            try:
                counted = _count(trial, part, counting.most, on_progress)
            except NeedsRunError as error:
                answers.append(_bare(part, how="run", why_run=str(error)))
                continue
            answers.append(_answer(embedded, part, counted, before))
    return answers


def _count(trial: Trial, question: Question, most: int, on_progress: Callable[[int], None]) -> Counted:
    """Place copies of the mix until a pod has no node.

    Raises:
        NeedsRunError: see :mod:`.trial`.
        PluginFailedError: when a plugin fails.
    """
    counted = Counted(placed=[[] for _ in question.pods])
    try:
        kinds = [TriedPod(trial, admitted(trial, one.pod)) for one in question.pods]
    except RefusedPodError as error:
        counted.stopped, counted.refused = "refused", str(error)
        return counted
    # The scheduling queue takes pods of a higher priority first.
    order = sorted(range(len(kinds)), key=lambda index: -kinds[index].info.priority)
    said = 0
    while counted.copies < most:
        waiting = _copy(trial, question, kinds, order, counted)
        if waiting:
            counted.stops = _explained(trial.embedded, kinds, waiting)
            return counted
        counted.copies += 1
        if len(trial) - said >= _STEP:
            said = len(trial)
            on_progress(said)
    counted.stopped = "most"
    return counted


def _copy(
    trial: Trial, question: Question, kinds: Sequence[TriedPod], order: Sequence[int], counted: Counted
) -> dict[int, str]:
    """Place the pods of one copy. Return the name of the first pod without a node, by the kind of pod.

    A pod that another one of the copy was needed for is tried again.
    """
    queue = [
        (index, f"{_stem(question.pods[index].name)}-{question.pods[index].infix}-{number}")
        for index in order
        for number in range(
            counted.copies * question.pods[index].share, (counted.copies + 1) * question.pods[index].share
        )
    ]
    while True:
        left = []
        for index, name in queue:
            node = None if kinds[index].is_held else trial.place(kinds[index], name)
            if node is None:
                left.append((index, name))
            else:
                counted.placed[index].append(node)
        if not left or len(left) == len(queue):
            return dict(reversed(left))
        queue = left


def _stem(name: str) -> str:
    return name.rpartition("/")[2]


def _explained(embedded: Embedded, kinds: Sequence[TriedPod], waiting: Mapping[int, str]) -> list[Pending]:
    pods = [kinds[index].copy(name).pod for index, name in sorted(waiting.items())]
    return Explainer(embedded.scheduler, embedded.objects).pending(pods)


# -- by a run ----------------------------------------------------------------------------------------------


def run_of(
    arguments: Mapping[str, Any],
    question: Question,
    counting: Counting,
    on_progress: Callable[[int], None] = lambda done: None,
    *,
    preemption: bool,
) -> tuple[Counted, Answer]:
    """Count by a run of the whole cluster in virtual time; return the count, and the answer.

    Raises:
        ManifestError, ConfigError, TaskCrashedError: see :func:`..run.simulation.simulate`.
    """
    config = arguments.get("config") or default_config(gates=arguments.get("gates", DEFAULT_GATES))
    given = {**arguments, **QUIET, "expecting": expected(question)}
    given["config"] = config if preemption else without_preemption(config)
    found: list[tuple[Counted, Answer]] = []

    async def drive(session: Session) -> Stopped:
        await settled_start(session)
        before = node_uses(session.embedded)
        counted = await count_by_run(session, question, counting.most, on_progress)
        found.append((counted, _answer(session.embedded, question, counted, before)))
        return "settled"

    run_virtual(simulate(**{**given, "drive": drive}))
    return found[0]


def expected(question: Question) -> list[Manifest]:
    """Return the objects of one copy of each pod."""
    return [item for asked in question.pods for item in asked.make(0)]


def _by_run(
    arguments: Mapping[str, Any],
    question: Question,
    counting: Counting,
    bare: Answer,
    on_progress: Callable[[int], None],
) -> Answer:
    _, answer = run_of(arguments, question, counting, on_progress, preemption=False)
    return msgspec.structs.replace(answer, how="run", why_run=bare.why_run)


def _with_preemption(
    arguments: Mapping[str, Any], question: Question, counting: Counting, on_progress: Callable[[int], None]
) -> Preempting:
    counted, _ = run_of(arguments, question, counting, on_progress, preemption=True)
    return Preempting(
        copies=counted.copies,
        placed=counted.total,
        victims=sum(counted.victims.values()),
        evicted=dict(sorted(counted.victims.items(), key=lambda item: (-item[1], item[0]))),
        stopped=counted.stopped,
        stops=counted.stops,
        refused=counted.refused,
    )


# -- the answer --------------------------------------------------------------------------------------------


def _bare(question: Question, **more: Any) -> Answer:
    pods = [Asked(name=one.name, namespace=one.namespace, share=one.share, placed=0) for one in question.pods]
    return Answer(copies=0, placed=0, pods=pods, stopped="full", **more)


def _answer(embedded: Embedded, question: Question, counted: Counted, before: Sequence[NodeUse]) -> Answer:
    """Return the answer for a count, while the pods are on their nodes."""
    zones = {one.name: one.zone for one in before}
    by_node: dict[str, dict[str, int]] = {}
    for asked, nodes in zip(question.pods, counted.placed, strict=True):
        for node, count in Counter(nodes).items():
            by_node.setdefault(node, {})[asked.name] = count
    fits = [
        NodeFit(node=node, zone=zones.get(node, ""), pods=sum(by_name.values()), by_name=by_name)
        for node, by_name in by_node.items()
    ]
    return Answer(
        copies=counted.copies,
        placed=counted.total,
        pods=[
            Asked(
                name=asked.name,
                namespace=asked.namespace,
                share=asked.share,
                placed=len(nodes),
                requests=_requests(asked.pod),
            )
            for asked, nodes in zip(question.pods, counted.placed, strict=True)
        ],
        stopped=counted.stopped,
        stops=counted.stops,
        refused=counted.refused,
        nodes=sorted(fits, key=lambda one: (-one.pods, one.node)),
        zones=_zones(zones, fits),
        resources=_amounts(before, node_uses(embedded)),
    )


def _requests(item: Manifest) -> dict[str, int]:
    return amounts(pod_requests(from_builtins(item.data, Pod)))


def _zones(zones: Mapping[str, str], fits: Sequence[NodeFit]) -> list[ZoneFit]:
    nodes = Counter(zones.values())
    used = Counter(one.zone for one in fits)
    pods: Counter[str] = Counter()
    for one in fits:
        pods[one.zone] += one.pods
    return [ZoneFit(zone=zone, nodes=nodes[zone], used=used[zone], pods=pods[zone]) for zone in sorted(nodes)]


def _amounts(before: Sequence[NodeUse], after: Sequence[NodeUse]) -> list[Amount]:
    found: dict[str, list[int]] = {}
    for place, uses in ((1, before), (2, after)):
        for node in uses:
            for use in node.resources:
                row = found.setdefault(use.name, [0, 0, 0])
                row[place] += use.requested
                row[0] += use.allocatable if place == 1 else 0
    return [Amount(name=name, allocatable=row[0], before=row[1], after=row[2]) for name, row in found.items()]

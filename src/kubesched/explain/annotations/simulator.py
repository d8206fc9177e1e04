"""Annotations with the keys and the JSON of kube-scheduler-simulator: what each attempt found, node by node.

They are for debugging: each attempt evaluates every node once more, with every filter and score, before the pod is
assumed. Kubernetes allows 256 KiB of annotations; results are cut by nodes, and the history by attempts, to stay below.

Source: https://github.com/kubernetes-sigs/kube-scheduler-simulator, its annotations. Different: the timeout of a Permit
plugin that waits is not known here, and a plugin without a question to the pod counts as one that skips it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubesched.api.types import Pod
from kubesched.client.port import ApiPort
from kubesched.scheduler.core.attempt import Attempt
from kubesched.scheduler.core.diagnosis import NodeStatuses, Rejection
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.runtime import Framework
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nominating import NominatingInfo
from kubesched.scheduler.scheduler import Scheduler

from ..scores import ScoreTable, score_table
from .collected import CollectedAnnotations
from .writer import PodWriter

__all__ = ["CUT", "SimulatorResults", "key"]

#: Annotation of ours that says how many nodes the results have, where they were cut.
CUT: Final = "kubesched.io/simulator-results-cut"
_HISTORY: Final = "result-history"
#: Most bytes of the results of one attempt, and of the history.
_RESULT_BYTES: Final = 96 << 10
_HISTORY_BYTES: Final = 96 << 10
#: Most attempts under way, and most pods whose history is remembered.
_MOST: Final = 1000
#: Points after the choice of a node, in order, with the names of their results.
_STAGES: Final = (
    ("Reserve", "reserve-result"),
    ("Permit", "permit-result"),
    ("PreBind", "prebind-result"),
    ("Bind", "bind-result"),
)
_SUCCESS: Final = "success"

#: Result by plugin, and by node and plugin.
_Plugins = dict[str, str]
_Nodes = dict[str, _Plugins]


def key(name: str) -> str:
    """Return the annotation's key for the name of a result, such as ``filter-result``."""
    return f"kube-scheduler-simulator.sigs.k8s.io/{name}"


class SimulatorResults(AttemptObserver):
    """Observer that writes what each attempt found as annotations of its pod."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, Any]] = {}
        self._histories: dict[str, list[dict[str, str]]] = {}
        self._writer: PodWriter | None = None
        self._wish: Callable[[Pod, Mapping[str, str | None]], object] | None = None

    def attach(self, scheduler: Scheduler, port: ApiPort) -> None:
        """Begin to note results, to be written through ``port``. Call it before the scheduler starts."""
        self._writer = PodWriter(port, scheduler.clock)
        self._wish = self._writer.wish

    def collect(self, collected: CollectedAnnotations) -> None:
        """Begin to note results, to be collected. Call it before the scheduler starts."""
        self._wish = collected.wish

    async def run(self) -> None:
        """Write until cancelled. Call it after :meth:`attach`."""
        assert self._writer is not None
        await self._writer.run()

    def decided(self, attempt: Attempt, outcome: Decision | Rejection) -> None:
        if len(self._open) >= _MOST:
            self._open.clear()  # attempts that wait at Permit, whose results are not written
        found = evaluated(attempt.profile.framework, attempt, outcome)
        self._open[attempt.queued.uid] = found

    def ended(self, attempt: Attempt, failure: Status | Rejection | None, nominating: NominatingInfo | None) -> None:
        found = self._open.pop(attempt.queued.uid, None)
        if found is None or self._wish is None:
            return
        found.update(_later(attempt, failure))
        node = nominating.nominated_node_name if nominating is not None else ""
        plugins = [name for name, _ in attempt.profile.framework.points["postFilter"]]
        found["postfilter-result"] = {node: dict.fromkeys(plugins[:1], "preemption victim")} if node else {}
        pod = attempt.queued.pod_info.pod
        results = texts(found, attempt.node_name)
        history = self._histories.pop(pod.uid, [])
        history.append({name: text for name, text in results.items() if text is not None and name != CUT})
        while len(history) > 1 and len(msgspec.json.encode(history)) > _HISTORY_BYTES:
            del history[0]
        if failure is not None:
            self._histories[pod.uid] = history
            if len(self._histories) > _MOST:
                del self._histories[next(iter(self._histories))]
        said = msgspec.json.encode(history)
        results[key(_HISTORY)] = said.decode() if len(said) <= _HISTORY_BYTES else "[]"
        self._wish(pod, results)


def evaluated(framework: Framework, attempt: Attempt, outcome: Decision | Rejection) -> dict[str, Any]:
    """Evaluate all nodes for the pod of an attempt, as the cluster is. Return results by name, as plain values."""
    search, pod = attempt.profile.search, attempt.queued.pod_info
    state = CycleState()
    try:
        before = search.request(pod, state).outcome if len(search.table) else None
        table = score_table(framework, search, pod)
    except PluginFailedError as error:
        return {"prefilter-result-status": {error.plugin: str(error)}}
    names = [name for name, _ in framework.points["preFilter"]]
    rejected = before.status if before is not None else None
    found: dict[str, Any] = {"prefilter-result-status": _pre_filtered(framework, state, names, rejected)}
    allowed = before.nodes if before is not None else None
    if before is not None and allowed is not None:
        found["prefilter-result"] = {name: sorted(allowed) for name in before.restricting}
    if rejected is not None:
        return found
    filters = [entry.name for entry in framework.filters if entry.name not in state.skip_filter]
    statuses = table.statuses if isinstance(table, ScoreTable) else table.diagnosis.statuses
    passing = [search.table.info(row).name for row in table.rows.tolist()] if isinstance(table, ScoreTable) else []
    found["filter-result"] = _filtered(filters, passing, statuses, allowed)
    if isinstance(table, ScoreTable) and len(passing) > 1:
        found.update(_scored(framework, table, passing))
    return found


def _pre_filtered(framework: Framework, state: CycleState, names: Iterable[str], status: Status | None) -> _Plugins:
    """Return the result of each PreFilter plugin, up to the one that ended the point; empty for one that skips."""
    found: _Plugins = {}
    for name in names:
        found[name] = "" if name in state.skip_filter else _SUCCESS
        if status is not None and name in (status.plugin, state.pre_filter_ended_by):
            found[name] = status.message()
        if name == state.pre_filter_ended_by:
            break
    return found


def _filtered(
    filters: Sequence[str], passing: Iterable[str], statuses: NodeStatuses, allowed: frozenset[str] | None
) -> _Nodes:
    """Return the verdict of each filter about each node, up to the first that rejects."""
    found: _Nodes = {name: dict.fromkeys(filters, "passed") for name in passing}
    for status, names in statuses.groups():
        if status.plugin not in filters:
            continue
        verdicts: _Plugins = dict.fromkeys(filters[: filters.index(status.plugin)], "passed")
        verdicts[status.plugin] = status.message()
        found.update({name: verdicts for name in names if allowed is None or name in allowed})
    return found


def _scored(framework: Framework, table: ScoreTable, names: Sequence[str]) -> dict[str, Any]:
    raw: _Nodes = {}
    final: _Nodes = {}
    # The best nodes first, so that they stay if the results are cut.
    for place in (-table.totals).argsort(kind="stable").tolist():
        name = names[place]
        raw[name] = {plugin: str(int(scores[place])) for plugin, scores in table.raw.items()}
        final[name] = {
            plugin: str(int(scores[place]) * table.weights[plugin]) for plugin, scores in table.normalized.items()
        }
    before = [name for name, _ in framework.points["preScore"]]
    return {
        "prescore-result": {name: _SUCCESS if name in table.weights else "" for name in before},
        "score-result": raw,
        "finalscore-result": final,
    }


def _later(attempt: Attempt, failure: Status | Rejection | None) -> dict[str, Any]:
    """Return the results of the plugins after the choice of a node, up to the one that failed."""
    found: dict[str, Any] = {"permit-result-timeout": {}}
    if not attempt.node_name:
        return found
    concerned = attempt.profile.framework.concerned(attempt.state.absent)
    plugins = {
        "Reserve": concerned.reserve,
        "Permit": concerned.permit,
        "PreBind": concerned.pre_bind,
        "Bind": concerned.bind[:1],
    }
    for stage, name in _STAGES:
        results: _Plugins = {}
        found[name] = results
        failed = failure is not None and stage == attempt.stage
        culprit = failure.plugin if isinstance(failure, Status) else ""
        for plugin in plugins[stage]:
            results[plugin.name] = _SUCCESS
            if failed and failure is not None and plugin.name in (culprit, plugins[stage][-1].name):
                results[plugin.name] = failure.message()
                break
        if failed:
            break
    return found


def texts(found: Mapping[str, Any], node: str) -> dict[str, str | None]:
    """Return annotations by key. Results by node are cut to the same nodes, the chosen one and the best among them."""
    plain: tuple[str, ...] = (
        "prefilter-result-status",
        "prefilter-result",
        "prescore-result",
        "postfilter-result",
        "permit-result-timeout",
    )
    plain += tuple(name for _, name in _STAGES)
    by_node: dict[str, _Nodes] = {
        name: found.get(name, {}) for name in ("finalscore-result", "score-result", "filter-result")
    }
    order = list(dict.fromkeys([*([node] if node else []), *(name for nodes in by_node.values() for name in nodes)]))
    size = most = len(order)
    while True:
        kept = dict.fromkeys(order[:most])
        result: dict[str, str | None] = {key(name): _json(found.get(name, {})) for name in plain}
        for name, nodes in by_node.items():
            result[key(name)] = _json({at: nodes[at] for at in kept if at in nodes})
        result[key("selected-node")] = node
        result[CUT] = f"{most} of {size} nodes are shown" if most < size else None
        if most == 0 or sum(len(text.encode()) for text in result.values() if text) <= _RESULT_BYTES:
            return result
        most //= 2


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()

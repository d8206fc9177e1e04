"""Test support for plugins: the real search calls one plugin on a few nodes, with pytest or without it.

    from kubesched.testing import PluginCluster, node, pod

    def test_tenants_do_not_share_nodes():
        cluster = PluginCluster(OneTenantPerNode, nodes=["a", "b"], pods=[pod("x", on="a", labels={"tenant": "red"})])
        assert cluster.feasible(pod("p", labels={"tenant": "blue"})) == ["b"]

To test a plugin with the queue, with other pods over time, or with other objects, use ``kubesched.simulate(...)``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from kubesched.api.decode import from_builtins
from kubesched.api.types import Node, Pod
from kubesched.cluster.kubelets import make_nodes, node_template
from kubesched.lab.simulate.trials.placement import Placement
from kubesched.scheduler.config import load_config_data
from kubesched.scheduler.config.types import API_VERSION, KIND
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.framework.asking import ABSENT, Key
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.enqueue import registrations
from kubesched.scheduler.framework.entries import FilterEntry, ScoreEntry
from kubesched.scheduler.framework.question import Question
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry

__all__ = ["PluginCluster", "node", "pod"]

JSON: TypeAlias = dict[str, Any]

#: Copies of each pod that ``check`` places; answers are kept from the second copy on.
_TURNS: Final = 4
#: Most different answers that a message shows.
_FEW: Final = 3


def node(name: str, *, labels: Mapping[str, str] | None = None, **resources: str | int) -> JSON:
    """Return a Node manifest with 8 cpu, 32Gi of memory and room for 110 pods.

    ``resources`` are other amounts, for example ``cpu=4`` or ``**{"x/gpu": 8}``.
    """
    [made] = make_nodes(1, node_template(labels=labels))
    metadata = {
        **made["metadata"],
        "name": name,
        "labels": {**made["metadata"]["labels"], "kubernetes.io/hostname": name},
    }
    amounts = {**made["status"]["allocatable"], **{key: str(value) for key, value in resources.items()}}
    return {**made, "metadata": metadata, "status": {**made["status"], "capacity": amounts, "allocatable": amounts}}


def pod(
    name: str,
    *,
    on: str = "",
    labels: Mapping[str, str] | None = None,
    requests: Mapping[str, str | int] | None = None,
    annotations: Mapping[str, str] | None = None,
    namespace: str = "default",
    **spec: Any,
) -> JSON:
    """Return a Pod manifest with one container. ``on`` is the node that the pod runs on, ``spec`` further fields."""
    amounts = {key: str(value) for key, value in (requests or {}).items()}
    container = {"name": "c", "image": "image", "resources": {"requests": amounts}}
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"}
    metadata |= {"labels": dict(labels or {}), "annotations": dict(annotations or {})}  # type: ignore[dict-item]
    body: JSON = {"containers": [container], **({"nodeName": on} if on else {}), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


class PluginCluster:
    """Cluster of nodes and pods, with one plugin that decides about further pods.

    Attributes:
        plugin: the plugin, built as in a profile.
    """

    def __init__(
        self,
        plugin: type,
        *,
        nodes: Iterable[str | JSON],
        pods: Iterable[JSON] = (),
        args: Any = None,
        with_defaults: bool = False,
        seed: int = 0,
    ) -> None:
        """Build the plugin, the nodes and the pods.

        ``nodes`` are names or manifests. ``pods`` run already (``pod(..., on="a")``). ``args`` are the plugin's
        arguments, as in ``pluginConfig``. ``with_defaults``: the plugins of the default profile decide, too.

        Raises:
            PluginError, ConfigError: when the plugin does not fit, or cannot be built.
            ValueError: when a pod runs on none of the nodes.
        """
        registry: Registry = in_tree_registry()
        self._name: str = registry.register(plugin).name  # type: ignore[attr-defined]
        enabled = [{"name": self._name}]
        plugins: JSON = {"multiPoint": {"enabled": enabled}}
        if not with_defaults:
            alone = [{"name": "PrioritySort"}, {"name": "DefaultBinder"}, *enabled]
            plugins = {"multiPoint": {"enabled": alone, "disabled": [{"name": "*"}]}}
        profile: JSON = {"schedulerName": "default-scheduler", "plugins": plugins}
        if args is not None:
            profile["pluginConfig"] = [{"name": self._name, "args": args}]
        config = load_config_data({"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]})
        made = [from_builtins(node(one) if isinstance(one, str) else one, Node) for one in nodes]
        self._placement = Placement(made, config, registry, seed=seed)
        self._table = self._placement.cache.table
        self.plugin: Any = self._placement.framework.plugins[self._name]
        registrations(self.plugin)  # refuses wrong events
        names = {one.name for one in made}
        for one in pods:
            running = from_builtins(one, Pod)
            if running.spec.node_name not in names:
                raise ValueError(
                    f"pod {running.name} runs on {running.spec.node_name!r}; nodes are {', '.join(sorted(names))}"
                )
            self._placement.cache.add_pod(PodInfo(running))

    def feasible(self, pod: JSON) -> list[str]:
        """Return the names of the nodes that the pod may run on, sorted."""
        rejected = self.rejections(pod)
        return [name for name in self._names() if name not in rejected]

    def rejections(self, pod: JSON) -> dict[str, list[str]]:
        """Return the reasons of each rejected node, by name; all nodes, if PreFilter rejected the pod everywhere."""
        found = self._evaluate(pod)
        statuses = found.diagnosis.statuses if isinstance(found, Rejection) else found.statuses
        reasons = {name: list(status.reasons()) for status, names in statuses.groups() for name in names}
        if isinstance(found, Rejection):
            reasons = {name: reasons.get(name, list(statuses.absent.reasons())) for name in self._names()}
        return {name: reasons[name] for name in self._names() if name in reasons}

    def scores(self, pod: JSON) -> dict[str, int]:
        """Return the plugin's normalised scores of the nodes that fit, 0…100, by name; empty if it scores nothing."""
        found = self._evaluate(pod)
        if isinstance(found, Rejection) or found.scores is None or self._name not in found.scores:
            return {}
        rows = zip(found.feasible.tolist(), found.scores[self._name].tolist(), strict=True)
        scores = {self._table.info(row).name: score for row, score in rows}
        return {name: scores[name] for name in self._names() if name in scores}

    def place(self, pod: JSON) -> str | None:
        """Put the pod on the best node, and call Reserve. Return the node's name, or None when no node fits."""
        return self._placement.place(from_builtins(pod, Pod))

    def check(self, *pods: JSON) -> None:
        """Compare answers of the plugin that must be equal:

        * answers about one row and about many, and answers to a repeated call;
        * answers for pods with equal keys or signatures; with ``by_spec``, also for a pod with other labels,
          annotations and another name;
        * the verdicts, and the result of ``amounts``;
        * kept answers, and answers of a scan with nothing kept, while copies of the pods are placed and taken back.
          Reserve and Unreserve are called for that.

        Pass pods to which the plugin gives different answers, and nodes of each sort.

        Raises:
            AssertionError: when two answers differ; the message names pods, node and method.
            PluginFailedError: when the plugin fails.
        """
        signed: dict[Hashable, tuple[str, Any]] = {}
        answering = self._placement.framework.answering[self._name]
        for one in pods:
            name = one["metadata"]["name"]
            answers, again = self._answers(one), self._answers(one)
            if answers != again:
                raise AssertionError(f"pod {name}: answers differ when asked again: {_differences(answers, again)}")
            self._check_by_spec(one)
            key = answering.key(PodInfo(from_builtins(one, Pod)))
            if key is None:
                continue
            other, same = signed.setdefault(key, (name, answers))
            if answers != same:
                raise AssertionError(
                    f"pods {other} and {name} have equal {'keys' if answering.asks is not Question else 'signatures'}, "
                    f"{', '.join(map(repr, key[:1])) or 'no question'}, but {self._name} answers differently: "
                    f"{_differences(same, answers)}"
                )
        self._check_kept(pods)

    def _check_by_spec(self, pod: JSON) -> None:
        """Check that a question ``by_spec`` does not depend on the pod's labels, annotations and name."""
        answering = self._placement.framework.answering[self._name]
        metadata = {"name": "other", "uid": "other", "namespace": pod["metadata"].get("namespace", "default")}
        info = PodInfo(from_builtins(pod, Pod))
        key, keeps = answering.key(info), answering.keeps(info)
        twin = answering.key(PodInfo(from_builtins({**pod, "metadata": metadata}, Pod)))
        if answering.by_spec and (key != twin if keeps else (key == ABSENT) != (twin == ABSENT)):
            raise AssertionError(
                f"pod {info.name}: by_spec of {answering.asks.__qualname__} is True, but ask of {self._name} reads more than "
                f"the spec and the namespace: {_question(key)}, and {_question(twin)} without the pod's labels, annotations "
                "and name"
            )

    def _check_kept(self, pods: Sequence[JSON]) -> None:
        """Place copies of the pods and take them back; compare kept answers with those of a full scan."""
        placed: list[tuple[PodInfo, Decision]] = []
        try:
            for turn in range(_TURNS):
                for one in pods:
                    info = _copy(one, turn)
                    decision = self._found(info)
                    if decision is not None and self._placement.keep(info, decision):
                        placed.append((info, decision))
            while placed:
                self._placement.take_back(*placed.pop())
                self._found(_copy(pods[len(placed) % len(pods)], _TURNS))
        finally:
            for info, decision in reversed(placed):
                self._placement.take_back(info, decision)

    def _found(self, pod: PodInfo) -> Decision | None:
        """Return the decision about a pod, and check it against a scan with nothing kept."""
        scanned = self._placement.evaluate(pod.pod)
        found = self._placement.find(pod)
        rows: list[int] = [] if isinstance(scanned, Rejection) else scanned.feasible.tolist()
        fit = sorted(self._table.info(row).name for row in rows)
        problem = ""
        if isinstance(found, Rejection):
            problem = f"by kept answers no node fits; by a new scan these fit: {', '.join(fit)}" if rows else ""
        elif found.node.row not in rows:
            problem = f"by kept answers {found.node.name} fits; by a new scan it does not"
        elif found.evaluated == len(self._table) and found.feasible != len(rows):
            problem = f"number of nodes that fit by kept answers: {found.feasible}; by a new scan: {len(rows)}"
        elif found.evaluated == len(self._table) and not isinstance(scanned, Rejection) and scanned.totals is not None:
            totals = scanned.totals.tolist()
            mine, best = totals[rows.index(found.node.row)], max(totals)
            if mine != best:
                problem = (
                    f"by kept scores {found.node.name} is the best node; by a new scan it has {mine}, and "
                    f"{self._table.info(rows[totals.index(best)]).name} has {best}"
                )
        if problem:
            raise AssertionError(
                f"pod {pod.name}, while copies of the pods are placed and taken back: {problem}. "
                f"Check the attributes that decide how long answers of {self._name} stay valid: {self._held_by()}"
            )
        return None if isinstance(found, Rejection) else found

    def _held_by(self) -> str:
        if self._placement.framework.answering[self._name].asks is Question:
            return "sign"
        return "key, reads, is_local, changed, rescored, follow"

    def _answers(self, pod: JSON) -> dict[str, Any]:
        """Return Filter's statuses and raw scores by node; check that one row and many rows give equal answers."""
        framework = self._placement.framework
        found: dict[str, Any] = {}
        for entry in (*framework.filters, *framework.scores):
            if entry.name != self._name:
                continue
            info, state = PodInfo(from_builtins(pod, Pod)), CycleState()
            nodes = self._placement.cache.snapshot().nodes()
            outcome = framework.pre_filter(state, info, nodes)
            if outcome.status is not None or self._name in state.skip_filter:
                continue
            if isinstance(entry, ScoreEntry):
                framework.pre_score(state, info, nodes)
                if self._name in state.skip_score:
                    continue
            rows = self._table.order()
            together = entry.many(state, info, self._table, np.array(rows)).tolist()
            for row, one_of_many in zip(rows.tolist(), together, strict=True):
                alone = entry.one(state, info, self._table, self._table.info(row))
                where = f"{type(entry).__name__.removesuffix('Entry')} {self._table.info(row).name}"
                both: list[Any] = [alone, one_of_many]
                if isinstance(entry, FilterEntry):
                    both = [entry.status(state, info, each) if each else None for each in both]
                if both[0] != both[1]:
                    raise AssertionError(f"pod {info.name}: {where}: {both[0]} for one row, {both[1]} for many")
                found[where] = both[1]
            if isinstance(entry, FilterEntry):
                self._check_amounts(
                    info.name, entry.amounts(state, info, self._table), dict(zip(rows.tolist(), together, strict=True))
                )
        return found

    def _check_amounts(self, pod: str, amounts: Sequence[tuple[int, int]] | None, verdicts: Mapping[int, int]) -> None:
        """Check that ``amounts`` agrees with the verdicts."""
        table = self._table
        for row, verdict in verdicts.items() if amounts is not None else ():
            fits = all(table.requested[at, row] + amount <= table.allocatable[at, row] for at, amount in amounts or ())
            if fits != (verdict == 0):
                raise AssertionError(
                    f"pod {pod}: amounts returned {amounts}, by which {table.info(row).name} "
                    f"{'fits' if fits else 'does not fit'}; its verdict is {verdict}"
                )

    def _evaluate(self, pod: JSON) -> Any:
        return self._placement.evaluate(from_builtins(pod, Pod))

    def _names(self) -> list[str]:
        return sorted(self._table.info(row).name for row in self._table.order().tolist())


def _differences(some: Mapping[str, Any], others: Mapping[str, Any]) -> str:
    """Describe the first few answers that differ: ``Filter a: None and <…>``."""
    where = [each for each in {**some, **others} if some.get(each) != others.get(each)]
    few = [f"{each}: {some.get(each, 'not asked')} and {others.get(each, 'not asked')}" for each in where[:_FEW]]
    return "; ".join(few) + (f"; and {len(where) - _FEW} more" if len(where) > _FEW else "")


def _question(key: Key) -> str:
    return "no question" if key == ABSENT else "no key" if key is None else f"key {key[0]!r}"


def _copy(pod: JSON, number: int) -> PodInfo:
    metadata = pod["metadata"]
    name = f"{metadata['name']}-{number}"
    own = {"name": name, "uid": f"{metadata.get('namespace', 'default')}/{name}"}
    return PodInfo(from_builtins({**pod, "metadata": {**metadata, **own}}, Pod))

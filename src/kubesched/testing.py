"""Testing a plugin in three lines, with pytest or anything else: the plugin alone on a few nodes, by the real search.

    from kubesched.testing import PluginCluster, node, pod

    def test_tenants_do_not_share_nodes():
        cluster = PluginCluster(OneTenantPerNode, nodes=["a", "b"], pods=[pod("x", on="a", labels={"tenant": "red"})])
        assert cluster.feasible(pod("p", labels={"tenant": "blue"})) == ["b"]

For a plugin together with the queue, other pods over time, or objects besides nodes and pods: ``kubesched.simulate(...)``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from kubesched.api.decode import from_builtins
from kubesched.api.types import Node, Pod
from kubesched.cluster.kubelets import make_nodes, node_template
from kubesched.config import load_config_data
from kubesched.config.types import API_VERSION, KIND
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.entries import FilterEntry, ScoreEntry
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.registry import Registry
from kubesched.plugins import in_tree_registry
from kubesched.scheduler.diagnosis import Rejection
from kubesched.simulate.placement import Placement

__all__ = ["PluginCluster", "node", "pod"]

JSON: TypeAlias = dict[str, Any]


def node(name: str, *, labels: Mapping[str, str] | None = None, **resources: str | int) -> JSON:
    """A Node manifest; ``resources`` are amounts other than 8 cpu, 32Gi and 110 pods: ``cpu=4``, or ``**{"x/gpu": 8}``."""
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
    """A Pod manifest with one container; ``on`` is the node it runs on, ``spec`` are further fields of its spec."""
    amounts = {key: str(value) for key, value in (requests or {}).items()}
    container = {"name": "c", "image": "image", "resources": {"requests": amounts}}
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"}
    metadata |= {"labels": dict(labels or {}), "annotations": dict(annotations or {})}  # type: ignore[dict-item]
    body: JSON = {"containers": [container], **({"nodeName": on} if on else {}), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


class PluginCluster:
    """Nodes and pods, and one plugin that decides about further pods.

    Attributes:
        plugin: the plugin itself, built as in a profile.
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
        """``nodes`` are names or manifests, ``pods`` run already (``pod(..., on="a")``), ``args`` is the pluginConfig's.

        ``with_defaults`` has the plugins of the default profile decide, too.

        Raises:
            PluginError, ConfigError: when the plugin does not fit, or cannot be built.
            ValueError: when a pod runs on no node of these.
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
        names = {one.name for one in made}
        for one in pods:
            running = from_builtins(one, Pod)
            if running.spec.node_name not in names:
                raise ValueError(
                    f"pod {running.name} runs on {running.spec.node_name!r}; nodes are {', '.join(sorted(names))}"
                )
            self._placement.cache.add_pod(PodInfo(running))

    def feasible(self, pod: JSON) -> list[str]:
        """The names of the nodes that the pod may run on."""
        rejected = self.rejections(pod)
        return [name for name in self._names() if name not in rejected]

    def rejections(self, pod: JSON) -> dict[str, list[str]]:
        """The reasons of each node that was rejected, by name; also when PreFilter rejected the pod everywhere."""
        found = self._evaluate(pod)
        statuses = found.diagnosis.statuses if isinstance(found, Rejection) else found.statuses
        reasons = {name: list(status.reasons()) for status, names in statuses.groups() for name in names}
        if isinstance(found, Rejection):
            reasons = {name: reasons.get(name, list(statuses.absent.reasons())) for name in self._names()}
        return {name: reasons[name] for name in self._names() if name in reasons}

    def scores(self, pod: JSON) -> dict[str, int]:
        """The plugin's normalised scores of the nodes that fit, 0 to 100; empty when it scores nothing."""
        found = self._evaluate(pod)
        if isinstance(found, Rejection) or found.scores is None or self._name not in found.scores:
            return {}
        rows = zip(found.feasible.tolist(), found.scores[self._name].tolist(), strict=True)
        scores = {self._table.info(row).name: score for row, score in rows}
        return {name: scores[name] for name in self._names() if name in scores}

    def place(self, pod: JSON) -> str | None:
        """Put the pod on the best node, with Reserve called; its name, or None when none fits."""
        return self._placement.place(from_builtins(pod, Pod))

    def check(self, *pods: JSON) -> None:
        """Compare the plugin with itself: on one row and on many, again, and for pods that it answers alike.

        Raises:
            AssertionError: where two answers differ that must be equal, naming pods, node and method.
        """
        signed: dict[Hashable, tuple[str, Any]] = {}
        for one in pods:
            name = one["metadata"]["name"]
            answers, again = self._answers(one), self._answers(one)
            if answers != again:
                raise AssertionError(f"pod {name}: answers differ when asked again: {answers} and {again}")
            signature = self._placement.framework.answering[self._name].key(PodInfo(from_builtins(one, Pod)))
            if signature is None:
                continue
            other, same = signed.setdefault(signature, (name, answers))
            if answers != same:
                raise AssertionError(
                    f"pods {other} and {name} have the same signature {signature!r}, but {self._name} answers differently: "
                    f"{same} and {answers}"
                )

    def _answers(self, pod: JSON) -> dict[str, Any]:
        """Filter's statuses and raw scores by node, which must be the same one by one and together."""
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
        return found

    def _evaluate(self, pod: JSON) -> Any:
        return self._placement.evaluate(from_builtins(pod, Pod))

    def _names(self) -> list[str]:
        return sorted(self._table.info(row).name for row in self._table.order().tolist())

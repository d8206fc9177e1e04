"""Small caches with pods in zones, for tests of the term index."""

from __future__ import annotations

from typing import Any

import numpy as np

from kubesched.api.decode import from_builtins
from kubesched.api.selectors import Selector, compile_label_selector
from kubesched.api.types import LabelSelector, LabelSelectorRequirement, Node, Pod
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.nodes.term_index import PodSet

ZONE = "zone"


def a_node(name: str, **labels: str) -> Node:
    return from_builtins({"metadata": {"name": name, "labels": labels}}, Node)


def a_pod(name: str, node: str, labels: dict[str, str], *, namespace: str = "default", **more: Any) -> PodInfo:
    meta = {"name": name, "uid": name, "namespace": namespace, "labels": labels}
    if more.pop("terminating", False):
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return PodInfo(from_builtins({"metadata": meta, "spec": {"nodeName": node, "containers": [], **more}}, Pod))


def anti_affinity(app: str, key: str = ZONE) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def where(key: str, operator: str, *values: str) -> Selector:
    requirement = LabelSelectorRequirement(key=key, operator=operator, values=values)
    return compile_label_selector(LabelSelector(match_expressions=(requirement,)))


def app_is(*apps: str) -> Selector:
    return where("app", "In", *apps)


def pods_of(app: str, namespace: str | None = "default", *, terminating: bool = True) -> PodSet:
    names = None if namespace is None else frozenset((namespace,))
    return PodSet(((names, app_is(app)),), terminating=terminating)


def a_cache() -> Cache:
    """Two nodes in zone a, one in zone b, one without a zone."""
    cache = Cache()
    for name, labels in (("n1", {"zone": "a"}), ("n2", {"zone": "a"}), ("n3", {"zone": "b"}), ("n4", {})):
        cache.set_node(a_node(name, **labels))
    return cache


def per_zone(cache: Cache, pod_set: PodSet) -> dict[str, int]:
    index = cache.table.terms
    domains = index.domains(index.counter(pod_set), ZONE)
    column = domains.column
    return {column.values[code]: int(domains.counts[code]) for code in np.flatnonzero(domains.present).tolist()}

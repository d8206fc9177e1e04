"""Changes carried out by writes to the store of an embedded cluster, as a user of the API would make them.

Callers: :mod:`.run`, on a copy; :mod:`.trials`, on the cluster itself.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kubesched.api.kinds import NODES
from kubesched.api.wire import MERGE_PATCH
from kubesched.cluster.kubelets import FAILED, make_nodes
from kubesched.cluster.store import Store
from kubesched.lab.node_groups.group import template_like
from kubesched.scheduler.config import KubeSchedulerConfiguration
from kubesched.scheduler.config.types import Plugin

from ..schema_what_if import AddNodes, Scale, Weight
from .question import scalable

__all__ = ["add_nodes", "configuration_lines", "cordon", "fail", "scale", "with_weight"]

#: Most characters of the name of a node, before the number of a new one like it.
_MOST_NAME: Final = 200


def cordon(store: Store, node: str) -> None:
    """Keep new pods off a node.

    Raises:
        ApiError: if the cluster refuses it.
    """
    store.patch(NODES, "", node, {"spec": {"unschedulable": True}}, patch_type=MERGE_PATCH)


def fail(store: Store, node: str) -> None:
    """Let a hollow kubelet stop: its node is NotReady after 40 s.

    Raises:
        ApiError: if the cluster refuses it.
    """
    store.patch(NODES, "", node, {"metadata": {"annotations": {FAILED: "true"}}}, patch_type=MERGE_PATCH)


def add_nodes(store: Store, given: AddNodes) -> list[str]:
    """Create empty nodes like another one. Return their names.

    Raises:
        ApiError: if the cluster refuses one.
    """
    template = template_like(store.get(NODES, "", given.like).data())
    nodes = store.table(NODES).objects
    prefix, number = f"{given.like[:_MOST_NAME]}-more-", 0
    names: list[str] = []
    while len(names) < given.count:
        if ("", f"{prefix}{number}") not in nodes:  # otherwise an earlier question added it
            [data] = make_nodes(1, template, prefix=prefix, start=number, width=1, now=store.now())
            store.create(NODES, "", data)
            names.append(data["metadata"]["name"])
        number += 1
    return names


def scale(store: Store, given: Scale) -> None:
    """Change the replicas of a workload.

    Raises:
        ApiError: if the cluster refuses it.
    """
    kind, namespace, name = scalable(given.workload, store)
    patch: dict[str, Any] = {"spec": {"replicas": given.replicas}}
    store.patch(kind, namespace, name, patch, patch_type=MERGE_PATCH)


def with_weight(config: KubeSchedulerConfiguration, given: Weight) -> KubeSchedulerConfiguration:
    """Return the configuration with another weight of a score plugin in one profile."""
    profiles = []
    for profile in config.profiles:
        if profile.scheduler_name != given.profile:
            profiles.append(profile)
            continue
        plugins = profile.plugins
        enabled = tuple(one for one in plugins.score.enabled if one.name != given.plugin)
        score = replace(plugins.score, enabled=(*enabled, Plugin(name=given.plugin, weight=given.weight)))
        profiles.append(replace(profile, plugins=replace(plugins, score=score)))
    return replace(config, profiles=tuple(profiles))


def configuration_lines(given: Weight) -> str:
    """Return the lines of a KubeSchedulerConfiguration that give a weight, on one line."""
    score = f"{{score: {{enabled: [{{name: {given.plugin}, weight: {given.weight}}}]}}}}"
    return f"profiles: [{{schedulerName: {given.profile}, plugins: {score}}}]"

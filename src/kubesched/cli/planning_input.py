"""Input of the planners' commands: the cluster and the scheduler that a question is about, and node groups."""

from __future__ import annotations

import argparse
from typing import Any

from kubesched.base.collector import collector_off
from kubesched.cluster.kubelets import node_template, zone_names
from kubesched.lab.node_groups import NodeGroup, groups_of_flags, read_catalogue, read_node_groups
from kubesched.lab.simulate.inputs.given import node_template_of

from .cluster_source import given_cluster
from .errors import CliError
from .loading import load_setup

__all__ = ["arguments_of", "node_groups_of"]


def arguments_of(options: argparse.Namespace, *, hollow: bool = False) -> dict[str, Any]:
    """Return the arguments of a simulation of the cluster that the options name.

    With ``hollow`` the cluster may be empty.

    Raises:
        CliError: when the options contradict each other, or name no cluster.
        ManifestError, ConfigError, PluginError: for input that cannot be used.
    """
    registry, config, gates, remarks = load_setup(options, options.config)
    with collector_off():
        manifests = given_cluster(options, option="--cluster", hollow=hollow or bool(options.nodes), deleting=False)
        template = node_template_of(options.node_template or node_template(), dict(options.node_resources))
    if not options.nodes and (options.node_template or options.node_resources or options.zones):
        raise CliError("--node-template, --node-resource and --zones are about hollow nodes: add --nodes N", code=2)
    return {
        "manifests": manifests,
        "registry": registry,
        "nodes": options.nodes,
        "node_template": template,
        "zones": zone_names(options.zones),
        "config": config,
        "gates": gates,
        "seed": options.seed,
        "remarks": [*registry.problems, *remarks],
    }


def node_groups_of(options: argparse.Namespace) -> list[NodeGroup]:
    """Return the node groups of ``--node-groups`` and ``--group``.

    Raises:
        CliError: when two have one name.
        ManifestError: for files that cannot be used.
    """
    catalogue = read_catalogue(options.catalogue) if options.catalogue is not None else {}
    groups = read_node_groups(options.node_groups, catalogue) if options.node_groups else []
    if options.group:
        groups += groups_of_flags(options.group, catalogue)
    names = [group.name for group in groups]
    if twice := {name for name in names if names.count(name) > 1}:
        raise CliError(f"node group {', '.join(sorted(twice))}: is given twice; give one of them another name")
    return groups

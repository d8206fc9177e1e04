"""Input of the planners' commands: the cluster and the scheduler that a question is about."""

from __future__ import annotations

import argparse
from typing import Any

from kubesched.base.collector import collector_off
from kubesched.cluster.kubelets import node_template, zone_names
from kubesched.lab.simulate.inputs.given import node_template_of

from .cluster_source import given_cluster
from .errors import CliError
from .loading import load_setup

__all__ = ["arguments_of"]


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

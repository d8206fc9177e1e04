"""Scenarios that a replay cannot decide: counted as not compared, with the reason, and never as passed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubesched.scheduler.config import (
    API_VERSION,
    FeatureGateError,
    FeatureGates,
    KubeSchedulerConfiguration,
    UnavailableGateError,
)
from kubesched.scheduler.core.full_scan import nodes_to_find

__all__ = ["NotComparedError", "check_configuration", "check_version", "gates_of"]

JSON = dict[str, Any]


class NotComparedError(Exception):
    """The scenario is left out as a whole; the text is the reason."""


def gates_of(settings: Mapping[str, bool]) -> FeatureGates:
    """Return the gates of a vector.

    Raises:
        NotComparedError: when a gate turns on a feature that kubesched does not have.
        FeatureGateError: for an unknown gate and the like.
    """
    try:
        return FeatureGates.of(settings)
    except UnavailableGateError as error:
        raise NotComparedError(f"feature gate {', '.join(error.names)} is not available") from None
    except FeatureGateError as error:
        raise FeatureGateError(f"gates: {error}") from None


def check_version(config: JSON) -> None:
    """Refuse a configuration that is not one of Kubernetes 1.36: no answer to it was recorded.

    Raises:
        NotComparedError: for another version.
    """
    version = config.get("apiVersion")
    if version != API_VERSION:
        raise NotComparedError(f"Kubernetes 1.36 reads configurations of {API_VERSION} only, not of {version}")


def check_configuration(config: KubeSchedulerConfiguration, nodes: int) -> None:
    """Refuse a configuration whose answers depend on something outside the scenario.

    Raises:
        NotComparedError: for extenders that take part, and when only a part of the nodes is evaluated.
    """
    if any(
        each.filter_verb or each.prioritize_verb or each.preempt_verb or each.bind_verb for each in config.extenders
    ):
        raise NotComparedError("the extenders of the configuration are not there to answer")
    for profile in config.profiles:
        own = profile.percentage_of_nodes_to_score
        percentage = (config.percentage_of_nodes_to_score if own is None else own) or 0
        if nodes_to_find(nodes, percentage) < nodes:
            raise NotComparedError("which part of the nodes Kubernetes evaluated is not recorded")

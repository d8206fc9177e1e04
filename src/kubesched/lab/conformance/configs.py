"""Golden vectors about configuration files: refusals, defaulted forms, and the plugins that run."""

from __future__ import annotations

from typing import Any

from kubesched.scheduler.config import (
    DEFAULT_GATES,
    IN_TREE_CAPABILITIES,
    ConfigError,
    FeatureGates,
    dump_config,
    expand_profiles,
    load_config,
)

from .comparison import Comparison

__all__ = ["compare_config"]

JSON = dict[str, Any]


def _outcome(document: str, gates: FeatureGates) -> JSON:
    try:
        config = load_config(document, gates=gates)
    except ConfigError as error:
        return {"stage": error.stage, "errors": sorted(error.errors)}
    outcome: JSON = {"defaulted": dump_config(config)}
    try:
        profiles = expand_profiles(config, IN_TREE_CAPABILITIES, gates=gates)
    except ConfigError as error:
        return {**outcome, "stage": error.stage, "errors": sorted(error.errors)}
    outcome["effective"] = {
        name: {
            point: [[plugin, weight] if weight else plugin for plugin, weight in plugins]
            for point, plugins in points.items()
            if plugins
        }
        for name, points in profiles.items()
    }
    return outcome


def compare_config(comparison: Comparison, vector: JSON, gates: FeatureGates = DEFAULT_GATES) -> None:
    """Compare the stage of a failure, its errors, the defaulted form and the plugins that run.

    Decoding errors are compared only by their stage, because their wording belongs to a particular parser. Validation
    errors are compared by their field paths.
    """
    expected, outcome = vector["expected"], _outcome(vector["scenario"]["document"], gates)
    for member in ("stage", "defaulted", "effective"):
        if member in expected or member in outcome or member == "stage":
            comparison.check(member, member, expected.get(member), outcome.get(member))
    if "errors" not in expected:
        return
    if expected["stage"] == "decode":
        comparison.leave("errors", "the wording of decoding errors is that of a particular parser")
        return
    wanted, got = expected["errors"], outcome.get("errors", [])
    if expected["stage"] == "validate":
        wanted, got = ([text.split(":", 1)[0] for text in texts] for texts in (wanted, got))
    comparison.check("errors", "errors", wanted, got)

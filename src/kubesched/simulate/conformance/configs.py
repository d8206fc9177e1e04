"""Golden vectors about configuration files: are they refused where they should be, and what do they mean?"""

from __future__ import annotations

from typing import Any

from kubesched.config import IN_TREE_CAPABILITIES, ConfigError, dump_config, expand_profiles, load_config

__all__ = ["replay_config"]

JSON = dict[str, Any]


def _outcome(document: str) -> JSON:
    try:
        config = load_config(document)
    except ConfigError as error:
        return {"stage": error.stage, "errors": sorted(error.errors)}
    outcome: JSON = {"defaulted": dump_config(config)}
    try:
        profiles = expand_profiles(config, IN_TREE_CAPABILITIES)
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


def replay_config(vector: JSON) -> list[str]:
    """Compare the stage of a failure, its field paths, the defaulted form and the plugins that run."""
    expected, outcome = vector["expected"], _outcome(vector["scenario"]["document"])
    differences = [
        f"{member}: expected {expected.get(member)}, got {outcome.get(member)}"
        for member in ("stage", "defaulted", "effective")
        if outcome.get(member) != expected.get(member)
    ]
    if expected.get("stage") == "validate":
        paths = [[text.split(":", 1)[0] for text in answer.get("errors", ())] for answer in (expected, outcome)]
        if paths[0] != paths[1]:
            differences.append(f"paths: expected {paths[0]}, got {paths[1]}")
    return differences

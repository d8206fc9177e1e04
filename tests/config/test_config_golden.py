"""Every recorded configuration document, replayed: stage, errors, defaulted form and the plugins that run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kubesched.scheduler.config import (
    IN_TREE_CAPABILITIES,
    ConfigError,
    decode_config,
    dump_config,
    expand_profiles,
    load_config,
)

_FILE = Path(__file__).parent.parent / "golden" / "config.jsonl.gz"
VECTORS: list[dict[str, Any]] = [json.loads(line) for line in gzip.decompress(_FILE.read_bytes()).splitlines()]


def _outcome(document: str) -> dict[str, Any]:
    """Return the outcome of a document by our code, as the recorder wrote it down."""
    try:
        config = load_config(document)
    except ConfigError as error:
        return {"stage": error.stage, "errors": sorted(error.errors)}
    outcome: dict[str, Any] = {"defaulted": dump_config(config)}
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


def _comparable(expected: dict[str, Any]) -> dict[str, Any]:
    """The recorded answer without what belongs to a particular YAML parser's wording."""
    errors = expected.get("errors", [])
    return {**expected, "errors": ["yaml"]} if errors and errors[0].startswith("yaml: line") else expected


def test_all_vectors_are_there() -> None:
    assert len(VECTORS) == 300
    assert {vector["expected"].get("stage") for vector in VECTORS} == {None, "decode", "validate", "framework"}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]))
def test_a_recorded_document_has_the_recorded_outcome(vector: dict[str, Any]) -> None:
    outcome = _outcome(vector["scenario"]["document"])
    assert _comparable(outcome) == _comparable(vector["expected"])


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if v["expected"].get("stage") == "validate"], ids=lambda vector: str(vector["name"])
)
def test_a_document_that_fails_validation_decodes_all_the_same(vector: dict[str, Any]) -> None:
    assert decode_config(vector["scenario"]["document"]).profiles

"""Settings without effect in a simulation are said once for each; those with an effect, and defaults, are not."""

from __future__ import annotations

from typing import Any

import pytest

from kubesched.cli.reference_texts import GATES
from kubesched.lab.simulate import run_simulation
from kubesched.lab.simulate.run.settings_remarks import EFFECTIVE_GATES, settings_without_effect
from kubesched.scheduler.config import API_VERSION, DEFAULT_GATES, KIND, FeatureGates, default_config, load_config_data
from kubesched.scheduler.config.features import FEATURES
from kubesched.scheduler.plugins import in_tree_registry


def said(gates: FeatureGates = DEFAULT_GATES, **fields: Any) -> list[str]:
    config = load_config_data({"apiVersion": API_VERSION, "kind": KIND, **fields})
    return list(settings_without_effect(config, gates))


def test_defaults_and_settings_with_an_effect_are_not_mentioned() -> None:
    assert said() == []
    assert said(leaderElection={"leaderElect": False}, podMaxBackoffSeconds=30, percentageOfNodesToScore=50) == []
    assert list(settings_without_effect(default_config(), FeatureGates.of({"DRADeviceTaintRules": True}))) == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"parallelism": 4}, "parallelism"),
        ({"leaderElection": {"resourceName": "other"}}, "leaderElection"),
        ({"clientConnection": {"qps": 7}}, "clientConnection"),
        ({"enableProfiling": False}, "enableProfiling"),
        ({"delayCacheUntilActive": True}, "delayCacheUntilActive"),
    ],
)
def test_each_field_without_effect_is_said_with_the_reason(fields: dict[str, Any], field: str) -> None:
    found = said(**fields)
    assert [text for text in found if text.startswith(f"the configuration's {field} has no effect in a simulation: ")]
    assert len(found) <= 2  # enableContentionProfiling follows enableProfiling


def test_gates_that_nothing_depends_on_are_said_in_the_result() -> None:
    gates = FeatureGates.of({"WatchListClient": False, "SchedulerAsyncPreemption": False})
    result = run_simulation([], registry=in_tree_registry(), nodes=1, gates=gates)
    assert result.warnings == ["the feature gate WatchListClient=false has no effect in a simulation"]


def test_every_gate_that_is_read_is_known_to_have_an_effect_or_to_be_of_servers() -> None:
    of_servers = {
        "ComponentFlagz",
        "ComponentStatusz",
        "CoordinatedLeaderElection",
        "LoggingAlphaOptions",
        "LoggingBetaOptions",
        "RemoteRequestHeaderUID",
        "WatchListClient",
    }
    assert FEATURES.keys() >= EFFECTIVE_GATES
    assert GATES.keys() - of_servers <= EFFECTIVE_GATES
    assert not of_servers & EFFECTIVE_GATES

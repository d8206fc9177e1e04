"""The table of feature gates is true: each row's effect, refusal or lack of an effect is shown."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from gate_scenarios import SCENARIOS

from kubesched.scheduler.config import FEATURES, FeatureGateError, FeatureGates, UnavailableGateError
from kubesched.scheduler.config.features import UNAVAILABLE
from kubesched.scheduler.framework import metrics

PAGE = Path(__file__).parents[2] / "docs" / "feature-gates.md"
#: Gate to what its row says.
ROWS = {
    line.split("|")[1].strip(" `"): line.split("|")[6].strip()
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
}
LOCKED = [name for name, feature in FEATURES.items() if feature.locked]
WITHOUT_EFFECT = [name for name, text in ROWS.items() if text.startswith("no effect: ")]


@cache
def read_gates() -> frozenset[str]:
    """The gates that the source asks for by name."""
    sources = (PAGE.parents[1] / "src" / "kubesched").rglob("*.py")
    asked = (re.findall(r"(?:enabled|\bgate)\(\s*\"(\w+)\"", file.read_text(encoding="utf-8")) for file in sources)
    return frozenset().union(*asked)


def setting(name: str, *, on: bool) -> FeatureGates:
    """The defaults with one gate set; with what it needs on, or with what needs it off."""
    settings = {name: on}
    if on:
        turn_on_needed(settings)
    else:
        settings.update(dict.fromkeys(needed_by(name), True))
        settings.update({other.name: False for other in FEATURES.values() if name in other.needs})
    return FeatureGates.of(settings)


def turn_on_needed(settings: dict[str, bool]) -> None:
    while needed := {other for gate in settings for other in FEATURES[gate].needs} - settings.keys():
        settings.update(dict.fromkeys(needed, True))


def needed_by(name: str) -> set[str]:
    """All gates that a gate needs, so that they are on both with it and without it."""
    settings = {name: True}
    turn_on_needed(settings)
    return settings.keys() - {name}


def test_every_row_says_something_and_is_of_one_kind() -> None:
    assert ROWS.keys() == FEATURES.keys()
    assert all(ROWS.values())
    kinds = [set(LOCKED), set(UNAVAILABLE), set(WITHOUT_EFFECT), set(SCENARIOS)]
    assert sum(map(len, kinds)) == len(set().union(*kinds)) == len(FEATURES)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_an_effect_is_there_with_the_gate_on_and_not_with_it_off(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    assert scenario(setting(name, on=True), tmp_path) != scenario(setting(name, on=False), tmp_path)


@pytest.mark.parametrize("name", sorted(UNAVAILABLE))
def test_what_there_is_not_is_refused_by_name(name: str) -> None:
    assert ROWS[name].startswith(f"cannot be turned on, as kubesched lacks {UNAVAILABLE[name]}")
    assert not FEATURES[name].default
    settings = {name: True}
    turn_on_needed(settings)
    with pytest.raises(UnavailableGateError, match=rf"\b{name} \({re.escape(UNAVAILABLE[name])}\)"):
        FeatureGates.of(settings)
    FeatureGates.of({name: False})


def test_all_alpha_gates_can_be_turned_on_but_for_those() -> None:
    with pytest.raises(UnavailableGateError) as refused:
        FeatureGates.parse("AllAlpha=true")
    assert str(refused.value).endswith(f"; leave them off ({','.join(f'{name}=false' for name in UNAVAILABLE)})")
    off = ",".join(f"{name}=false" for name in UNAVAILABLE)
    assert FeatureGates.parse(f"AllAlpha=true,{off}").enabled("StorageCapacityScoring")


@pytest.mark.parametrize("name", LOCKED)
def test_a_locked_gate_cannot_be_changed(name: str) -> None:
    assert ROWS[name].startswith("always on")
    with pytest.raises(FeatureGateError, match=f"cannot set feature gate {name} to false, feature is locked to true"):
        FeatureGates.of({name: False})


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_gate_without_an_effect_is_read_by_nothing_but_metrics(name: str) -> None:
    assert name not in read_gates()
    with_metrics = {row.name for row in metrics.DEFINITIONS if row.gate == name}
    assert ("has metrics" in ROWS[name]) is bool(with_metrics)
    for on in (True, False):
        FeatureGates.of({name: on})

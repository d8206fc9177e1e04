"""Feature gates: the table, settings and their errors, dependencies, and all gates of a stage."""

from __future__ import annotations

import pytest

from kubesched.api.groups import GATES
from kubesched.scheduler.config import DEFAULT_GATES, FEATURES, FeatureGateError, FeatureGates, parse_feature_gates
from kubesched.scheduler.config.features import UNAVAILABLE


@pytest.mark.parametrize(
    ("name", "enabled"),
    [
        ("SchedulerQueueingHints", True),
        ("DRAPrioritizedList", True),
        ("NodeDeclaredFeatures", True),
        ("SchedulerAsyncAPICalls", False),
        ("GangScheduling", False),
        ("StorageCapacityScoring", False),
        ("InOrderInformers", True),
        ("ClientsAllowCBOR", False),
    ],
)
def test_a_gate_has_its_default(name: str, enabled: bool) -> None:
    assert DEFAULT_GATES.enabled(name) is enabled


def test_asking_for_a_gate_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        DEFAULT_GATES.enabled("NoSuchGate")


def test_the_table_is_consistent() -> None:
    for feature in FEATURES.values():
        assert set(feature.needs) <= FEATURES.keys()
        assert feature.default or not feature.locked
        if feature.name.startswith("DRA"):
            assert "DynamicResourceAllocation" in feature.needs
    assert DEFAULT_GATES.dependency_errors() == []
    assert {feature.name for feature in FEATURES.values() if feature.locked} >= {"DynamicResourceAllocation"}


@pytest.mark.parametrize(
    ("texts", "settings"),
    [
        ([], {}),
        (["A=true,B=false"], {"A": True, "B": False}),
        (["kube:A=1", " B = F ,"], {"A": True, "B": False}),
        (["A=true", "A=false"], {"A": False}),
    ],
)
def test_settings_are_read(texts: list[str], settings: dict[str, bool]) -> None:
    assert parse_feature_gates(texts) == settings


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("A", "missing bool value for A"),
        ("A=maybe", 'invalid value of A=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax'),
        ("NoSuchGate=true", "unrecognized feature gate: NoSuchGate"),
        ("other:NodeDeclaredFeatures=true", "component not registered: other"),
        (
            "DynamicResourceAllocation=false",
            "cannot set feature gate DynamicResourceAllocation to false, feature is locked to true",
        ),
        (
            "GangScheduling=true",
            "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
        ),
        (
            "DRAResourceClaimDeviceStatus=false",
            "DRADeviceBindingConditions is enabled, but depends on features that are disabled: "
            "[DRAResourceClaimDeviceStatus]",
        ),
        (
            "WorkloadAwarePreemption=true,TopologyAwareWorkloadScheduling=true",
            "[TopologyAwareWorkloadScheduling is enabled, but depends on features that are disabled: [GenericWorkload], "
            "WorkloadAwarePreemption is enabled, but depends on features that are disabled: [GangScheduling]]",
        ),
        (
            "AllPodGroups=true,GangScheduling=false",
            "WorkloadAwarePreemption is enabled, but depends on features that are disabled: [GangScheduling]",
        ),
        (
            "WorkloadWithJob=true",
            "WorkloadWithJob is enabled, but depends on features that are disabled: [GenericWorkload]",
        ),
        (
            "DRAWorkloadResourceClaims=true",
            "DRAWorkloadResourceClaims is enabled, but depends on features that are disabled: [GenericWorkload]",
        ),
        (
            "NativeHistograms=true,ClientsPreferCBOR=true",
            "kubesched does not implement these feature gates: NativeHistograms (native histograms in metrics); "
            "ClientsPreferCBOR (requests in CBOR); leave them off (NativeHistograms=false,ClientsPreferCBOR=false)",
        ),
    ],
)
def test_a_setting_that_cannot_be_applied(text: str, error: str) -> None:
    with pytest.raises(FeatureGateError) as caught:
        FeatureGates.parse(text)
    assert str(caught.value) == error


def test_a_locked_gate_may_be_set_to_what_it_is() -> None:
    assert FeatureGates.parse("DynamicResourceAllocation=true") == DEFAULT_GATES


def test_all_gates_of_a_stage_are_set_at_once_except_those_set_by_name() -> None:
    unavailable = ",".join(f"{name}=false" for name in UNAVAILABLE)
    gates = FeatureGates.parse(f"AllAlpha=true,VolumeLimitScaling=false,{unavailable}")
    assert gates.enabled("StorageCapacityScoring")
    assert gates.enabled("GenericWorkload")
    assert not gates.enabled("VolumeLimitScaling")
    assert not gates.enabled("SchedulerAsyncAPICalls")
    beta = FeatureGates.parse("AllBeta=false")
    assert not beta.enabled("NodeDeclaredFeatures")
    assert beta.enabled("DRAPrioritizedList")
    assert FeatureGates.parse("AllBeta=true").enabled("SchedulerAsyncAPICalls")


def test_one_word_turns_on_all_gates_of_pod_groups() -> None:
    gates = FeatureGates.parse("AllPodGroups=true")
    assert gates.among(GATES) == set(GATES)
    assert {name for name, on in gates.values.items() if on is not DEFAULT_GATES.values[name]} == set(GATES)
    assert FeatureGates.parse("AllPodGroups=true,AllPodGroups=false") == DEFAULT_GATES
    some = FeatureGates.parse("AllPodGroups=true,WorkloadWithJob=false")
    assert some.among(GATES) == set(GATES) - {"WorkloadWithJob"}

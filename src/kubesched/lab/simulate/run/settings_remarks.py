"""Warnings about settings of a configuration, and feature gates, that have no effect in a simulation.

Only settings that differ from the defaults are mentioned. Caller: :mod:`.simulation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates, KubeSchedulerConfiguration, default_config

__all__ = ["EFFECTIVE_GATES", "settings_without_effect"]

#: Gates that have an effect in a simulation. Other gates are about servers and clients, or have no effect anywhere.
EFFECTIVE_GATES: Final = frozenset(
    (
        "DRAAdminAccess",
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceTaintRules",
        "DRADeviceTaints",
        "DRAExtendedResource",
        "DRAListTypeAttributes",
        "DRAPartitionableDevices",
        "DRAPrioritizedList",
        "DRAResourceClaimDeviceStatus",
        "DRASchedulerFilterTimeout",
        "DRAWorkloadResourceClaims",
        "GangScheduling",
        "GenericWorkload",
        "InPlacePodLevelResourcesVerticalScaling",
        "MatchLabelKeysInPodTopologySpread",
        "MatchLabelKeysInPodTopologySpreadSelectorMerge",
        "NodeDeclaredFeatures",
        "NominatedNodeNameForExpectation",
        "PodLevelResources",
        "SchedulerAsyncPreemption",
        "SchedulerPopFromBackoffQ",
        "StorageCapacityScoring",
        "TaintTolerationComparisonOperators",
        "TopologyAwareWorkloadScheduling",
        "VolumeLimitScaling",
        "WorkloadAwarePreemption",
        "WorkloadWithJob",
    )
)
#: Fields of the configuration (name in the file, name here) and the reason why they have no effect.
_FIELDS: Final = (
    ("parallelism", "parallelism", "decisions are made in one thread"),
    ("leaderElection", "leader_election", "there is one scheduler"),
    ("clientConnection", "client_connection", "the cluster is part of the program"),
    ("enableProfiling", "enable_profiling", "nothing is served"),
    ("enableContentionProfiling", "enable_contention_profiling", "nothing is served"),
    ("delayCacheUntilActive", "delay_cache_until_active", "there is one scheduler"),
)


def settings_without_effect(config: KubeSchedulerConfiguration, gates: FeatureGates) -> Iterator[str]:
    """Yield a sentence for each field and each gate that was set and has no effect."""
    usual = default_config()
    # A simulation has no leader election: to turn it on or off is no mistake.
    election = msgspec.structs.replace(config.leader_election, leader_elect=usual.leader_election.leader_elect)
    for field, name, why in _FIELDS:
        given = election if name == "leader_election" else getattr(config, name)
        if given != getattr(usual, name):
            yield f"the configuration's {field} has no effect in a simulation: {why}"
    for name, value in gates.values.items():
        if value != DEFAULT_GATES.values.get(name) and name not in EFFECTIVE_GATES:
            yield f"the feature gate {name}={'true' if value else 'false'} has no effect in a simulation"

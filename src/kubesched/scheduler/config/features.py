"""Feature gates: the table of the gates of 1.36, and ``Key=bool`` settings on top of it.

The command line builds one :class:`FeatureGates` and passes it on; all other code only asks ``gates.enabled(name)``.
Source: rules/configuration §8.3.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kubesched.api import groups

__all__ = [
    "DEFAULT_GATES",
    "FEATURES",
    "UNAVAILABLE",
    "Feature",
    "FeatureGateError",
    "FeatureGates",
    "Stage",
    "UnavailableGateError",
    "parse_feature_gates",
]


class FeatureGateError(ValueError):
    """A setting of feature gates cannot be applied; the message is upstream's."""


class UnavailableGateError(FeatureGateError):
    """Settings turn on gates whose features kubesched lacks.

    Attributes:
        names: names of these gates.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        reasons = "; ".join(f"{name} ({UNAVAILABLE[name]})" for name in names)
        off = ",".join(f"{name}=false" for name in names)
        super().__init__(f"kubesched does not implement these feature gates: {reasons}; leave them off ({off})")


class Stage(enum.StrEnum):
    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"


@dataclass(frozen=True, slots=True)
class Feature:
    """Feature gate. ``since`` is the release in which it reached its stage, "" where the table does not say."""

    name: str
    stage: Stage
    default: bool
    locked: bool = False
    since: str = ""
    needs: tuple[str, ...] = ()


_DRA: Final = "DynamicResourceAllocation"
_NEEDS: Final = {
    "GangScheduling": ("GenericWorkload",),
    "TopologyAwareWorkloadScheduling": ("GenericWorkload",),
    "WorkloadAwarePreemption": ("GangScheduling",),
    "WorkloadWithJob": ("GenericWorkload",),
    "DRADeviceBindingConditions": (_DRA, "DRAResourceClaimDeviceStatus"),
    "DRAWorkloadResourceClaims": (_DRA, "GenericWorkload"),
    "InPlacePodLevelResourcesVerticalScaling": (
        "InPlacePodVerticalScaling",
        "PodLevelResources",
        "NodeDeclaredFeatures",
    ),
}
_GA_LOCKED: Final = (
    "SchedulerQueueingHints DynamicResourceAllocation SidecarContainers InPlacePodVerticalScaling "
    "NodeInclusionPolicyInPodTopologySpread VolumeAttributesClass DRAAdminAccess InOrderInformers"
)
_GA: Final = "DRAPrioritizedList InformerResourceVersion"
_BETA_ON: Final = (
    "SchedulerPopFromBackoffQ:1.33 SchedulerAsyncPreemption:1.33 OpportunisticBatching:1.35 NodeDeclaredFeatures:1.36 "
    "NominatedNodeNameForExpectation:1.35 PodLevelResources:1.34 InPlacePodLevelResourcesVerticalScaling:1.36 "
    "MatchLabelKeysInPodTopologySpread:1.27 DRAExtendedResource:1.36 DRADeviceBindingConditions:1.36 "
    "DRAConsumableCapacity:1.36 DRAResourceClaimDeviceStatus:1.33 DRASchedulerFilterTimeout:1.34 DRADeviceTaints:1.36 "
    "DRAPartitionableDevices:1.36 DRAResourceClaimGranularStatusAuthorization:1.36 "
    "ClearingNominatedNodeNameAfterBinding:1.35 MatchLabelKeysInPodTopologySpreadSelectorMerge:1.34 "
    "ComponentFlagz:1.36 ComponentStatusz:1.36 ContextualLogging LoggingBetaOptions RemoteRequestHeaderUID:1.33 "
    "WatchListClient AtomicFIFO UnlockWhileProcessingFIFO InOrderInformersBatchProcess ClientsAllowCARotation "
    "ClientsAllowTLSCacheGC"
)
_BETA_OFF: Final = "SchedulerAsyncAPICalls:1.34 DRADeviceTaintRules:1.36 CoordinatedLeaderElection:1.33"
_ALPHA: Final = (
    "GenericWorkload:1.35 GangScheduling:1.35 TopologyAwareWorkloadScheduling:1.36 WorkloadAwarePreemption:1.36 "
    "WorkloadWithJob:1.36 "
    "StorageCapacityScoring:1.33 TaintTolerationComparisonOperators:1.35 VolumeLimitScaling:1.35 "
    "DRANodeAllocatableResources:1.36 DRAWorkloadResourceClaims:1.36 DRAListTypeAttributes:1.36 LoggingAlphaOptions "
    "NativeHistograms:1.36 ClientsAllowCBOR ClientsPreferCBOR"
)


def _needs(name: str) -> tuple[str, ...]:
    """Return a gate's dependencies, from its row. A DRA gate without a row needs the gate of DRA itself."""
    return _NEEDS.get(name, (_DRA,) if name.startswith("DRA") else ())


def _table() -> Iterable[Feature]:
    for text, stage, default, locked in (
        (_GA_LOCKED, Stage.GA, True, True),
        (_GA, Stage.GA, True, False),
        (_BETA_ON, Stage.BETA, True, False),
        (_BETA_OFF, Stage.BETA, False, False),
        (_ALPHA, Stage.ALPHA, False, False),
    ):
        for entry in text.split():
            name, _, since = entry.partition(":")
            yield Feature(name, stage, default, locked, since, _needs(name))


#: Every gate by name.
FEATURES: Final[Mapping[str, Feature]] = MappingProxyType({feature.name: feature for feature in _table()})

#: Features that kubesched lacks, by their gates, which cannot be turned on. All are off by default.
UNAVAILABLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "DRANodeAllocatableResources": "devices that count as cpu or memory of a node",
        "NativeHistograms": "native histograms in metrics",
        "ClientsPreferCBOR": "requests in CBOR",
    }
)


def _changeable(stage: Stage) -> tuple[str, ...]:
    return tuple(feature.name for feature in FEATURES.values() if feature.stage is stage and not feature.locked)


#: Words that stand for several gates. The first two are upstream's.
_ALL: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "AllAlpha": _changeable(Stage.ALPHA),
        "AllBeta": _changeable(Stage.BETA),
        "AllPodGroups": groups.GATES,
    }
)
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def parse_feature_gates(texts: Iterable[str]) -> dict[str, bool]:
    """Read ``[component:]Key=bool`` lists, comma separated; a later setting of a key wins.

    The component, when given, has to be ``kube``.

    Raises:
        FeatureGateError: ``missing bool value for X``, ``invalid value of X=y, err: …`` and the like.
    """
    settings: dict[str, bool] = {}
    for text in texts:
        for item in text.split(","):
            if not (item := item.strip()):
                continue
            component, colon, rest = item.partition(":")
            if colon and component.strip() != "kube":
                raise FeatureGateError(f"component not registered: {component.strip()}")
            key, equals, value = (rest if colon else item).partition("=")
            key, value = key.strip(), value.strip()
            if not equals:
                raise FeatureGateError(f"missing bool value for {key}")
            if value not in _BOOLS:
                raise FeatureGateError(
                    f'invalid value of {key}={value}, err: strconv.ParseBool: parsing "{value}": invalid syntax'
                )
            settings[key] = _BOOLS[value]
    return settings


@dataclass(frozen=True)
class FeatureGates:
    """Settings of all gates. Immutable; made by :meth:`of` or :data:`DEFAULT_GATES`."""

    values: Mapping[str, bool] = field(
        default_factory=lambda: {feature.name: feature.default for feature in FEATURES.values()}
    )

    @classmethod
    def of(cls, settings: Mapping[str, bool]) -> FeatureGates:
        """Apply ``settings`` (``AllAlpha``, ``AllBeta`` and ``AllPodGroups`` included) to the 1.36 defaults.

        Raises:
            FeatureGateError: for an unknown gate, a locked one, and one that needs another which is off.
            UnavailableGateError: for a gate whose feature kubesched lacks.
        """
        values = {feature.name: feature.default for feature in FEATURES.values()}
        for word, names in _ALL.items():
            if word in settings:
                values.update(dict.fromkeys(names, settings[word]))
        for name, value in settings.items():
            if name in _ALL:
                continue
            known = FEATURES.get(name)
            if known is None:
                raise FeatureGateError(f"unrecognized feature gate: {name}")
            if known.locked and value != known.default:
                locked_to = "true" if known.default else "false"
                raise FeatureGateError(
                    f"cannot set feature gate {name} to {'true' if value else 'false'}, "
                    f"feature is locked to {locked_to}"
                )
            values[name] = value
        gates = cls(values)
        if errors := gates.dependency_errors():
            raise FeatureGateError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        if missing := [name for name in UNAVAILABLE if values[name]]:
            raise UnavailableGateError(missing)
        return gates

    @classmethod
    def parse(cls, *texts: str) -> FeatureGates:
        """Apply the settings that :func:`parse_feature_gates` reads from the texts."""
        return cls.of(parse_feature_gates(texts))

    def enabled(self, name: str) -> bool:
        """True if a gate is on.

        Raises:
            KeyError: for a gate that does not exist (a programming error).
        """
        return self.values[name]

    def among(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of some gates that are on."""
        return frozenset(filter(self.enabled, names))

    def dependency_errors(self) -> list[str]:
        """Return one text per gate that is on while a gate it needs is off."""
        errors = []
        for feature in FEATURES.values():
            off = [name for name in feature.needs if not self.values[name]]
            if self.values[feature.name] and off:
                errors.append(
                    f"{feature.name} is enabled, but depends on features that are disabled: [{' '.join(off)}]"
                )
        return errors


#: All gates at their 1.36 defaults.
DEFAULT_GATES: Final = FeatureGates()

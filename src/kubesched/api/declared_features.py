"""Features that a node may declare, and their encoding as bits (rules/node-plugins §7.10)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["FEATURES", "feature_mask"]

#: Known names, sorted. The index of a name is the index of its bit.
FEATURES: Final = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
)
_BITS: Final = {name: 1 << index for index, name in enumerate(FEATURES)}


def feature_mask(names: Iterable[str]) -> int:
    """Return the bit set of the known names. Others are ignored."""
    mask = 0
    for name in names:
        mask |= _BITS.get(name, 0)
    return mask

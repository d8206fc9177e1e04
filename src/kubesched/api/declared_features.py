"""Features that a node may declare, and their encoding as bits (rules/node-plugins §7.10)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["FEATURES", "feature_mask"]

#: Sorted; the bit index is the position.
FEATURES: Final = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
)
_BITS: Final = {name: 1 << index for index, name in enumerate(FEATURES)}


def feature_mask(names: Iterable[str]) -> int:
    """Bit set of the known names; others are ignored."""
    mask = 0
    for name in names:
        mask |= _BITS.get(name, 0)
    return mask

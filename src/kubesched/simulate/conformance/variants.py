"""Second readings of a vector that differs: known defects of the recording, and declared differences.

Each variant changes how incoming pods look while they are attempted. It is offered by rule, from the pods of the
scenario, never by a vector's name; and it counts only when every record of the vector agrees under it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubesched.framework.podinfo import PodInfo

from .comparison import Verdict
from .decimals import drift_variants
from .declared import declared_variants
from .pods import Change

__all__ = ["Variant", "variants"]


@dataclass(frozen=True, slots=True)
class Variant:
    """A change of incoming pods, the verdict when all records agree under it, and what that explains."""

    change: Change
    verdict: Verdict
    why: str


def variants(pending: list[PodInfo]) -> list[Variant]:
    """The variants for the pods to place."""
    declared = [Variant(change, Verdict.DECLARED, why) for change, why in declared_variants(pending)]
    drifting = [Variant(change, Verdict.EXPLAINED, why) for change, why in drift_variants(pending)]
    return declared + drifting

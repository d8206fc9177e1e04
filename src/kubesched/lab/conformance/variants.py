"""Second readings of a vector that differs: known defects of the recording, declared differences, and chance.

A rule offers each variant by the content of the scenario, never by a vector's name. A variant counts only when every
record of the vector agrees under it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from .comparison import Verdict
from .decimals import drift_variants
from .declared import declared_variants
from .equal_victims import has_equal_victims
from .pods import Change, unchanged
from .world import AS_RECORDED, Reading, World

__all__ = ["Variant", "variants"]

_EQUAL_VICTIMS: Final = "chance: victims of equal priority and start may be taken in any order"
_BY_PROFILE: Final = "Volumes: upstream's profiles do not know each other's reserved volumes"


@dataclass(frozen=True, slots=True)
class Variant:
    """Way to read a vector.

    Attributes:
        verdict: the verdict when all records agree.
        why: the explanation of the difference.
        reading: how the scenario is read.
        change: how incoming pods are changed while they are attempted.
    """

    verdict: Verdict
    why: str
    reading: Reading = AS_RECORDED
    change: Change = unchanged


def variants(world: World) -> list[Variant]:
    """Return the variants for a scenario: each declared difference by itself, then together with chance."""
    declared = [Variant(Verdict.DECLARED, why, change=change) for change, why in declared_variants(world.pending)]
    if len(world.frameworks) > 1 and world.objects.informed("persistentvolumeclaims"):
        declared.append(Variant(Verdict.DECLARED, _BY_PROFILE, Reading(parts_by_profile=True)))
    if has_equal_victims(world):
        declared += [_with_chance(each) for each in (Variant(Verdict.DECLARED, ""), *declared)]
    return declared + [Variant(Verdict.EXPLAINED, why, change=change) for change, why in drift_variants(world.pending)]


def _with_chance(variant: Variant) -> Variant:
    reading = replace(variant.reading, equal_victims_as_recorded=True)
    why = "; ".join(filter(None, (variant.why, _EQUAL_VICTIMS)))
    return Variant(variant.verdict, why, reading, variant.change)

"""Policies that read how much nodes really use, not only what their pods request; docs/policies.md describes them.

``loads`` has the interface of metrics providers, ``base`` what both policies share.
"""

from .risk import LoadVariationRiskBalancing
from .target_load import TargetLoadPacking

__all__ = ["LoadVariationRiskBalancing", "TargetLoadPacking"]

"""Comparison of two results, clusters or recorded runs: figures side by side, and the pods that differ."""

from .entry import diff
from .report import Figure, PodDifference
from .views import Comparison

__all__ = ["Comparison", "Figure", "PodDifference", "diff"]

"""Explanations of decisions: what keeps a pod off each node, and the smallest changes that let it run.

    pod ──obstacles──▶ what stands in the way, by row ──remedies──▶ smallest sets of changes, each evaluated

:mod:`.obstacles` asks the plugins of the pod's profile, :mod:`.remedies` combines what they say. Both run the
scheduler's own filters on changed copies of the pod; nothing of the cluster is changed. Callers: simulations, the
demonstration and ``kubesched explain``.
"""

from .obstacles import Obstacle, Obstacles, obstacles_of
from .remedies import Remedy, remedies_for

__all__ = ["Obstacle", "Obstacles", "Remedy", "obstacles_of", "remedies_for"]

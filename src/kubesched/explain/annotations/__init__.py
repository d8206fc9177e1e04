"""Annotations and events of pods, written when asked for.

:mod:`.why` says on one line why a pod is pending. :mod:`.simulator` has every verdict and score, with the keys of
kube-scheduler-simulator. :mod:`.writer` writes, at a limited rate, for ``kubesched run`` and ``kubesched up``;
:mod:`.collected` writes at the end of a simulation.
"""

from .collected import CollectedAnnotations
from .simulator import SimulatorResults
from .why import WhyPending
from .writer import PodWriter

__all__ = ["CollectedAnnotations", "PodWriter", "SimulatorResults", "WhyPending"]

"""Replay decisions recorded from Kubernetes and compare them with ours.

:func:`replay_file` runs every vector of a golden file; ``kubesched conformance`` prints the result.
"""

from .runner import AreaResult, Failure, golden_files, replay_file, replay_vector

__all__ = ["AreaResult", "Failure", "golden_files", "replay_file", "replay_vector"]

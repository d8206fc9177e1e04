"""Conformance: decisions recorded from Kubernetes are replayed and compared with ours; see ``docs/conformance.md``.

:func:`replay_file` runs every vector of a golden file; ``kubesched conformance`` prints the result.
"""

from .comparison import AreaResult, Comparison, Finding, Verdict
from .coverage import Coverage
from .files import golden_files, read_gates
from .replay import replay_file, replay_vector
from .report import Report

__all__ = [
    "AreaResult",
    "Comparison",
    "Coverage",
    "Finding",
    "Report",
    "Verdict",
    "golden_files",
    "read_gates",
    "replay_file",
    "replay_vector",
]

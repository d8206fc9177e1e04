"""Audit of a cluster as it stands: what would break with the next restart, drain or shortage, and what is slow.

    scheduler, objects, pods ──checks──▶ findings, each with its rule, objects, numbers and advice

:mod:`.engine` runs the checks; :mod:`.placed`, :mod:`.nodes`, :mod:`.never`, :mod:`.budgets`, :mod:`.priorities`,
:mod:`.speed` and :mod:`.volumes` have them, :mod:`.rules` has their table. Caller: ``kubesched audit``.
"""

from .engine import audit_cluster
from .report import LEVELS, Audit, Finding
from .text import audit_lines
from .view import Limits

__all__ = ["LEVELS", "Audit", "Finding", "Limits", "audit_cluster", "audit_lines"]

"""Coscheduling: the pods of a group run together, or none of them does; docs/policies.md describes it.

``groups`` knows the pods of every group, ``plugin`` decides.
"""

from .plugin import Coscheduling

__all__ = ["Coscheduling"]

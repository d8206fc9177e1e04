"""Capacity scheduling: elastic quotas of namespaces, which lend what they do not use; docs/policies.md describes it.

``quotas`` has the arithmetic, ``plugin`` decides.
"""

from .plugin import CapacityScheduling

__all__ = ["CapacityScheduling"]

"""Cache of the cluster: assumed and confirmed pods in the node table, and the checker of its invariants."""

from .cache import Cache, CacheError

__all__ = ["Cache", "CacheError"]

"""Policies that know what network traffic costs between zones and regions; docs/policies.md describes them.

``groups`` has applications whose workloads depend on each other, ``costs`` the network, ``where`` the pods' places.
"""

from .network_overhead import NetworkOverhead
from .topological_sort import TopologicalSort

__all__ = ["NetworkOverhead", "TopologicalSort"]

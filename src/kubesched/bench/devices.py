"""Devices for workloads: the ResourceSlices of a driver.

Source: spec "Benchmark workload format" section 6.3. Caller: :mod:`.execute`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["driver_slice"]


def driver_slice(node: str, driver: str, count: int) -> dict[str, Any]:
    """The slice of a node: ``count`` equal devices, but for the number of their NUMA node."""
    devices = [
        {
            "name": f"instance-{index}",
            "attributes": {
                "model": {"string": "A100"},
                "family": {"string": "GPU"},
                "driverVersion": {"version": "1.2.3"},
                "dra.example.com/numa": {"int": index},
            },
            "capacity": {"memory": {"value": "1Gi"}},
        }
        for index in range(count)
    ]
    pool = {"name": node, "generation": 0, "resourceSliceCount": 1}
    return {
        "metadata": {"name": node},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices},
    }

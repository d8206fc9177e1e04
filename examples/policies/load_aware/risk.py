"""Load variation risk balancing: nodes whose load is high, or varies much, are avoided.

Source: scheduler-plugins, KEP 61 "Trimaran: Real Load Aware Scheduling", LoadVariationRiskBalancing.
"""

import numpy as np

from .base import LoadAware, LoadQuestion

CPU, MEMORY = 0, 1  # the columns of milli-CPU and of bytes in the node table


def risk(mean, deviation, requested, capacity, margin, sensitivity):
    """float64[...]: 0 to 1, for amounts in the unit of ``capacity``; 1 where there is no capacity.

    The mean of the expected load and of the deviation's root, both as parts of the capacity. A pod is expected to use what it
    requests, without variation.
    """
    capacity = np.asarray(capacity, np.float64)
    whole = np.maximum(capacity, 1e-9)
    expected = np.clip((np.clip(mean, 0, whole) + requested) / whole, 0, 1)
    variation = np.clip(deviation, 0, whole) / whole
    rooted = variation ** (1 / sensitivity) if sensitivity else np.zeros_like(variation)
    return np.where(capacity > 0, (expected + np.clip(margin * rooted, 0, 1)) / 2, 1.0)


class LeastRisk(LoadQuestion):
    def scores(self, rows):
        policy = self.policy
        loads = policy.loads.of(self.nodes, rows)
        risks = []
        for resource in (CPU, MEMORY):
            capacity = self.nodes.allocatable[resource, rows]
            mean, deviation = (loads[2 * resource + figure] / 100 * capacity for figure in (0, 1))
            requested = loads[4 + resource] + self.expected[resource]
            risks.append(risk(mean, deviation, requested, capacity, policy.margin, policy.sensitivity))
        scores = 100 * (1 - np.maximum(*risks))
        return np.where(np.isnan(scores), 0, np.floor(scores + 0.5)).astype(np.int64)


class LoadVariationRiskBalancing(LoadAware):
    """Arguments besides ``provider``, with upstream's names and defaults:

    * ``safeVarianceMargin`` 1: by how much variation counts.
    * ``safeVarianceSensitivity`` 1: which root of the variation counts; 2 magnifies small variations.
    """

    name = "LoadVariationRiskBalancing"
    asks = LeastRisk

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.margin = self.number("safeVarianceMargin", 1, 0)
        self.sensitivity = self.number("safeVarianceSensitivity", 1, 0)

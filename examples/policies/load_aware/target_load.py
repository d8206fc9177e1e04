"""Target load packing: fill nodes up to a target utilisation of CPU, then spread.

Source: scheduler-plugins, KEP 61 "Trimaran: Real Load Aware Scheduling", TargetLoadPacking.
"""

import numpy as np

from kubesched.api.quantity import milli_value

from .base import LoadAware, LoadQuestion

CPU = 0  # the column of milli-CPU in the node table


class NearTarget(LoadQuestion):
    def scores(self, rows):
        loads = self.policy.loads.of(self.nodes, rows)
        capacity = np.maximum(self.nodes.allocatable[CPU, rows], 1)
        used = loads[0] + 100 * (loads[4] + self.expected[0]) / capacity  # percent; NaN where nothing is known
        target = self.policy.target
        packing = (100 - target) * used / target + target
        spreading = target * (100 - used) / (100 - target)
        scores = np.select([used <= target, used <= 100], [packing, spreading], 0.0)
        return np.floor(scores + 0.5).astype(np.int64)


class TargetLoadPacking(LoadAware):
    """Arguments besides ``provider``, with upstream's names and defaults:

    * ``targetUtilization`` 40: percent. As load varies, 10 less than what is wanted.
    * ``defaultRequestsMultiplier`` 1.5: what a container with a request but no limit uses, by its request.
    * ``defaultRequests`` ``{cpu: 1000m}``: what a container with neither uses.
    """

    name = "TargetLoadPacking"
    asks = NearTarget

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.target = self.number("targetUtilization", 40, 0)
        if not 0 < self.target < 100:
            raise ValueError(f"targetUtilization: {self.target:g}; expected percents between 0 and 100")
        self.multiplier = self.number("defaultRequestsMultiplier", 1.5, 0)
        self.default = milli_value((self.args.get("defaultRequests") or {}).get("cpu", "1000m"))

    def expected(self, pod):
        used = sum(self._container(container.resources) for container in pod.spec.containers)
        return used + milli_value((pod.spec.overhead or {}).get("cpu", "0")), 0

    def _container(self, resources):
        if "cpu" in resources.limits:
            return milli_value(resources.limits["cpu"])
        if "cpu" in resources.requests:
            return round(milli_value(resources.requests["cpu"]) * self.multiplier)
        return self.default

"""Balanced fragmentation: FGD that also keeps enough CPU for the GPUs that are still free.

FGD sees a lack of CPU only when the first typical pod no longer fits. By then, pods with much CPU have used the CPU of nodes
that have little of it for each GPU, and their last GPUs stay empty. This policy adds a cost that begins earlier and grows
with its square: by how many of a node's free GPUs the free CPU is too little, for typical pods. Pods with much CPU, and those
without a GPU, then go to nodes with CPU to spare.

Two details matter as much. The choice is exact: scores are not rounded to whole numbers, of which a hundred nodes may
share one. And between nodes of equal cost the one with the least left is chosen, which keeps empty nodes empty.
"""

import numpy as np

from .best_fit import LARGEST
from .fragmentation import FragmentationGradientDescent
from .sharing import FreeGpus

#: Raw scores are whole numbers: this many to a thousandth of a GPU.
_FINE = 1000
_WORST = 1e12


class LeastCost(FreeGpus):
    def scores(self, rows):
        cpu, free = self.left(rows)
        growth = self.policy.growth(self.request, self.cpu, cpu, free).min(axis=1)
        left = free.sum(axis=1) / LARGEST[1] + cpu / LARGEST[0]
        return (-_FINE * (np.round(growth, 1).clip(max=_WORST) + left)).astype(np.int64)

    @staticmethod
    def normalized(scores, low, high):
        # 100 is for the best alone: scaled to 0...100, many nodes would share it.
        return np.where(scores == high, 100, (scores - low) * 99 // max(high - low, 1))


class BalancedFragmentation(FragmentationGradientDescent):
    """Arguments: ``typicalPods`` as for FGD, and ``balance``, the weight of the cost of missing CPU (default 0.3)."""

    name = "BalancedFragmentation"
    asks = LeastCost

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.balance = float((args or {}).get("balance", 0.3))

    def cost(self, cpu, free):
        """float64[...]: fragmentation, and what the lack of CPU costs, in thousandths of GPUs."""
        lack = np.maximum(0, free.sum(axis=-1) / 1000 - cpu / self.typical.cpu_per_gpu)
        return super().cost(cpu, free) + self.balance * 1000 * lack**2

    def rank(self, growth):
        return -growth

"""Fragmentation gradient descent (FGD): the node and the GPU on which the pod makes fragmentation grow least.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023.
"""

import numpy as np

from .request import WHOLE
from .sharing import FreeGpus, GpuSharing
from .typical import TypicalPods

_NEVER = 1e18


class LeastGrowth(FreeGpus):
    def scores(self, rows):
        cpu, free = self.left(rows)
        return self.policy.rank(self.policy.growth(self.request, self.cpu, cpu, free).min(axis=1))


class FragmentationGradientDescent(GpuSharing):
    """Takes the typical pods of the workload as argument ``typicalPods``; see :mod:`.typical`."""

    name = "FragmentationGradientDescent"
    asks = LeastGrowth

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.typical = TypicalPods((args or {}).get("typicalPods"))

    def cost(self, cpu, free):
        """float64[...]: what is to grow least, for free milli-CPU int64[...] and free thousandths int64[..., GPUs]."""
        return self.typical.fragmentation(cpu, free)

    def growth(self, request, pod_cpu, cpu, free):
        """float64[rows, choices]: by how much the cost grows, for each GPU that a fraction may use; one choice else."""
        after = cpu - pod_cpu
        before = self.cost(cpu, free)
        if request.count == 1 and request.milli < WHOLE:
            gpus = free.shape[1]
            choices = free[:, None, :] - request.milli * np.eye(gpus, dtype=np.int64)
            grown = self.cost(np.repeat(after[:, None], gpus, axis=1), np.maximum(choices, 0))
            return np.where(free >= request.milli, grown - before[:, None], _NEVER)
        # Whole GPUs: the first free ones.
        whole = free >= request.milli
        used = whole & (np.cumsum(whole, axis=1) <= request.count) if request.count else np.zeros_like(whole)
        return (self.cost(after, free - request.milli * used) - before)[:, None]

    def rank(self, growth):
        """The score for a growth of the cost: 50 for none, as in the study, where scores are whole numbers of 0 to 100."""
        return (100 / (1 + np.exp(growth.clip(-1e5, 1e5) / WHOLE))).astype(np.int64)

    def choose(self, free, request, cpu_left):
        if request.milli == WHOLE or request.count > 1:
            return super().choose(free, request, cpu_left)
        growth = self.growth(request, 0, np.array([cpu_left]), free[None, :])[0]
        fitting = np.flatnonzero(free >= request.milli)
        return [int(fitting[self.rank(growth[fitting]).argmax()])]

"""Best fit: the node with the least CPU and GPU left, both as parts of the largest node there is."""

import numpy as np

from .sharing import FreeGpus, GpuSharing

#: Milli-CPU and thousandths of GPUs of the largest node, as in the study.
LARGEST = (128_000, 8_000)


class LeastLeft(FreeGpus):
    def scores(self, rows):
        cpu, free = self.left(rows)
        after_cpu = cpu - self.cpu
        after_gpu = free.sum(axis=1) - self.request.total
        left = 0.5 * after_cpu / LARGEST[0] + 0.5 * after_gpu / LARGEST[1]
        return (100 * (1 - left)).astype(np.int64)

    @staticmethod
    def normalized(scores, low, high):
        return (scores - low) * 100 // (high - low) if high > low else np.zeros_like(scores)


class GpuBestFit(GpuSharing):
    name = "GpuBestFit"
    asks = LeastLeft

"""Best fit: the node with the least CPU and GPU left, both as parts of the largest node there is."""

import numpy as np

from .request import gpu_request
from .sharing import GpuSharing

#: Milli-CPU and thousandths of GPUs of the largest node, as in the study.
LARGEST = (128_000, 8_000)


class GpuBestFit(GpuSharing):
    name = "GpuBestFit"

    def score_rows(self, state, pod, nodes, rows):
        cpu, free = self.left(nodes, rows)
        after_cpu = cpu - pod.fit_requests.milli_cpu
        after_gpu = free.sum(axis=1) - gpu_request(pod).total
        left = 0.5 * after_cpu / LARGEST[0] + 0.5 * after_gpu / LARGEST[1]
        return (100 * (1 - left)).astype(np.int64)

    def normalize_within(self, scores, low, high):
        return (scores - low) * 100 // (high - low) if high > low else np.zeros_like(scores)

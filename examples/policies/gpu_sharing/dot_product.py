"""Dot product (Tetris, SIGCOMM 2014): the node whose free resources have the least product with the request."""

import numpy as np

from .best_fit import LARGEST
from .request import gpu_request
from .sharing import GpuSharing


class GpuDotProduct(GpuSharing):
    """The free resources and the request are vectors of CPU and GPU, as parts of the largest node."""

    name = "GpuDotProduct"

    def score_rows(self, state, pod, nodes, rows):
        cpu, free = self.left(nodes, rows)
        products = cpu / LARGEST[0] * (pod.fit_requests.milli_cpu / LARGEST[0])
        products = products + free.sum(axis=1) / LARGEST[1] * (gpu_request(pod).total / LARGEST[1])
        return (100 * (1 - products / 2)).astype(np.int64)

"""Dot product (Tetris, SIGCOMM 2014): the node whose free resources have the least product with the request."""

import numpy as np

from .best_fit import LARGEST
from .sharing import FreeGpus, GpuSharing


class LeastProduct(FreeGpus):
    """The free resources and the request are vectors of CPU and GPU, as parts of the largest node."""

    def scores(self, rows):
        cpu, free = self.left(rows)
        products = cpu / LARGEST[0] * (self.cpu / LARGEST[0])
        products = products + free.sum(axis=1) / LARGEST[1] * (self.request.total / LARGEST[1])
        return (100 * (1 - products / 2)).astype(np.int64)


class GpuDotProduct(GpuSharing):
    name = "GpuDotProduct"
    asks = LeastProduct

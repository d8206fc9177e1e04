"""GPU packing: first GPUs in use, then free GPUs of nodes in use, then empty nodes."""

import numpy as np

from .request import GPU_COUNT, WHOLE
from .sharing import FreeGpus, GpuSharing


class UsedGpus(FreeGpus):
    """100 down to 50 for a GPU in use, the less is left the better; 50 to 33 for free ones; 33 and less for empty nodes."""

    def scores(self, rows):
        request, nodes = self.request, self.nodes
        if not request.count:
            return np.zeros(len(rows), np.int64)
        _, free = self.left(rows)
        exists = np.arange(free.shape[1]) < nodes.allocatable[nodes.column(GPU_COUNT), rows][:, None]
        whole = ((free == WHOLE) & exists).sum(axis=1)
        empty = whole == exists.sum(axis=1)
        # The GPUs that the pod would use: the fullest that fit.
        fitting = np.sort(np.where(free >= request.milli, free, 2 * WHOLE), axis=1)[:, : request.count]
        newly_used = (fitting == WHOLE).sum(axis=1)
        left_over = (fitting * 100 // WHOLE).sum(axis=1)
        scores = np.where(newly_used > 0, np.maximum(50 - newly_used, 33), np.maximum(100 - left_over // 10, 50))
        return np.where(empty, np.maximum(33 - whole, whole), scores)


class GpuPacking(GpuSharing):
    name = "GpuPacking"
    asks = UsedGpus

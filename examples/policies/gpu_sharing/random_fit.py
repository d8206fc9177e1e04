"""Random: any node that fits, any GPU that fits. What every policy should beat."""

from .request import WHOLE
from .sharing import GpuSharing


class GpuRandomFit(GpuSharing):
    """No score: of equally good nodes the scheduler chooses each with the same chance."""

    name = "GpuRandomFit"

    def choose(self, free, request, cpu_left):
        fitting = [device for device, amount in enumerate(free.tolist()) if amount >= request.milli]
        if request.milli == WHOLE:
            return fitting[: request.count]
        return self.handle.random.sample(fitting, request.count)

"""Policies for clusters whose GPUs are shared: several pods on one GPU, in thousandths.

Each module but the first three is one policy on one screen; docs/policies.md describes them.
"""

from .balanced import BalancedFragmentation
from .best_fit import GpuBestFit
from .dot_product import GpuDotProduct
from .fragmentation import FragmentationGradientDescent
from .packing import GpuPacking
from .random_fit import GpuRandomFit

__all__ = [
    "BalancedFragmentation",
    "FragmentationGradientDescent",
    "GpuBestFit",
    "GpuDotProduct",
    "GpuPacking",
    "GpuRandomFit",
]

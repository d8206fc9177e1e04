"""Workloads sampled from a trace's pods, as the study of fragmentation gradient descent samples them.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 6 (workload inflation), and the settings
of the published experiments: load 1.3, seeds 42 to 51, the shapes that make up 95 % of the pods are typical.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from .openb import OpenbPod

__all__ = ["typical_pods", "with_load"]


def with_load(pods: Sequence[OpenbPod], capacity_milli: int, load: float, seed: int) -> list[OpenbPod]:
    """Return the pods in random order. Further pods are drawn from them until all request ``load`` times the capacity.

    ``capacity_milli`` is the capacity of all GPUs together, in thousandths of a GPU. If the pods already request more,
    some are dropped at random instead. Equal seeds give equal workloads.

    Raises:
        ValueError: when no pod requests a GPU, or the load is not positive.
    """
    if load <= 0:
        raise ValueError(f"load {load}: expected a number above 0, such as 1.3")
    if not any(pod.gpus for pod in pods):
        raise ValueError("no pod requests a GPU: the load cannot be reached")
    rng = random.Random(seed)
    target = load * capacity_milli
    result = list(pods)
    rng.shuffle(result)
    total = sum(pod.total_gpu_milli for pod in result)
    if total > target:
        while total > target:
            total -= result.pop(rng.randrange(len(result))).total_gpu_milli
        return result
    while True:
        drawn = pods[rng.randrange(len(pods))]
        # As in the published experiments: a pod with several GPUs counts as one here, so the load may exceed the
        # target.
        if total + drawn.gpu_milli > target:
            return result
        total += drawn.total_gpu_milli
        result.append(drawn)


def typical_pods(pods: Sequence[OpenbPod], percent: int = 95) -> list[dict[str, float]]:
    """Return the most frequent shapes that make up ``percent`` of the pods, with their shares, which sum up to 1.

    Each has ``cpuMilli``, ``gpuMilli``, ``gpus`` and ``share``, the form of a policy's argument.
    """
    counts = Counter(pod.shape for pod in pods)
    ordered = sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True)
    chosen: list[tuple[tuple[int, int, int], int]] = []
    covered = 0
    for shape, count in ordered:
        if 100 * covered >= percent * len(pods):
            break
        chosen.append((shape, count))
        covered += count
    return [
        {"cpuMilli": cpu, "gpuMilli": milli, "gpus": gpus, "share": count / covered}
        for (cpu, milli, gpus), count in chosen
    ]

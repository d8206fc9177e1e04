"""Fragmentation of a node's free GPUs: the part of no use to the pods that are typical for the workload.

For one typical pod, the free parts of a node's GPUs are fragments when the pod does not fit on the node; when it does, only
the GPUs with too little left are. Fragmentation is the mean over the typical pods, by their shares
(Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 3).
"""

import numpy as np


class TypicalPods:
    """The workload as a policy knows it; ``pods`` are from its arguments."""

    def __init__(self, pods):
        """``pods``: mappings with ``cpuMilli``, ``gpuMilli``, ``gpus`` and ``share``.

        Raises:
            ValueError: naming the entry and what would be right.
        """
        if not isinstance(pods, (list, tuple)) or not pods:
            raise ValueError(f"typicalPods: {pods!r}; expected a list of pods with cpuMilli, gpuMilli, gpus and share")
        groups = {}
        cpu_of_gpus = amount = 0
        for index, pod in enumerate(pods):
            try:
                cpu, milli, gpus, share = (pod[key] for key in ("cpuMilli", "gpuMilli", "gpus", "share"))
            except (KeyError, TypeError):
                raise ValueError(
                    f"typicalPods[{index}]: {pod!r}; expected cpuMilli, gpuMilli, gpus and share"
                ) from None
            if gpus:
                cpu_of_gpus += share * cpu
                amount += share * gpus * milli / 1000
                groups.setdefault((milli, gpus), []).append((cpu, share))
        if not groups:
            raise ValueError("typicalPods: none requests a GPU; expected at least one with gpus above 0")
        #: Milli-CPU that typical pods request for each GPU they use.
        self.cpu_per_gpu = cpu_of_gpus / amount
        keys = sorted(groups)
        #: [groups]: pods that differ in CPU only are a group.
        self._milli = np.array([milli for milli, _ in keys], np.int64)
        self._gpus = np.array([gpus for _, gpus in keys], np.int64)
        #: [CPU steps], [CPU steps + 1, groups]: the share of each group's pods that a number of free milli-CPU is enough for.
        self._steps = np.array(sorted({cpu for pods in groups.values() for cpu, _ in pods}), np.int64)
        self._enough = np.zeros((len(self._steps) + 1, len(keys)))
        for column, key in enumerate(keys):
            for cpu, share in groups[key]:
                self._enough[np.searchsorted(self._steps, cpu) + 1 :, column] += share

    def fragmentation(self, cpu, free):
        """float64[...]: thousandths of GPUs, for free milli-CPU int64[...] and free thousandths int64[..., GPUs]."""
        usable = free[..., None, :] >= self._milli[:, None]  # [..., groups, GPUs]
        fits = usable.sum(axis=-1) >= self._gpus
        amount = (usable * free[..., None, :]).sum(axis=-1)
        share = self._enough[np.searchsorted(self._steps, cpu, side="right")]
        return free.sum(axis=-1) - (share * fits * amount).sum(axis=-1)

"""A column plugin: answers for many nodes at once. Pods that need no GPU go to nodes that have none, if they can.

With ``sign`` the scheduler remembers the answers for like pods and asks again only about nodes that changed; ``reads``
says which changes matter. Its arguments come from ``pluginConfig``; see ``examples/config/gpu-last.yaml``.
"""

import numpy as np

from kubesched.framework.interface import Plugin, Reads


class GpuLast(Plugin):
    name = "GpuLast"
    reads = Reads.NODE  # allocatable is the node's; pods coming and going change nothing here

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.resource = (args or {}).get("resource", "nvidia.com/gpu")

    def sign(self, pod):
        return pod.fit_requests.get(self.resource) > 0

    def score_rows(self, state, pod, nodes, rows):
        index = nodes.column(self.resource)
        if index is None or self.sign(pod):
            return np.zeros(len(rows), np.int64)
        return np.where(nodes.allocatable[index, rows] > 0, 0, 100)

"""A fast plugin: answers for many nodes at once. Pods that need no GPU go to nodes that have none, if they can.

Pods whose questions have equal keys get equal answers: the scheduler keeps them and asks again only about nodes that changed;
``reads`` says which changes matter. Its arguments come from ``pluginConfig``; see ``examples/config/gpu-last.yaml``.
"""

import numpy as np

from kubesched.scheduler.framework import Plugin, Question, Reads


class NodesWithoutGpu(Question):
    reads = Reads.NODE  # allocatable is the node's; pods coming and going change nothing here
    key = "any pod that needs no GPU"

    def __init__(self, nodes, resource):
        self.nodes = nodes
        self.resource = resource

    def scores(self, rows):
        index = self.nodes.column(self.resource)
        if index is None:
            return np.zeros(len(rows), np.int64)
        return np.where(self.nodes.allocatable[index, rows] > 0, 0, 100)


class GpuLast(Plugin):
    name = "GpuLast"
    asks = NodesWithoutGpu

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.resource = (args or {}).get("resource", "nvidia.com/gpu")

    def ask(self, pod, nodes):
        if pod.fit_requests.get(self.resource) > 0:
            return None  # the pod needs a GPU: every node is as good
        return NodesWithoutGpu(nodes, self.resource)

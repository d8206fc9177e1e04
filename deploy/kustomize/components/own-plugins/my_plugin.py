"""Keeps pods of different tenants apart; to be replaced by your plugins."""

from kubesched.scheduler.framework import Plugin, Status


class OneTenantPerNode(Plugin):
    """Rejects nodes that run pods with another value of the label ``tenant``."""

    name = "OneTenantPerNode"

    def filter(self, state, pod, node):
        tenants = {other.labels.get("tenant") for other in node.pods.values()}
        if tenants - {pod.labels.get("tenant")}:
            return Status.unschedulable("node(s) belonged to another tenant")
        return None

"""Status of a node, in kubectl's words. Callers: :mod:`.outcome` and :mod:`.course`."""

from __future__ import annotations

from kubesched.api.types import Node
from kubesched.cluster.kubelets import FAILED

__all__ = ["is_failed", "node_status"]


def is_failed(node: Node) -> bool:
    """True if the node's kubelet does not answer, or its Ready condition is not True.

    Nothing runs there: neither its resources nor its pods count. A node without that condition counts as ready.
    """
    if node.metadata.annotations.get(FAILED) == "true":
        return True
    return any(one.type == "Ready" and one.status != "True" for one in node.status.conditions)


def node_status(node: Node) -> str:
    """Return ``Ready`` or ``NotReady``, followed by ``,SchedulingDisabled`` for a cordoned node."""
    status = "NotReady" if is_failed(node) else "Ready"
    return f"{status},SchedulingDisabled" if node.spec.unschedulable else status

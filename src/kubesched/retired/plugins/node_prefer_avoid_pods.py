"""NodePreferAvoidPods: keep the pods of a controller off nodes whose annotation names it, if possible (Score).

Retired with v1beta2. Source: rules/configuration §11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from kubesched.scheduler.framework.interface import MAX_NODE_SCORE, Plugin
from kubesched.scheduler.framework.question import IntArray, Question, Reads, RowArray
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo

if TYPE_CHECKING:
    from kubesched.scheduler.nodes import NodeTable

__all__ = ["ANNOTATION", "NodePreferAvoidPods"]

ANNOTATION: Final = "scheduler.alpha.kubernetes.io/preferAvoidPods"
_CONTROLLERS: Final = frozenset({"ReplicationController", "ReplicaSet"})
#: Most annotation texts that are kept parsed.
_KEPT: Final = 4096

#: Kind and UID of a controller.
_Controller = tuple[str, str]


def _controller(pod: PodInfo) -> _Controller | None:
    """Return the pod's controller, if it is of a kind that nodes can avoid."""
    owner = next((item for item in pod.metadata.owner_references if item.controller), None)
    return (owner.kind, owner.uid) if owner is not None and owner.kind in _CONTROLLERS else None


def _avoided(text: str) -> frozenset[_Controller]:
    """Read the controllers in an annotation; none when it cannot be read, as upstream."""
    try:
        data = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return frozenset()
    found = set()
    entries = data.get("preferAvoidPods") if isinstance(data, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        signature = entry.get("podSignature") if isinstance(entry, dict) else None
        controller = signature.get("podController") if isinstance(signature, dict) else None
        if isinstance(controller, dict):
            kind, uid = controller.get("kind"), controller.get("uid")
            if isinstance(kind, str) and isinstance(uid, str):
                found.add((kind, uid))
    return frozenset(found)


class _AvoidedController(Question):
    """Question about the pod's controller. Annotations have no column, so the annotation of each node is looked up.
    Equal texts are parsed once.
    """

    reads = Reads.NODE

    def __init__(self, pod: PodInfo, nodes: NodeTable, parsed: dict[str, frozenset[_Controller]]) -> None:
        """``parsed`` are the annotation texts that were parsed before."""
        self._controller = _controller(pod)
        self.key = self._controller or ()
        self._nodes, self._parsed = nodes, parsed

    def scores(self, rows: RowArray) -> IntArray:
        info = self._nodes.info
        return np.array([self.score(info(row)) for row in rows.tolist()], np.int64)

    def score(self, node: NodeInfo) -> int:
        text = node.node.metadata.annotations.get(ANNOTATION) if node.node is not None else None
        if text is None:
            return MAX_NODE_SCORE
        avoided = self._parsed.get(text)
        if avoided is None:
            if len(self._parsed) >= _KEPT:
                self._parsed.clear()
            avoided = self._parsed[text] = _avoided(text)
        return 0 if self._controller in avoided else MAX_NODE_SCORE


class NodePreferAvoidPods(Plugin):
    """Preference against nodes that avoid the pod's controller. Its question is :class:`_AvoidedController`."""

    name = "NodePreferAvoidPods"
    asks = _AvoidedController

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        self._parsed: dict[str, frozenset[_Controller]] = {}

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _AvoidedController(pod, nodes, self._parsed)

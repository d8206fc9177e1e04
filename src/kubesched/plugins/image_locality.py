"""ImageLocality: prefer nodes that have the pod's images already (Score).

Spec "Node-level scheduler plugins" section 7.8.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interface import IntArray, Plugin, Reads, RowArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo

from . import names

if TYPE_CHECKING:
    from kubesched.cache import NodeTable

__all__ = ["ImageLocality", "normalized_image"]

_MB: Final = 1024 * 1024
_LEAST: Final = 23 * _MB
_MOST_PER_CONTAINER: Final = 1000 * _MB


def normalized_image(name: str) -> str:
    """An image name with its tag: ``:latest`` when none is given. Registry and digest are not parsed."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _images(pod: PodInfo) -> tuple[str, ...]:
    """The images of init containers, containers and image volumes; duplicates count as often as they occur."""
    spec = pod.spec
    names_ = [item.image for item in (*spec.init_containers, *spec.containers)]
    names_ += [volume.image.get("reference", "") for volume in spec.volumes if volume.image is not None]
    return tuple(normalized_image(name) for name in names_)


class ImageLocality(Plugin):
    """Scatters each image's share to the rows that have it; rows without any cost nothing."""

    name = names.IMAGE_LOCALITY
    signs_spec = True
    reads: ClassVar[Reads] = Reads.IMAGES

    def sign(self, pod: PodInfo) -> Hashable | None:
        # Templates that differ in images alone are alike as long as no node has those.
        states = self.handle.snapshot.table.images.states
        known = sorted(name for name in _images(pod) if name in states)
        return (*known, len(pod.spec.init_containers) + len(pod.spec.containers)) if known else ()

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> IntArray:
        states = [image for name in _images(pod) if (image := nodes.images.states.get(name)) is not None]
        if not states:
            return np.zeros(len(rows), np.int64)
        total = np.zeros(nodes.capacity, np.int64)
        for image in states:
            share = self._share(image.size, len(image.rows), len(nodes))
            total[np.fromiter(image.rows, np.int64, len(image.rows))] += share
        most = _MOST_PER_CONTAINER * (len(pod.spec.init_containers) + len(pod.spec.containers))
        if most <= _LEAST:
            return np.zeros(len(rows), np.int64)
        clamped = np.clip(total[rows], _LEAST, most)
        return 100 * (clamped - _LEAST) // (most - _LEAST)

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        states, total = nodes.images.states, 0
        for name in _images(pod):
            image = states.get(name)
            if image is not None and node.row in image.rows:
                total += self._share(image.size, len(image.rows), len(nodes))
        most = _MOST_PER_CONTAINER * (len(pod.spec.init_containers) + len(pod.spec.containers))
        if most <= _LEAST:
            return 0
        return 100 * (min(max(total, _LEAST), most) - _LEAST) // (most - _LEAST)

    @staticmethod
    def _share(size: int, spread: int, nodes: int) -> int:
        """What an image counts: its size, scaled by how widely it is spread (so no node becomes a hot spot)."""
        return int(float(size) * (float(spread) / float(nodes)))

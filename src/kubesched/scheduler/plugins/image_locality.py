"""ImageLocality: prefer nodes that have the pod's images already (Score).

Source: rules/node-plugins §7.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ..framework.interface import Plugin
from ..framework.question import IntArray, Question, Reads, RowArray
from ..nodes.nodeinfo import NodeInfo
from ..nodes.podinfo import PodInfo

if TYPE_CHECKING:
    from ..nodes import NodeTable

__all__ = ["ImageLocality", "normalized_image"]

_MB: Final = 1024 * 1024
_LEAST: Final = 23 * _MB
_MOST_PER_CONTAINER: Final = 1000 * _MB


def normalized_image(name: str) -> str:
    """Return an image name with its tag, ``:latest`` when none is given. Registry and digest are not parsed."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _images(pod: PodInfo) -> tuple[str, ...]:
    """Images of init containers, containers and image volumes; duplicates count as often as they occur."""
    spec = pod.spec
    names_ = [item.image for item in (*spec.init_containers, *spec.containers)]
    names_ += [volume.image.get("reference", "") for volume in spec.volumes if volume.image is not None]
    return tuple(normalized_image(name) for name in names_)


class _Images(Question):
    """Question about a pod's images.

    Each image's share is added to the rows that have the image; rows without images cost nothing.
    """

    by_spec = True
    reads = Reads.IMAGES

    def __init__(self, pod: PodInfo, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._containers = len(pod.spec.init_containers) + len(pod.spec.containers)
        self._most = _MOST_PER_CONTAINER * self._containers
        self._images = _images(pod)
        # Templates that differ only in images that no node has get equal keys.
        known = sorted(name for name in self._images if name in nodes.images.states)
        self.key = (*known, self._containers) if known else ()

    def scores(self, rows: RowArray) -> IntArray:
        nodes = self._nodes
        states = [image for name in self._images if (image := nodes.images.states.get(name)) is not None]
        if not states or self._most <= _LEAST:
            return np.zeros(len(rows), np.int64)
        total = np.zeros(nodes.capacity, np.int64)
        for image in states:
            share = _share(image.size, len(image.rows), len(nodes))
            total[np.fromiter(image.rows, np.int64, len(image.rows))] += share
        clamped = np.clip(total[rows], _LEAST, self._most)
        return 100 * (clamped - _LEAST) // (self._most - _LEAST)

    def score(self, node: NodeInfo) -> int:
        nodes, total = self._nodes, 0
        for name in self._images:
            image = nodes.images.states.get(name)
            if image is not None and node.row in image.rows:
                total += _share(image.size, len(image.rows), len(nodes))
        if self._most <= _LEAST:
            return 0
        return 100 * (min(max(total, _LEAST), self._most) - _LEAST) // (self._most - _LEAST)


def _share(size: int, spread: int, nodes: int) -> int:
    """Score of an image: its size, scaled by the share of nodes that have it, so that no node becomes a hot spot."""
    return int(float(size) * (float(spread) / float(nodes)))


class ImageLocality(Plugin):
    """Preference for nodes that have the images. Its question is :class:`_Images`."""

    name = "ImageLocality"
    asks = _Images

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        return _Images(pod, nodes)

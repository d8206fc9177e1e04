"""The images that nodes list: those that pods have run there. Caller: :mod:`.hollow`, when that is switched on."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping

from ...api.kinds import NODES
from ...api.types import Pod
from ...api.wire import MERGE_PATCH, ApiError, Transport
from .watched import Image

__all__ = ["NodeImages"]


class NodeImages:
    """``sizes`` are bytes by image name; others get a size derived from their name. ``note`` receives problems."""

    def __init__(self, client: Transport, sizes: Mapping[str, int], note: Callable[[str], None]) -> None:
        self._client = client
        self._sizes = dict(sizes)
        self._note = note
        self._images: dict[str, dict[str, int]] = {}

    def node_changed(self, node: str, listed: Iterable[Image]) -> None:
        self._images[node] = {image.names[0]: image.sizeBytes for image in listed if image.names}

    def node_removed(self, node: str) -> None:
        self._images.pop(node, None)

    async def add(self, node: str, pod: Pod) -> None:
        """List a pod's images on its node, those that are new there."""
        images = self._images.get(node)
        if images is None:
            return
        wanted = [_full_name(item.image) for item in (*pod.spec.init_containers, *pod.spec.containers)]
        new = [name for name in dict.fromkeys(wanted) if name not in images]
        if not new:
            return
        for name in new:
            images[name] = self._sizes.get(name) or _made_up_size(name)
        listed = [{"names": [name], "sizeBytes": size} for name, size in images.items()]
        try:
            await self._client.patch(
                NODES, "", node, {"status": {"images": listed}}, patch_type=MERGE_PATCH, subresource="status"
            )
        except (ApiError, OSError) as error:
            self._note(f"node {node}: images: {error}")
            for name in new:
                del images[name]  # the next pod with this image tries again


def _full_name(image: str) -> str:
    """An image with its tag: what no tag means is ``latest``."""
    last = image.rpartition("/")[2]
    return image if ":" in last or "@" in last else f"{image}:latest"


def _made_up_size(image: str) -> int:
    """20 MB to 1 GB, always the same for one name."""
    return 20_000_000 + zlib.crc32(image.encode()) % 980_000_000

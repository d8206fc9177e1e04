"""Table of the container images on the nodes (rules/cache-and-events §6.3)."""

from __future__ import annotations

from kubesched.api.types import Node

__all__ = ["ImageState", "ImageTable"]


class ImageState:
    """State of an image name: its size in bytes as first reported, and the rows of the nodes that have the image."""

    __slots__ = ("rows", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: set[int] = set()


class ImageTable:
    """Table of images, by name.

    ``version`` grows when the set of nodes of any image changes, ``names_version`` when a name comes or goes.
    """

    def __init__(self) -> None:
        self.states: dict[str, ImageState] = {}
        self.version = 0
        self.names_version = 0

    def replace(self, row: int, old: Node | None, new: Node | None) -> None:
        """Replace the images of a row's old node object by the images of its new node object.

        An image keeps the size that was reported first, as long as any node has the image.
        """
        if old is not None and new is not None and old.status.images == new.status.images:
            return
        if old is not None:
            for image in old.status.images:
                for name in image.names:
                    state = self.states.get(name)
                    if state is not None:
                        state.rows.discard(row)
                        if not state.rows:
                            del self.states[name]
                            self.names_version += 1
                        self.version += 1
        if new is not None:
            for image in new.status.images:
                for name in image.names:
                    state = self.states.get(name)
                    if state is None:
                        state = self.states[name] = ImageState(image.size_bytes)
                        self.names_version += 1
                    state.rows.add(row)
                    self.version += 1

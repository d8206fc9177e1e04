"""Which images are on which nodes (rules/cache-and-events §6.3)."""

from __future__ import annotations

from kubesched.api.types import Node

__all__ = ["ImageState", "ImageTable"]


class ImageState:
    """One image name: its size in bytes as first reported, and the rows of the nodes that have it."""

    __slots__ = ("rows", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: set[int] = set()


class ImageTable:
    """Image name to state. ``version`` grows whenever any spread changes, ``names_version`` when a name comes or goes."""

    def __init__(self) -> None:
        self.states: dict[str, ImageState] = {}
        self.version = 0
        self.names_version = 0

    def replace(self, row: int, old: Node | None, new: Node | None) -> None:
        """Take a row from its old node object to its new one. The size stays the first seen while any node has the image."""
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

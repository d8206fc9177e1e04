"""Pods as they are stored: in parts, because most of them have the spec of their template but for the node.

The text of a spec without the node is kept once, and a write encodes only the sections that it changed. The whole object is
put together when its bytes are read. Caller: the last step of every write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...api.kinds import PODS, Kind
from ...api.shared_parts import decode_parts, split_spec
from .objects import Document, Stored, encode_clean

__all__ = ["StoredPod", "stored"]

_PARTS: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_MOST_TEXTS: Final = 1 << 12
#: Specs without a node and names of nodes, each kept once; emptied when there are too many.
_texts: dict[bytes, bytes] = {}


def stored(
    kind: Kind, document: Document, metadata: Mapping[str, Any], resource_version: int, before: Stored | None
) -> Stored:
    """The stored form of a document with its metadata opened; ``before`` as for :class:`.objects.Stored`.

    Raises:
        ApiError: 400, when it holds something JSON cannot say.
    """
    if kind is PODS and document.keys() == _PARTS:
        return StoredPod(document, metadata, resource_version, before)
    return Stored(kind, encode_clean(document), metadata, resource_version, before)


class StoredPod(Stored):
    """A pod with metadata, spec and status, and nothing else."""

    __slots__ = ("_metadata", "_node", "_spec", "_status")

    def __init__(
        self, document: Document, metadata: Mapping[str, Any], resource_version: int, before: Stored | None
    ) -> None:
        self._metadata, self._status = encode_clean(metadata), _text(document["status"])
        node, spec = split_spec(_text(document["spec"]))
        self._node, self._spec = _once(node) if node else node, _once(spec)
        super().__init__(PODS, b"", metadata, resource_version, before)
        del self.raw  # unset, so that every reader ends in __getattr__

    def __getattr__(self, name: str) -> Any:
        if name != "raw":
            raise AttributeError(name)
        parts = self._metadata, b',"spec":', self._whole_spec(), b',"status":', self._status, b"}"
        return b'{"apiVersion":"v1","kind":"Pod","metadata":' + b"".join(parts)

    def _whole_spec(self) -> bytes:
        return b'{"nodeName":"%b",%b' % (self._node, self._spec[1:]) if self._node else self._spec

    @property
    def typed(self) -> Any:
        if self._typed is None:
            parts = self._metadata, self._node, self._spec, self._status
            self._typed = decode_parts(*parts, self.namespace, self.name, self.uid) or super().typed
        return self._typed

    def document(self) -> Document:
        return {
            "apiVersion": PODS.api_version,
            "kind": PODS.kind,
            "metadata": msgspec.json.decode(self._metadata),
            "spec": msgspec.Raw(self._whole_spec()),
            "status": msgspec.Raw(self._status),
        }


def _text(section: Any) -> bytes:
    """The JSON of a section; one that was not opened is taken as it is."""
    return bytes(section) if isinstance(section, msgspec.Raw) else encode_clean(section)


def _once(text: bytes) -> bytes:
    known = _texts.get(text)
    if known is None:
        if len(_texts) >= _MOST_TEXTS:
            _texts.clear()
        known = _texts[text] = text
    return known

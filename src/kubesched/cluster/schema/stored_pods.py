"""Pods as stored, in parts: pods of one template share most of their text.

Equal parts are kept once for all pods: the spec without the node, the metadata without name, UID and version, the
status without the addresses. A write encodes only the sections that it changed. The whole object is put together when
its bytes are read. Caller: the last step of every write.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Final

import msgspec

from kubesched.api.kinds import PODS, Kind
from kubesched.api.shared_parts import decode_parts, next_version, split_spec
from kubesched.base.kept import Kept, remembered

from .objects import Document, Stored, drop_nulls, encode, encode_clean

__all__ = ["StoredPod", "stored"]

_PARTS: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_MOST_TEXTS: Final = 4 << 20
#: Metadata and status of pods, and their specs without the node, each text kept once.
_texts: Kept[bytes, bytes] = Kept(_MOST_TEXTS, is_timed=True)
_specs: Kept[bytes, bytes] = Kept(_MOST_TEXTS)
#: Marks for addresses and identity that were cut out of a text. JSON has no such characters.
_FIRST: Final = b"\0"
_SECOND: Final = b"\1"
_POD_IP: Final = b'"podIP":"'
_HOST_IP: Final = b'"hostIP":"'
_DELETED: Final = b'"deletionTimestamp"'


def stored(
    kind: Kind, document: Document, resource_version: int, before: Stored | None, *, same_metadata: bool = False
) -> Stored:
    """Return the stored form of a document with its metadata opened; ``before`` as for :class:`.objects.Stored`.

    ``same_metadata``: only the version differs from the metadata of ``before``.

    Raises:
        ApiError: 400, when the document has a value that JSON cannot express.
    """
    if kind is PODS and document.keys() == _PARTS:
        return StoredPod(document, resource_version, before, same_metadata=same_metadata)
    metadata = document["metadata"]
    if kind.custom:  # the schema has dropped the nulls that are not allowed
        document = {**document, "metadata": drop_nulls(metadata)}
    return Stored(kind, encode_clean(document, nulls=kind.custom), metadata, resource_version, before)


class StoredPod(Stored):
    """Pod with metadata, spec and status, and no other members."""

    __slots__ = ("_host", "_ip", "_metadata", "_node", "_spec", "_status")

    def __init__(
        self, document: Document, resource_version: int, before: Stored | None, *, same_metadata: bool = False
    ) -> None:
        self._metadata: bytes
        if same_metadata and isinstance(before, StoredPod) and not before._metadata.startswith(b"{"):
            super().__init__(PODS, b"", None, resource_version, before)
            self._metadata = before._metadata
        else:
            metadata = document["metadata"]
            text = encode_clean(metadata)
            super().__init__(PODS, b"", metadata, resource_version, before)
            self._metadata = _once(self._without_identity(text))
        del self.raw  # left unset, so that reading it calls __getattr__
        self._node, spec = split_spec(_text(document["spec"]))
        self._spec = _once(spec, _specs)
        #: Addresses of the pod and of its host, in quotes; empty where they are still in the text of the status.
        self._ip, self._host, status = _without_addresses(_text(document["status"]))
        self._status = _once(status)
        if isinstance(before, StoredPod) and before._ip == self._ip:
            self._ip = before._ip

    @property
    def template(self) -> tuple[bytes, bytes, bytes] | None:
        """Texts of metadata, spec and status, as a key for equal pods.

        None for a pod with parts of its own: a node, an address.
        """
        if self._node or self._ip or self._host or self._metadata.startswith(b"{"):
            return None
        return self._metadata, self._spec, self._status

    def placed(self, node: str, like: StoredPod, resource_version: int) -> StoredPod | None:
        """Return the next version of a pod that is bound to a node. ``like`` had the same template and was bound.

        None where more than the node differs, as for a name that needs escapes in JSON.
        """
        # No escapes or multi-byte letters: JSON adds only two quotes.
        if not like._node or like._ip or like._host or len(encode(node)) != len(node) + 2:
            return None
        item = self._successor(resource_version)
        item._metadata, item._spec, item._status = like._metadata, like._spec, like._status
        item._node, item._ip, item._host = intern(node), b"", b""
        return item

    @property
    def can_be_copied(self) -> bool:
        """True if no part of the texts belongs to this pod alone; see :meth:`copy`."""
        return not self._metadata.startswith(b"{")

    def copy(self, name: str, uid: str, resource_version: int) -> StoredPod:
        """Return another pod like this one, with a name, UID and version of its own."""
        item = self._bare(name, uid, resource_version)
        item._metadata, item._spec, item._status = self._metadata, self._spec, self._status
        item._node, item._ip, item._host = self._node, self._ip, self._host
        return item

    @property
    def texts(self) -> tuple[bytes, bytes] | None:
        """Texts of metadata (without name, UID and version) and status, for :meth:`next_version`.

        None if the metadata could not be separated from these three, and for a pod that is being deleted.
        """
        metadata = self._metadata
        if metadata.startswith(b"{") or _says_deleted(metadata):
            return None
        return metadata, self._whole_status(self._status)

    def next_version(self, resource_version: int, status: bytes | None = None) -> StoredPod:
        """Return the pod with another version, and with this text of a status (None: its present status)."""
        item = self._successor(resource_version)
        item._metadata, item._spec, item._node = self._metadata, self._spec, self._node
        if status is None:
            item._ip, item._host, item._status = self._ip, self._host, self._status
        elif (known := _texts.get(status)) is not None:  # a shared text has no addresses
            item._ip, item._host, item._status = b"", b"", known
        else:
            item._ip, item._host, text = _without_addresses(status)
            item._status = _once(text)
            if item._ip == self._ip:
                item._ip = self._ip
        if self._typed is not None:
            # Informers read every version. The new view shares most of the old one.
            other = None if item._status is self._status else (item._status, item._whole_status)
            item._typed = next_version(self._typed, resource_version, other)
        return item

    def seen_at(self, resource_version: int) -> Stored:
        return self.next_version(resource_version) if self.can_be_copied else super().seen_at(resource_version)

    def _successor(self, resource_version: int) -> StoredPod:
        """Return the next version of the pod, its parts still unset."""
        item = self._bare(self.name, self.uid, resource_version)
        item._key = self.key
        return item

    def _bare(self, name: str, uid: str, resource_version: int) -> StoredPod:
        """Return a pod with the namespace, labels and owners of this one, its parts still unset."""
        # Stored's initializer is not called, so that ``raw`` stays unset and reading it calls __getattr__.
        item = StoredPod.__new__(StoredPod)
        item.kind, item.namespace, item.name, item.uid = PODS, self.namespace, name, uid
        item.resource_version = resource_version
        item.labels, item.owners = self.labels, self.owners
        item._key, item._typed, item.fields = "", None, None
        return item

    def _identity(self) -> tuple[bytes, bytes]:
        """Return the two pieces of the metadata that belong to this version only: the name, and UID with version."""
        own = f'"uid":"{self.uid}","resourceVersion":"{self.resource_version}"'
        return f'{{"name":"{self.name}",'.encode(), own.encode()

    def _without_identity(self, metadata: bytes) -> bytes:
        """Return the text of the metadata with name, UID and version cut out.

        If they are not where a store writes them, return the whole text.
        """
        first, second = self._identity()
        begin = metadata.find(b'"uid"')
        if not metadata.startswith(second, begin) or not metadata.startswith(first) or b"{" in metadata[1:begin]:
            return metadata
        return b"%b\0%b" % (metadata[len(first) : begin], metadata[begin + len(second) :])

    def _whole_metadata(self, text: bytes) -> bytes:
        if text.startswith(b"{"):  # identity was not cut out
            return text
        first, second = self._identity()
        before, _, after = text.partition(_FIRST)
        return b"%b%b%b%b" % (first, before, second, after)

    def _whole_status(self, text: bytes) -> bytes:
        if self._host:
            text = text.replace(_SECOND, _addresses(_HOST_IP, self._host), 1)
        return text.replace(_FIRST, _addresses(_POD_IP, self._ip), 1) if self._ip else text

    def _whole_spec(self) -> bytes:
        return b'{"nodeName":"%b",%b' % (self._node.encode(), self._spec[1:]) if self._node else self._spec

    def __getattr__(self, name: str) -> Any:
        if name != "raw":
            raise AttributeError(name)
        metadata, status = self._whole_metadata(self._metadata), self._whole_status(self._status)
        parts = metadata, b',"spec":', self._whole_spec(), b',"status":', status, b"}"
        return b'{"apiVersion":"v1","kind":"Pod","metadata":' + b"".join(parts)

    @property
    def size(self) -> int:
        return len(self._metadata) + len(self._spec) + len(self._status)

    @property
    def typed(self) -> Any:
        if self._typed is None:
            metadata, status = (self._metadata, self._whole_metadata), (self._status, self._whole_status)
            own = None if self._metadata.startswith(b"{") else (self.name, self.uid, self.resource_version)
            self._typed = decode_parts(metadata, self._node, self._spec, status, own) or super().typed
        return self._typed

    def document(self) -> Document:
        return {
            "apiVersion": PODS.api_version,
            "kind": PODS.kind,
            "metadata": msgspec.json.decode(self._whole_metadata(self._metadata)),
            "spec": msgspec.Raw(self._whole_spec()),
            "status": msgspec.Raw(self._whole_status(self._status)),
        }


@remembered(1 << 20, is_timed=True)
def _says_deleted(metadata: bytes) -> bool:
    """True if a shared text of metadata belongs to pods that are being deleted."""
    return _DELETED in metadata


def _text(section: Any) -> bytes:
    """Return the JSON of a section. An unopened section is returned as it is."""
    return bytes(section) if isinstance(section, msgspec.Raw) else encode_clean(section)


def _without_addresses(status: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the quoted addresses of the pod and of its host, and the status with these cut out.

    An address is empty if it is missing, or not in the usual form.
    """
    if b'IP":"' not in status or _FIRST in status or _SECOND in status:
        return b"", b"", status
    ip, status = _without(status, _POD_IP, _FIRST)
    host, status = _without(status, _HOST_IP, _SECOND)
    return ip, _once(host), status


def _without(status: bytes, member: bytes, mark: bytes) -> tuple[bytes, bytes]:
    begin = status.find(member) + len(member) - 1
    address = status[begin : status.find(b'"', begin + 1) + 1] if begin >= len(member) - 1 else b""
    before, found, after = status.partition(_addresses(member, address))
    return (address, before + mark + after) if address and found else (b"", status)


def _addresses(member: bytes, address: bytes) -> bytes:
    """Return the members of a status for a single address, which appears in both."""
    return b'%b%b,"%bs":[{"ip":%b}]' % (member[:-1], address, member[1:-3], address)


def _once(text: bytes, texts: Kept[bytes, bytes] = _texts) -> bytes:
    known = texts.get(text)
    return texts.keep(text, text, len(text)) if known is None else known

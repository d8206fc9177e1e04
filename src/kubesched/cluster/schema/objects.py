"""Stored objects and the few operations on their JSON that every verb needs.

A document is an object split at its top level: ``{"metadata": Raw, "spec": Raw, ...}``. A verb opens only
the sections it touches and the rest travels as bytes, so unknown fields survive and a status patch never
decodes a spec. Caller: ``store`` and its helpers; the bytes end in ``table``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import msgspec

from kubesched.api.equality import same_json
from kubesched.api.kinds import Kind
from kubesched.api.shared_parts import shared_labels
from kubesched.api.wire import ApiError, Item

__all__ = [
    "NO_LABELS",
    "Document",
    "Stored",
    "decode_document",
    "drop_nulls",
    "encode",
    "encode_clean",
    "fnv_letters",
    "has_condition",
    "letters_of",
    "new_uid",
    "open_section",
    "random_suffix",
    "same_section",
]

#: Object split at its top level; values are ``msgspec.Raw`` until opened.
Document = dict[str, Any]

#: Labels of every object without labels. Never change this dict.
NO_LABELS: Final[dict[str, str]] = {}
#: Random bits of a version 4 UUID, and its fixed bits: version and variant.
_UID_RANDOM: Final = ~(0xF << 76 | 0x3 << 62)
_UID_FIXED: Final = 0x4 << 76 | 0x2 << 62
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_PAIRS: Final = [first + second for second in _LETTERS for first in _LETTERS]

encode = msgspec.json.Encoder().encode
#: Decoder that splits the bytes of an object at the top level. All sections stay closed.
decode_document: Final[Callable[[bytes], Document]] = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Stored(Item):
    """Item with labels, owners and fields decoded, for selectors and garbage collection.

    ``labels`` is shared: never change it. ``fields`` are filled in by :mod:`..fields` on first use.
    """

    __slots__ = ("fields", "labels", "owners")

    def __init__(
        self,
        kind: Kind,
        raw: bytes,
        metadata: Mapping[str, Any] | None,
        resource_version: int,
        before: Stored | None = None,
    ) -> None:
        """``before`` is the version that this one replaces.

        Both share unchanged texts, and without ``metadata`` also labels and owners.
        """
        self.labels: dict[str, str]
        self.owners: tuple[str, ...]
        self.fields: dict[str, str] | None = None
        if before is not None:
            super().__init__(kind, raw, before.namespace, before.name, before.uid, resource_version)
            self._key = before.key
            if metadata is None:
                self.labels, self.owners = before.labels, before.owners
                return
        else:
            assert metadata is not None
            namespace: str = metadata.get("namespace") or ""
            super().__init__(kind, raw, namespace, metadata["name"], metadata["uid"], resource_version)
        labels = metadata.get("labels")
        self.labels = shared_labels(labels) if labels else NO_LABELS
        references = metadata.get("ownerReferences")
        self.owners = tuple([item.get("uid", "") for item in references]) if references else ()

    def forget(self) -> None:
        super().forget()
        self.fields = None

    def document(self) -> Document:
        """Return the object split at its top level, with ``metadata`` opened. The caller may change it."""
        document = decode_document(self.raw)
        document["metadata"] = msgspec.json.decode(document["metadata"])
        return document

    def seen_at(self, resource_version: int) -> Stored:
        """Return the same object as of another resource version."""
        document = self.document()
        document["metadata"]["resourceVersion"] = str(resource_version)
        return Stored(self.kind, encode(document), document["metadata"], resource_version)

    def section(self, name: str) -> Any:
        """Return a top-level member as plain data; None when absent."""
        section = decode_document(self.raw).get(name)
        return None if section is None else msgspec.json.decode(section)


def open_section(document: Document, name: str) -> Any:
    """Return the plain data of a section, decoded at most once; None when absent."""
    value = document.get(name)
    if isinstance(value, msgspec.Raw):
        value = document[name] = msgspec.json.decode(value)
    return value


def same_section(left: Any, right: Any) -> bool:
    """True if two sections hold the same data. Each may be opened or not."""
    if isinstance(left, msgspec.Raw):
        if isinstance(right, msgspec.Raw) and left == right:
            return True
        left = msgspec.json.decode(left)
    if isinstance(right, msgspec.Raw):
        right = msgspec.json.decode(right)
    return same_json(left, right)


def drop_nulls(data: Any) -> Any:
    """Return a copy without null members: on the wire null means absent. Nulls inside lists stay."""
    if isinstance(data, dict):
        return {key: drop_nulls(value) for key, value in data.items() if value is not None}
    if isinstance(data, list):
        return [drop_nulls(value) for value in data]
    return data


def has_condition(data: Mapping[str, Any], type_: str, status: str = "True") -> bool:
    """True if an object's status has a condition of a type with this status."""
    conditions = (data.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == type_ and one.get("status") == status for one in conditions)


def encode_clean(value: Any, what: str = "the object", *, nulls: bool = False) -> bytes:
    """Return the JSON of a caller's data. Null members are dropped unless ``nulls`` is set, for custom resources with
    nulls as data.

    Raises:
        ApiError: 400, for data that JSON cannot express.
    """
    try:
        raw = encode(value)
    except (TypeError, ValueError) as error:
        raise ApiError.bad_request(f"{what} cannot be written as JSON: {error}") from None
    if not nulls and b":null" in raw:
        raw = encode(drop_nulls(msgspec.json.decode(raw)))
    return raw


def new_uid(random: Random) -> str:
    """Return a version 4 UUID from a seeded generator."""
    digits = (random.getrandbits(128) & _UID_RANDOM | _UID_FIXED).to_bytes(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def letters_of(number: int, length: int) -> str:
    """Return the lowest digits of a number in upstream's alphabet for names: no vowels, no look-alikes."""
    text = ""
    for _ in range(length // 2):
        number, place = divmod(number, len(_PAIRS))
        text += _PAIRS[place]
    return text + _LETTERS[number % len(_LETTERS)] if length % 2 else text


def fnv_letters(text: str) -> str:
    """Return a short name for a text: the digits of its 32-bit FNV-1a hash, in upstream's alphabet for names."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_LETTERS[ord(digit) % len(_LETTERS)] for digit in str(value))


def random_suffix(random: Random, length: int = 5) -> str:
    """Return the random end of a generated name."""
    return letters_of(random.getrandbits(8 * length), length)

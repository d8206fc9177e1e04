"""Protobuf written by hand: an encoder that shares nothing with the runtime that decodes."""

from __future__ import annotations

import struct

__all__ = ["envelope", "pb"]


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def pb(number: int, value: str | bytes | float) -> bytes:
    """A field: text, message or bytes, number, switch."""
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value & (1 << 64) - 1)
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def envelope(api_version: str, kind: str, content: bytes) -> bytes:
    """Return the bytes that Go sends for an object: the magic number and an Unknown with all its members."""
    head = pb(1, pb(1, api_version) + pb(2, kind))
    return b"k8s\0" + head + pb(2, content) + pb(3, "") + pb(4, "")

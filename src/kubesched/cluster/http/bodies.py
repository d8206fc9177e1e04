"""Request bodies: size, media type, JSON and YAML with positions, and keys that come twice.

Caller: the verb modules. Unknown fields are found by :mod:`.fieldcheck`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...api.wire import ApiError
from ...api.yamltext import Document, TextError, parse_json, parse_single

__all__ = ["MAX_BODY", "PROTOBUF", "Body", "decode_body", "is_decodable", "media_type", "not_decodable", "unsupported"]

#: Upstream's limit for a JSON body.
MAX_BODY: Final = 3 * 1024 * 1024
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_YAML: Final = frozenset({"application/yaml", "text/yaml", "application/x-yaml", "application/apply-patch+yaml"})


class Body:
    """A decoded body and the paths of keys that came twice."""

    __slots__ = ("data", "duplicates")

    def __init__(self, data: Any, duplicates: list[str]) -> None:
        self.data = data
        self.duplicates = duplicates


def media_type(content_type: str, default: str = "application/json") -> str:
    """The media type of a Content-Type header, without parameters."""
    return content_type.split(";", 1)[0].strip().lower() or default


def unsupported(accepted: tuple[str, ...]) -> ApiError:
    text = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {text}"
    return ApiError(415, "UnsupportedMediaType", message)


def decode_body(raw: bytes, content_type: str) -> Body:
    """Plain data of a JSON, YAML or protobuf body.

    Raises:
        ApiError: 415 for another media type, 400 with the position for text that does not parse.
    """
    kind = media_type(content_type)
    if _is_json(kind):
        return _read(parse_json, raw, "couldn't get version/kind; json parse error")
    if kind in _YAML:
        return _read(parse_single, raw, "error converting YAML to JSON: yaml")
    if kind == PROTOBUF:
        from .protobuf import decode_protobuf  # noqa: PLC0415 - its runtime is only loaded for clients that send it

        return Body(decode_protobuf(raw), [])
    raise not_decodable()


def is_decodable(kind: str) -> bool:
    """Whether bodies of a media type can be read here."""
    return _is_json(kind) or kind in _YAML or kind == PROTOBUF


def _is_json(kind: str) -> bool:
    return kind in ("application/json", "*/*") or kind.endswith("+json")


def not_decodable() -> ApiError:
    """415 for a body of a type that cannot be read here."""
    return unsupported(("application/json", "application/yaml", PROTOBUF))


def _read(parse: Callable[[bytes], Document], raw: bytes, prefix: str) -> Body:
    try:
        document = parse(raw)
    except TextError as error:
        raise ApiError.bad_request(f"{prefix}: {error}") from None
    return Body(document.data, [found.path for found in document.duplicates])

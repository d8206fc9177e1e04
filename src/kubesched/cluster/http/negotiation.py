"""What the client accepts: plain objects, tables, metadata only, JSON or YAML.

Caller: :mod:`.server`, once per request; the answer is made by :mod:`.answers`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from ...api.wire import ApiError

__all__ = ["OPENAPI_V2_PROTOBUF", "Accepted", "accepted"]

JSON: Final = "application/json"
YAML: Final = "application/yaml"
OPENAPI_V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_TRANSFORMS: Final = frozenset(
    {
        ("meta.k8s.io", "v1", "Table"),
        ("meta.k8s.io", "v1beta1", "Table"),
        ("meta.k8s.io", "v1", "PartialObjectMetadata"),
        ("meta.k8s.io", "v1", "PartialObjectMetadataList"),
        ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList"),
        ("apidiscovery.k8s.io", "v2beta1", "APIGroupDiscoveryList"),
    }
)


class Accepted(NamedTuple):
    """The form of the answer. ``transform`` is empty, or one of the kinds above in group version ``version``."""

    media_type: str = JSON
    transform: str = ""
    version: str = ""


class _Range(NamedTuple):
    media_type: str
    params: dict[str, str]
    quality: float


@lru_cache(maxsize=512)
def accepted(header: str) -> Accepted:
    """The best form this server can give; ranges are tried by quality, then in their order.

    Raises:
        ApiError: 406, when none of them can be given (protobuf alone, for example).
    """
    if not header:
        return Accepted()
    for media_type, params, quality in _ranges(header):
        if quality <= 0:
            continue
        kind = params.get("as", "")
        if kind and (params.get("g", ""), params.get("v", ""), kind) not in _TRANSFORMS:
            continue
        version = params.get("v", "") if kind else ""
        if media_type in (JSON, "*/*", "application/*"):
            return Accepted(JSON, kind, version)
        if media_type in (YAML, "text/yaml"):
            return Accepted(YAML, kind, version)
        if media_type == OPENAPI_V2_PROTOBUF:
            return Accepted(OPENAPI_V2_PROTOBUF)
    message = f"only the following media types are accepted: {JSON}, {YAML}"
    raise ApiError(406, "NotAcceptable", message)


def _ranges(header: str) -> list[_Range]:
    found = []
    for part in header.split(","):
        media_type, *texts = part.split(";")
        params = {}
        for text in texts:
            name, _, value = text.partition("=")
            params[name.strip().lower()] = value.strip().strip('"')
        try:
            quality = float(params.pop("q", "1"))
        except ValueError:
            quality = 0.0
        found.append(_Range(media_type.strip().lower(), params, quality))
    return sorted(found, key=lambda item: -item.quality)

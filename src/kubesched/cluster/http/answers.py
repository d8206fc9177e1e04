"""Answers: accepted media types, bytes, headers, pretty printing, YAML, and the Status of a refusal.

Callers: :mod:`.server` and the verb modules. Objects are bytes already; only YAML has to decode them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import HttpVersion11, web

from kubesched.api.wire import ApiError
from kubesched.api.yamltext import to_yaml
from kubesched.base.kept import remembered

from ..schema import encode

__all__ = [
    "BATCH",
    "JSON",
    "OPENAPI_V2_PROTOBUF",
    "PLAIN",
    "YAML",
    "Accepted",
    "Answer",
    "Style",
    "accepted",
    "begin_stream",
    "failed",
    "json_answer",
    "refusal",
    "set_headers",
    "style_of",
    "success",
    "text_answer",
    "whole",
]

JSON: Final = "application/json"
YAML: Final = "application/yaml"
OPENAPI_V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_TRANSFORMS: Final = {
    "Table": ("meta.k8s.io/v1", "meta.k8s.io/v1beta1"),
    "PartialObjectMetadata": ("meta.k8s.io/v1",),
    "PartialObjectMetadataList": ("meta.k8s.io/v1",),
    "APIGroupDiscoveryList": ("apidiscovery.k8s.io/v2", "apidiscovery.k8s.io/v2beta1"),
}
#: Media type of the answer, by media type in the request.
_GIVEN: Final = {JSON: JSON, "*/*": JSON, "application/*": JSON, YAML: YAML, "text/yaml": YAML}
_PRETTY_AGENTS: Final = ("curl/", "Wget/", "Mozilla/5.0")
_BASE: Final = {"Cache-Control": "no-cache, private"}
#: Most objects of a list that are written without a pause: some milliseconds of work.
BATCH: Final = 256


# -- what the client wants -----------------------------------------------------------------------------------


class Accepted(NamedTuple):
    """Form of the answer.

    ``transform`` is empty, or the kind that objects are turned into (such as ``Table``), of group version ``version``.
    """

    media_type: str = JSON
    transform: str = ""
    version: str = ""


@remembered(1 << 18)
def accepted(header: str) -> Accepted:
    """Return the best form this server can give. Ranges are tried by quality, then in their order.

    Raises:
        ApiError: 406, when the server can give none of them (protobuf alone, for example).
    """
    if not header:
        return Accepted()
    for media_type, params, quality in _ranges(header):
        kind, version = params.get("as", ""), params.get("v", "")
        if quality <= 0 or (kind and f"{params.get('g', '')}/{version}" not in _TRANSFORMS.get(kind, ())):
            continue
        if media_type == OPENAPI_V2_PROTOBUF:
            return Accepted(OPENAPI_V2_PROTOBUF)
        if media_type in _GIVEN:
            return Accepted(_GIVEN[media_type], kind, version if kind else "")
    message = f"only the following media types are accepted: {JSON}, {YAML}"
    raise ApiError(406, "NotAcceptable", message)


def _ranges(header: str) -> list[tuple[str, dict[str, str], float]]:
    """Return media types with their parameters and qualities, best first."""
    found = []
    for part in header.split(","):
        media_type, *texts = part.split(";")
        pairs = (text.partition("=") for text in texts)
        params = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        try:
            quality = float(params.pop("q", "1"))
        except ValueError:
            quality = 0.0
        found.append((media_type.strip().lower(), params, quality))
    return sorted(found, key=lambda item: -item[2])


class Style(NamedTuple):
    """Writer of JSON data in one content type.

    Long lists are written in parts of ``batch`` objects, separated by ``between``. ``zero`` is the text of the
    item in a list ``[0]``; the parts of a long list are written in place of that item.
    """

    content_type: str
    write: Callable[[bytes], bytes]
    batch: int
    between: bytes
    zero: bytes

    def around(self, raw: bytes) -> tuple[bytes, bytes]:
        """Return the bytes before and after the item of the last list ``[0]`` in an object."""
        before, _, after = self.write(raw).rpartition(self.zero)
        return before, after


PLAIN: Final = Style(JSON, bytes, BATCH, b",", b"0")
_PRETTY: Final = Style(JSON, lambda raw: msgspec.json.format(raw, indent=2) + b"\n", BATCH, b",\n", b"    0")
#: Batches are small: writing a pod as YAML takes 0.6 ms.
_YAML: Final = Style(
    YAML, lambda raw: to_yaml(msgspec.json.decode(raw)).encode("utf-8", "surrogatepass"), 16, b"", b"- 0\n"
)


def style_of(media_type: str, pretty: str | None, user_agent: str) -> Style:
    """Return the style of an answer. JSON is indented if ``pretty`` asks for that. Without ``pretty``, it is indented
    for interactive tools.
    """
    if media_type == YAML:
        return _YAML
    indent = user_agent.startswith(_PRETTY_AGENTS) if pretty is None else pretty not in ("0", "false", "False")
    return _PRETTY if indent else PLAIN


# -- answers -------------------------------------------------------------------------------------------------


class Answer(web.Response):
    """Answer that drops its bytes once they are sent.

    An idle connection keeps its last answer, which may be a list of megabytes.
    """

    async def write_eof(self, data: bytes = b"") -> None:
        await super().write_eof(data)
        self.body = None


def whole(head: Mapping[str, Any], member: str, parts: Iterable[bytes]) -> bytes:
    """Return the JSON of an object whose last member is a list; ``parts`` are its items."""
    return b'%b,"%b":[%b]}' % (encode(head)[:-1], member.encode(), b",".join(parts))


def json_answer(
    raw: bytes,
    status: int = 200,
    *,
    style: Style = PLAIN,
    warnings: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return an answer of JSON bytes, in the style the client wants."""
    response = Answer(body=style.write(raw), status=status)
    set_headers(response, style.content_type, warnings)
    response.headers.update(headers or {})
    return response


def set_headers(response: web.StreamResponse, content_type: str, warnings: Sequence[str]) -> None:
    """Set the headers that all answers about resources have."""
    response.headers.update(_BASE)
    response.headers["Content-Type"] = content_type
    for text in warnings:
        response.headers.add("Warning", f"299 - {_quoted(text)}")


async def begin_stream(response: web.StreamResponse, request: web.BaseRequest) -> None:
    """Send the head of an answer of unknown length. It is sent in chunks, or to HTTP/1.0 until the connection ends."""
    if request.version < HttpVersion11:
        response.force_close()
    await response.prepare(request)


def _quoted(text: str) -> str:
    """Return a quoted string for an HTTP header."""
    safe = "".join(letter if " " <= letter <= "~" else "?" for letter in text[:2048])
    escaped = safe.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def text_answer(text: str, status: int = 200) -> web.Response:
    """Return a plain text answer, for health checks."""
    headers = {**_BASE, "X-Content-Type-Options": "nosniff"}
    return web.Response(text=text, status=status, headers=headers, content_type="text/plain", charset="utf-8")


def refusal(error: ApiError, *, style: Style = PLAIN) -> web.Response:
    """Return the Status of an error, with Retry-After if the error has a delay."""
    headers = {}
    after = error.details.get("retryAfterSeconds")
    if isinstance(after, int) and after > 0:
        headers["Retry-After"] = str(after)
    if error.code == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_answer(encode(error.to_status()), error.code, style=style, headers=headers)


def failed() -> ApiError:
    """Return 500, for a defect of the server."""
    text = "Internal error occurred: the embedded cluster failed on this request; see its log"
    return ApiError(500, "InternalError", text)


def success(details: Mapping[str, Any] | None = None, code: int = 0) -> bytes:
    """The bytes of a Status that reports success. ``code`` is 201 after a POST."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = dict(details)
    return encode({**status, "code": code} if code else status)

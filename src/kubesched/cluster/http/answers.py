"""Answers: bytes, headers, pretty printing, YAML, and the Status of a refusal.

Caller: :mod:`.server` and the verb modules. Objects are bytes already; only YAML has to decode them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from ...api.wire import ApiError
from ...api.yamltext import to_yaml
from ..schema import encode
from .negotiation import JSON, YAML, Accepted

__all__ = ["json_answer", "refusal", "success", "text_answer"]

_PRETTY_AGENTS: Final = ("curl/", "Wget/", "Mozilla/5.0")
_BASE: Final = {"Cache-Control": "no-cache, private"}


def wants_pretty(query_value: str | None, user_agent: str) -> bool:
    """Whether to indent: when asked, and unasked for people's tools."""
    if query_value is not None:
        return query_value not in ("0", "false", "False")
    return user_agent.startswith(_PRETTY_AGENTS)


def json_answer(
    raw: bytes,
    status: int = 200,
    *,
    form: Accepted | None = None,
    pretty: bool = False,
    warnings: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """An answer of JSON bytes, in the form the client wants."""
    content_type = JSON
    if form is not None and form.media_type == YAML:
        raw, content_type = to_yaml(msgspec.json.decode(raw)).encode("utf-8", "surrogatepass"), YAML
    elif pretty:
        raw = msgspec.json.format(raw, indent=2) + b"\n"
    response = web.Response(body=raw, status=status, headers=_BASE)
    response.headers["Content-Type"] = content_type
    for text in warnings:
        response.headers.add("Warning", f"299 - {_quoted(text)}")
    if headers:
        response.headers.update(headers)
    return response


def _quoted(text: str) -> str:
    """A quoted string as HTTP headers may carry it."""
    safe = "".join(letter if " " <= letter <= "~" else "?" for letter in text[:2048])
    escaped = safe.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def text_answer(text: str, status: int = 200) -> web.Response:
    """A plain text answer, as health checks give."""
    headers = {**_BASE, "X-Content-Type-Options": "nosniff"}
    return web.Response(text=text, status=status, headers=headers, content_type="text/plain", charset="utf-8")


def refusal(error: ApiError, *, form: Accepted | None = None, pretty: bool = False) -> web.Response:
    """The Status of an error, with Retry-After when the error says when to come back."""
    headers = {}
    after = error.details.get("retryAfterSeconds")
    if isinstance(after, int) and after > 0:
        headers["Retry-After"] = str(after)
    if error.code == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_answer(encode(error.to_status()), error.code, form=form, pretty=pretty, headers=headers)


def success(details: Mapping[str, Any] | None = None) -> bytes:
    """The bytes of a Status that reports success."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = dict(details)
    return encode(status)

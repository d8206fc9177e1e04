"""Answers of the server: plain text, JSON, and the Status of a refusal.

Callers: :mod:`.pipeline` and :mod:`.endpoints`. ``Cache-Control`` is added to every answer by the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from kubesched.api.wire import ApiError
from kubesched.base.large_json import large_json

__all__ = ["internal_error", "json_answer", "method_not_allowed", "not_found", "refusal", "text_answer"]

_NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}
#: User agents of tools that show the answer to a person.
_PRETTY_AGENTS: Final = ("curl", "Wget", "Mozilla/5.0")


def text_answer(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Make an answer of plain text in UTF-8."""
    response = web.Response(text=text, status=status, content_type="text/plain", charset="utf-8", headers=headers)
    response.headers.update(_NOSNIFF)
    return response


def json_answer(data: Any, status: int = 200, *, pretty: bool = False) -> web.Response:
    """Make an answer of JSON on one line, or indented by two."""
    raw = large_json(data, indent=2) if pretty else large_json(data) + b"\n"
    return web.Response(body=raw, status=status, headers={**_NOSNIFF, "Content-Type": "application/json"})


def refusal(request: web.BaseRequest, error: ApiError) -> web.Response:
    """Make an answer with the Status of an error.

    It is indented for curl and browsers, or if the request asks for that.
    """
    wanted = request.query.get("pretty")
    if wanted is None:
        pretty = request.headers.get("User-Agent", "").startswith(_PRETTY_AGENTS)
    else:
        pretty = wanted not in ("0", "false", "False")
    return json_answer(error.to_status(), error.code, pretty=pretty)


def not_found(text: str = "404 page not found") -> web.Response:
    return text_answer(f"{text}\n", 404)


def method_not_allowed(allowed: str) -> web.Response:
    return text_answer("Method Not Allowed\n", 405, {"Allow": allowed})


def internal_error(text: str = "Internal Server Error") -> web.Response:
    return text_answer(f"{text}\n", 500)

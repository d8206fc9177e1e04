"""One request, understood: which resource, which verb, which options.

Made by :mod:`.server` from method and path; handed to the verb modules. Nothing here touches the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web

from ...api.wire import ApiError
from .answers import Accepted, json_answer
from .bodies import Body, decode_body
from .catalog import Resource
from .queries import Query

__all__ = ["NOT_SERVED", "Call", "Target", "not_served", "parse_path", "shutting_down", "wrong_method"]

NOT_SERVED: Final = "the server could not find the requested resource"
_DEFAULT_MANAGER: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Target:
    """A resource path taken apart. ``watch`` marks the old ``/watch/`` prefix."""

    group: str
    version: str
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    namespaced: bool = False
    rest: tuple[str, ...] = ()


@dataclass(slots=True)
class Call:
    """A request on a resource, and what is to be said besides the answer."""

    request: web.BaseRequest
    query: Query
    form: Accepted
    target: Target
    resource: Resource
    warnings: list[str] = field(default_factory=list)

    def manager(self, options: str) -> str:
        """The writer: the field manager named, else the client program."""
        named = self.query.field_manager(options)
        if named:
            return named
        agent = self.request.headers.get("User-Agent", "").split("/", 1)[0].strip()
        return agent[:128] if agent and agent.isprintable() else _DEFAULT_MANAGER

    def body(self, raw: bytes, content_type: str | None = None) -> Body:
        """The decoded body; its type is what the header says."""
        return decode_body(raw, self.request.headers.get("Content-Type", "") if content_type is None else content_type)

    def check_name(self, name: Any) -> None:
        """Refuse an object of another name than the path's; one without a name is that of the path."""
        if name not in (None, "", self.target.name):
            text = f"the name of the object ({name}) does not match the name on the URL ({self.target.name})"
            raise ApiError.bad_request(text)

    def check_namespace(self, namespace: Any) -> None:
        if namespace not in (None, "", self.target.namespace):
            text = "the namespace of the provided object does not match the namespace sent on the request"
            raise ApiError.bad_request(text)

    @property
    def pretty(self) -> bool:
        """Whether JSON is indented."""
        return self.query.pretty(self.request.headers.get("User-Agent", ""))

    def answer(self, raw: bytes, status: int = 200) -> web.Response:
        return json_answer(raw, status, form=self.form, pretty=self.pretty, warnings=self.warnings)


def not_served(elsewhere: str = "") -> ApiError:
    """404 for a path that leads nowhere. Clients look into the details of a 404, so there are some, if empty.

    ``elsewhere``: the versions that have the resource.
    """
    return ApiError(404, "NotFound", f"{NOT_SERVED}: it is in {elsewhere} here" if elsewhere else NOT_SERVED, {})


def wrong_method() -> ApiError:
    """405 for a verb the resource does not have."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def shutting_down() -> ApiError:
    """503 for what is not begun any more."""
    text = "the server is shutting down, please try again later"
    return ApiError(503, "ServiceUnavailable", text, {"retryAfterSeconds": 5})


@lru_cache(maxsize=512)
def parse_path(path: str) -> Target | None:
    """The target of a path below ``/api`` or ``/apis``; None for any other path.

    Discovery paths have no ``plural``.
    """
    parts = path.split("/")
    if parts[0] or len(parts) < 2:
        return None
    parts = parts[1:]
    if parts[-1] == "":
        parts.pop()
    if "%" in path:
        parts = [unquote(part, errors="replace") for part in parts]
    if not parts or "" in parts:
        return None
    if parts[0] == "api":
        group, rest = "", parts[1:]
    elif parts[0] == "apis" and len(parts) > 1:
        group, rest = parts[1], parts[2:]
        if not group or group == "core":
            return None
    elif parts[0] == "apis":
        return Target("", "")
    else:
        return None
    if not rest:
        return Target(group, "")
    version, rest = rest[0], rest[1:]
    watch = bool(rest) and rest[0] == "watch"
    if watch:
        rest = rest[1:]
    namespace, namespaced = "", False
    # /namespaces/x alone, and its own subresources, are about the namespace object.
    if len(rest) > 2 and rest[0] == "namespaces" and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, namespaced, rest = rest[1], True, rest[2:]
    if not rest:
        return Target(group, version, watch=watch)
    plural, name, subresource = [*rest, "", "", ""][:3]
    return Target(group, version, namespace, plural, name, subresource, watch, namespaced, tuple(rest[3:]))

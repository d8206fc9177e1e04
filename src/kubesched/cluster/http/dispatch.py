"""From a request to the module that answers it.

Caller: :mod:`.server`, which reads bodies and turns errors into answers. Order: health and version, discovery,
OpenAPI, reviews, resources.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Final
from urllib.parse import unquote

from aiohttp import web

from ...api.kinds import PODS
from ...api.wire import ApiError
from ..schema import encode
from ..store import Store
from . import reading, writing
from .answers import OPENAPI_V2_PROTOBUF, Accepted, accepted, json_answer, text_answer
from .calls import Call, Target, not_served, parse_path, wrong_method
from .catalog import REVIEWS, Catalog
from .discovery import Discovery
from .openapi import OpenApi
from .posted import answer_review, answer_token_request, bind, evict
from .queries import Query
from .scaling import scale_of
from .watching import Watches

__all__ = ["Dispatcher"]

ReadBody = Callable[[], Awaitable[bytes]]
VERSION: Final = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+kubesched",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_CHECKS: Final = ("ping", "store")
_STREAMS: Final = frozenset({"exec", "attach", "portforward", "log", "proxy", "ephemeralcontainers"})


class Dispatcher:
    """Answers requests on one store. ``token`` is what token reviews compare with."""

    def __init__(
        self,
        store: Store,
        *,
        rng: Random,
        token: str | None,
        max_watches: int,
        bookmark_seconds: float,
        address: Callable[[], str],
    ) -> None:
        self.store = store
        self.catalog = Catalog(store)
        self.watches = Watches(store, rng, limit=max_watches, bookmark_seconds=bookmark_seconds)
        self.discovery = Discovery(self.catalog, address)
        self.openapi = OpenApi(self.catalog)
        self.is_closing = False
        self._token = token

    async def answer(self, request: web.BaseRequest, path: str, query_text: str, read: ReadBody) -> web.StreamResponse:
        """The answer to a request.

        Raises:
            ApiError: when it is refused.
        """
        self.catalog.refresh()
        if path.startswith(("/api/", "/apis/")):
            target = parse_path(path)
            if target is not None and target.plural:
                return await self._resource(request, target, Query(query_text), read)
        return self._other(request, path, Query(query_text))

    # -- everything but resources ------------------------------------------------------------------------

    def _other(self, request: web.BaseRequest, path: str, query: Query) -> web.Response:
        first = path.split("/", 2)[1] if path.startswith("/") else ""
        if first in ("healthz", "livez", "readyz"):
            _only_get(request)
            return self._health(path, first, query)
        form = accepted(request.headers.get("Accept", ""))
        pretty = query.pretty(request.headers.get("User-Agent", ""))
        if path in ("/version", "/version/"):
            _only_get(request)
            return json_answer(encode(VERSION), form=form, pretty=pretty)
        if first in ("api", "apis"):
            found = self.discovery.document(path.rstrip("/"), form)
            if found is None:
                raise not_served()
            _only_get(request)
            raw, content_type = found
            response = json_answer(raw, form=form, pretty=pretty)
            if content_type != "application/json" and form.media_type == "application/json":
                response.headers["Content-Type"] = content_type
            response.headers["Vary"] = "Accept"
            return response
        if first == "openapi":
            _only_get(request)
            return self._openapi(path.rstrip("/"), form, pretty=pretty)
        if path == "/":
            _only_get(request)
            return json_answer(encode({"paths": self._paths()}), form=form, pretty=pretty)
        raise not_served()

    def _paths(self) -> list[str]:
        found = ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
        for group, versions in self.catalog.groups().items():
            found += [f"/apis/{group}/{version}" if group else f"/api/{version}" for version in versions]
        return sorted(found)

    def _openapi(self, path: str, form: Accepted, *, pretty: bool) -> web.Response:
        if path == "/openapi/v2":
            if form.media_type == OPENAPI_V2_PROTOBUF:
                headers = {"Content-Type": OPENAPI_V2_PROTOBUF.replace("@", "."), "Cache-Control": "no-cache, private"}
                return web.Response(body=self.openapi.v2(protobuf=True), headers=headers)
            return json_answer(self.openapi.v2(), form=form, pretty=pretty)
        if path == "/openapi/v3":
            return json_answer(self.openapi.v3_index(), form=form, pretty=pretty)
        if path.startswith("/openapi/v3/"):
            raw = self.openapi.v3(unquote(path[12:], errors="replace"))
            if raw is not None:
                return json_answer(raw, form=form, pretty=pretty)
        raise not_served()

    def _health(self, path: str, endpoint: str, query: Query) -> web.Response:
        """Health in upstream's text form, each check by itself too."""
        parts = path.strip("/").split("/")
        failing = {"shutdown"} if self.is_closing and endpoint == "readyz" else set()
        checks = [*_CHECKS, "shutdown"] if endpoint == "readyz" else list(_CHECKS)
        if len(parts) > 1:
            if len(parts) > 2 or parts[1] not in checks:
                raise not_served()
            bad = parts[1] in failing
            return text_answer(
                "internal server error: process is shutting down\n" if bad else "ok", 500 if bad else 200
            )
        excluded = query.text("exclude")
        lines = []
        for name in checks:
            if name == excluded:
                lines.append(f"[+]{name} excluded: ok")
            else:
                lines.append(f"[-]{name} failed: reason withheld" if name in failing else f"[+]{name} ok")
        bad = bool(failing - {excluded})
        if not bad and not query.has("verbose"):
            return text_answer("ok")
        lines.append(f"{endpoint} check {'failed' if bad else 'passed'}")
        return text_answer("\n".join(lines) + "\n", 500 if bad else 200)

    # -- resources ---------------------------------------------------------------------------------------

    async def _resource(
        self, request: web.BaseRequest, target: Target, query: Query, read: ReadBody
    ) -> web.StreamResponse:
        resource = self.catalog.find(target.group, target.version, target.plural)
        if resource is None:
            return await self._review(request, target, query, read)
        kind = resource.kind
        if target.rest or (target.namespaced and not kind.namespaced):
            raise not_served()
        if target.name and kind.namespaced and not target.namespaced and not target.watch:
            raise not_served()
        call = Call(request, query, accepted(request.headers.get("Accept", "")), target, resource)
        if target.subresource:
            return await self._subresource(call, read)
        method = request.method
        if target.name and not target.watch:
            if method == "GET":
                if query.flag("watch"):
                    return await self.watches.serve(call)
                return reading.get_object(self.store, call)
            if method == "PUT":
                return writing.update(self.store, call, await read())
            if method == "PATCH":
                return writing.patch(self.store, call, await read())
            if method == "DELETE":
                return writing.delete(self.store, call, await read())
            raise wrong_method()
        if method == "GET":
            if target.watch or query.flag("watch"):
                return await self.watches.serve(call)
            return await reading.list_objects(self.store, call)
        if target.watch or (kind.namespaced and not target.namespaced):
            raise wrong_method()
        if method == "POST":
            return writing.create(self.store, call, await read())
        if method == "DELETE" and "deletecollection" in resource.verbs:
            return await writing.delete_collection(self.store, call, await read())
        raise wrong_method()

    async def _subresource(self, call: Call, read: ReadBody) -> web.Response:
        target, resource, method = call.target, call.resource, call.request.method
        known = resource.subresource(target.subresource)
        if known is None or target.watch:
            raise not_served()
        verb = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}.get(method, "")
        if verb not in known.verbs:
            raise wrong_method()
        if target.subresource in _STREAMS:
            raise self._no_stream(target)
        if target.subresource == "binding":
            return bind(self.store, call, await read(), target.name)
        if target.subresource == "eviction":
            return evict(self.store, call, await read())
        if target.subresource == "token":
            self.store.get(resource.kind, target.namespace, target.name)
            body = call.body(await read()).data
            answer = answer_token_request(body, target.namespace, target.name, self._token, self.store.clock.now())
            return call.answer(encode(answer), 201)
        if method == "GET":
            if target.subresource == "scale":
                item = self.store.get(resource.kind, target.namespace, target.name)
                return reading.answer_scale(self.store, call, scale_of(resource, item))
            return reading.get_object(self.store, call)
        if method == "PUT":
            return writing.update(self.store, call, await read())
        return writing.patch(self.store, call, await read())

    def _no_stream(self, target: Target) -> ApiError:
        """Pods here have no processes: there is nothing to read from or to talk to."""
        pod = self.store.get(PODS, target.namespace, target.name).data()
        if not (pod.get("spec") or {}).get("nodeName"):
            text = f"pod {target.name} does not have a host assigned"
            return ApiError.bad_request(text)
        text = f"pods of an embedded cluster are hollow: {target.name} runs no containers, so there is no {target.subresource}"
        return ApiError(501, "NotImplemented", text)

    # -- reviews -----------------------------------------------------------------------------------------

    async def _review(self, request: web.BaseRequest, target: Target, query: Query, read: ReadBody) -> web.Response:
        found = next(
            (one for one in REVIEWS.get((target.group, target.version), ()) if one.kind.plural == target.plural), None
        )
        if found is None:
            # Clients that were written for another version (`kubectl autoscale`) show the message only.
            raise not_served(self.catalog.other_versions(target.group, target.plural))
        if target.name or target.subresource or target.namespaced is not found.kind.namespaced:
            raise not_served()
        if request.method != "POST" or target.watch:
            raise wrong_method()
        call = Call(request, query, accepted(request.headers.get("Accept", "")), target, found)
        raw = await read()
        if found.kind.kind == "Binding":
            pods = self.catalog.find("", "v1", "pods")
            assert pods is not None
            return bind(self.store, replace(call, resource=pods), raw)
        answer = answer_review(found.kind.kind, found.api_version, call.body(raw).data, self._token)
        return call.answer(encode(answer), 201)


def _only_get(request: web.BaseRequest) -> None:
    if request.method not in ("GET", "HEAD"):
        raise wrong_method()

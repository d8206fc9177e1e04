"""Routing of requests to the modules that answer them.

Caller: :mod:`.server`, which reads bodies and turns errors into answers. Order: resources and reviews, health, version,
OpenAPI, discovery.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web

from kubesched.api.kinds import PODS
from kubesched.api.wire import ApiError
from kubesched.base.pages import Page, ask

from ..store import Store
from .access import Access
from .answers import JSON, PLAIN, accepted, json_answer, style_of, text_answer
from .calls import Call, Query, Target, not_served, parse_path, wrong_method
from .catalog import REVIEWS, Catalog
from .discovery import Documents
from .posted import answer_review, answer_token_request, bind, evict
from .reading import Lists, Watches, answer_object, list_objects
from .users import User
from .writing import answer_scale, create, delete, delete_collection, patch, update

__all__ = ["Dispatcher"]

ReadBody = Callable[[Call], Awaitable[bytes]]
#: Most lists answered at a time. Upstream's limit for all reads is 400.
_MOST_LISTS: Final = 200
_HEALTH: Final = ("healthz", "livez", "readyz")
_STREAMS: Final = frozenset({"exec", "attach", "portforward", "proxy", "ephemeralcontainers"})
_VERBS: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}
_WRITES: Final = {"PUT": update, "PATCH": patch, "DELETE": delete}


class Dispatcher:
    """Dispatcher of requests on one store. Reviews ask ``access``; ``address`` is the address of the server."""

    def __init__(
        self,
        store: Store,
        watches: Watches,
        access: Access,
        address: Callable[[], str],
        pages: Mapping[str, Page],
    ) -> None:
        """Keep the parts; ``pages`` are further pages, by the first segment of their paths."""
        self._pages = pages
        self.store = store
        self.catalog = Catalog(store)
        self.documents = Documents(self.catalog, address)
        self._watches = watches
        self._lists = Lists(_MOST_LISTS)
        self._access = access

    async def answer(
        self, request: web.BaseRequest, user: User, path: str, query_text: str, read: ReadBody
    ) -> web.StreamResponse:
        """Answer a request whose user may make it.

        Raises:
            ApiError: when it is refused.
        """
        self.catalog.refresh()
        target, query = parse_path(path), Query(query_text)
        if target is not None:
            return await self._resource(request, user, target, query, read)
        first = path.split("/", 2)[1] if path.startswith("/") else ""
        if first in (*_HEALTH, "openapi") or path in ("/", "/version", "/version/"):
            _only_get(request)
        if first in _HEALTH:
            return self._health(path, query)
        if first in self._pages:
            _only_get(request)
            answer = await ask(self._pages[first], path, query_text, request.headers.get("Accept", ""))
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        form = accepted(request.headers.get("Accept", ""))
        found = self.documents.find(path, form)
        if found is None:
            raise not_served()
        _only_get(request)
        raw, content_type = found
        style = style_of(form.media_type, query.get("pretty"), request.headers.get("User-Agent", ""))
        if not content_type.startswith(JSON):
            style = PLAIN
        headers = {"Content-Type": content_type} if style.content_type == JSON else {}
        if first in ("api", "apis"):
            headers["Vary"] = "Accept"
        return json_answer(raw, style=style, headers=headers)

    # -- health ------------------------------------------------------------------------

    def _health(self, path: str, query: Query) -> web.Response:
        """Answer with health in upstream's text form. Each check has a path of its own, too."""
        endpoint, *names = path.strip("/").split("/")
        checks = {"ping": True, "store": True}
        if endpoint == "readyz":
            checks["shutdown"] = not self._watches.is_closing
        if len(names) > 1 or (names and names[0] not in checks):
            raise not_served()
        if names:
            if checks[names[0]]:
                return text_answer("ok")
            return text_answer("internal server error: process is shutting down\n", 500)
        excluded = query.text("exclude")
        words = {True: "[+]{} ok", False: "[-]{} failed: reason withheld"}
        lines = [
            ("[+]{} excluded: ok" if name == excluded else words[good]).format(name) for name, good in checks.items()
        ]
        good = all(good or name == excluded for name, good in checks.items())
        if good and "verbose" not in query:
            return text_answer("ok")
        lines.append(f"{endpoint} check {'passed' if good else 'failed'}\n")
        return text_answer("\n".join(lines), 200 if good else 500)

    # -- resources ---------------------------------------------------------------------------------------

    async def _resource(
        self, request: web.BaseRequest, user: User, target: Target, query: Query, read: ReadBody
    ) -> web.StreamResponse:
        resource = self.catalog.find(target.group, target.version, target.plural)
        is_review = resource is None
        if is_review:
            resource = REVIEWS.get(target.group, {}).get(target.version, {}).get(target.plural)
        if resource is None:
            # Clients of another API version (`kubectl autoscale`) show only the message.
            raise not_served(self.catalog.other_versions(target.group, target.plural))
        method, namespaced = request.method, resource.kind.namespaced
        if target.rest or (target.namespaced and not namespaced):
            raise not_served()
        if target.name and namespaced and not target.namespaced and not target.watch:
            raise not_served()
        form = accepted(request.headers.get("Accept", ""))
        call = Call(self.store, self._access, user, request, query, form, target, resource)
        if is_review:
            return await self._review(call, read)
        if target.subresource:
            return await self._subresource(call, read)
        is_item = bool(target.name) and not target.watch
        if method == "GET":
            if target.watch or query.flag("watch"):
                return await self._watches.serve(call)
            if is_item:
                return answer_object(call, call.get())
            with self._lists:
                return await list_objects(call)
        if is_item and method in _WRITES:
            return _WRITES[method](call, await read(call))
        if is_item or target.watch or (namespaced and not target.namespaced):
            raise wrong_method()
        if method == "POST":
            return create(call, await read(call))
        if method == "DELETE" and "deletecollection" in resource.verbs:
            return await delete_collection(call, await read(call))
        raise wrong_method()

    async def _subresource(self, call: Call, read: ReadBody) -> web.StreamResponse:
        name, method = call.target.subresource, call.request.method
        known = call.resource.subresource(name)
        if known is None or call.target.watch:
            raise not_served()
        if _VERBS.get(method, "") not in known.verbs:
            raise wrong_method()
        if name == "log":
            return await self._log(call)
        if name in _STREAMS:
            raise self._no_stream(call.target)
        if name == "binding":
            return bind(call, await read(call))
        if name == "eviction":
            return evict(call, await read(call))
        if name == "token":
            call.get()
            return answer_token_request(call, await read(call))
        if method == "GET":
            return answer_scale(call, call.get()) if name == "scale" else answer_object(call, call.get())
        return _WRITES[method](call, await read(call))

    async def _log(self, call: Call) -> web.StreamResponse:
        """Answer with the log of a container, which is empty, since nothing runs. One that is followed ends with the pod."""
        spec, pod, wanted = call.get().data()["spec"], call.target.name, call.query.text("container")
        names = [one["name"] for field in ("initContainers", "containers") for one in spec.get(field) or ()]
        if not wanted and len(names) > 1:
            text = f"a container name must be specified for pod {pod}, choose one of: [{' '.join(names)}]"
            raise ApiError.bad_request(text)
        if wanted and wanted not in names:
            raise ApiError.bad_request(f"container {wanted} is not valid for pod {pod}")
        if not spec.get("nodeName"):
            return web.Response(status=204)
        call.warnings.append(f"pods of an embedded cluster are hollow: {pod} runs no containers, so its log is empty")
        return await self._watches.serve(call)

    def _no_stream(self, target: Target) -> ApiError:
        """Return the refusal of exec, attach, logs and the like: pods have no processes here."""
        pod = self.store.get(PODS, target.namespace, target.name).data()
        if not (pod.get("spec") or {}).get("nodeName"):
            return ApiError.bad_request(f"pod {target.name} does not have a host assigned")
        text = f"pods of an embedded cluster are hollow: {target.name} runs no containers, so there is no {target.subresource}"
        return ApiError(501, "NotImplemented", text)

    async def _review(self, call: Call, read: ReadBody) -> web.Response:
        target, kind = call.target, call.resource.kind
        if target.name or target.namespaced is not kind.namespaced:
            raise not_served()
        if call.request.method != "POST" or target.watch:
            raise wrong_method()
        if call.form.transform and all("as=" in part for part in call.request.headers.get("Accept", "").split(",")):
            raise ApiError(406, "NotAcceptable", f"only the following media types are accepted: {JSON}")
        raw = await read(call)
        return bind(call, raw) if kind.kind == "Binding" else answer_review(call, raw)


def _only_get(request: web.BaseRequest) -> None:
    if request.method not in ("GET", "HEAD"):
        raise wrong_method()

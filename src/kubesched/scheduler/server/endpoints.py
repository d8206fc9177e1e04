"""Endpoints of the server by path. :mod:`.pipeline` has authenticated and authorized each request.

Source: rules/serving §2.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from aiohttp import web

from kubesched.api.wire import ApiError
from kubesched.api.yamltext import to_yaml
from kubesched.base.pages import Page, accepts_gzip, ask
from kubesched.base.times import Clock

from . import profiling, zpages
from .answers import json_answer, method_not_allowed, not_found, refusal, text_answer
from .exposition import CONTENT_TYPE, Exposition, compressed, render
from .health import HealthCheck, HealthChecks, run_checks, run_one
from .process_metrics import HealthMetrics
from .resources import PodResources, pod_resource_families

__all__ = ["Endpoints", "Pages"]

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_GET: Final = ("GET", "HEAD")
_INT32: Final = 2**31
#: First segments of paths that /statusz does not list.
_UNLISTED: Final = frozenset({"/statusz", "/debug"})


@dataclass(frozen=True, slots=True)
class Pages:
    """Sources of the pages. A page whose source is None is not served (404).

    ``configz`` returns the configuration as plain data, ``flags`` every flag with its effective value. ``versions`` are
    the program's own version and the Kubernetes version that it behaves like. ``profiling`` serves ``/debug``, where
    ``set_verbosity`` changes the log level. ``added`` are pages by the first segment of their paths.
    ``sites`` are handlers of GET requests, by the same; they see the whole request and may stream their answers.
    ``exposition`` is required.
    """

    exposition: Exposition
    health: HealthChecks = field(default_factory=HealthChecks)
    resources: PodResources | None = None
    configz: Callable[[], Mapping[str, Any]] | None = None
    flags: Callable[[], Mapping[str, str]] | None = None
    versions: tuple[str, str] | None = None
    profiling: bool = False
    set_verbosity: Callable[[int], None] | None = None
    added: Mapping[str, Page] = field(default_factory=dict)
    sites: Mapping[str, Handler] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Route:
    """Handler and its HTTP methods. An empty list of methods stands for all."""

    handler: Handler
    methods: tuple[str, ...] = _GET


class Endpoints:
    """Handlers by path. ``started`` is the start of the process in seconds since the epoch."""

    def __init__(self, pages: Pages, *, clock: Clock, rng: Random, started: float) -> None:
        self._pages = pages
        self._clock = clock
        self._rng = rng
        self._started = started
        self._sli = HealthMetrics(started)
        self._profiler = profiling.Profiler()
        self._routes: dict[str, _Route] = {
            "/metrics": _Route(self._metrics, ()),
            "/metrics/slis": _Route(self._slis),
        }
        for name, checks in pages.health.by_endpoint().items():
            self._routes[f"/{name}"] = _Route(_bound(self._health, name), ())
            for check in checks:
                self._routes[f"/{name}/{check.name}"] = _Route(_bound(self._one_check, name, check), ())
        if pages.resources is not None:
            self._routes["/metrics/resources"] = _Route(_bound(self._resources, pages.resources))
        if pages.configz is not None:
            self._routes["/configz"] = _Route(_bound(self._configz, pages.configz))
        if pages.flags is not None:
            self._routes["/flagz"] = _Route(_bound(self._flagz, pages.flags))
        if pages.versions is not None:
            self._routes["/statusz"] = _Route(_bound(self._statusz, pages.versions))
        if pages.profiling:
            self._add_debug(pages.set_verbosity)

    def _add_debug(self, set_verbosity: Callable[[int], None] | None) -> None:
        routes = self._routes
        routes["/debug/pprof"] = _Route(_redirect)
        routes["/debug/pprof/"] = _Route(_text(profiling.index_page))
        routes["/debug/pprof/goroutine"] = _Route(_text(profiling.tasks_text))
        routes["/debug/pprof/threadcreate"] = _Route(_text(profiling.threads_text))
        routes["/debug/pprof/heap"] = routes["/debug/pprof/allocs"] = _Route(_objects)
        routes["/debug/pprof/symbol"] = _Route(_text(lambda: "num_symbols: 0\n"), (*_GET, "POST"))
        routes["/debug/pprof/profile"] = _Route(self._cpu_profile)
        for name in profiling.NOT_OFFERED:
            routes[f"/debug/pprof/{name}"] = _Route(_bound(_not_offered, name))
        flags = "v\n" if set_verbosity is not None else ""
        routes["/debug/flags"] = routes["/debug/flags/"] = _Route(_text(lambda: f"/debug/flags/\n\nflags:\n{flags}"))
        if set_verbosity is not None:
            routes["/debug/flags/v"] = _Route(_bound(_verbosity, set_verbosity), ())

    def close(self) -> None:
        """End the CPU profile under way, if there is one."""
        self._profiler.close()

    @property
    def paths(self) -> list[str]:
        """First segments of all paths, sorted, without the unlisted ones."""
        own = {f"/{path.split('/')[1]}" for path in self._routes} - _UNLISTED
        return sorted(own.union(f"/{name}" for name in (*self._pages.added, *self._pages.sites)))

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer an authorized request."""
        route = self._routes.get(request.path)
        first = request.path.split("/")[1] if route is None else ""
        added, site = self._pages.added.get(first), self._pages.sites.get(first)
        if (added is not None or site is not None) and request.method not in _GET:
            return method_not_allowed(", ".join(_GET))
        if site is not None:
            return await site(request)
        if added is not None:
            query, accept = request.rel_url.raw_query_string, request.headers.get("Accept", "")
            answer = await ask(added, request.path, query, accept)
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        if route is None:
            missing_profile = self._pages.profiling and request.path.startswith("/debug/pprof/")
            return not_found("Unknown profile" if missing_profile else "404 page not found")
        if route.methods and request.method not in route.methods:
            return method_not_allowed(", ".join(route.methods))
        return await route.handler(request)

    # -- health ------------------------------------------------------------------------------------------------

    async def _health(self, name: str, request: web.BaseRequest) -> web.Response:
        checks = self._pages.health.by_endpoint()[name]
        report = run_checks(
            name,
            checks,
            verbose="verbose" in request.query,
            exclude=frozenset(request.query.getall("exclude", ())),
            ran=self._sli.ran,
        )
        return text_answer(report.text, report.status)

    async def _one_check(self, name: str, check: HealthCheck, _: web.BaseRequest) -> web.Response:
        report = run_one(name, check, ran=self._sli.ran)
        return text_answer(report.text, report.status)

    # -- metrics -----------------------------------------------------------------------------------------------

    async def _metrics(self, request: web.BaseRequest) -> web.Response:
        if request.method == "DELETE":
            self._pages.exposition.reset()
            return text_answer("metrics reset\n")
        text = await self._pages.exposition.text()
        return await self._exposed(request, text, {"Process-Start-Time-Unix": str(int(self._started))})

    async def _slis(self, request: web.BaseRequest) -> web.Response:
        families = list(self._sli.collect())
        return await self._exposed(request, await asyncio.to_thread(lambda: render(families)))

    async def _resources(self, resources: PodResources, request: web.BaseRequest) -> web.Response:
        pods = resources.pods()
        text = await asyncio.to_thread(lambda: render(pod_resource_families(pods)))
        return await self._exposed(request, text)

    async def _exposed(
        self, request: web.BaseRequest, text: bytes, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        response = web.Response(headers={"Content-Type": CONTENT_TYPE, **(headers or {})})
        if text and accepts_gzip(request.headers.get("Accept-Encoding", "")):
            text = await asyncio.to_thread(compressed, text)
            response.headers["Content-Encoding"] = "gzip"
        response.body = text
        return response

    # -- the running program -------------------------------------------------------------------------------------

    async def _configz(self, provider: Callable[[], Mapping[str, Any]], _: web.BaseRequest) -> web.Response:
        return json_answer({"componentconfig": provider()})

    async def _flagz(self, provider: Callable[[], Mapping[str, str]], request: web.BaseRequest) -> web.Response:
        return _page(
            request,
            "Flagz",
            text=lambda: zpages.flagz_text(provider(), self._rng),
            data=lambda version: zpages.flagz_object(provider(), version),
        )

    async def _statusz(self, versions: tuple[str, str], request: web.BaseRequest) -> web.Response:
        info = zpages.StatusInfo(self._started, versions[0], versions[1], self.paths)
        return _page(
            request,
            "Statusz",
            text=lambda: zpages.statusz_text(info, self._clock.now(), self._rng),
            data=lambda version: zpages.statusz_object(info, self._clock.now(), version),
        )

    # -- profiling -----------------------------------------------------------------------------------------------

    async def _cpu_profile(self, request: web.BaseRequest) -> web.Response:
        given = request.query.get("seconds", "30")
        if not (given.isascii() and given.isdigit()):
            return text_answer(f"seconds: must be a whole number, got {given[:32]!r}\n", 400)
        try:
            profile = await self._profiler.cpu(int(given[:9]))
        except profiling.ProfileBusyError as error:
            return text_answer(f"{error}\n", 500)
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": 'attachment; filename="profile"',
            "X-Content-Type-Options": "nosniff",
        }
        return web.Response(body=profile, headers=headers)


def _bound(function: Callable[..., Awaitable[web.Response]], *arguments: Any) -> Handler:
    async def handler(request: web.BaseRequest) -> web.Response:
        return await function(*arguments, request)

    return handler


def _text(source: Callable[[], str]) -> Handler:
    async def handler(_: web.BaseRequest) -> web.Response:
        return text_answer(source())

    return handler


def _page(
    request: web.BaseRequest, kind: str, *, text: Callable[[], str], data: Callable[[str], dict[str, Any]]
) -> web.Response:
    """Answer with a page in the form that its reader asks for."""
    form = zpages.negotiate(request.headers.get("Accept", ""), kind)
    if form is None:
        message = f"only the following media types are accepted: {zpages.ACCEPTED}"
        return refusal(request, ApiError(406, "NotAcceptable", message))
    if form.format is zpages.Format.TEXT:
        return text_answer(text())
    content = data(form.version)
    response = json_answer(content)
    if form.format is zpages.Format.YAML:
        response.body = to_yaml(content).encode()
        response.headers["Content-Type"] = zpages.Format.YAML.value
    if form.is_deprecated:
        response.headers["Warning"] = f'299 - "{zpages.deprecation(kind)}"'
    return response


async def _redirect(_: web.BaseRequest) -> web.Response:
    return text_answer("Found\n", 302, {"Location": "/debug/pprof/"})


async def _objects(_: web.BaseRequest) -> web.Response:
    """Answer with counts of objects, counted in a thread: there may be millions."""
    return text_answer(await asyncio.to_thread(profiling.objects_text))


async def _not_offered(name: str, _: web.BaseRequest) -> web.Response:
    text = (
        f"there is no {name} profile: kubesched runs in one event loop of the Python interpreter, which records none\n"
    )
    return text_answer(text, 501)


async def _verbosity(set_verbosity: Callable[[int], None], request: web.BaseRequest) -> web.Response:
    if request.method != "PUT":
        return text_answer("unsupported http method", 406)
    raw = await request.content.read(64)
    given = raw.decode("utf-8", "replace")
    problem = ""
    if not re.fullmatch(r"[+-]?[0-9]+", given):
        problem = "invalid syntax"
    elif not -_INT32 <= int(given) < _INT32:
        problem = "value out of range"
    if problem:
        quoted = given.encode("unicode_escape").decode("ascii").replace('"', '\\"')
        text = (
            f'failed set klog.logging.verbosity {ascii(given)[1:-1]}: strconv.ParseInt: parsing "{quoted}": {problem}'
        )
        return text_answer(text, 400)
    set_verbosity(int(given))
    return text_answer(f"successfully set klog.logging.verbosity to {given}")

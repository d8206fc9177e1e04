"""Every endpoint's answers, text by text."""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
import yaml
from aiohttp import web
from server_kit import OPEN, Answer, Client, ReviewingApi, a_client, run, running, serving

from kubesched.api.decode import decode_object
from kubesched.api.types import Pod
from kubesched.base.pages import Answer as PageAnswer
from kubesched.client.lease import LeaseConfig
from kubesched.scheduler.config import default_config, dump_config
from kubesched.scheduler.server import (
    HealthCheck,
    HealthChecks,
    PodResources,
    election_check,
    profiling,
    scheduler_checks,
)
from kubesched.scheduler.server.health import run_checks
from kubesched.scheduler.server.profiling import encode_profile
from kubesched.scheduler.server.zpages import StatusInfo, negotiate, statusz_text

PLAIN = "text/plain; charset=utf-8"


def is_plain(answer: Answer) -> bool:
    return bool(answer.headers["Content-Type"] == PLAIN and answer.headers["X-Content-Type-Options"] == "nosniff")


class State:
    """State that the checks of a scheduler read."""

    def __init__(self) -> None:
        self.stopping = False
        self.synced = True
        self.election = ""
        self.waiting: list[str] = []
        self.missing: list[str] = []

    def checks(self, *, election: bool = True, coordinated: bool = False) -> HealthChecks:
        return scheduler_checks(
            stopping=lambda: self.stopping,
            handlers_synced=lambda: self.synced,
            missing_lists=lambda: self.missing,
            leader_election=(lambda: self.election) if election else None,
            informers_not_started=(lambda: self.waiting) if coordinated else None,
        )


def test_health_when_all_is_well(tmp_path: Path) -> None:
    async def main() -> None:
        state = State()
        async with running(serving(tmp_path), pages={"health": state.checks()}, authorization=OPEN) as client:
            for path in ("/healthz", "/livez", "/readyz", "/healthz/leaderElection", "/readyz/shutdown"):
                answer = await client(path)
                assert (answer.status, answer.text) == (200, "ok"), path
                assert is_plain(answer)
                assert answer.headers["Cache-Control"] == "no-cache, private"
            assert (await client("/healthz?verbose")).text == "[+]leaderElection ok\nhealthz check passed\n"
            assert (await client("/livez?verbose=0")).text == "[+]ping ok\nlivez check passed\n"
            assert (await client("/readyz?verbose&exclude=shutdown&exclude=nope")).text == (
                "[+]leaderElection ok\n[+]shutdown excluded: ok\n[+]sched-handler-sync ok\n"
                'warn: some health checks cannot be excluded: no matches for "nope"\nreadyz check passed\n'
            )
            assert (await client("/readyz?exclude=nope")).text == "ok"
            assert (await client("/healthz/ping")).status == 404
            head = await client("/healthz", "HEAD")
            assert (head.status, head.body) == (200, b"")
            posted = await client("/healthz", "POST")
            assert (posted.status, posted.text) == (200, "ok")
            assert (await client("/readyz/shutdown", "PUT")).status == 200
            refused = await client("/metrics/slis", "POST")
            assert (refused.status, refused.headers["Allow"], refused.text) == (
                405,
                "GET, HEAD",
                "Method Not Allowed\n",
            )

    run(main())


def test_health_when_something_is_wrong(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        state = State()
        async with running(serving(tmp_path), pages={"health": state.checks()}, authorization=OPEN) as client:
            state.stopping = True
            answer = await client("/readyz")
            assert (answer.status, answer.text) == (
                500,
                "[+]leaderElection ok\n[-]shutdown failed: reason withheld\n[+]sched-handler-sync ok\nreadyz check failed\n",
            )
            assert is_plain(answer)
            assert (await client("/readyz?exclude=shutdown")).text == "ok"
            one = await client("/readyz/shutdown")
            assert (one.status, one.text) == (500, "internal server error: process is shutting down\n")
            assert (await client("/livez")).status == 200
            state.synced, state.election = False, "failed election to renew leadership on lease kube-scheduler"
            assert (await client("/readyz/sched-handler-sync")).text == (
                "internal server error: handlers are not fully synchronized\n"
            )
            state.missing = ["pods", "poddisruptionbudgets.policy"]
            assert (await client("/readyz/sched-handler-sync")).text == (
                "internal server error: handlers are not fully synchronized: "
                "the first list has not come of pods, poddisruptionbudgets.policy\n"
            )
            assert (await client("/healthz")).text == (
                "[-]leaderElection failed: reason withheld\nhealthz check failed\n"
            )
            slis = (await client("/metrics/slis")).text.splitlines()
            assert 'kubernetes_healthcheck{name="shutdown",type="readyz"} 0.0' in slis
            assert 'kubernetes_healthchecks_total{name="shutdown",status="error",type="readyz"} 2.0' in slis
            assert 'kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 1.0' in slis
            assert "# HELP kubernetes_healthcheck [STABLE] " in "\n".join(slis)
            assert any(line.startswith("process_start_time_seconds ") for line in slis)

    run(main())
    assert "readyz check failed: shutdown: process is shutting down" in caplog.text


def test_the_checks_follow_leader_election() -> None:
    def names(checks: HealthChecks) -> dict[str, list[str]]:
        return {key: [check.name for check in items] for key, items in checks.by_endpoint().items()}

    state = State()
    assert names(state.checks(election=False)) == {
        "healthz": ["ping"],
        "livez": ["ping"],
        "readyz": ["shutdown", "sched-handler-sync"],
    }
    coordinated = state.checks(coordinated=True)
    assert names(coordinated)["readyz"] == ["leaderElection", "shutdown", "sched-handler-sync", "informer-sync"]
    state.waiting = ["pods", "nodes"]
    assert coordinated.readyz[-1].problem() == "2 informers not started yet: [pods nodes]"


def test_a_leader_that_does_not_renew_is_unhealthy() -> None:
    class Elector:
        leading = True
        renewal_age = 35.0

    elector: Any = Elector()
    check = election_check(elector, LeaseConfig("me"))
    assert check() == ""
    elector.renewal_age = 35.1
    assert check() == "failed election to renew leadership on lease kube-scheduler"
    elector.leading = False
    assert check() == ""


def test_a_check_that_raises_has_failed() -> None:
    def broken() -> str:
        raise RuntimeError("internals")

    report = run_checks("livez", [HealthCheck("odd", broken)])
    assert (report.status, report.text) == (500, "[-]odd failed: reason withheld\nlivez check failed\n")


def test_what_is_not_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(serving(tmp_path), authorization=OPEN) as client:
            # Profiling, configuration, flags, status and pod resources were not asked for.
            for path in [
                "/",
                "/nothing",
                "/debug/pprof",
                "/debug/pprof/",
                "/debug/pprof/heap",
                "/debug/pprof/profile",
                "/debug/flags",
                "/debug/flags/v",
                "/configz",
                "/flagz",
                "/statusz",
                "/metrics/resources",
                "/metrics/",
                "/healthz/",
            ]:
                answer = await client(path)
                assert (answer.status, answer.text) == (404, "404 page not found\n"), path
                assert is_plain(answer)

    run(main())


def test_configz_is_the_configuration(tmp_path: Path) -> None:
    async def main() -> None:
        config = dump_config(default_config())
        async with running(serving(tmp_path), pages={"configz": lambda: config}, authorization=OPEN) as client:
            answer = await client("/configz")
            assert answer.data == {"componentconfig": config}
            assert answer.data["componentconfig"]["kind"] == "KubeSchedulerConfiguration"
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert (await client("/configz", "POST")).status == 405

    run(main())


# -- flagz and statusz -------------------------------------------------------------------------------------------

WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only."
)


def z_client(folder: Path) -> Client:
    pages = {"flags": lambda: {"v": "2", "bind-address": "0.0.0.0"}, "versions": ("1.36.0", "1.36"), "profiling": True}
    return a_client(serving(folder), pages=pages, authorization=OPEN)


def test_flagz_text_changes_its_delimiter(tmp_path: Path) -> None:
    async def main() -> None:
        client = z_client(tmp_path)
        async with client.server:
            seen = set()
            for accept in ["", "*/*", "text/plain"] * 12:
                answer = await client("/flagz", headers=[("Accept", accept)] if accept else [])
                assert is_plain(answer)
                head, second, third, first_flag, second_flag, end = answer.text.split("\n")
                assert (head, second, third, end) == ("", "kube-scheduler flagz", WARNING, "")
                delimiter = first_flag.removeprefix("bind-address").removesuffix("0.0.0.0")
                assert second_flag == f"v{delimiter}2"
                seen.add(delimiter)
            assert seen == {":", ": ", "=", " "}

    run(main())


def test_statusz_text() -> None:
    info = StatusInfo(1_795_218_082.0, "1.36.0", "1.36", ["/configz", "/metrics"], "none")
    lines = statusz_text(info, info.started + 3 * 3600 + 28, Random(1)).split("\n")
    assert lines[:4] == ["", "kube-scheduler statusz", WARNING, ""]
    delimiter = lines[4].removeprefix("Started").partition(" Fri")[0]
    assert lines[4:] == [
        f"Started{delimiter} Fri Nov 20 23:41:22 UTC 2026",
        f"Up{delimiter} 3 hr 00 min 28 sec",
        f"Go version{delimiter} none",
        f"Binary version{delimiter} 1.36.0",
        f"Emulation version{delimiter} 1.36",
        f"Paths{delimiter} /configz /metrics",
        "",
    ]


@pytest.mark.parametrize(("path", "kind"), [("/flagz", "Flagz"), ("/statusz", "Statusz")])
def test_structured_pages(tmp_path: Path, path: str, kind: str) -> None:
    async def main() -> None:
        client = z_client(tmp_path)
        async with client.server:

            async def asked(media: str, version: str = "v1beta1") -> Answer:
                return await client(path, headers=[("Accept", f"{media};v={version};g=config.k8s.io;as={kind}")])

            answer = await asked("application/json")
            assert answer.headers["Content-Type"] == "application/json"
            assert "Warning" not in answer.headers
            data = answer.data
            assert (data["kind"], data["apiVersion"]) == (kind, "config.k8s.io/v1beta1")
            assert data["metadata"] == {"name": "kube-scheduler"}
            if kind == "Flagz":
                assert data["flags"] == {"bind-address": "0.0.0.0", "v": "2"}
            else:
                assert data["paths"] == ["/flagz", "/healthz", "/livez", "/metrics", "/readyz"]
                assert (data["binaryVersion"], data["emulationVersion"]) == ("1.36.0", "1.36")
                assert set(data) > {"startTime", "uptimeSeconds", "goVersion"}
            as_yaml = await asked("application/yaml")
            assert as_yaml.headers["Content-Type"] == "application/yaml"
            assert yaml.safe_load(as_yaml.text) == data
            old = await asked("application/json", "v1alpha1")
            assert old.headers["Warning"] == (
                f'299 - "This version of the {path[1:]} endpoint is deprecated. Please use a newer version."'
            )
            assert old.data["apiVersion"] == "config.k8s.io/v1alpha1"
            for accept in ("application/json", "text/html", "application/json;v=v1;g=config.k8s.io;as=" + kind):
                refused = await client(path, headers=[("Accept", accept)])
                assert (refused.status, refused.data["code"], refused.data["reason"]) == (406, 406, "NotAcceptable")
                assert refused.data["message"] == (
                    "only the following media types are accepted: application/json, application/yaml, text/plain"
                )

    run(main())


def test_the_first_form_that_can_be_served_is_taken() -> None:
    form = negotiate("text/html, application/json, application/yaml;g=config.k8s.io;v=v1beta1;as=Flagz, */*", "Flagz")
    assert form is not None
    assert form.format.value == "application/yaml"
    assert negotiate("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", "Statusz") is None


# -- profiling ---------------------------------------------------------------------------------------------------


def test_profiling(tmp_path: Path) -> None:
    async def main() -> None:
        levels: list[int] = []
        pages = {"profiling": True, "set_verbosity": levels.append}
        async with running(serving(tmp_path), pages=pages, authorization=OPEN) as client:
            moved = await client("/debug/pprof")
            assert (moved.status, moved.headers["Location"]) == (302, "/debug/pprof/")
            index = (await client("/debug/pprof/")).text
            for name in ["allocs", "block", "goroutine", "heap", "mutex", "threadcreate", "profile", "symbol", "trace"]:
                assert f"\n{name}\t" in index
            assert "task serving-files:" in (await client("/debug/pprof/goroutine")).text
            assert "thread MainThread:" in (await client("/debug/pprof/threadcreate")).text
            assert (await client("/debug/pprof/heap")).text.startswith("heap profile: ")
            assert (await client("/debug/pprof/allocs")).status == 200
            assert (await client("/debug/pprof/symbol", "POST")).text == "num_symbols: 0\n"
            for name in ("block", "mutex", "trace"):
                answer = await client(f"/debug/pprof/{name}")
                assert (answer.status, name in answer.text) == (501, True)
            for name in ("cmdline", "nothing"):
                answer = await client(f"/debug/pprof/{name}")
                assert (answer.status, answer.text) == (404, "Unknown profile\n")
            assert (await client("/debug/pprof/profile?seconds=x")).status == 400
            for path in ("/debug/flags", "/debug/flags/"):
                assert (await client(path)).text == "/debug/flags/\n\nflags:\nv\n"
            answer = await client("/debug/flags/v", "PUT", body=b"4")
            assert (answer.status, answer.text) == (200, "successfully set klog.logging.verbosity to 4")
            assert levels == [4]
            for body, problem in ((b"x", "invalid syntax"), (b"99999999999", "value out of range"), (b"", "invalid")):
                answer = await client("/debug/flags/v", "PUT", body=body)
                assert answer.status == 400
                assert f'strconv.ParseInt: parsing "{body.decode()}": {problem}' in answer.text
            answer = await client("/debug/flags/v", "GET")
            assert (answer.status, answer.text) == (406, "unsupported http method")
            assert levels == [4]

    run(main())


def _work() -> None:
    until = time.thread_time() + 0.2
    while time.thread_time() < until:
        pass


def test_a_cpu_profile_is_one_that_pprof_reads(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(serving(tmp_path), pages={"profiling": True}, authorization=OPEN) as client:
            asyncio.get_running_loop().call_later(0.3, _work)
            answer = await client("/debug/pprof/profile?seconds=1")
            assert answer.headers["Content-Type"] == "application/octet-stream"
            assert b"BaseEventLoop.run_forever" in gzip.decompress(answer.body)

    run(main())


def test_a_profile_counts_the_time_of_work_and_not_of_waiting() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(0.3, _work)
        begun = time.thread_time()
        with mock.patch.object(profiling, "encode_profile", lambda samples, _: samples):
            samples: Any = await profiling.Profiler().cpu(1)
        used = time.thread_time() - begun
        at_work = sum(count for stack, count in samples.items() if any(name == "_work" for name, *_ in stack))
        assert 0 < at_work / 100 <= used
        assert samples.total() / 100 <= used
        assert not any("selectors.py" in stack[0][1] for stack in samples)

    run(main())


def test_a_frame_between_two_lines_has_the_line_of_its_function() -> None:
    code = mock.Mock(co_qualname="f", co_filename="f.py", co_firstlineno=7)
    frame = mock.Mock(f_code=code, f_lineno=None, f_back=None)
    assert profiling._stack(frame) == (("f", "f.py", 7),)


def test_the_profile_format() -> None:
    inner, outer = ("inner", "a.py", 7), ("outer", "a.py", 300)
    raw = gzip.decompress(encode_profile({(inner, outer): 3}, 1))
    fields = _fields(raw)
    strings = [item.decode() for number, item in fields if number == 6 and isinstance(item, bytes)]
    assert strings == ["", "samples", "count", "cpu", "nanoseconds", "inner", "a.py", "outer"]
    [sample] = [_fields(item) for number, item in fields if number == 2 and isinstance(item, bytes)]
    assert sample == [(1, b"\x01\x02"), (2, b"\x03" + b"\x80\x87\xa7\x0e")]  # 3 samples, 30 ms
    locations = [_fields(item) for number, item in fields if number == 4 and isinstance(item, bytes)]
    assert locations == [[(1, 1), (4, b"\x08\x01\x10\x07")], [(1, 2), (4, b"\x08\x02\x10\xac\x02")]]
    functions = [_fields(item) for number, item in fields if number == 5 and isinstance(item, bytes)]
    assert functions == [[(1, 1), (2, 5), (3, 5), (4, 6)], [(1, 2), (2, 7), (3, 7), (4, 6)]]
    assert [item for item in fields if item[0] in (10, 12)] == [(10, 1_000_000_000), (12, 10_000_000)]


def _fields(raw: bytes) -> list[tuple[int, int | bytes]]:
    """A protobuf message with varints and lengths only."""
    found: list[tuple[int, int | bytes]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(raw):
        key = varint()
        value = varint()
        if key & 7 == 2:
            found.append((key >> 3, raw[at : at + value]))
            at += value
        else:
            found.append((key >> 3, value))
    return found


# -- pod resources -----------------------------------------------------------------------------------------------


def a_pod(name: str, **fields: Any) -> Pod:
    import msgspec

    return decode_object(msgspec.json.encode({"metadata": {"name": name, "namespace": "ns"}, **fields}), Pod)


def container(requests: dict[str, str], limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests, "limits": limits or {}}, **more}


BIG = a_pod(
    "big",
    spec={
        "nodeName": "n1",
        "schedulerName": "s",
        "priority": 7,
        "containers": [
            container({"cpu": "250m", "memory": "1Gi", "example.com/gpu": "1", "hugepages-2Mi": "4Mi"}, {"cpu": "1"}),
            container({"cpu": "500m", "attachable-volumes-x": "2", "ephemeral-storage": "0"}),
        ],
        "initContainers": [
            container({"cpu": "100m"}, {"memory": "1Mi"}, restartPolicy="Always"),
            container({"cpu": "2"}),
        ],
        "overhead": {"cpu": "10m", "memory": "1"},
    },
    status={"phase": "Running"},
)


def test_pod_resources(tmp_path: Path) -> None:
    done = a_pod("done", spec={"nodeName": "n1", "containers": [container({"cpu": "1"})]}, status={"phase": "Failed"})
    level = a_pod(
        "level",
        spec={
            "resources": {"requests": {"cpu": "3"}, "limits": {"memory": "5"}},
            "containers": [container({"cpu": "1"})],
        },
    )
    odd = a_pod("odd", spec={"containers": [container({"cpu": "many"})]})
    leading = True

    async def main() -> None:
        nonlocal leading
        resources = PodResources(lambda: [BIG, done, level, odd], lambda: leading)
        async with running(serving(tmp_path), pages={"resources": resources}, authorization=OPEN) as client:
            answer = await client("/metrics/resources")
            lines = answer.text.splitlines()
            head = 'namespace="ns",node="n1",pod="big",priority="7"'

            def shown(metric: str, resource: str, unit: str, value: str) -> str:
                return f'kube_pod_resource_{metric}{{{head},resource="{resource}",scheduler="s",unit="{unit}"}} {value}'

            assert [line for line in lines if line.startswith("#")] == [
                "# HELP kube_pod_resource_request [STABLE] Amount of a resource that a pod requests, init containers and overhead included.",
                "# TYPE kube_pod_resource_request gauge",
                "# HELP kube_pod_resource_limit [STABLE] Amount of a resource that a pod is limited to, init containers included.",
                "# TYPE kube_pod_resource_limit gauge",
            ]
            assert [line for line in lines if 'pod="big"' in line] == [
                shown("request", "attachable-volumes-x", "integer", "2.0"),
                shown("request", "cpu", "cores", "2.11"),  # the init step with the sidecar, and the overhead
                shown("request", "example.com/gpu", "", "1.0"),
                shown("request", "hugepages-2Mi", "bytes", "4.194304e+06"),
                shown("request", "memory", "bytes", "1.073741825e+09"),
                shown("limit", "cpu", "cores", "1.01"),
                shown("limit", "memory", "bytes", "1.048577e+06"),
            ]
            rest = 'namespace="ns",node="",pod="level",priority=""'
            assert [line for line in lines if 'pod="level"' in line] == [
                f'kube_pod_resource_request{{{rest},resource="cpu",scheduler="",unit="cores"}} 3.0',
                f'kube_pod_resource_limit{{{rest},resource="memory",scheduler="",unit="bytes"}} 5.0',
            ]
            assert not any('pod="done"' in line or 'pod="odd"' in line for line in lines)
            leading = False
            answer = await client("/metrics/resources")
            assert (answer.status, answer.body) == (200, b"")

    run(main())


# -- the way of a request ----------------------------------------------------------------------------------------


def test_an_endpoint_that_fails_is_logged_and_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("internals")

    async def main() -> None:
        async with running(serving(tmp_path), pages={"configz": broken}, authorization=OPEN) as client:
            answer = await client("/configz")
            assert (answer.status, answer.text) == (500, "Internal Server Error\n")
            assert answer.headers["Cache-Control"] == "no-cache, private"
            assert (await client("/healthz")).status == 200

    run(main())
    assert "GET '/configz' failed" in caplog.text


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
def test_the_access_log_has_no_query(tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with ReviewingApi().served() as api, running(serving(tmp_path), api=api) as client:
            await client(f"{path}?secret=1", headers=[("User-Agent", "me/1")])

    with caplog.at_level(logging.DEBUG, logger="kubesched.scheduler.server.access"):
        run(main())
    [line] = [record.getMessage() for record in caplog.records if record.name == "kubesched.scheduler.server.access"]
    assert f"verb=GET path='{path}' status=" in line
    assert "userAgent='me/1'" in line
    assert "secret" not in line


def test_pages_are_asked_each_time(tmp_path: Path) -> None:
    async def main() -> None:
        answers = iter([{"a": 1}, {"a": 2}])
        source: Callable[[], dict[str, int]] = lambda: next(answers)  # noqa: E731 - a source of pages
        async with running(serving(tmp_path), pages={"configz": source}, authorization=OPEN) as client:
            seen = [(await client("/configz")).data["componentconfig"]["a"] for _ in range(2)]
            assert seen == [1, 2]

    run(main())


def test_added_pages_are_authorized_and_get_path_and_query(tmp_path: Path) -> None:
    asked: list[tuple[str, dict[str, list[str]], str]] = []

    async def page(path: str, query: Mapping[str, Sequence[str]], accept: str) -> PageAnswer:
        asked.append((path, {name: list(values) for name, values in query.items()}, accept))
        return PageAnswer(429, b"later\n", "text/plain", 7)

    async def main() -> None:
        pages = {"added": {"explain": page}}
        async with running(serving(tmp_path), pages=pages, authorization=OPEN) as client:
            answer = await client("/explain/pods/a/b?node=x&node=y%20z&deep", headers=[("Accept", "text/plain")])
            assert (answer.status, answer.text, answer.headers["Retry-After"]) == (429, "later\n", "7")
            assert asked == [("/explain/pods/a/b", {"node": ["x", "y z"], "deep": [""]}, "text/plain")]
            assert (await client("/explain/x", "POST")).status == 405
        async with running(serving(tmp_path), pages=pages) as client:
            assert (await client("/explain/pods/a/b")).status in (401, 403)
        assert len(asked) == 1

    run(main())


def test_sites_are_authorized_and_may_stream(tmp_path: Path) -> None:
    async def site(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/ui/fails":
            raise ZeroDivisionError
        if request.path == "/ui/file":
            return web.Response(text="file", headers={"Cache-Control": "max-age=60"})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(3):
            await response.write(b"data: %d\n\n" % number)
        return response

    async def main() -> None:
        pages = {"sites": {"ui": site}, "versions": ("v1", "1")}
        async with running(serving(tmp_path), pages=pages, authorization=OPEN) as client:
            streamed = await client("/ui/stream?since=1")
            assert (streamed.status, streamed.text) == (200, "data: 0\n\ndata: 1\n\ndata: 2\n\n")
            file = await client("/ui/file")
            assert (file.text, file.headers["Cache-Control"], file.headers["Server"]) == (
                "file",
                "max-age=60",
                "kubesched",
            )
            assert (await client("/ui/file", "HEAD")).body == b""
            assert (await client("/ui/fails")).status == 500
            for method in ("POST", "PUT", "DELETE"):
                assert (await client("/ui/file", method)).status == 405
            assert "/ui" in (await client("/statusz", headers=[("Accept", "text/plain")])).text
        async with running(serving(tmp_path), pages=pages) as client:
            for path in ("/ui", "/ui/", "/ui/file", "/ui/api/v1/dashboard"):
                assert (await client(path)).status in (401, 403), path

    run(main())

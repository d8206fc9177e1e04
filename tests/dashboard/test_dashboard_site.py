"""Dashboard's site and listener: who gets in, what is refused, and how answers are sent."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from site_kit import Client, Still, serving
from yarl import URL

from kubesched.dashboard.login import COOKIE, SESSION_SECONDS, Login
from kubesched.dashboard.schema import PodList, PodRow
from kubesched.dashboard.schema_what_if import Scale, WhatIf
from kubesched.dashboard.server import MOST_STREAMS
from kubesched.dashboard.source import PodQuery, Refused

Check = Callable[[Client], Awaitable[None]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Home of the session key."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "kubesched" / "ui.key"


def run(check: Check, source: Still | None = None, *, logged_in: bool = True) -> None:
    async def main() -> None:
        async with serving(source, logged_in=logged_in) as client:
            await check(client)

    asyncio.run(main())


# -- login ---------------------------------------------------------------------------------------------


def test_a_link_logs_in_once_and_another_is_announced(home: Path) -> None:
    async def check(client: Client) -> None:
        (first,) = client.links
        assert (await client.get("dashboard"))[0] == 401
        async with client.session.get(first, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/ui/")
            cookie = answer.headers["Set-Cookie"]
        for part in ("HttpOnly", "SameSite=Strict", "Path=/ui", f"Max-Age={SESSION_SECONDS}"):
            assert part in cookie
        assert len(client.links) == 2
        assert (await client.get("dashboard"))[0] == 200
        client.session.cookie_jar.clear()
        async with client.session.get(first, allow_redirects=False) as answer:
            assert (answer.status, "Set-Cookie" in answer.headers) == (303, False)
        assert (await client.get("dashboard"))[0] == 401
        await client.log_in()
        assert (await client.get("dashboard"))[0] == 200

    run(check, logged_in=False)
    assert stat.S_IMODE(home.stat().st_mode) == 0o600


def test_a_session_outlives_the_program_but_not_its_key(home: Path) -> None:
    async def main() -> None:
        async with serving() as client:
            cookies = client.session.cookie_jar.filter_cookies(URL(client.listener.url))
            session = {COOKIE: cookies[COOKIE].value}
        async with serving(logged_in=False) as client:
            assert (await client.get("dashboard", cookies=session))[0] == 200
            assert not client.remarks
        home.unlink()  # noqa: ASYNC240
        async with serving(logged_in=False) as client:
            assert (await client.get("dashboard", cookies=session))[0] == 401

    asyncio.run(main())


@pytest.mark.parametrize(
    "text", ["", "x" * 5000, "0.0.0", f"1.{'a' * 16}.{'0' * 64}", f"9999999999999.{'a' * 16}.{'0' * 64}"]
)
def test_a_forged_session_is_none(text: str) -> None:
    async def check(client: Client) -> None:
        assert (await client.get("dashboard", headers={"Cookie": f"{COOKIE}={text}"}))[0] == 401

    run(check, logged_in=False)


def test_a_session_ends_with_its_time() -> None:
    class At:
        time = 1000.0

        def now(self) -> float:
            return self.time

    clock = At()
    login = Login(b"k" * 32, clock)
    header = f"other=1; {COOKIE}={login.use(login.link_key)}"
    assert login.is_session(header)
    assert not Login(b"j" * 32, clock).is_session(header)
    clock.time += SESSION_SECONDS + 1
    assert not login.is_session(header)
    clock.time = 0.0
    assert not login.is_session(header)


@pytest.mark.parametrize("fault", ["readable", "garbage", "folder", "pipe"])
def test_a_key_that_cannot_be_used_is_remarked_and_replaced_for_now(home: Path, fault: str) -> None:
    home.parent.mkdir()
    if fault == "folder":
        home.mkdir()
    elif fault == "pipe":
        os.mkfifo(home, 0o600)
    else:
        home.write_text("0" * 64 if fault == "readable" else "not a key")
        home.chmod(0o644 if fault == "readable" else 0o600)
    words = {"readable": "chmod 600", "garbage": "holds no key", "folder": "directory", "pipe": "is no file"}

    async def check(client: Client) -> None:
        (remark,) = client.remarks
        assert str(home) in remark
        assert words[fault] in remark
        assert remark.endswith("logins end with the program")
        assert (await client.get("dashboard"))[0] == 200

    run(check)


# -- other origins ---------------------------------------------------------------------------------------


def test_only_names_of_this_machine_are_answered() -> None:
    async def check(client: Client) -> None:
        port = client.root.rsplit(":", 1)[1]
        for host in ("localhost", f"localhost:{port}", "127.0.0.1:1", "[::1]:80", "LOCALHOST."):
            assert (await client.get("dashboard", headers={"Host": host}))[0] == 200, host
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "localhost@evil",
            "",
            "a b",
        ):
            for path in ("/ui/", "/ui/api/v1/dashboard", client.links[-1].removeprefix(client.root)):
                status, body, _ = await client.ask("GET", path, headers={"Host": host})
                assert (status, "localhost" in body["error"]) == (403, True), host
        assert client.links[-1] == client.listener.link  # nobody used it

    run(check)


SAFE = {"X-Kubesched": "1", "Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"X-Kubesched": ""}, 403),
        ({"X-Kubesched": "yes"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Cookie": "a=b"}, 401),
    ],
)
def test_a_post_needs_what_other_pages_cannot_send(headers: dict[str, str], status: int) -> None:
    source = Still()

    async def check(client: Client) -> None:
        sent = {**SAFE, "Origin": client.root, **headers}
        if "Cookie" in headers:
            client.session.cookie_jar.clear()
        body = json.dumps({"changes": [{"kind": "scale", "workload": "Deployment/a/b", "replicas": 3}]})
        assert (await client.ask("POST", "/ui/api/v1/runs/0/apply", headers=sent, data=body))[0] == status

    run(check, source)
    question = WhatIf(changes=[Scale(workload="Deployment/a/b", replicas=3)])
    assert source.asked == ([question] if status == 200 else [])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{}", 400),
        (b'{"changes": [{"kind": "rm"}]}', 400),
        (b'{"changes": [{"kind": "scale", "workload": 1, "replicas": 1}]}', 400),
        (b"\xff\xfe", 400),
        (b"[" * 60_000, 400),
        (b'{"changes": [{"kind": "scale", "workload": "a", "replicas": 1e400}]}', 400),
        (b'{"changes": [' + b'{"kind": "drain", "node": "n"},' * 3000 + b"]}", 413),
    ],
)
def test_a_body_that_is_no_question_is_refused(body: bytes, status: int) -> None:
    source = Still()

    async def check(client: Client) -> None:
        sent = {**SAFE, "Origin": client.root}
        found = await client.ask("POST", "/ui/api/v1/runs/0/what-if", headers=sent, data=body)
        assert (found[0], list(found[1])) == (status, ["error"])

    run(check, source)
    assert not source.asked


def test_every_answer_has_the_headers_that_bind_the_page() -> None:
    async def check(client: Client) -> None:
        for path in ("/ui/", "/ui/api/v1/dashboard", "/ui/api/v1/nope", "/ui/nope.js"):
            _, _, headers = await client.ask("GET", path)
            policy = headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'"), path
            assert "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert headers["Cache-Control"] == "no-store"
            assert "Access-Control-Allow-Origin" not in headers

    run(check)


class Turning(Still):
    """Source of a pod whose workload turns the direction of the text."""

    async def pods(self, query: PodQuery, at: float | None) -> PodList:
        return PodList(
            pods=[PodRow(namespace="d", name="p", workload="Job/\u202egpj.exe\u2066", state="Active")], total=1
        )


def test_characters_that_turn_a_text_are_shown_in_words() -> None:
    async def check(client: Client) -> None:
        _, found, _ = await client.get("runs/0/pods")
        assert found["pods"][0]["workload"] == r"Job/\u202egpj.exe\u2066"

    run(check, Turning())


def test_the_page_itself_needs_no_login() -> None:
    async def check(client: Client) -> None:
        status, text, headers = await client.ask("GET", "/ui/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "<html" in text
        for path in ("/", "/ui"):
            status, _, headers = await client.ask("GET", path)
            assert (status, headers["Location"]) == (303, "/ui/")

    run(check, logged_in=False)


# -- hostile paths ----------------------------------------------------------------------------------------

BAD_PATHS = [
    *(f"runs/{run}/state" for run in ("", "1", "-1", "x", "00000000000000000000", "1e3", "%30%30x", "\u00b2")),
    *(
        f"runs/0/{rest}"
        for rest in ("", "nope", "state/x", "pods/a", "pods/a/b/c", "nodes", "nodes/", "verdicts/a", "what-if/x")
    ),
    *(f"runs/0/state?at={at}" for at in ("x", "nan", "inf", "-inf", "1e400", "1e13", "0x10", "1;2", "%00", "9" * 400)),
    *(f"runs/0/state?{query}" for query in ("nope=1", "at=1&at=2", "&".join(f"a{n}=1" for n in range(40)), "a" * 5000)),
    *(f"runs/0/pods?limit={limit}" for limit in ("-1", "1001", "1.5", "nan", "x", "1e99")),
    *(f"runs/0/pods?{query}" for query in ("q=1&q=2", "node=a&node=b", "names=x", "limit=1&limit=2")),
    *(f"runs/0/played?{query}" for query in ("", "from=1", "to=1", "from=2&to=1", "from=a&to=b", "from=0&to=1&most=0")),
    *(f"runs/0/played?from=0&to=1&most={most}" for most in ("5001", "x", "-5", "1.5", "nan")),
    *(f"runs/0/changes?{query}" for query in ("at=1", "since=1&since=2", "x=")),
    *(f"runs/0/{path}?x=1" for path in ("series", "queues", "what-if", "pods/a/b", "verdicts/a/b")),
    *(
        "",
        "..",
        "../..",
        "%2e%2e/%2e%2e/etc/passwd",
        "runs",
        "runs/0",
        "dashboard/",
        "dashboard?x=1",
        "//dashboard",
        "x" * 2000,
    ),
    *(
        "runs/0/explain/missing",
        "runs/0/explain/missing?at=x",
        "runs/0/pods/%00/%ff",
        "runs/0/pods/a%2fb/c",
        "DASHBOARD",
    ),
    *(
        *(
            f"runs/0/{path}?at={at}"
            for path in ("queues", "pods", "pods/a/b", "verdicts/a/b")
            for at in ("x", "nan", "-1e13")
        ),
        "runs/0/state%00",
        "runs/0/state%0d%0aX: y",
        "runs/0/pods/<script>/x",
        "runs/0/verdicts/'/\"",
        "runs/0/pods/%F0%28/a",
    ),
]
BAD_FILES = [
    "../schema.py",
    "%2e%2e/schema.py",
    "..%2fschema.py",
    "assets/",
    "assets/../../login.py",
    "index.html%00",
    "index.html/",
    "%",
]


def test_a_hundred_requests_that_make_no_sense_get_one_sentence_each(caplog: pytest.LogCaptureFixture) -> None:
    async def check(client: Client) -> None:
        for path in [*(f"/ui/api/v1/{path}" for path in BAD_PATHS), *(f"/ui/{path}" for path in BAD_FILES)]:
            status, body, _ = await client.ask("GET", path)
            assert status in (400, 404, 414), (path, status, body)
            assert list(body) == ["error"], path
            assert 0 < len(body["error"]) < 400, path
            assert "\n" not in body["error"], path

    run(check)
    assert len(BAD_PATHS) + len(BAD_FILES) >= 100
    assert not caplog.records


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "POST"])
def test_other_methods_are_refused(method: str) -> None:
    async def check(client: Client) -> None:
        for path in ("/ui/api/v1/dashboard", "/ui/api/v1/runs/0/state", "/ui/"):
            status, body, _ = await client.ask(method, path, headers={**SAFE, "Origin": client.root})
            assert status in (403, 404, 405), (path, status)
            assert list(body) == ["error"]

    run(check)


def test_a_defect_is_logged_and_told_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    async def check(client: Client) -> None:
        status, body, _ = await client.get("runs/0/nodes/n")
        assert status == 500
        assert "defect" not in body["error"]

    with caplog.at_level(logging.ERROR):
        run(check)
    assert "ZeroDivisionError: a defect" in caplog.text


def test_questions_reach_the_source_as_they_were_meant() -> None:
    source = Still()

    async def check(client: Client) -> None:
        await client.get("runs/0/pods?q=a%20b&namespace=n&state=Active&node=m&workload=Deployment%2Fw&limit=7")
        await client.get("runs/0/pods/ns/a%2Fb?at=12.5")
        await client.get("runs/0/played?from=1&to=2&most=3")
        status, body, _ = await client.get("runs/0/explain/pods/ns/x?node=a&node=b&at=3")
        assert (status, body) == (200, {})
        status, body, _ = await client.get("runs/0/explain/missing")
        assert (status, body) == (404, {"error": "no such pod"})

    run(check, source)
    assert source.asked == [
        PodQuery("a b", "n", "Active", "m", "Deployment/w", 7),
        ("ns", "a/b", 12.5),
        (1.0, 2.0, 3),
        ("/explain/pods/ns/x", {"node": ["a", "b"]}, 3.0),
        ("/explain/missing", {}, None),
    ]


# -- answers --------------------------------------------------------------------------------------------------


def test_large_answers_are_compressed_for_those_who_take_it() -> None:
    async def main() -> None:
        async with serving() as client:
            cookies = client.session.cookie_jar
            async with aiohttp.ClientSession(cookie_jar=cookies, auto_decompress=False) as raw:
                url = f"{client.root}/ui/api/v1/runs/0/state"
                for accept, packed in (
                    ("gzip, br", True),
                    ("identity", False),
                    ("gzip;q=0", False),
                    ("", False),
                    ("*", True),
                ):
                    async with raw.get(url, headers={"Accept-Encoding": accept}) as answer:
                        body = await answer.read()
                        assert (answer.headers.get("Content-Encoding") == "gzip") is packed, accept
                        text = gzip.decompress(body) if packed else body
                        assert len(json.loads(text)["nodes"]["names"]) == 2000
                async with raw.head(url) as answer:
                    assert (answer.status, await answer.read()) == (200, b"")

    asyncio.run(main())


def test_streams_are_bounded_and_end_with_their_pages() -> None:
    source = Still()

    async def check(client: Client) -> None:
        path = f"{client.root}/ui/api/v1/runs/0/changes?since=5"
        answers = [
            await client.session.get(path, headers={"Last-Event-ID": "7"} if number else {})
            for number in range(MOST_STREAMS)
        ]
        assert {answer.headers["Content-Type"] for answer in answers} == {"text/event-stream"}
        assert await answers[0].content.readuntil(b"\n\n") == b"event: resync\ndata: {}\n\n"
        status, body, headers = await client.get("runs/0/changes")
        assert (status, headers["Retry-After"]) == (503, "10")
        assert str(MOST_STREAMS) in body["error"]
        answers.pop().close()
        while source.open == MOST_STREAMS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with client.session.get(path) as answer:
            assert answer.status == 200
        await client.listener.stop()
        for answer in answers:
            assert await answer.content.read() in (b"", b"event: resync\ndata: {}\n\n")

    run(check, source)
    assert source.open == 0
    assert source.asked[:2] == [5, 7]


def test_a_source_without_changes_refuses_the_stream() -> None:
    class Recorded(Still):
        def changes(self, since: int | None) -> AsyncIterator[bytes]:
            raise Refused(404, "a recording does not change")

    async def check(client: Client) -> None:
        assert (await client.get("runs/0/changes"))[:2] == (404, {"error": "a recording does not change"})

    run(check, Recorded())


def test_a_listener_whose_port_is_taken_says_so() -> None:
    async def check(client: Client) -> None:
        from kubesched.dashboard.listener import Listener
        from kubesched.dashboard.server import Site

        port = int(client.root.rsplit(":", 1)[1])
        other = Listener(Site([Still()]), ("127.0.0.1", port), announce=lambda link: None, warn=lambda text: None)
        with pytest.raises(OSError, match=f"--ui: cannot listen on 127.0.0.1:{port}: .*give another port"):
            await other.start()
        await other.stop()

    run(check)


@pytest.mark.skipif(os.name != "posix", reason="permissions of files")
def test_the_folder_of_the_key_is_private(home: Path) -> None:
    async def check(client: Client) -> None:
        assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700

    run(check)

"""Without a token, requests that a web page may have made are refused; kubectl's and client libraries' are not."""

from __future__ import annotations

import msgspec
import pytest
from http_world import JSON_PATCH, MERGE, PODS, Api, a_node, a_pod, a_store, run, served

from kubesched.api.kinds import PODS as KIND
from kubesched.cluster.http import HttpServer, is_loopback

HOSTS = [
    ("localhost", 200),
    ("localhost:8001", 200),
    ("LocalHost.", 200),
    ("127.0.0.1:1", 200),
    ("127.9.9.9", 200),
    ("[::1]:8001", 200),
    ("[::ffff:127.0.0.1]", 200),
    ("cluster.example:6443", 200),
    ("CLUSTER.example.", 200),
    ("evil.example", 403),
    ("localhost.evil.example", 403),
    ("127.0.0.1.evil.example", 403),
    ("10.1.2.3", 403),
    ("0.0.0.0", 403),
    ("[2001:db8::1]", 403),
    ("user@localhost", 400),
    ("localhost/x", 400),
    ("localhost:port", 400),
    ("[::1", 400),
    (":80", 400),
]


@pytest.mark.parametrize(("host", "code"), HOSTS)
def test_foreign_hosts_are_refused(host: str, code: int) -> None:
    async def main() -> None:
        async with served(allowed_hosts=["cluster.example"]) as api:
            answer = await api.get("/api/v1/nodes", headers={"Host": host})
            assert answer.status == code, answer.raw
            if code == 403:
                assert (answer.reason, "--allowed-host" in answer.message) == ("Forbidden", True)

    run(main())


async def _ask(api: Api, headers: dict[str, str]) -> int:
    return (await api.post(PODS, a_pod(), dryRun="All", headers=headers)).status


def test_pages_of_other_origins_are_refused() -> None:
    async def main() -> None:
        async with served() as api:
            own = api.server.url
            port = own.rpartition(":")[2]
            for origin, status in (
                (own, 201),
                ("null", 403),
                ("http://evil.example", 403),
                (f"http://localhost:{port}", 403),
                ("http://127.0.0.1:1", 403),
                ("http://[", 403),
                ("", 403),
            ):
                assert await _ask(api, {"Origin": origin}) == status, origin
            assert await _ask(api, {"Origin": f"http://localhost:{port}", "Host": f"localhost:{port}"}) == 201
            preflight = await api("OPTIONS", PODS, headers={"Origin": "http://evil.example"})
            assert preflight.status == 403
            assert not [name for name in preflight.headers if name.lower().startswith("access-control-")]

    run(main())


BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}
TYPES = [
    ("application/json", 201),
    ("application/json; charset=utf-8", 201),
    ("APPLICATION/JSON", 201),
    ("application/yaml", 201),
    ("text/plain", 415),
    ("text/plain;application/json", 415),
    ("application/x-www-form-urlencoded", 415),
    ("multipart/form-data; boundary=application/json", 415),
    ("application/octet-stream", 415),
    ("", 415),
]


@pytest.mark.parametrize(("content_type", "code"), TYPES)
def test_bodies_of_a_form_are_refused(content_type: str, code: int) -> None:
    async def main() -> None:
        async with served() as api:
            # An empty header counts as none, which is what a page's untyped Blob is sent with.
            raw = msgspec.json.encode(a_pod())
            answer = await api("POST", PODS, raw=raw, headers={**BROWSER, "Content-Type": content_type})
            assert answer.status == code, answer.raw
            assert [item.name for item in api.store.list(KIND).items] == (["p"] if code == 201 else [])

    run(main())


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize(
    "path", [f"{PODS}/p/eviction", f"{PODS}/p/binding", "/apis/authorization.k8s.io/v1/subjectaccessreviews"]
)
def test_so_are_those_of_subresources_and_reviews(path: str, content_type: str) -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod())
            headers = {**BROWSER, "Content-Type": content_type}
            assert (await api("POST", path, raw=b"{}", headers=headers)).status == 415

    run(main())


def test_programs_that_are_no_browsers_may_leave_the_type_out() -> None:
    async def main() -> None:
        async with served() as api:
            raw = msgspec.json.encode(a_node())
            for agent, content_type, code in (
                ("kubectl/v1.33.0 (linux/amd64)", "", 201),
                ("kubectl/v1.33.0 (linux/amd64)", "text/plain", 415),
                ("pykube-ng/23.6.0", "", 201),
                ("Mozilla/5.0 (X11; Linux x86_64) kubectl/v1.33.0", "", 415),
                ("", "", 415),
            ):
                headers = {"User-Agent": agent, "Content-Type": content_type}
                for name, value in (("Sec-Fetch-Site", "cross-site"), ("Origin", api.server.url)):
                    from_page = {**headers, name: value}
                    answer = await api("POST", "/api/v1/nodes", raw=raw, headers=from_page, dryRun="All")
                    assert answer.status == 415, (agent, name)
                answer = await api("POST", "/api/v1/nodes", raw=raw, headers=headers, dryRun="All")
                assert answer.status == code, agent

    run(main())


def test_patches_and_requests_without_a_body_are_taken() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post("/api/v1/nodes", a_node())
            change = {"metadata": {"labels": {"a": "b"}}}
            assert (await api("PATCH", "/api/v1/nodes/n1", change, type=MERGE)).status == 200
            assert (await api("PATCH", "/api/v1/nodes/n1", [], type=JSON_PATCH)).status == 200
            assert (await api.delete("/api/v1/nodes/n1")).status == 200

    run(main())


def test_with_a_token_it_alone_decides() -> None:
    async def main() -> None:
        async with served(token="secret") as api:
            foreign = {"Host": "evil.example", "Origin": "http://evil.example"}
            assert (await api.get("/api/v1/nodes", headers=foreign)).status == 401
            good = {**foreign, "Authorization": "Bearer secret"}
            assert (await api.get("/api/v1/nodes", headers=good)).status == 200
            # As upstream: a body without a type is JSON.
            assert (
                await api(
                    "POST", "/api/v1/nodes", raw=b'{"metadata":{"name":"n"}}', headers={**good, "Content-Type": ""}
                )
            ).status == 201

    run(main())


def test_bound_to_all_addresses_any_address_may_be_named_and_no_other_name() -> None:
    async def main() -> None:
        async with served(host="0.0.0.0", insecure_without_token=True) as api:
            for host, code in (("10.1.2.3:80", 200), ("[2001:db8::1]", 200), ("localhost", 200), ("evil.example", 403)):
                assert (await api.get("/api/v1/nodes", headers={"Host": host})).status == code, host

    run(main())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "", "cluster.example"])
def test_an_address_that_others_reach_needs_a_token(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ValueError, match="others can reach"):
        HttpServer(a_store(), host=host)
    HttpServer(a_store(), host=host, token="secret")
    HttpServer(a_store(), host=host, insecure_without_token=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "LOCALHOST", "::ffff:127.0.0.1"])
def test_loopback_needs_none(host: str) -> None:
    assert is_loopback(host)
    HttpServer(a_store(), host=host)


@pytest.mark.parametrize("name", ["", "http://a", "a:80", "a/b", "a b", "a@b"])
def test_an_allowed_host_is_a_name_alone(name: str) -> None:
    with pytest.raises(ValueError, match="is no host name"):
        HttpServer(a_store(), allowed_hosts=[name])

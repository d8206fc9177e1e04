"""Accepted credentials: client certificates, the front proxy and tokens, and no others."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import aiohttp
import pytest
from server_kit import ReviewingApi, run, running, serving, trusting_all

from certificate_kit import Authority
from kubesched.scheduler.server import AuthenticationOptions, AuthorizationOptions

ALICE = {"username": "alice", "uid": "7", "groups": ["dev"], "extra": {"scopes": ["a", "b"]}}
UNAUTHORIZED = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "Unauthorized",
    "reason": "Unauthorized",
    "code": 401,
}


def forbidden(user: str, verb: str = "get", path: str = "/metrics", reason: str = "") -> dict[str, object]:
    message = f'forbidden: User "{user}" cannot {verb} path "{path}"' + (f": {reason}" if reason else "")
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "Forbidden",
        "details": {},
        "code": 403,
    }


class Certificates:
    """Two authorities, and what they issued."""

    def __init__(self, folder: Path) -> None:
        self.clients, self.proxies = Authority("clients"), Authority("proxies")
        self.client_ca, self.proxy_ca = folder / "client-ca.crt", folder / "proxy-ca.crt"
        self.client_ca.write_bytes(self.clients.pem)
        self.proxy_ca.write_bytes(self.proxies.pem)
        self.master = self.clients.write(folder, "master", "root", "system:masters")
        self.bob = self.clients.write(folder, "bob", "bob", "dev", "ops")
        self.stranger = Authority("strangers").write(folder, "stranger", "root", "system:masters")
        self.proxy = self.proxies.write(folder, "proxy", "front", "system:masters")
        self.impostor = self.proxies.write(folder, "impostor", "back")

    def options(self, **more: object) -> AuthenticationOptions:
        return AuthenticationOptions(client_ca_file=self.client_ca, skip_lookup=True, **more)  # type: ignore[arg-type]  # options by name


def test_without_credentials_only_the_always_allow_paths_answer(tmp_path: Path) -> None:
    async def main() -> None:
        pages = {
            "configz": dict,
            "flags": dict,
            "versions": ("1", "1"),
            "profiling": True,
            "set_verbosity": lambda level: None,
        }
        async with ReviewingApi().served() as api, running(serving(tmp_path), api=api, pages=pages) as client:
            for path in ("/healthz", "/livez", "/readyz"):
                assert (await client(path)).body == b"ok"
            closed = (
                "/ /metrics /metrics/slis /configz /flagz /statusz /healthz/ping /readyz/ping /debug/pprof "
                "/debug/pprof/ /debug/pprof/heap /debug/pprof/profile /debug/flags /debug/flags/v /nothing "
                "/healthz/../metrics /%6Detrics //metrics /healthz/"
            )
            for path in closed.split():
                answer = await client(path)
                assert (answer.status, answer.data["reason"]) == (403, "Forbidden"), path
            for method in ("HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
                assert (await client("/metrics", method)).status == 403, method

    run(main())


def test_a_client_certificate_names_user_and_groups(tmp_path: Path) -> None:
    async def main() -> None:
        made = Certificates(tmp_path)
        reviewer = ReviewingApi(allowed={("bob", "get", "/metrics")})
        async with (
            reviewer.served() as api,
            running(serving(tmp_path), api=api, authentication=made.options()) as client,
        ):
            assert (await client("/metrics", cert=made.master)).status == 200
            assert reviewer.posted == []  # masters are not reviewed
            assert (await client("/metrics", cert=made.bob)).status == 200
            assert reviewer.posted == [
                (
                    "SubjectAccessReview",
                    {
                        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
                        "user": "bob",
                        "groups": ["dev", "ops", "system:authenticated"],
                    },
                )
            ]
            answer = await client("/metrics", "DELETE", cert=made.bob)
            assert (answer.status, answer.data) == (403, forbidden("bob", "delete"))
            anonymous = await client("/metrics")
            assert (anonymous.status, anonymous.data) == (403, forbidden("system:anonymous"))

    run(main())


def test_a_certificate_of_another_authority_ends_the_handshake(tmp_path: Path) -> None:
    async def main() -> None:
        made = Certificates(tmp_path)
        async with running(serving(tmp_path), authentication=made.options()) as client:
            with pytest.raises(aiohttp.ClientError):
                await client("/healthz", cert=made.stranger)
            assert (await client("/healthz")).status == 200

    run(main())


def test_without_an_authority_client_certificates_are_ignored(tmp_path: Path) -> None:
    async def main() -> None:
        made = Certificates(tmp_path)
        async with running(serving(tmp_path)) as client:
            answer = await client("/metrics", cert=made.master)
            assert (answer.status, answer.data) == (403, forbidden("system:anonymous"))

    run(main())


def test_a_certificate_that_has_expired_since_the_handshake_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        made = Certificates(tmp_path)
        async with running(serving(tmp_path), authentication=made.options()) as client:
            assert (await client("/metrics", cert=made.master)).status == 200
            client.clock.time += 2 * 86400
            assert (await client("/metrics", cert=made.master)).data == UNAUTHORIZED

    run(main())


def test_the_front_proxy_names_other_users(tmp_path: Path) -> None:
    async def main() -> None:
        made = Certificates(tmp_path)
        options = made.options(
            requestheader_client_ca_file=made.proxy_ca,
            requestheader_allowed_names=("front",),
            requestheader_uid_headers=("X-Remote-Uid",),
        )
        reviewer = ReviewingApi(allowed={("carol", "get", "/metrics")})
        headers = [
            ("X-Remote-User", "carol"),
            ("X-Remote-Group", "dev"),
            ("X-Remote-Group", "ops"),
            ("X-Remote-Uid", "12"),
            ("X-Remote-Extra-Acme.Com%2FProject", "one"),
            ("X-Remote-Extra-Acme.Com%2FProject", "two"),
        ]
        async with reviewer.served() as api, running(serving(tmp_path), api=api, authentication=options) as client:

            async def asked(cert: tuple[Path, Path] | None) -> int:
                return (await client("/metrics", cert=cert, headers=headers)).status

            assert await asked(made.proxy) == 200
            _, spec = reviewer.posted[0]
            assert spec["user"] == "carol"
            assert spec["uid"] == "12"
            assert spec["groups"] == ["dev", "ops", "system:authenticated"]
            assert spec["extra"] == {"acme.com/project": ["one", "two"]}
            assert await asked(None) == 403  # headers without the certificate are ignored
            assert await asked(made.impostor) == 401  # signed by the proxies' authority, under another name
            assert await asked(made.bob) == 403  # a client, not a proxy: its own user, who may not
            assert reviewer.posted[-1][1]["user"] == "bob"
            # The proxies' authority does not make users, whatever the certificate says.
            assert (await client("/metrics", cert=made.proxy)).status == 401

    run(main())


def test_a_token_is_reviewed_once_in_its_time(tmp_path: Path) -> None:
    async def main() -> None:
        reviewer = ReviewingApi(tokens={"good": ALICE}, allowed={("alice", "get", "/metrics")})
        async with reviewer.served() as api, running(serving(tmp_path), api=api) as client:
            answers = await asyncio.gather(*(client("/metrics", token="good") for _ in range(5)))
            assert {answer.status for answer in answers} == {200}
            assert (reviewer.count("TokenReview"), reviewer.count("SubjectAccessReview")) == (1, 1)
            review = next(spec for kind, spec in reviewer.posted if kind == "SubjectAccessReview")
            assert review["groups"] == ["dev", "system:authenticated"]
            assert (review["uid"], review["extra"]) == ("7", {"scopes": ["a", "b"]})
            assert [(await client("/metrics", token="bad")).data for _ in range(2)] == [UNAUTHORIZED] * 2
            assert reviewer.count("TokenReview") == 2  # refusals are remembered, too
            client.clock.time += 10
            assert (await client("/metrics", token="good")).status == 200
            assert (reviewer.count("TokenReview"), reviewer.count("SubjectAccessReview")) == (3, 2)
            counts = client.metrics.authentication_token_cache_request_total.children
            assert sum(child.value for child in counts.values()) == 8
            assert client.metrics.authentication_attempts.labels("failure").value == 2
            assert client.metrics.apiserver_delegated_authn_request_total.labels("201").value == 3
            active = client.metrics.authentication_token_cache_active_fetch_count.children
            assert {child.value for child in active.values()} == {0}

    run(main())


def test_bad_credentials_are_refused_on_open_paths_as_well(tmp_path: Path) -> None:
    async def main() -> None:
        async with ReviewingApi().served() as api, running(serving(tmp_path), api=api) as client:
            assert (await client("/healthz", token="bad")).data == UNAUTHORIZED
            for odd in ("Basic abc", "Bearer", "Bearer  ", "bear good"):
                answer = await client("/healthz", headers=[("Authorization", odd)])
                assert answer.status == 200, odd  # no bearer token: no credentials

    run(main())


def test_without_an_api_server_tokens_are_ignored_and_only_masters_are_allowed(tmp_path: Path) -> None:
    async def main() -> None:
        made = Certificates(tmp_path)
        async with running(serving(tmp_path), authentication=made.options()) as client:
            assert (await client("/metrics", token="good")).data == forbidden("system:anonymous")
            assert (await client("/metrics", cert=made.bob)).data == forbidden("bob")
            assert (await client("/metrics", cert=made.master)).status == 200

    run(main())


@pytest.mark.parametrize(
    ("paths", "open_paths", "closed_paths"),
    [
        (("healthz",), ("/healthz",), ("/readyz", "/healthz/ping")),
        (("/readyz/*",), ("/readyz/ping", "/readyz%2Fping"), ("/readyz", "/healthz")),
        ((), (), ("/healthz",)),
    ],
)
def test_always_allow_paths(
    tmp_path: Path, paths: tuple[str, ...], open_paths: tuple[str, ...], closed_paths: tuple[str, ...]
) -> None:
    async def main() -> None:
        async with running(serving(tmp_path), authorization=AuthorizationOptions(paths)) as client:
            for path in open_paths:
                assert (await client(path)).status == 200, path
            for path in closed_paths:
                assert (await client(path)).status == 403, path

    run(main())


def test_decisions_are_remembered_for_times_of_their_own(tmp_path: Path) -> None:
    async def main() -> None:
        reviewer = ReviewingApi(tokens={"good": ALICE}, allowed={("alice", "get", "/metrics")}, reason="because")
        options = AuthorizationOptions(allow_cache_ttl=20, deny_cache_ttl=0)
        async with reviewer.served() as api, running(serving(tmp_path), api=api, authorization=options) as client:
            for _ in range(2):
                assert (await client("/metrics", token="good")).status == 200
                answer = await client("/configz", token="good")
                assert answer.data == forbidden("alice", path="/configz", reason="because")
            assert reviewer.count("SubjectAccessReview") == 3

    run(main())


def test_refusals_are_indented_for_people(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(serving(tmp_path)) as client:
            plain = await client("/metrics")
            assert plain.headers["Content-Type"] == "application/json"
            assert plain.headers["X-Content-Type-Options"] == "nosniff"
            assert plain.headers["Cache-Control"] == "no-cache, private"
            assert plain.text.count("\n") == 1
            for agent in ("curl/8.0", "Wget/1", "Mozilla/5.0 (X11)"):
                answer = await client("/metrics", headers=[("User-Agent", agent)])
                assert answer.text.startswith('{\n  "kind": "Status",\n')
                assert answer.data == plain.data
            assert (await client("/metrics?pretty=true")).text.startswith("{\n")
            assert "\n " not in (await client("/metrics?pretty=false", headers=[("User-Agent", "curl/8")])).text
            odd = await client("/%3Cb%3E%22")
            assert odd.data["message"] == 'forbidden: User "system:anonymous" cannot get path "/&lt;b&gt;\\""'

    run(main())


def test_a_review_that_cannot_be_had_is_an_internal_error(tmp_path: Path) -> None:
    async def main() -> None:
        reviewer = ReviewingApi(tokens={"good": ALICE}, failures=[503])  # no promise that it helps: not repeated
        async with reviewer.served() as api, running(serving(tmp_path), api=api) as client:
            assert (await client("/flagz", token="good")).data == UNAUTHORIZED
            assert (await client("/flagz", token="good")).status == 403  # failures are not remembered
            reviewer.failures = [503]
            answer = await client("/configz", token="good")
            assert (answer.status, answer.text) == (
                500,
                'Internal Server Error: "/configz": the access review failed\n',
            )
            assert client.metrics.authorization_attempts_total.labels("error").value == 1
            assert client.metrics.apiserver_delegated_authz_request_total.labels("503").value == 1

    run(main())


def test_no_secret_in_logs_and_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "s3cret-of-a-user"

    async def main() -> None:
        reviewer = ReviewingApi(tokens={secret: ALICE})
        async with reviewer.served() as api, running(serving(tmp_path), api=api) as client:
            answers = [await client("/metrics", token=secret), await client("/metrics", token=secret + "-wrong")]
            reviewer.failures = [400]  # the API server quotes the token in its refusal
            answers.append(await client("/metrics", token=secret + "-odd"))
            answers.append(await client(f"/metrics?token={secret}", token=secret))
            assert [answer.status for answer in answers] == [403, 401, 401, 403]
            for answer in answers:
                assert secret not in answer.text + str(answer.headers)
            text = client.server.port
            # A request that cannot be read, with a token in it.
            reader, writer = await asyncio.open_connection("127.0.0.1", text, ssl=trusting_all())
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization Bearer " + secret.encode() + b"\r\n\r\n")
            raw = await reader.read()
            writer.close()
            assert raw.startswith(b"HTTP/1.")
            assert b" 400 " in raw.split(b"\r\n")[0]
            assert secret.encode() not in raw

    with caplog.at_level(logging.DEBUG):
        run(main())
    assert secret not in caplog.text
    assert "Unable to authenticate the request: the bearer token is invalid" in caplog.text

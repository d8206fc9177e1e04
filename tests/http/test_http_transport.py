"""The client's transport against the HTTP face: verbs, errors, watches, and an informer through it all."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from random import Random
from typing import Any, Unpack

import pytest
from http_world import FakeClock, a_deployment, a_node, a_pod, a_store, run, served

from kubesched.api.kinds import JOBS, NODES, PODS, Kind, kind_by_plural
from kubesched.api.tombstone import final_state
from kubesched.api.wire import ApiError, ListOptions, ListPage, NotLeaderError, WatchEvent
from kubesched.client.access import AccessError, load_kubeconfig
from kubesched.client.http import HttpTransport
from kubesched.client.informer import Informer
from kubesched.cluster.http import HttpServer, make_certificates, write_kubeconfig

DEPLOYMENTS = kind_by_plural("apps", "deployments")
assert DEPLOYMENTS is not None


def _deployments() -> Kind:
    assert DEPLOYMENTS is not None
    return DEPLOYMENTS


async def _names(client: HttpTransport, version: str, names: list[str]) -> None:
    """Note the names that a watch delivers, until it ends."""
    async for batch in client.watch(PODS, resource_version=version):
        names += [event.item.name for event in batch]


def test_all_verbs() -> None:
    async def main() -> None:
        async with served() as api, HttpTransport(api.server.url) as client:
            await client.create(NODES, "", a_node())
            created = await client.create(PODS, "default", a_pod())
            assert (created.key, created.raw) == ("default/p", api.store.get(PODS, "default", "p").raw)
            assert (await client.create(PODS, "default", a_pod("q"), dry_run=True)).name == "q"
            patched = await client.patch(PODS, "default", "p", {"metadata": {"labels": {"a": "b"}}})
            assert patched.typed.metadata.labels == {"a": "b"}
            await client.patch(PODS, "default", "p", {"status": {"phase": "Pending"}}, subresource="status")
            await client.bind("default", "p", created.uid, "n1")
            assert (await client.get(PODS, "default", "p")).typed.spec.node_name == "n1"
            deployment = await client.create(_deployments(), "default", a_deployment())
            data = deployment.data()
            data["spec"]["replicas"] = 3
            assert (await client.update(_deployments(), "default", "web", data)).data()["spec"]["replicas"] == 3
            page = await client.list(PODS, field_selector="spec.nodeName=n1")
            assert [item.name for item in page.items] == ["p"]
            await client.evict("default", "p", grace_period_seconds=0)
            with pytest.raises(ApiError) as caught:
                await client.get(PODS, "default", "p")
            assert (caught.value.code, caught.value.reason) == (404, "NotFound")
            await client.delete(_deployments(), "default", "web", uid=deployment.uid, grace_period_seconds=0)
            job = {"spec": {"template": {"spec": {**a_pod()["spec"], "restartPolicy": "Never"}}}}
            for policy, left in (("", ["p"]), ("Background", [])):
                owner = await client.create(JOBS, "default", {"metadata": {"name": "j"}, **job})
                reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner.uid}
                pod = a_pod()
                pod["metadata"]["ownerReferences"] = [reference]
                await client.create(PODS, "default", pod)
                await client.delete(JOBS, "default", "j", propagation_policy=policy)
                api.store.settle()
                assert [item.name for item in (await client.list(PODS)).items] == left
                if left:
                    await client.delete(PODS, "default", "p")

    run(main())


def test_pages() -> None:
    async def main() -> None:
        async with served() as api, HttpTransport(api.server.url) as client:
            for index in range(5):
                await client.create(PODS, "default", a_pod(f"p{index}"))
            page = await client.list(PODS, "default", limit=2)
            assert (len(page.items), page.remaining) == (2, 3)
            rest = await client.list(PODS, "default", limit=9, continue_token=page.continue_token)
            assert [item.name for item in rest.items] == ["p2", "p3", "p4"]

    run(main())


def test_a_watch_reads_events_and_bookmarks_and_ends_quietly() -> None:
    async def main() -> None:
        async with served() as api, HttpTransport(api.server.url) as client:
            version = (await client.list(PODS)).resource_version
            for name in ("a", "b"):
                await client.create(PODS, "default", a_pod(name))
            found: list[WatchEvent] = []
            async for batch in client.watch(PODS, resource_version=version, timeout_seconds=1):
                found += batch
            assert [(event.type, event.item.name) for event in found] == [
                ("ADDED", "a"),
                ("ADDED", "b"),
                ("BOOKMARK", ""),
            ]

    run(main())


def test_an_expired_version_is_an_error_with_its_code() -> None:
    async def main() -> None:
        async with served() as api, HttpTransport(api.server.url) as client:
            version = (await client.list(PODS)).resource_version
            await client.create(PODS, "default", a_pod())
            api.store.compact()
            with pytest.raises(ApiError) as caught:
                await _names(client, version, [])
            assert (caught.value.code, caught.value.reason) == (410, "Expired")

    run(main())


def test_nobody_listening_is_connection_refused() -> None:
    async def main() -> None:
        async with served() as api:
            url = api.server.url
        async with HttpTransport(url) as client:
            with pytest.raises(ConnectionRefusedError):
                await client.list(PODS)
            with pytest.raises(ConnectionRefusedError):
                await _names(client, "1", [])

    run(main())


class Scripted:
    """A raw server that answers each connection with the next of its texts."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.seen = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.seen += 1
        writer.write(self.answers.pop(0))
        await writer.drain()
        writer.close()


def _answer(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


BUSY = b'{"kind":"Status","status":"Failure","code":429,"reason":"TooManyRequests","message":"busy","details":{"retryAfterSeconds":9}}'
EMPTY = (
    b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"x","resourceVersion":"5"}}]}'
)
RETRIES: list[tuple[str, list[bytes], int, int]] = [
    ("429 with Retry-After is repeated", [_answer("429 Busy", BUSY, "Retry-After: 0"), _answer("200 OK", EMPTY)], 2, 0),
    ("503 with Retry-After is repeated", [_answer("503 Gone", b"x", "Retry-After: 0"), _answer("200 OK", EMPTY)], 2, 0),
    ("429 without it is not", [_answer("429 Busy", BUSY)], 1, 429),
    ("500 without it is not", [_answer("500 Oh", b"no status")], 1, 500),
]


@pytest.mark.parametrize(("answers", "seen", "code"), [case[1:] for case in RETRIES], ids=[c[0] for c in RETRIES])
def test_retries(answers: list[bytes], seen: int, code: int) -> None:
    async def main() -> None:
        script = Scripted(*answers)
        server = await asyncio.start_server(script, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, HttpTransport(f"http://127.0.0.1:{port}") as client:
            if code:
                with pytest.raises(ApiError) as caught:
                    await client.list(PODS)
                assert caught.value.code == code
                assert "retryAfterSeconds" not in caught.value.details
            else:
                page = await client.list(PODS)
                # A real server's items lack kind and version: they get them here.
                assert page.items[0].data()["kind"] == "Pod"
                assert page.resource_version == "7"
            assert script.seen == seen

    run(main())


def test_a_write_is_not_repeated_after_the_lease_is_lost() -> None:
    async def main() -> None:
        script = Scripted(_answer("429 Busy", BUSY, "Retry-After: 0"), _answer("429 Busy", BUSY, "Retry-After: 0"))
        server = await asyncio.start_server(script, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, HttpTransport(f"http://127.0.0.1:{port}") as client:
            client.may_write = lambda: script.seen < 2
            with pytest.raises(NotLeaderError):
                await client.bind("default", "p", "u", "n")
            assert script.seen == 2  # the first repetition was allowed

    run(main())


def test_a_stream_cut_short_is_an_os_error_after_the_whole_events() -> None:
    async def main() -> None:
        line = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"3"}}}\n'
        part = b'{"type":"ADDED","obj'
        chunk = b"%x\r\n%s\r\n" % (len(line + part), line + part)
        script = Scripted(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
        server = await asyncio.start_server(script, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        names: list[str] = []
        async with server, HttpTransport(f"http://127.0.0.1:{port}") as client:
            with pytest.raises(ConnectionError):
                await _names(client, "1", names)
        assert names == ["a"]

    run(main())


class Book:
    """A handler that keeps what it receives."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.deletions: list[str] = []

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self.names[obj.metadata.name] = obj.metadata.resource_version

    def on_update(self, old: Any, new: Any) -> None:
        self.names[new.metadata.name] = new.metadata.resource_version

    def on_delete(self, obj: Any) -> None:
        inner = final_state(obj)
        self.deletions.append(inner.metadata.name)
        self.names.pop(inner.metadata.name, None)


class Listing(HttpTransport):
    """Notes what was listed, in pages or whole."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.listed: list[Kind] = []

    async def list(self, kind: Kind, namespace: str = "", **options: Unpack[ListOptions]) -> ListPage:
        self.listed.append(kind)
        return await super().list(kind, namespace, **options)

    async def __aenter__(self) -> Listing:
        return self


async def _eventually(condition: Any) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


@pytest.mark.parametrize("watch_list", [False, True], ids=["paged list", "streamed list"])
def test_an_informer_over_http_follows_and_survives_compaction(watch_list: bool) -> None:
    async def main() -> None:
        async with served() as api, Listing(api.server.url) as client:
            for index in range(3):
                await client.create(PODS, "default", a_pod(f"p{index}"))
            informer, book = Informer(client, PODS, rng=Random(1), watch_list=watch_list), Book()
            informer.add_handler(book)
            task = asyncio.create_task(informer.run())
            try:
                await informer.wait_synced()
                assert set(book.names) == {"p0", "p1", "p2"}
                await client.create(PODS, "default", a_pod("p3"))
                await client.delete(PODS, "default", "p0")
                await _eventually(lambda: set(book.names) == {"p1", "p2", "p3"})
                await _eventually(lambda: len(api.server.watches) == 1)
                # The history is dropped, and the watch gets 410: the informer lists again.
                for watch in api.store.table(PODS).watches:
                    watch.expire()
                api.store.delete(PODS, "default", "p1")
                api.store.create(PODS, "default", a_pod("p4"))
                api.store.compact()
                await _eventually(lambda: set(book.names) == {"p2", "p3", "p4"})
                assert informer.statistics().lists == 2
                assert (PODS in client.listed) is not watch_list
                assert book.deletions == ["p0", "p1"]
            finally:
                informer.stop()
                await task

    run(main())


def test_a_kubeconfig_leads_there_with_tls_and_a_token(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")

    async def main() -> None:
        files = make_certificates(tmp_path, _Now())
        async with HttpServer(a_store(), tls_cert=files.cert, tls_key=files.key, token="secret") as server:
            assert server.url.startswith("https://127.0.0.1:")
            path = write_kubeconfig(tmp_path / "deep" / "config", server.url, token="secret", ca=files.ca)
            assert path.stat().st_mode & 0o077 == 0
            async with HttpTransport.connect(await load_kubeconfig(path)) as client:
                assert (await client.list(NODES)).items == []
            bad = write_kubeconfig(tmp_path / "bad", server.url, token="other", ca=files.ca)
            async with HttpTransport.connect(await load_kubeconfig(bad)) as client:
                with pytest.raises(ApiError) as caught:
                    await client.list(NODES)
                assert (caught.value.code, caught.value.reason) == (401, "Unauthorized")

    run(main())


class _Now:
    """The real time: certificates are checked against it."""

    def now(self) -> float:
        return time.time()


def test_exec_plugins_and_token_files(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        'print(\'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"secret"}}\')'
    )
    users = {
        "exec": f'{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {sys.executable}, args: ["{plugin}"]}}}}',
        "file": "{tokenFile: token}",
    }
    (tmp_path / "token").write_text("secret\n")

    async def main() -> None:
        async with HttpServer(a_store(), token="secret") as server:
            for name, user in users.items():
                path = tmp_path / name
                path.write_text(
                    f"current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
                    f"clusters: [{{name: k, cluster: {{server: '{server.url}'}}}}]\nusers: [{{name: u, user: {user}}}]\n"
                )
                async with HttpTransport.connect(await load_kubeconfig(path)) as client:
                    assert (await client.list(NODES)).items == []

    run(main())


BROKEN = [
    ("no file", None, "stat .*config: no such file or directory"),
    ("no mapping", "[]", "is no kubeconfig"),
    ("half a file", "current-context: c\ncontexts: [{name: c,", "config: line 3: is no YAML"),
    ("no context", "current-context: x", "object with name x in .*contexts"),
    ("no port", "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: 'http://a:b'}}]", "'http://a:b' is no server address"),
    ("half an address", "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: 'http://[::1'}}]", r"'http://\[::1' is no server address"),
    ("no server", "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {insecure-skip-tls-verify: true}}]", "no server address"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_kubeconfigs_that_cannot_be_used(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(AccessError, match=message):
        asyncio.run(load_kubeconfig(path))


def test_a_server_needs_both_halves_of_a_certificate() -> None:
    with pytest.raises(ValueError, match="needs its key"):
        HttpServer(a_store(), tls_cert="x")


def test_bodies_in_flight_are_limited() -> None:
    async def main() -> None:
        async with served(max_body_bytes_in_flight=10) as api:
            answer = await api.post("/api/v1/nodes", a_node())
            assert (answer.status, answer.headers["Retry-After"]) == (429, "1")

    run(main())


def test_the_token_is_needed_for_all_but_health_and_version() -> None:
    async def main() -> None:
        async with served(token="secret") as api:
            for path, status in (("/api/v1/pods", 401), ("/readyz", 200), ("/version", 200), ("/openapi/v2", 401)):
                assert (await api.get(path)).status == status
            good = {"Authorization": "Bearer secret"}
            assert (await api.get("/api/v1/pods", headers=good)).status == 200

    run(main())


def test_the_store_clock_is_what_ages_are_counted_from() -> None:
    async def main() -> None:
        clock = FakeClock()
        store = a_store()
        store.clock = clock
        async with served(store) as api:
            await api.post("/api/v1/nodes", a_node())
            clock.time += 90
            table = await api.get("/api/v1/nodes", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
            assert table.data["rows"][0]["cells"][3] == "90s"

    run(main())

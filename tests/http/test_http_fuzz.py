"""Nothing a client sends makes the server fail: no 500, no traceback, and the store stays whole."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
import msgspec
import pytest
from http_world import (
    APPLY,
    DEPLOYMENTS,
    JSON_PATCH,
    MERGE,
    PODS,
    STRATEGIC,
    Api,
    a_definition,
    a_deployment,
    a_node,
    a_pod,
    a_store,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from kubesched.api.kinds import NODES
from kubesched.cluster.http import HttpServer


def _words(text: str) -> list[str]:
    return text.split()


WORDS = st.sampled_from(
    _words(
        "api apis v1 apps namespaces default pods nodes p n1 status binding eviction scale log watch deployments web widgets "
        "example.com %00 .. %2e é openapi v2 v3 healthz selfsubjectaccessreviews authorization.k8s.io "
        "customresourcedefinitions"
    )
)
CUSTOM = "/apis/example.com/v1/namespaces/default/widgets"
KNOWN = [
    PODS,
    f"{PODS}/p",
    f"{PODS}/p/status",
    f"{PODS}/p/binding",
    f"{PODS}/p/eviction",
    DEPLOYMENTS,
    f"{DEPLOYMENTS}/web",
    f"{DEPLOYMENTS}/web/scale",
    "/api/v1/nodes",
    "/api/v1/nodes/n1",
    "/api/v1/namespaces",
    CUSTOM,
    f"{CUSTOM}/w",
    f"{CUSTOM}/w/status",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/events.k8s.io/v1/namespaces/default/events",
]
PATHS = st.one_of(st.sampled_from(KNOWN), st.lists(WORDS, max_size=8).map(lambda parts: "/" + "/".join(parts)))
QUERIES = st.dictionaries(
    st.sampled_from(
        _words(
            "labelSelector fieldSelector limit continue resourceVersion resourceVersionMatch dryRun pretty fieldManager "
            "fieldValidation force gracePeriodSeconds propagationPolicy includeObject frog orphanDependents sendInitialEvents "
            "verbose exclude"
        )
    ),
    st.one_of(
        st.sampled_from(
            ["", "0", "1", "-1", "true", "All", "Strict", "Ignore", "Exact", "NotOlderThan", "a=b", "a in (b)"]
        ),
        st.sampled_from(["metadata.name=p", "Foreground", "Orphan", "99999999999999999999", "eyJydiI6MX0", "\\", "me"]),
        st.text(max_size=8),
    ),
    max_size=3,
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=6))  # fmt: skip
KEYS = st.sampled_from(
    _words(
        "metadata spec status kind apiVersion name namespace labels annotations containers replicas template selector "
        "matchLabels target deleteOptions op path value $patch ownerReferences finalizers managedFields generateName "
        "resourceVersion uid tolerations ports names versions group scope conditions preconditions $retainKeys "
        "$setElementOrder/containers"
    )
)
NOISE = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=10,
)


def _grafted(base: dict[str, Any]) -> st.SearchStrategy[Any]:
    """A good object with one member, somewhere, made bad."""

    def graft(parts: tuple[list[str], Any]) -> Any:
        keys, value = parts
        data = msgspec.json.decode(msgspec.json.encode(base))
        place: Any = data
        for key in keys[:-1]:
            inner = place.get(key)
            if isinstance(inner, list) and inner and isinstance(inner[0], dict):
                inner = inner[0]
            if not isinstance(inner, dict):
                break
            place = inner
        place[keys[-1]] = value
        return data

    return st.tuples(st.lists(KEYS, min_size=1, max_size=4), NOISE).map(graft)


OBJECTS = st.one_of(NOISE, *(_grafted(base) for base in (a_pod(), a_node(), a_deployment(), a_definition())))
BODIES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    OBJECTS.map(msgspec.json.encode),
    st.binary(max_size=30).map(lambda raw: b"k8s\0" + raw),
    st.lists(st.fixed_dictionaries({"op": st.sampled_from(["add", "remove", "replace", "move", "test"]), "path": st.sampled_from(["", "/spec", "/metadata/name", "/spec/containers/0", "/a~1b"])}, optional={"value": NOISE, "from": st.just("/spec")}), max_size=3).map(msgspec.json.encode),
)  # fmt: skip
TYPES = st.sampled_from(
    [
        "application/json",
        "application/yaml",
        MERGE,
        STRATEGIC,
        JSON_PATCH,
        APPLY,
        "application/vnd.kubernetes.protobuf",
        "x",
        "",
    ]
)
ACCEPTS = st.sampled_from(
    [
        "",
        "*/*",
        "application/json",
        "application/yaml",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "x/y",
        ";;=,q=z",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/json;q=frog",
    ]
)
METHODS = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "FROG"])
REQUESTS = st.lists(st.tuples(METHODS, PATHS, QUERIES, BODIES, TYPES, ACCEPTS), min_size=1, max_size=6)


async def _send(api: Api, requests: list[Any]) -> None:
    await api.post("/api/v1/nodes", a_node())
    await api.post(PODS, a_pod())
    await api.post(DEPLOYMENTS, a_deployment())
    await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_definition())
    await api.apply(f"{PODS}/q", a_pod("q"))
    for method, path, query, raw, content_type, accept in requests:
        url = URL(api.server.url + path.replace("é", "%C3%A9"), encoded=True).update_query(query)
        headers = {name: value for name, value in (("Content-Type", content_type), ("Accept", accept)) if value}
        async with api.session.request(method, url, data=raw, headers=headers, allow_redirects=False) as response:
            text = await response.read()
            assert response.status < 500 or response.status in (501, 504), (response.status, text)
            assert b"Traceback" not in text
            if response.status >= 400 and method != "HEAD" and response.headers["Content-Type"] == "application/json":
                status = msgspec.json.decode(text)
                assert (status["kind"], status["code"]) == ("Status", response.status)


def _check_store(api: Api) -> None:
    """Every stored object can be read again, sits under its own name, and is found by its version."""
    for kind, table in api.store.tables.items():
        for (namespace, name), item in table.objects.items():
            data = msgspec.json.decode(item.raw)
            metadata = data["metadata"]
            assert (metadata.get("namespace", ""), metadata["name"]) == (namespace, name)
            assert int(metadata["resourceVersion"]) == item.resource_version <= api.store.resource_version
            if kind.group != "events.k8s.io":
                assert (data["kind"], data["apiVersion"]) == (kind.kind, kind.api_version)


@settings(max_examples=250)
@given(REQUESTS)
def test_no_request_makes_the_server_fail(requests: list[Any]) -> None:
    async def main() -> None:
        async with HttpServer(a_store()) as server, aiohttp.ClientSession() as session:
            api = Api(server, session)
            await _send(api, requests)
            _check_store(api)

    asyncio.run(main())


# -- headers, queries and numbers as bytes -------------------------------------------------------------------

NUMBERS = st.sampled_from(
    [
        b"9" * 5000,
        b"-" + b"9" * 5000,
        b"0" * 5000,
        b"1e999999999",
        b"0x10",
        b"18446744073709551615",
        b"18446744073709551616",
        b"9223372036854775808",
        b"-1",
        b"+1",
        b"1_000",
        b"1.5",
        b"NaN",
        b"Infinity",
        "\u0663".encode(),
        b"\xff",
        b" 1",
        b"",
    ]
)
#: What a header may hold: anything but the bytes that end it.
VALUES = st.one_of(
    NUMBERS,
    st.binary(max_size=30),
    st.sampled_from(
        [
            b"Bearer \xff",
            b"Bearer",
            b"Bearer " + b"x" * 5000,
            b"Basic YTpi",
            b"bearer  secret \t",
            b"application/json;q=" + b"9" * 5000,
            b"application/json;as=Table;v=\xff;g=meta.k8s.io",
            b"application/json;" + b";=," * 2000,
            b"application/vnd.kubernetes.protobuf",
            b"application/json; charset=\xff",
            b"gzip, deflate",
            b"chunked, gzip",
            b"http://[::1",
            b"null",
            b"bytes=0-1",
            b"websocket",
            b"100-continue",
            b"kubectl\xff/1",
        ]
    ),
).map(lambda raw: raw.translate(None, b"\r\n\0"))
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            _words(
                "Authorization Accept Content-Type User-Agent Host Origin Content-Length Transfer-Encoding Content-Encoding "
                "Connection Upgrade Expect Range Cookie If-None-Match X-Remote-User Impersonate-User Accept-Encoding Frog"
            )
        ).map(str.encode),
        VALUES,
    ),
    max_size=4,
)
PARAMETERS = st.lists(
    st.tuples(
        st.sampled_from(
            _words(
                "resourceVersion resourceVersionMatch limit timeoutSeconds continue labelSelector fieldSelector watch "
                "allowWatchBookmarks sendInitialEvents gracePeriodSeconds dryRun pretty fieldManager force \xff %ff %zz & ="
            )
        ).map(lambda text: text.encode("latin-1")),
        st.one_of(
            NUMBERS,
            st.binary(max_size=20),
            st.sampled_from(
                [
                    b"true",
                    b"a%20in%20(" + b"b," * 2000 + b")",
                    b"a%3Db%2C" * 1000,
                    b"n%3E" + b"9" * 5000,
                    b"n%3C" + b"9" * 30,
                    b"%",
                    b"%f",
                    b"%00",
                    b"%ED%A0%80",
                    b"eyJydiI6OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5fQ",
                    b"eyJydiI6MWU5OTl9",
                    b"metadata.name%3D" + b"x" * 5000,
                ]
            ),
        ),
    ).map(b"=".join),
    max_size=3,
).map(lambda pairs: b"&".join(pairs).translate(None, b"\r\n\0 "))
RAW_PATHS = st.one_of(
    st.sampled_from([path.encode() for path in KNOWN]),
    st.sampled_from(
        [
            b"/api/v1/nodes/\xff",
            b"/api/v1/nodes/%ff",
            b"/api/v1/nodes/" + b"9" * 5000,
            b"/apis/example.com/v" + b"9" * 5000 + b"/widgets",
            b"/api/v" + b"9" * 5000,
            b"/" + "\u00e9".encode(),
            b"/apis/\xff\xfe/v1/x",
            b"/openapi/v3/\xff",
            b"//api//v1",
            b"http://localhost/api/v1/nodes",
            b"*",
            b"/livez/\xff",
        ]
    ),
)


async def _exchange(server: HttpServer, raw: bytes) -> bytes:
    """The first line of the answer to some bytes; empty when the connection is closed without one."""
    port = URL(server.url).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        await writer.drain()
        return await asyncio.wait_for(reader.readline(), 20)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("token", [None, "secret"], ids=["no token", "a token"])
@settings(max_examples=200)
@given(st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"PATCH"]), RAW_PATHS, PARAMETERS, HEADERS)
def test_no_header_and_no_query_makes_the_server_fail(
    token: str | None, method: bytes, path: bytes, query: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    async def main() -> None:
        store = a_store()
        store.create(NODES, "", a_node())
        # A body that is announced and does not come is over soon. Heads are always whole, and a busy machine may take long.
        async with HttpServer(store, token=token, body_seconds=0.05) as server:
            names = {name for name, _ in headers}
            lines = [b"%s %s?%s HTTP/1.1" % (method, path, query)]
            if b"Host" not in names:
                lines.append(b"Host: localhost")
            if b"Authorization" not in names and token:
                lines.append(b"Authorization: Bearer secret")
            lines += [b"%s: %s" % pair for pair in headers]
            answer = await _exchange(server, b"\r\n".join([*lines, b"", b""]))
            code = int(answer.split()[1]) if answer else 0
            assert code < 500 or code in (501, 504), answer
            good = b"GET /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n"
            assert await _exchange(server, good) == b"HTTP/1.1 200 OK\r\n"

    asyncio.run(main())


REFUSALS = [
    ("a token of a byte that is no text", b"/api/v1/nodes", b"Authorization: Bearer \xff", "secret", 401),
    ("a token of 60,000 letters", b"/api/v1/nodes", b"Authorization: Bearer " + b"x" * 60_000, "secret", 401),
    ("a scheme alone", b"/api/v1/nodes", b"Authorization: Bearer", "secret", 401),
    ("a version of 5,000 digits", b"/api/v1/nodes?resourceVersion=" + b"9" * 5000, b"A: b", None, 400),
    ("the same, watched", b"/api/v1/nodes?watch=1&resourceVersion=" + b"9" * 5000, b"A: b", None, 400),
    ("a limit of 5,000 digits", b"/api/v1/nodes?limit=" + b"9" * 5000, b"A: b", None, 400),
    ("a length of 5,000 digits", b"/api/v1/nodes", b"Content-Length: " + b"9" * 5000, None, 400),
    ("a host that is no text", b"/api/v1/nodes", b"Host: \xff", None, 403),
]


@pytest.mark.parametrize(("path", "header", "token", "code"), [c[1:] for c in REFUSALS], ids=[c[0] for c in REFUSALS])
def test_what_cannot_be_read_is_the_fault_of_the_client(
    path: bytes, header: bytes, token: str | None, code: int
) -> None:
    async def main() -> None:
        async with HttpServer(a_store(), token=token) as server:
            host = b"" if header.startswith(b"Host") else b"Host: localhost\r\n"
            answer = await _exchange(server, b"GET %s HTTP/1.1\r\n%s%s\r\n\r\n" % (path, host, header))
            assert int(answer.split()[1]) == code, answer

    asyncio.run(main())


LONG = "9" * 5000
LONG_BODIES: list[tuple[str, str, str, bytes]] = [
    ("POST", "/api/v1/nodes", "application/json", b'{"metadata":{"name":"x","generation":' + LONG.encode() + b"}}"),
    ("POST", "/api/v1/nodes", "application/yaml", b"metadata: {name: x, generation: " + LONG.encode() + b"}"),
    ("POST", "/api/v1/nodes", "application/json", b'{"metadata":{"name":"x"},"status":{"capacity":{"cpu":"%b"}}}' % LONG.encode()),
    ("POST", "/api/v1/nodes", "application/json", b'{"metadata":{"name":"x"},"status":{"capacity":{"cpu":"1e%b"}}}' % LONG.encode()),
    ("POST", "/api/v1/nodes", "application/json", b'{"metadata":{"name":"x","resourceVersion":"%b"}}' % LONG.encode()),
    ("PUT", "/api/v1/nodes/n1", "application/json", b'{"metadata":{"name":"n1","resourceVersion":"%b"}}' % LONG.encode()),
    ("PATCH", "/api/v1/nodes/n1", JSON_PATCH, b'[{"op":"add","path":"/spec/taints/%b","value":1}]' % LONG.encode()),
    ("PATCH", "/api/v1/nodes/n1", MERGE, b'{"metadata":{"resourceVersion":"%b"}}' % LONG.encode()),
    ("DELETE", "/api/v1/nodes/n1", "application/json", b'{"gracePeriodSeconds":%b}' % LONG.encode()),
    ("DELETE", "/api/v1/nodes/n1", "application/json", b'{"preconditions":{"resourceVersion":"%b"}}' % LONG.encode()),
    (
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "application/json",
        msgspec.json.encode(a_definition()).replace(b'"v1beta1"', b'"v%b"' % LONG.encode()),
    ),
    (
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "application/json",
        msgspec.json.encode(
            a_definition(additionalPrinterColumns=[{"name": "n", "type": "string", "jsonPath": f".spec.a[{LONG}]"}])
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "kind", "body"), LONG_BODIES)
def test_a_number_of_5000_digits_does_not_make_the_server_fail(method: str, path: str, kind: str, body: bytes) -> None:
    async def main() -> None:
        async with HttpServer(a_store()) as server, aiohttp.ClientSession() as session:
            api = Api(server, session)
            await api.post("/api/v1/nodes", a_node())
            answer = await api(method, path, raw=body, type=kind)
            assert answer.status < 500, answer.raw
            await api.post(CUSTOM, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}})
            table = "application/json;as=Table;v=v1;g=meta.k8s.io"
            for read in ("/api/v1/nodes", "/apis", "/apis/example.com", CUSTOM, "/openapi/v3", "/openapi/v2"):
                assert (await api.get(read, accept=table)).status < 500, read
            _check_store(api)

    asyncio.run(main())


RAW = [
    b"FROG\r\n\r\n",
    b"GET /api/v1/pods HTTP/9.9\r\n\r\n",
    b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\nContent-Length: frog\r\n\r\n",
    b"POST /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nshort",
    b"GET http://other/api/v1/nodes HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x00\xff\x16\x03\x01",
]


@pytest.mark.parametrize("raw", RAW)
def test_bytes_that_are_hardly_http(raw: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with HttpServer(a_store()) as server:
            port = URL(server.url).port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(raw)
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), 60)
            writer.close()
            assert b" 500 " not in answer.split(b"\r\n")[0]
            async with aiohttp.ClientSession() as session, session.get(server.url + "/readyz") as response:
                assert response.status == 200

    with caplog.at_level(logging.ERROR, logger="kubesched.cluster"):
        asyncio.run(main())
    assert "failed" not in caplog.text

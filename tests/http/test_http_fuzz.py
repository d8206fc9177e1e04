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
            answer = await asyncio.wait_for(reader.read(), 5)
            writer.close()
            assert b" 500 " not in answer.split(b"\r\n")[0]
            async with aiohttp.ClientSession() as session, session.get(server.url + "/readyz") as response:
                assert response.status == 200

    with caplog.at_level(logging.ERROR, logger="kubesched.cluster"):
        asyncio.run(main())
    assert "failed" not in caplog.text

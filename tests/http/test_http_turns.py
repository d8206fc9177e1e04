"""A long list is sent in parts, in every form, and has the bytes of one piece all the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec
import pytest
from http_world import PARTIAL_LIST, TABLE, Api, run, served
from yarl import URL

from kubesched.api.kinds import PODS, kind_by_plural
from kubesched.api.wire import Item
from kubesched.api.yamltext import to_yaml
from kubesched.cluster.http import answers, reading, tables
from kubesched.cluster.http.answers import BATCH

COUNT = 2 * BATCH + 3
CONFIG_MAPS = kind_by_plural("", "configmaps") or PODS
PATH = "/api/v1/namespaces/default/configmaps"


def fill(api: Api, count: int = COUNT) -> None:
    for number in range(count):
        data = {"empty": "", "two": "first\nsecond", "letter": "ä", "wide": "text\n\n"}
        metadata = {"name": f"c{number:05}", "labels": {"odd": str(number % 2)}}
        api.store.create(CONFIG_MAPS, "default", {"metadata": metadata, "data": data})


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of objects in each part of what is sent, and 0 for each turn of another task."""
    found: list[int] = []

    def counted(call: Any) -> tables.Form:
        form = tables.form_of(call)
        part = form.part

        def shaped(items: Sequence[Item]) -> bytes:
            found.append(len(items))
            asyncio.get_running_loop().call_soon(found.append, 0)
            return part(items)

        monkeypatch.setattr(form, "part", shaped)
        return form

    monkeypatch.setattr(reading, "form_of", counted)
    return found


@pytest.mark.parametrize("accept", ["application/json", PARTIAL_LIST, TABLE])
def test_a_long_list_is_sent_in_parts_in_every_form(accept: str, parts: list[int]) -> None:
    async def main() -> None:
        async with served() as api:
            fill(api)
            plain = await api.get(PATH, accept=accept)
            assert parts == [BATCH, 0, BATCH, 0, 3, 0]
            assert "Content-Length" not in plain.headers
            assert plain.headers["Content-Type"] == "application/json"
            objects = [row["object"] for row in plain.data["rows"]] if accept == TABLE else plain.data["items"]
            assert [one["metadata"]["name"] for one in objects] == [f"c{number:05}" for number in range(COUNT)]
            pretty = await api.get(PATH, accept=accept, pretty="true")
            assert pretty.raw == msgspec.json.format(plain.raw.rstrip(), indent=2) + b"\n"
            parts.clear()
            yaml = await api.get(PATH, accept=accept.split(",", maxsplit=1)[0].replace("json", "yaml"))
            assert max(parts) == answers._YAML.batch
            assert yaml.headers["Content-Type"] == "application/yaml"
            assert yaml.raw.decode() == to_yaml(plain.data)

    run(main())


def test_a_long_list_shows_one_moment(parts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with served() as api:
            fill(api)
            wanted = (await api.get(PATH)).raw
            parts.clear()
            part = tables.Form.part

            def meddle(form: tables.Form, items: Sequence[Item]) -> bytes:
                api.store.delete(CONFIG_MAPS, "default", f"c{COUNT - len(parts):05}")
                return part(form, items)

            monkeypatch.setattr(tables.Form, "part", meddle)
            assert (await api.get(PATH)).raw == wanted
            assert len(api.store.table(CONFIG_MAPS).objects) == COUNT - 3

    run(main())


def test_a_short_list_is_one_answer_with_its_length(parts: list[int]) -> None:
    async def main() -> None:
        async with served() as api:
            assert (await api.get(PATH)).data["items"] == []
            fill(api, BATCH)
            answer = await api.get(PATH)
            assert int(answer.headers["Content-Length"]) == len(answer.raw)
            assert parts == [BATCH, 0]
            parts.clear()
            await api.get(PATH, accept="application/yaml", limit=BATCH)
            assert max(parts) == answers._YAML.batch

    run(main())


def test_the_answer_to_a_deleted_collection_is_sent_in_parts(parts: list[int]) -> None:
    async def main() -> None:
        async with served() as api:
            fill(api)
            answer = await api.delete(PATH)
            assert [one["metadata"]["name"] for one in answer.data["items"]] == [f"c{n:05}" for n in range(COUNT)]
            assert parts[::2] == [BATCH, BATCH, 3]
            assert (await api.get(PATH)).data["items"] == []

    run(main())


@pytest.mark.parametrize("at", [1, 2])
def test_a_failure_within_a_list_is_no_list_that_ends_early(
    at: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0
    part = tables.Form.part

    def fail(form: tables.Form, items: Sequence[Item]) -> bytes:
        nonlocal calls
        calls += 1
        if calls == at:
            raise RuntimeError("broken")
        return part(form, items)

    async def main() -> None:
        async with served() as api:
            fill(api)
            monkeypatch.setattr(tables.Form, "part", fail)
            if at == 1:
                assert (await api.get(PATH)).status == 500
            else:
                with pytest.raises(aiohttp.ClientError):
                    await api.get(PATH)
            assert "broken" in caplog.text
            assert (await api.get(PATH)).status == 200

    caplog.set_level(logging.ERROR)
    run(main())


def test_a_client_that_leaves_in_the_middle_of_a_list_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served() as api:
            fill(api)
            async with api.session.get(api.server.url + PATH) as response:
                await response.content.readany()
            assert (await api.get("/healthz")).status == 200

    run(main())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("path", [PATH, f"{PATH}?watch=true&timeoutSeconds=1"], ids=["list", "watch"])
def test_a_stream_to_http_1_0_ends_with_the_connection(path: str) -> None:
    async def main() -> None:
        async with served() as api:
            fill(api)
            url = URL(api.server.url)
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(f"GET {path} HTTP/1.0\r\nHost: {url.host}\r\nConnection: keep-alive\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            assert head.startswith(b"HTTP/1.0 200 ")
            assert b"chunked" not in head
            if path == PATH:
                assert len(msgspec.json.decode(body)["items"]) == COUNT
            else:
                assert {msgspec.json.decode(line)["type"] for line in body.splitlines()} == {"ADDED"}

    run(main())

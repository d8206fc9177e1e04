"""Watches: order, bookmarks, initial events, 410, tables, time limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from http_world import PARTIAL, PODS, TABLE, a_definition, a_pod, run, served


def test_a_watch_without_a_version_begins_with_what_is_there() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod("a"))
            async with api.watch(PODS) as events:
                assert await events.take(1) == [("ADDED", "a")]
                await api.post(PODS, a_pod("b"))
                await api.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
                await api.delete(f"{PODS}/a")
                assert await events.take(3) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]

    run(main())


def test_a_watch_from_a_version_delivers_only_later_changes() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod("a"))
            version = (await api.get(PODS)).data["metadata"]["resourceVersion"]
            await api.post(PODS, a_pod("b"))
            async with api.watch(PODS, resourceVersion=version) as events:
                assert await events.take(1) == [("ADDED", "b")]

    run(main())


def test_headers_come_at_once_even_when_nothing_happens() -> None:
    async def main() -> None:
        async with served() as api, asyncio.timeout(20), api.watch(PODS) as events:
            assert events.response.status == 200

    run(main())


def test_entering_and_leaving_a_selector_is_adding_and_deleting() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod("a"))
            async with api.watch(PODS, labelSelector="x=y") as events:
                await api.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
                await api.patch(f"{PODS}/a", {"metadata": {"labels": {"x": None}}})
                assert await events.take(2) == [("ADDED", "a"), ("DELETED", "a")]

    run(main())


def test_a_streaming_list_ends_with_the_marked_bookmark() -> None:
    async def main() -> None:
        async with served() as api:
            for name in ("a", "b"):
                await api.post(PODS, a_pod(name))
            query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
            async with api.watch(PODS, **query) as events:
                assert await events.take(2) == [("ADDED", "a"), ("ADDED", "b")]
                mark = await events.next()
                assert mark["type"] == "BOOKMARK"
                assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
                assert mark["object"]["kind"] == "Pod"

    run(main())


def test_no_initial_events_when_the_client_says_so() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod("a"))
            query = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}
            async with api.watch(PODS, **query) as events:
                await api.post(PODS, a_pod("b"))
                assert await events.take(1) == [("ADDED", "b")]

    run(main())


@pytest.mark.parametrize("bookmarks", ["true", "false"])
def test_time_runs_out_with_a_bookmark_for_those_who_want_it(bookmarks: str) -> None:
    async def main() -> None:
        async with (
            served() as api,
            api.watch(PODS, timeoutSeconds=1, allowWatchBookmarks=bookmarks) as events,
        ):
            types = [event["type"] for event in await events.rest()]
            assert types == (["BOOKMARK"] if bookmarks == "true" else [])

    run(main())


def test_quiet_watches_get_bookmarks_with_the_version_of_other_kinds() -> None:
    async def main() -> None:
        async with served(bookmark_seconds=0.05) as api, api.watch(PODS, allowWatchBookmarks="true") as events:
            created = await api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
            for _ in range(10):
                event = await events.next()
                assert event["type"] == "BOOKMARK"
                if event["object"]["metadata"]["resourceVersion"] == created.data["metadata"]["resourceVersion"]:
                    return
            raise AssertionError("no bookmark with the latest version")

    run(main())


def test_an_old_version_is_reported_in_the_stream_and_a_lagging_watch_too() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod("a"))
            version = (await api.get(PODS)).data["metadata"]["resourceVersion"]
            await api.post(PODS, a_pod("b"))
            api.store.compact()
            async with api.watch(PODS, resourceVersion=version) as events:
                (event,) = await events.rest()
                assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
            async with api.watch(PODS) as events:
                assert await events.take(2) == [("ADDED", "a"), ("ADDED", "b")]
                for watch in _watches(api):
                    watch.expire()
                (event,) = await events.rest()
                assert event["object"]["code"] == 410

    run(main())


def _watches(api: Any) -> list[Any]:
    return [watch for table in {id(t): t for t in api.store.tables.values()}.values() for watch in table.watches]


def test_a_future_version_is_refused_before_the_stream() -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api.get(PODS, watch="true", resourceVersion=10**9)
            assert (answer.status, answer.headers["Retry-After"]) == (504, "1")

    run(main())


def test_tables_send_their_columns_once() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod("a"))
            query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
            async with api.watch(PODS, accept=TABLE, **query) as events:
                first = await events.next()
                assert first["object"]["columnDefinitions"][0]["name"] == "Name"
                assert first["object"]["rows"][0]["cells"][0] == "a"
                mark = await events.next()
                assert mark["type"] == "BOOKMARK"
                assert "resourceVersion" in mark["object"]["rows"][0]["object"]["metadata"]
                await api.post(PODS, a_pod("b"))
                second = await events.next()
                assert second["object"]["columnDefinitions"] == []
                assert second["object"]["rows"][0]["object"]["metadata"]["name"] == "b"

    run(main())


def test_metadata_watches_and_single_objects_and_the_old_path() -> None:
    async def main() -> None:
        async with served() as api:
            for name in ("a", "b"):
                await api.post(PODS, a_pod(name))
            async with api.watch(PODS, accept=PARTIAL) as events:
                event = await events.next()
                assert event["object"]["kind"] == "PartialObjectMetadata"
            async with api.watch(f"{PODS}/b") as events:
                assert await events.take(1) == [("ADDED", "b")]
            async with api.watch("/api/v1/watch/namespaces/default/pods/b") as events:
                assert await events.take(1) == [("ADDED", "b")]

    run(main())


def test_a_watch_of_another_version_of_a_custom_resource_shows_that_version() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_definition())
            path = "/apis/example.com/v1beta1/namespaces/default/widgets"
            body = {"apiVersion": "example.com/v1beta1", "kind": "Widget", "metadata": {"name": "w"}}
            assert (await api.post(path, body)).status == 201
            async with api.watch(path, allowWatchBookmarks="true", timeoutSeconds=1) as events:
                assert {event["object"]["apiVersion"] for event in await events.rest()} == {"example.com/v1beta1"}

    run(main())


def test_too_many_watches_get_429() -> None:
    async def main() -> None:
        async with served(max_watches=1) as api, api.watch(PODS):
            answer = await api.get(PODS, watch="true")
            assert (answer.status, answer.headers["Retry-After"]) == (429, "1")

    run(main())


def test_a_watch_with_a_long_selector_counts_as_several() -> None:
    """Every change is compared with it: 300 with 500 requirements each made every write take a second and more."""
    long = ",".join(f"k{number} notin (a)" for number in range(50))

    async def main() -> None:
        async with served(max_watches=25) as api:
            async with api.watch(PODS, labelSelector=long), api.watch(PODS, labelSelector=long):
                assert (await api.get(PODS, watch="true", labelSelector=long)).status == 429
                async with api.watch(PODS, labelSelector="app=a,tier in (b)"):
                    assert len(api.server.watches) == 3
            while (await api.get(PODS, watch="true", labelSelector=long, timeoutSeconds=1)).status != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    run(main())


def test_a_client_that_goes_away_leaves_no_watch_behind() -> None:
    async def main() -> None:
        async with served() as api:
            async with api.watch(PODS):
                assert len(api.server.watches) == 1
            for _ in range(3000):
                if not len(api.server.watches):
                    break
                await asyncio.sleep(0.01)
            assert (len(api.server.watches), _watches(api)) == (0, [])

    run(main())


def test_stopping_ends_streams_in_good_order() -> None:
    async def main() -> None:
        async with served() as api, api.watch(PODS) as events:
            await api.post(PODS, a_pod("a"))
            assert await events.take(1) == [("ADDED", "a")]
            stopping = asyncio.create_task(api.server.stop())
            assert await events.rest() == []
            await stopping

    run(main())

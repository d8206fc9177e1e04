"""Lists and watches: selectors, paging, bookmarks, lost history."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import msgspec
import pytest
from cluster_world import a_node, a_pod, a_store, in_virtual_time, kind, refused, running

from kubesched.api.kinds import NODES, PODS
from kubesched.api.wire import ApiError, Transport, WatchEvent
from kubesched.cluster.store import InProcessClient, Store, Watch
from kubesched.lab.simulate.run.virtual_time import VirtualClock


def seen(events: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(event.type, event.item.name) for event in events]


def watching(store: Store, **options: Any) -> Watch:
    return store.watch(PODS, resource_version=str(store.resource_version), **options)


def test_a_watch_receives_every_change_once_and_in_order() -> None:
    store = a_store()
    watch = watching(store)
    pod = store.create(PODS, "default", a_pod("a"))
    store.bind("default", "a", pod.uid, "n1")
    store.create(NODES, "", a_node())
    store.delete(PODS, "default", "a", grace_period_seconds=0)
    events = watch.drain()
    assert seen(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [event.item.resource_version for event in events]
    assert versions == sorted(set(versions))
    assert events[-1].item.data()["metadata"]["resourceVersion"] == str(versions[-1])
    assert watch.drain() == []


def test_objects_enter_and_leave_a_filtered_watch() -> None:
    store = a_store()
    by_phase = watching(store, field_selector="status.phase!=Succeeded,status.phase!=Failed")
    by_node = watching(store, field_selector="spec.nodeName=n1")
    by_label = watching(store, label_selector="app in (web)")
    running(store, "p")
    store.patch(PODS, "default", "p", {"metadata": {"labels": {"app": "web"}}})
    done = store.patch(PODS, "default", "p", {"status": {"phase": "Succeeded"}}, subresource="status")
    store.patch(PODS, "default", "p", {"metadata": {"labels": {"app": "db"}}})
    store.delete(PODS, "default", "p")
    kinds = [event.type for event in by_phase.drain()]
    assert kinds == ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]
    assert [event.type for event in by_node.drain()] == ["ADDED"] + ["MODIFIED"] * 4 + ["DELETED"]
    entered, stayed, left = by_label.drain()
    assert (entered.type, stayed.type, left.type) == ("ADDED", "MODIFIED", "DELETED")
    # What left shows the last state that matched, at the version of the change that made it leave.
    assert left.item.data()["metadata"]["labels"] == {"app": "web"}
    assert left.item.resource_version == done.resource_version + 1


def test_a_watch_of_one_namespace_sees_no_other() -> None:
    store = a_store()
    watch = watching(store, namespace="kube-system")
    store.create(PODS, "default", a_pod("a"))
    store.create(PODS, "kube-system", a_pod("b"))
    assert seen(watch.drain()) == [("ADDED", "b")]


def test_a_watch_without_version_begins_with_what_is_there() -> None:
    store = a_store()
    store.create(PODS, "default", a_pod("a"))
    watch = store.watch(PODS, resource_version="")
    store.create(PODS, "default", a_pod("b"))
    assert seen(watch.drain()) == [("ADDED", "a"), ("ADDED", "b")]


def test_a_streaming_list_ends_with_the_marker() -> None:
    store = a_store()
    store.create(PODS, "default", a_pod("a"))
    first, marker = store.watch(PODS, resource_version="", send_initial_events=True).drain()
    assert (first.type, marker.type) == ("ADDED", "BOOKMARK")
    metadata = msgspec.json.decode(marker.item.raw)["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert metadata["resourceVersion"] == str(store.resource_version)


def test_a_version_older_than_the_history_has_expired() -> None:
    store = a_store(history=3)
    start = store.resource_version
    for index in range(5):
        store.create(PODS, "default", a_pod(f"p{index}"))
    with refused(410, "Expired", "too old resource version"):
        store.watch(PODS, resource_version=str(start + 1))
    watch = store.watch(PODS, resource_version=str(start + 2))
    assert seen(watch.drain()) == [("ADDED", "p2"), ("ADDED", "p3"), ("ADDED", "p4")]
    # A quiet kind keeps its history however old the version is.
    assert store.watch(NODES, resource_version=str(start)).drain() == []
    with refused(504, "Timeout", "Too large resource version"):
        store.watch(PODS, resource_version=str(store.resource_version + 1))
    with refused(400):
        store.watch(PODS, resource_version="abc")


def test_history_ends_after_five_calls_that_give_memory_back_except_for_a_live_watch() -> None:
    store = a_store()
    start = store.resource_version
    late = watching(store)
    versions = [store.create(PODS, "default", a_pod("first")).resource_version]

    def names_since(version: int) -> list[str]:
        watch = store.watch(PODS, resource_version=str(version))
        events = seen(watch.drain())
        watch.close()
        return [name for _, name in events]

    for turn in range(6):
        store.table(PODS).slim()
        assert names_since(start)[0] == "first"
        versions.append(store.create(PODS, "default", a_pod(f"later-{turn}")).resource_version)
    assert seen(late.drain())[0] == ("ADDED", "first")
    store.table(PODS).slim()
    with refused(410, "Expired", "too old resource version"):
        names_since(versions[0])
    assert names_since(versions[1]) == [f"later-{turn}" for turn in range(1, 6)]


def test_a_live_watch_may_lag_beyond_the_history_but_not_beyond_the_backlog() -> None:
    store = a_store(history=2, backlog=1000)
    patient, late = watching(store), watching(store)
    for index in range(900):
        store.create(PODS, "default", a_pod(f"p{index}"))
    assert len(patient.drain()) == 900
    for index in range(2000):
        store.create(PODS, "default", a_pod(f"q{index}"))
    with refused(410, "Expired"):
        late.drain()
    assert late.closed


def test_compaction_expires_old_versions_and_continue_tokens() -> None:
    store = a_store()
    for index in range(4):
        store.create(PODS, "default", a_pod(f"p{index}"))
    start = store.resource_version
    page = store.list(PODS, limit=2)
    store.create(PODS, "default", a_pod("later"))
    store.compact(PODS)
    with refused(410, "Expired"):
        store.watch(PODS, resource_version=str(start))
    with refused(410, "Expired", "continue parameter is too old"):
        store.list(PODS, limit=2, continue_token=page.continue_token)
    assert store.watch(PODS, resource_version=str(store.resource_version)).drain() == []


# -- lists -------------------------------------------------------------------------------------------------


def test_pages_of_one_list_show_one_moment() -> None:
    store = a_store()
    for index in range(7):
        store.create(PODS, "default", a_pod(f"p{index}"))
    page = store.list(PODS, limit=3)
    version, names, remaining = page.resource_version, [item.name for item in page.items], page.remaining
    assert remaining == 4
    store.delete(PODS, "default", "p4")
    store.create(PODS, "default", a_pod("p33"))
    store.patch(PODS, "default", "p5", {"metadata": {"labels": {"new": "yes"}}})
    while page.continue_token:
        page = store.list(PODS, limit=3, continue_token=page.continue_token)
        assert page.resource_version == version
        names += [item.name for item in page.items]
        assert all(not item.typed.metadata.labels for item in page.items)
    assert names == [f"p{index}" for index in range(7)]
    assert store.list(PODS, resource_version=version, resource_version_match="Exact").resource_version == version
    with refused(400):
        store.list(PODS, continue_token="nonsense")


@pytest.mark.parametrize(
    ("version", "code"), [(10**6, 504), (2**70, 400), (0, 400), (1.5, 400), (True, 400), (None, 400), ("8", 400)]
)
def test_a_token_with_a_version_that_no_page_had_is_refused(version: object, code: int) -> None:
    store = a_store()
    for index in range(3):
        store.create(PODS, "default", a_pod(f"p{index}"))
    token = store.list(PODS, limit=2).continue_token
    data = json.loads(base64.urlsafe_b64decode(token + "=="))
    forged = base64.urlsafe_b64encode(json.dumps({**data, "rv": version}).encode()).decode()
    with refused(code):
        store.list(PODS, continue_token=forged)
    assert [item.name for item in store.list(PODS, continue_token=token).items] == ["p2"]


SELECTIONS = [
    ("metadata.name=a", "", ["a"]),
    ("metadata.namespace=default,metadata.name!=a", "", ["b", "c"]),
    ("spec.nodeName=n1", "", ["b"]),
    ("spec.nodeName!=", "", ["b"]),
    ("status.phase==Running", "", ["b"]),
    ("status.phase!=Running", "", ["a", "c"]),
    ("spec.schedulerName=other", "", ["c"]),
    ("spec.restartPolicy=Never", "", ["c"]),
    ("status.nominatedNodeName=n9", "", ["a"]),
    ("", "app=web", ["a", "b"]),
    ("", "app!=web", ["c"]),
    ("", "app,tier notin (x)", ["b"]),
    ("", "!app", ["c"]),
    ("spec.nodeName=n1", "tier=x", []),
]


@pytest.mark.parametrize(("fields", "labels", "names"), SELECTIONS)
def test_selectors(fields: str, labels: str, names: list[str]) -> None:
    store = a_store()
    store.create(PODS, "default", a_pod("a", labels={"app": "web", "tier": "x"}))
    store.patch(PODS, "default", "a", {"status": {"nominatedNodeName": "n9"}}, subresource="status")
    running(store, "b", labels={"app": "web"})
    store.create(PODS, "default", a_pod("c", schedulerName="other", restartPolicy="Never"))
    page = store.list(PODS, field_selector=fields, label_selector=labels)
    assert [item.name for item in page.items] == names


BAD_SELECTORS = [
    (PODS, "spec.color=red", "", "field label not supported: spec.color"),
    (NODES, "spec.nodeName=x", "", "field label not supported"),
    (PODS, "spec.nodeName", "", "can't understand"),
    (PODS, "", "a==(", "unable to parse"),
]


@pytest.mark.parametrize(("of", "fields", "labels", "text"), BAD_SELECTORS)
def test_bad_selectors_are_bad_requests(of: Any, fields: str, labels: str, text: str) -> None:
    with refused(400, "BadRequest", text):
        a_store().list(of, field_selector=fields, label_selector=labels)


def test_events_and_nodes_have_their_own_fields() -> None:
    store, events = a_store(), kind("events")
    involved = {"kind": "Pod", "name": "p", "namespace": "default", "uid": "u"}
    event = {"metadata": {"name": "e"}, "involvedObject": involved, "reason": "Scheduled", "type": "Normal"}
    store.create(events, "default", event)
    found = store.list(events, field_selector="involvedObject.name=p,involvedObject.uid=u,reason=Scheduled,type=Normal")
    assert [item.name for item in found.items] == ["e"]
    assert store.list(events, field_selector="reason=Other").items == []
    store.create(NODES, "", {**a_node("n1"), "spec": {"unschedulable": True}})
    store.create(NODES, "", a_node("n2"))
    assert [item.name for item in store.list(NODES, field_selector="spec.unschedulable=false").items] == ["n2"]


# -- through the client ------------------------------------------------------------------------------------


def test_a_waiting_watch_wakes_once_for_everything_that_is_there() -> None:
    async def main() -> None:
        store = a_store()
        client: Transport = InProcessClient(store)
        batches: list[list[tuple[str, str]]] = []

        async def read() -> None:
            stream = client.watch(PODS, resource_version=str(store.resource_version))
            async for batch in stream:
                batches.append(seen(list(batch)))  # noqa: PERF401 - read while the stream continues

        task = asyncio.create_task(read())
        await asyncio.sleep(0)
        for name in ("a", "b", "c"):
            await client.create(PODS, "default", a_pod(name))
        await asyncio.sleep(0.01)
        assert batches == [[("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert store.table(PODS).watches == []

    asyncio.run(main())


def test_a_watch_with_a_timeout_ends_with_a_bookmark() -> None:
    async def main(clock: VirtualClock) -> None:
        store = a_store()
        client = InProcessClient(store)
        batches = [
            list(batch)
            async for batch in client.watch(PODS, resource_version=str(store.resource_version), timeout_seconds=30)
        ]
        assert [event.type for batch in batches for event in batch] == ["BOOKMARK"]
        assert asyncio.get_running_loop().time() == pytest.approx(30)

    in_virtual_time(main)


def test_a_quiet_watch_gets_bookmarks_when_asked_for() -> None:
    async def main(clock: VirtualClock) -> None:
        store = a_store()
        client = InProcessClient(store, bookmark_seconds=10)
        start = str(store.resource_version)
        store.create(NODES, "", a_node())
        stream = client.watch(PODS, resource_version=start, timeout_seconds=25)
        batches = [list(batch) async for batch in stream]
        assert [[event.type for event in batch] for batch in batches] == [["BOOKMARK"]] * 3
        assert batches[0][0].item.resource_version == store.resource_version

    in_virtual_time(main)


def test_a_watch_from_lost_history_raises_410_when_read() -> None:
    async def main() -> None:
        store = a_store(history=1)
        start = str(store.resource_version)
        for name in "abc":
            store.create(PODS, "default", a_pod(name))
        with pytest.raises(ApiError) as caught:
            async for _ in InProcessClient(store).watch(PODS, resource_version=start):
                pass
        assert caught.value.code == 410

    asyncio.run(main())

"""Events expire."""

from __future__ import annotations

from random import Random

import pytest

from kubesched.api.kinds import CORE_EVENTS, EVENTS, PODS
from kubesched.api.wire import ApiError
from kubesched.cluster.store import Store
from kubesched.cluster.store.events import EVENT_TTL


class _Clock:
    seconds = 1_000_000.0

    def now(self) -> float:
        return self.seconds


def _event(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}


def test_an_event_goes_when_a_later_one_comes_an_hour_after_it() -> None:
    clock = _Clock()
    store = Store(clock, random=Random(0))
    watch = store.watch(CORE_EVENTS, resource_version=str(store.resource_version))
    store.create(CORE_EVENTS, "default", _event("first"))
    clock.seconds += EVENT_TTL - 1
    store.create(CORE_EVENTS, "default", _event("second"))
    assert [item.name for item in store.list(CORE_EVENTS).items] == ["first", "second"]
    clock.seconds += 1
    store.create(CORE_EVENTS, "default", _event("third"))
    assert [item.name for item in store.list(CORE_EVENTS).items] == ["second", "third"]
    assert [(event.type, event.item.name) for event in watch.drain()] == [
        ("ADDED", "first"),
        ("ADDED", "second"),
        ("ADDED", "third"),
        ("DELETED", "first"),
    ]


def test_an_event_deleted_by_hand_is_no_trouble_later() -> None:
    clock = _Clock()
    store = Store(clock, random=Random(0))
    store.create(CORE_EVENTS, "default", _event("first"))
    store.delete(CORE_EVENTS, "default", "first")
    clock.seconds += 2 * EVENT_TTL
    store.create(CORE_EVENTS, "default", _event("second"))
    assert [item.name for item in store.list(CORE_EVENTS).items] == ["second"]


def test_what_a_write_through_the_new_group_returns_is_the_event_as_that_group_shows_it() -> None:
    store = Store(_Clock(), random=Random(0))
    given = {
        "metadata": {"name": "e", "labels": {"a": "b"}},
        "regarding": {"kind": "Pod", "name": "p"},
        "note": "hello",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    }
    item = store.create(EVENTS, "default", given)
    assert (item.kind, item.key, item.labels, item.owners) == (EVENTS, "default/e", {"a": "b"}, ())
    data = item.data()
    assert (data["apiVersion"], data["note"], data["regarding"]["name"]) == ("events.k8s.io/v1", "hello", "p")
    assert data["metadata"]["uid"] == item.uid
    assert data["metadata"]["resourceVersion"] == str(item.resource_version)
    assert item.raw == store.get(EVENTS, "default", "e").raw
    core = store.get(CORE_EVENTS, "default", "e")
    assert (core.data()["message"], core.uid, core.resource_version) == ("hello", item.uid, item.resource_version)
    with pytest.raises(AttributeError):
        item.nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("namespace", "about", "time", "is_right"),
    [
        ("default", "default", None, True),
        ("default", "other", None, False),
        ("default", "", None, True),
        ("kube-system", "", None, False),
        ("kube-system", "", "2026-01-01T00:00:00.000000Z", True),
        ("kube-public", "", "2026-01-01T00:00:00.000000Z", False),
    ],
)
def test_an_event_is_in_the_namespace_of_its_object(
    namespace: str, about: str, time: str | None, is_right: bool
) -> None:
    store = Store(_Clock(), random=Random(0))
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": about}}
    if time is not None:
        event["eventTime"] = time  # type: ignore[assignment]
    if is_right:
        assert store.create(CORE_EVENTS, namespace, event).namespace == namespace
    else:
        with pytest.raises(ApiError, match=r"involvedObject\.namespace: .* does not match event\.namespace") as caught:
            store.create(CORE_EVENTS, namespace, event)
        assert caught.value.code == 422


def test_the_oldest_events_go_when_there_are_too_many() -> None:
    clock = _Clock()
    store = Store(clock, random=Random(0))
    store.most_events = 3
    for number in range(5):
        clock.seconds += 1
        store.create(CORE_EVENTS, "default", _event(f"e{number}"))
        if number == 2:
            clock.seconds += 1
            store.patch(CORE_EVENTS, "default", "e0", {"count": 2})  # written again: it is no longer the oldest
    assert [item.name for item in store.list(CORE_EVENTS).items] == ["e0", "e3", "e4"]


def test_events_are_kept_for_the_pods_that_are_there() -> None:
    store = Store(_Clock(), random=Random(0))
    store.most_events = 3
    pod = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    for number in range(4):
        store.create(PODS, "default", {"metadata": {"name": f"p{number}"}, **pod})
    for number in range(10):
        store.create(CORE_EVENTS, "default", _event(f"e{number}"))
    assert [item.name for item in store.list(CORE_EVENTS).items] == [f"e{number}" for number in range(2, 10)]
    for number in range(4):
        store.delete(PODS, "default", f"p{number}", grace_period_seconds=0)
    assert not store.expire_events()
    assert [item.name for item in store.list(CORE_EVENTS).items] == ["e7", "e8", "e9"]


def test_many_events_that_expire_together_go_in_parts() -> None:
    clock = _Clock()
    store = Store(clock, random=Random(0))
    for number in range(1_000):
        store.create(CORE_EVENTS, "default", _event(f"e{number:04}"))
    clock.seconds += 3_601
    left = []
    while store.expire_events():
        left.append(len(store.list(CORE_EVENTS).items))
    assert left == [488]
    assert not store.list(CORE_EVENTS).items

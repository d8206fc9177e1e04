"""Events that the embedded cluster keeps as they were recorded read like those created as objects."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from kubesched.api.event_record import EventRecord
from kubesched.api.kinds import CORE_EVENTS, EVENTS, RESOURCE_QUOTAS
from kubesched.api.types import ObjectMeta, Pod
from kubesched.api.wire import ApiError, Item
from kubesched.client.event_counting import Key, Reference, Series
from kubesched.client.event_writer import EventWriter
from kubesched.cluster.store import InProcessClient, Store
from kubesched.cluster.store.events import RecordedEvent

POD = Pod(metadata=ObjectMeta(name="p", namespace="default", uid="u1", resource_version="7"))
OTHER = Pod(metadata=ObjectMeta(name="q", namespace="default", uid="u2"))


class StillClock:
    def now(self) -> float:
        return 1_700_000_000.25


class Eager:
    """A client that only creates objects."""

    def __init__(self, client: InProcessClient) -> None:
        self._client = client

    def record(self, event: EventRecord) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def world(*, eager: bool = False) -> tuple[Store, EventWriter, list[str]]:
    store, problems = Store(StillClock(), random=Random(0)), list[str]()
    client: Any = InProcessClient(store)
    transport = Eager(client) if eager else client
    return store, EventWriter(transport, StillClock(), Series(), rng=Random(1), report=problems.append), problems


def take(
    writer: EventWriter,
    note: str = "too little cpu",
    reason: Any = "FailedScheduling",
    pod: Pod = POD,
    related: Pod | None = None,
) -> None:
    words = ("Warning", "Scheduling", reason, "default-scheduler", "host")
    key = Key(*words, Reference.to(pod), Reference.to(related) if related is not None else None)
    asyncio.run(writer.take(key, note, 1_700_000_000.125, 0.0))


def has_bytes(item: Any) -> bool:
    """Return True if the slot is filled; reading the attribute would fill it."""
    try:
        vars(Item)["raw"].__get__(item)
    except AttributeError:
        return False
    return True


def contents(store: Store) -> list[list[bytes]]:
    return [[item.raw for item in store.list(kind).items] for kind in (CORE_EVENTS, EVENTS)]


@pytest.mark.parametrize(("repeated", "related"), [(1, None), (2, None), (5, None), (1, OTHER), (2, OTHER)])
def test_it_reads_the_same_in_both_groups_and_after_it_became_a_series(repeated: int, related: Pod | None) -> None:
    worlds = [world(), world(eager=True)]
    for _, writer, problems in worlds:
        for _ in range(repeated):
            take(writer, related=related)
        assert not problems
    (store, _, _), (other, _, _) = worlds
    assert contents(store) == contents(other)
    data = msgspec.json.decode(contents(store)[0][0])
    assert data["message"] == "too little cpu"
    assert data.get("related", {}).get("name") == (related.name if related is not None else None)


def test_its_bytes_are_made_when_they_are_read() -> None:
    store, writer, _ = world()
    take(writer)
    (item,) = store.table(CORE_EVENTS).objects.values()
    assert isinstance(item, RecordedEvent)
    assert not has_bytes(item)
    data = item.data()
    assert (data["reason"], data["involvedObject"]["name"], data["reportingComponent"]) == (
        "FailedScheduling", "p", "default-scheduler",
    )  # fmt: skip
    assert data["metadata"]["resourceVersion"] == str(item.resource_version)
    assert has_bytes(item)
    assert item.raw is item.raw
    with pytest.raises(AttributeError):
        item.nothing  # noqa: B018


def test_a_watch_shows_it() -> None:
    store, writer, _ = world()
    watch = store.watch(
        CORE_EVENTS, field_selector="reason=FailedScheduling", resource_version=str(store.resource_version)
    )
    take(writer)
    ((kind, item),) = watch.drain()
    assert (kind, item.data()["message"]) == ("ADDED", "too little cpu")


def test_what_json_cannot_hold_is_checked_at_once() -> None:
    store, writer, problems = world()
    take(writer, note="wie schön")
    take(writer, note="a lone \ud800 surrogate", reason="Other")
    take(writer, reason=5)
    assert [item.data()["message"] for item in store.list(CORE_EVENTS).items] == ["wie schön"]
    assert len(problems) == 2


def test_names_namespaces_and_quotas_are_respected() -> None:
    store, _, _ = world()

    class One(NamedTuple):
        namespace: str
        name: str

        def make(self) -> dict[str, Any]:
            return {
                "metadata": {"name": self.name, "namespace": self.namespace},
                "eventTime": "2026-01-01T00:00:00.000000Z",
            }

    assert store.record(One("default", "e"))
    with pytest.raises(ApiError, match="already exists"):
        store.record(One("default", "e"))
    with pytest.raises(ApiError, match="not found"):
        store.record(One("nowhere", "e"))
    assert len(store.list(CORE_EVENTS).items) == 1
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/events": "1"}}}
    store.create(RESOURCE_QUOTAS, "default", quota)
    assert not store.record(One("default", "g"))
    assert len(store.list(CORE_EVENTS).items) == 1

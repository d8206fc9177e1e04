"""Version of a claim that counts, whatever order events and writes come in."""

from __future__ import annotations

from typing import Any

import pytest
from dra_kit import claim, results
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubesched.api.resource import ResourceClaim
from kubesched.api.tombstone import DeletedFinalStateUnknown
from kubesched.scheduler.plugins.assume_cache import AssumeCache, AssumeError


class Recorder:
    """Keeps what it receives: as events, and as the objects that result."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.objects: dict[str, ResourceClaim] = {}

    def on_add(self, obj: ResourceClaim, is_initial: bool) -> None:
        assert obj.key not in self.objects
        self.events.append(("add", obj, is_initial))
        self.objects[obj.key] = obj

    def on_update(self, old: ResourceClaim, new: ResourceClaim) -> None:
        assert self.objects[old.key] is old
        self.events.append(("update", old, new))
        self.objects[new.key] = new

    def on_delete(self, obj: ResourceClaim) -> None:
        assert self.objects.pop(obj.key) is obj
        self.events.append(("delete", obj))


def cache_with(*claims: ResourceClaim) -> tuple[AssumeCache[ResourceClaim], Recorder]:
    cache, recorder = AssumeCache[ResourceClaim]("ResourceClaim"), Recorder()
    for each in claims:
        cache.on_add(each, True)
    cache.add_handler(recorder)
    recorder.events.clear()
    return cache, recorder


def test_what_was_written_counts_until_the_informer_shows_something_newer() -> None:
    first, written, newer = claim(version=5), claim(version=7, allocation=results("gpu-0")), claim(version=8)
    cache, recorder = cache_with(first)
    cache.assume(written)
    cache.on_update(first, claim(version=6))
    assert cache.get("default/c") is written
    assert cache.find_api("default/c") is first
    cache.on_update(first, claim(version=7))
    assert cache.find_api("default/c") is cache.get("default/c") is written
    cache.on_update(written, newer)
    assert cache.get("default/c") is newer
    assert recorder.events == [("update", first, written), ("update", written, newer)]


def test_restoring_goes_back_to_what_the_informer_showed() -> None:
    first, written = claim(version=5), claim(version=7)
    cache, recorder = cache_with(first)
    cache.restore("default/c")
    assert recorder.events == []
    cache.assume(written)
    cache.restore("default/c")
    assert cache.get("default/c") is first
    assert recorder.events[1:] == [("update", written, first)]
    cache.restore("default/unknown")


def test_assuming_an_unknown_or_older_object_fails() -> None:
    cache, recorder = cache_with(claim(version=5))
    with pytest.raises(AssumeError, match=r'^could not find ResourceClaim "default/other"$'):
        cache.assume(claim("other"))
    text = r'^ResourceClaim "default/c" is out of sync \(stored: 5, assume: 4\)$'
    with pytest.raises(AssumeError, match=text):
        cache.assume(claim(version=4))
    cache.assume(claim(version=5))
    assert len(recorder.events) == 1


def test_deletion_removes_both_versions() -> None:
    first, written = claim(version=5), claim(version=7)
    cache, recorder = cache_with(first)
    cache.assume(written)
    cache.on_delete(DeletedFinalStateUnknown("default/c", first))
    with pytest.raises(AssumeError, match=r'could not find ResourceClaim "default/c"'):
        cache.get("default/c")
    assert cache.find("default/c") is None
    cache.on_delete(first)
    assert recorder.events[1:] == [("delete", written)]


def test_a_version_that_is_no_number_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    cache, recorder = cache_with()
    cache.on_add(claim(metadata={"resourceVersion": "x"}), False)
    assert not len(cache)
    assert recorder.events == []
    assert "resource version 'x' is no number" in caplog.text


def test_new_subscribers_receive_everything_first() -> None:
    cache, _ = cache_with(claim("a"), claim("b"))
    late = Recorder()
    cache.add_handler(late)
    assert [(event[0], event[1].key, event[2]) for event in late.events] == [
        ("add", "default/a", True),
        ("add", "default/b", True),
    ]


def test_events_stay_in_order_when_a_subscriber_causes_another_one() -> None:
    first = claim(version=1)
    cache, recorder = cache_with(first)

    class Writer(Recorder):
        def on_update(self, old: ResourceClaim, new: ResourceClaim) -> None:
            super().on_update(old, new)
            if new.metadata.resource_version == "2":
                cache.assume(claim(version=3))

    writer = Writer()
    cache.add_handler(writer)
    last = Recorder()
    cache.add_handler(last)
    cache.on_update(first, claim(version=2))
    versions = [[event[-1].metadata.resource_version for event in each.events if event[0] == "update"]
                for each in (recorder, writer, last)]  # fmt: skip
    assert versions == [["2", "3"]] * 3


def test_a_failing_subscriber_does_not_keep_others_from_the_event(caplog: pytest.LogCaptureFixture) -> None:
    cache = AssumeCache[ResourceClaim]("ResourceClaim")

    class Broken(Recorder):
        def on_add(self, obj: ResourceClaim, is_initial: bool) -> None:
            raise ValueError("broken")

    recorder = Recorder()
    cache.add_handler(Broken())
    cache.add_handler(recorder)
    cache.on_add(claim(), False)
    assert [event[0] for event in recorder.events] == ["add"]
    assert "a handler of ResourceClaim events failed" in caplog.text


class Deliveries(RuleBasedStateMachine):
    """An API server, writes of our own, and an informer that is late, repeats itself, and loses order."""

    def __init__(self) -> None:
        super().__init__()
        self.cache, self.recorder = cache_with()
        self.version = 0
        #: Every version the server ever had, per name; None once it is deleted.
        self.history: dict[str, list[ResourceClaim]] = {"a": [], "b": []}
        self.alive: dict[str, ResourceClaim | None] = {"a": None, "b": None}
        #: What counts, by the rule.
        self.latest: dict[str, ResourceClaim] = {}
        self.api: dict[str, ResourceClaim] = {}

    names = st.sampled_from(["a", "b"])

    def _store(self, name: str) -> ResourceClaim:
        self.version += 1
        new = claim(name, self.version)
        self.history[name].append(new)
        self.alive[name] = new
        return new

    @rule(name=names)
    def someone_writes(self, name: str) -> None:
        self._store(name)

    @rule(name=names)
    def we_write_and_assume(self, name: str) -> None:
        if self.alive[name] is None:
            return
        new = self._store(name)
        if name in self.latest:
            self.cache.assume(new)
            self.latest[name] = new
        else:
            with pytest.raises(AssumeError):
                self.cache.assume(new)

    @rule(name=names, which=st.integers(0, 30))
    def the_informer_shows_some_version(self, name: str, which: int) -> None:
        if not self.history[name]:
            return
        shown = self.history[name][which % len(self.history[name])]
        if name in self.latest:
            self.cache.on_update(self.latest[name], shown)
        else:
            self.cache.on_add(shown, False)
        known = self.latest.get(name)
        if known is None or int(shown.metadata.resource_version) > int(known.metadata.resource_version):
            self.latest[name] = self.api[name] = shown
        elif shown.metadata.resource_version == known.metadata.resource_version:
            self.api[name] = known

    @rule(name=names)
    def restore(self, name: str) -> None:
        self.cache.restore(f"default/{name}")
        if name in self.api:
            self.latest[name] = self.api[name]

    @rule(name=names)
    def the_informer_shows_the_deletion(self, name: str) -> None:
        if self.history[name]:
            self.cache.on_delete(self.history[name][-1])
            self.alive[name] = None
            self.latest.pop(name, None)
            self.api.pop(name, None)

    @invariant()
    def the_cache_and_its_subscriber_agree_with_the_rule(self) -> None:
        expected = {f"default/{name}": obj for name, obj in self.latest.items()}
        assert {obj.key: obj for obj in self.cache.values()} == expected
        assert self.recorder.objects == expected
        assert {key: self.cache.find_api(key) for key in expected} == {
            f"default/{name}": obj for name, obj in self.api.items()
        }


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)

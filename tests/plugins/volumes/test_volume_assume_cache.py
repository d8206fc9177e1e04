"""The assume cache against a model, under every order of events and assumptions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from kubesched.api.kinds import VOLUMES
from kubesched.api.storage import PersistentVolume
from kubesched.api.tombstone import DeletedFinalStateUnknown
from kubesched.api.types import ObjectMeta
from kubesched.scheduler.plugins.assume_cache import AssumeCache, AssumeError, OnChange
from kubesched.scheduler.plugins.volumes.volume_cache import _MISSING, _STALE

NAMES = st.sampled_from(["a", "b"])


def a_volume(name: str, version: int, note: str = "") -> PersistentVolume:
    return PersistentVolume(metadata=ObjectMeta(name=name, resource_version=str(version), annotations={"note": note}))


class AssumeCacheMachine(RuleBasedStateMachine):
    """``api`` is what the informer has shown, ``assumed`` what holds on top of it; both as the specification says."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, PersistentVolume] = {}
        self.cache: AssumeCache[PersistentVolume] = AssumeCache(VOLUMES.plural, _MISSING, _STALE)
        self.cache.add_handler(OnChange(self.changed))
        self.api: dict[str, PersistentVolume] = {}
        self.assumed: dict[str, PersistentVolume] = {}
        self.version = 0

    def changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        """Check that the listeners are given exactly what readers saw before, and see now."""
        name = (new or old).name  # type: ignore[union-attr]
        assert self.seen.get(name) is old
        if new is None:
            del self.seen[name]
        else:
            self.seen[name] = new

    @rule(name=NAMES, same=st.booleans())
    def event(self, name: str, same: bool) -> None:
        old = self.api.get(name)
        if old is None or not same:
            self.version += 1
            new = a_volume(name, self.version)
        else:
            new = replace(old)  # delivered again
        if old is None:
            self.cache.on_add(new, False)
        else:
            self.cache.on_update(old, new)
        self.api[name] = new
        if name in self.assumed and self.assumed[name].metadata.resource_version != new.metadata.resource_version:
            del self.assumed[name]

    @rule(name=NAMES, missed=st.booleans())
    def delete(self, name: str, missed: bool) -> None:
        gone = self.api.pop(name, None)
        if gone is None:
            return
        self.assumed.pop(name, None)
        self.cache.on_delete(DeletedFinalStateUnknown(name, gone) if missed else gone)

    @rule(name=NAMES, behind=st.booleans(), note=st.sampled_from(["x", "y"]))
    def assume(self, name: str, behind: bool, note: str) -> None:
        current = self.api.get(name)
        version = int(current.metadata.resource_version) if current is not None else 0
        obj = a_volume(name, version - behind, note)
        if current is None:
            with pytest.raises(AssumeError, match=f'^persistentvolumes "{name}" not found$'):
                self.cache.assume(obj)
        elif behind:
            with pytest.raises(
                AssumeError, match=rf'^"{name}" is out of sync \(stored: {version}, assume: {version - 1}\)$'
            ):
                self.cache.assume(obj)
        else:
            self.cache.assume(obj)
            self.assumed[name] = obj

    @rule(name=NAMES, behind=st.booleans())
    def restore(self, name: str, behind: bool) -> None:
        assumed = self.assumed.get(name)
        version = int(assumed.metadata.resource_version) if assumed is not None else 1
        self.cache.restore(name, str(version - behind))
        if not behind:
            self.assumed.pop(name, None)

    @rule(name=NAMES)
    def write(self, name: str) -> None:
        if name in self.assumed:
            self.cache.written(self.assumed[name])
            assert name not in self.cache.assumed(written=False)
            assert name in self.cache.assumed()

    @invariant()
    def agrees(self) -> None:
        expected: dict[str, Any] = {**self.api, **self.assumed}
        assert {name: self.cache.find(name) for name in "ab"} == {name: expected.get(name) for name in "ab"}
        assert {name: self.cache.find_api(name) for name in "ab"} == {name: self.api.get(name) for name in "ab"}
        assert self.cache.assumed() == self.assumed
        assert list(self.cache.values()) == [expected[obj.name] for obj in self.cache.values()]
        assert self.cache.keys() == set(self.api)
        assert len(self.cache) == len(self.api)
        assert self.seen == expected


AssumeCacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAssumeCache = AssumeCacheMachine.TestCase

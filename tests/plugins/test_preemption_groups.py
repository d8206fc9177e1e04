"""WholeGroups: the lowest priority of groups that are evicted as a whole, through any changes of the groups."""

from __future__ import annotations

import pytest

from kubesched.api.groups import MODE_POD, MODE_POD_GROUP, PodGroup, PodGroupSpec
from kubesched.api.tombstone import DeletedFinalStateUnknown
from kubesched.api.types import ObjectMeta
from kubesched.scheduler.plugins.preemption.groups import WholeGroups


def group(name: str, priority: int | None = None, mode: str | None = MODE_POD_GROUP) -> PodGroup:
    spec = PodGroupSpec(disruption_mode=mode, priority=priority)
    return PodGroup(metadata=ObjectMeta(namespace="default", name=name), spec=spec)


def test_only_groups_that_are_evicted_as_a_whole_count() -> None:
    found = WholeGroups()
    found.on_add(group("a", 5, MODE_POD), is_initial=True)
    found.on_add(group("b", 5, None), is_initial=False)
    assert not found.has_below(100)
    found.on_add(group("c", 5), is_initial=False)
    assert found.has_below(6)
    assert not found.has_below(5)
    found.on_add(group("d"), is_initial=False)  # no priority counts as 0
    assert found.has_below(1)


def test_a_change_or_deletion_takes_the_old_priority_away() -> None:
    found = WholeGroups()
    for name in ("a", "b"):
        found.on_add(group(name, 5), is_initial=False)
    found.on_update(group("a", 5), group("a", 7))
    found.on_update(group("b", 5), group("b", 5, MODE_POD))
    assert not found.has_below(7)
    assert found.has_below(8)
    found.on_add(group("a", 7), is_initial=False)  # delivered once more
    found.on_delete(group("a", 7))
    assert not found.has_below(8)


@pytest.mark.parametrize("deleted", [group("a", 5), DeletedFinalStateUnknown("default/a", None)])
def test_a_deleted_group_is_forgotten_however_that_is_learned(deleted: object) -> None:
    found = WholeGroups()
    found.on_add(group("a", 5), is_initial=False)
    found.on_delete(deleted)
    found.on_delete(deleted)
    assert not found.has_below(100)

"""Long work lets others have their turn, and what it gives is still of one moment.

Turns are counted by a callback that asks for the event loop's next turn again and again; no clock is read.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kubesched.api.kinds import NAMESPACES, PODS, Kind, kind_by_plural
from kubesched.api.wire import Item
from kubesched.base.turns import in_turns
from kubesched.client.reflector import Reflector
from kubesched.cluster.files import read, save, saving, snapshot_file
from kubesched.cluster.schema import Stored
from kubesched.cluster.store import InProcessClient, Store
from kubesched.cluster.store.key_order import Moment
from kubesched.cluster.store.records import BATCH, STEPS_PER_TURN
from kubesched.cluster.store.table import INITIAL_BATCH
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual

COUNT = 1500


def _config_maps() -> Kind:
    kind = kind_by_plural("", "configmaps")
    assert kind is not None
    return kind


CONFIG_MAPS = _config_maps()


class Turns:
    """Counts the event loop's turns from :meth:`start` to :meth:`stop`; ``act`` is called in the turn with that number."""

    def __init__(self, act: Callable[[], None] | None = None, at: int = 2) -> None:
        self.count = 0
        self._act, self._at = act, at
        self._running = False

    def start(self) -> None:
        self._running = True
        asyncio.get_running_loop().call_soon(self._tick)

    def stop(self) -> int:
        self._running = False
        return self.count

    def _tick(self) -> None:
        if not self._running:
            return
        self.count += 1
        if self.count == self._at and self._act is not None:
            self._act()
        asyncio.get_running_loop().call_soon(self._tick)


def in_loop(main: Callable[[Store], Awaitable[None]]) -> None:
    async def begin() -> None:
        await main(Store(VirtualClock(asyncio.get_running_loop()), random=Random(1)))

    run_virtual(begin())


async def pass_turns(count: int = 100) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def fill(store: Store, namespace: str, count: int = COUNT) -> None:
    for number in range(count):
        labels = {"odd": str(number % 2)}
        store.create(
            CONFIG_MAPS, namespace, {"metadata": {"name": f"c{number:05}", "labels": labels}, "data": {"k": "v"}}
        )


def test_emptying_a_namespace_takes_turns_and_copes_with_changes_meanwhile() -> None:
    async def main(store: Store) -> None:
        store.create(NAMESPACES, "", {"metadata": {"name": "big"}})
        fill(store, "big")
        left: list[int] = []

        def meddle() -> None:
            left.append(len(store.table(CONFIG_MAPS).items("big")))
            store.delete(CONFIG_MAPS, "big", f"c{COUNT - 1:05}")
            store.patch(CONFIG_MAPS, "big", f"c{COUNT - 2:05}", {"data": {"k": "w"}})

        turns = Turns(meddle)
        turns.start()
        store.delete(NAMESPACES, "", "big")
        await pass_turns()
        assert ("", "big") not in store.table(NAMESPACES).objects
        assert turns.stop() >= COUNT // STEPS_PER_TURN
        assert 0 < left[0] < COUNT, "other tasks ran while the namespace was being emptied"
        assert store.table(CONFIG_MAPS).items("big") == []

    in_loop(main)


def test_collecting_many_dependents_takes_turns_and_spares_what_gets_another_owner() -> None:
    async def main(store: Store) -> None:
        owners = [store.create(CONFIG_MAPS, "default", {"metadata": {"name": name}}) for name in ("gone", "other")]
        gone, other = ({"apiVersion": "v1", "kind": "ConfigMap", "name": one.name, "uid": one.uid} for one in owners)
        for number in range(COUNT):
            metadata = {"name": f"d{number:05}", "ownerReferences": [gone]}
            store.create(CONFIG_MAPS, "default", {"metadata": metadata})
        last = f"d{COUNT - 1:05}"
        patch = {"metadata": {"ownerReferences": [other]}}

        def adopt() -> None:
            store.patch(CONFIG_MAPS, "default", last, patch)

        turns = Turns(adopt)
        turns.start()
        store.delete(CONFIG_MAPS, "default", "gone")
        await pass_turns()
        assert turns.stop() >= COUNT // STEPS_PER_TURN
        names = [item.name for item in store.table(CONFIG_MAPS).items("default")]
        assert names == [last, "other"]

    in_loop(main)


def test_work_that_is_under_way_is_finished_by_settling() -> None:
    async def main(store: Store) -> None:
        store.create(NAMESPACES, "", {"metadata": {"name": "big"}})
        fill(store, "big")
        store.delete(NAMESPACES, "", "big")
        await asyncio.sleep(0)
        assert 0 < len(store.table(CONFIG_MAPS).items("big")) < COUNT
        store.settle()
        assert ("", "big") not in store.table(NAMESPACES).objects

    in_loop(main)


def test_a_long_list_takes_turns_and_shows_one_moment() -> None:
    async def main(store: Store) -> None:
        fill(store, "default", 4 * BATCH)
        version = store.resource_version
        wanted = [item.raw for item in store.list(CONFIG_MAPS, "default", label_selector="odd=1").items]

        def meddle() -> None:
            store.create(CONFIG_MAPS, "default", {"metadata": {"name": "zzz", "labels": {"odd": "1"}}})
            store.delete(CONFIG_MAPS, "default", f"c{4 * BATCH - 1:05}")

        turns = Turns(meddle)
        turns.start()
        page = await InProcessClient(store).list(CONFIG_MAPS, "default", label_selector="odd=1")
        assert turns.stop() >= 3
        assert store.resource_version > version, "another task wrote while the list was made"
        assert page.resource_version == str(version)
        assert [item.raw for item in page.items] == wanted

    in_loop(main)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_file, "_BYTES_PER_STEP", 1 << 16)


def test_a_step_of_a_save_is_as_long_as_what_it_writes(tmp_path: Path) -> None:
    """Many small objects are one step, as others have much to do between two; few large ones are several."""

    async def main(store: Store) -> None:
        path = tmp_path / "saved.jsonl"
        fill(store, "default")
        assert len([*saving(store, path)]) == 0
        for number in range(40):
            store.create(
                CONFIG_MAPS, "default", {"metadata": {"name": f"large-{number}"}, "data": {"a": "x" * 1_000_000}}
            )
        assert len([*saving(store, path)]) == 4

    in_loop(main)


@pytest.mark.usefixtures("small_steps")
def test_a_save_takes_turns_and_writes_one_moment(tmp_path: Path) -> None:
    async def main(store: Store) -> None:
        fill(store, "default")
        for name in ("plain.jsonl", "packed.jsonl.gz"):
            before = tmp_path / f"before-{name}"
            save(store, before)
            version = store.resource_version

            def meddle(name: str = name) -> None:
                store.create(CONFIG_MAPS, "default", {"metadata": {"name": f"late-{name.lower()}"}})
                store.delete(CONFIG_MAPS, "default", f"c{COUNT - 1 - len(name):05}")

            turns = Turns(meddle)
            turns.start()
            count = await in_turns(saving(store, tmp_path / name))
            assert turns.stop() >= 2
            assert store.resource_version == version + 2
            assert _text(tmp_path / name) == _text(before)
            assert count == len(read(tmp_path / name).items)

    in_loop(main)


@pytest.mark.usefixtures("small_steps")
def test_a_save_that_is_cancelled_leaves_the_old_file(tmp_path: Path) -> None:
    async def main(store: Store) -> None:
        path = tmp_path / "saved.jsonl"
        save(store, path)
        before = path.read_bytes()
        fill(store, "default")
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(in_turns(saving(store, path)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert path.read_bytes() == before

    in_loop(main)
    assert [item.name for item in tmp_path.iterdir()] == ["saved.jsonl"]


def _text(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def test_a_restored_store_forgets_the_work_of_the_old_one(tmp_path: Path) -> None:
    async def main(store: Store) -> None:
        save(store, tmp_path / "empty.jsonl")
        store.create(NAMESPACES, "", {"metadata": {"name": "big"}})
        fill(store, "big")
        store.delete(NAMESPACES, "", "big")
        await asyncio.sleep(0)
        read(tmp_path / "empty.jsonl").load_into(store)
        await pass_turns()
        assert store.list(CONFIG_MAPS).items == []
        assert store.list(PODS).items == []
        store.create(NAMESPACES, "", {"metadata": {"name": "big"}})
        fill(store, "big", 1)
        await asyncio.sleep(0)
        assert [item.name for item in store.list(CONFIG_MAPS).items] == ["c00000"]

    in_loop(main)


def test_the_initial_state_of_a_filtered_watch_takes_turns_and_shows_one_moment() -> None:
    async def main(store: Store) -> None:
        fill(store, "default", 4 * BATCH)
        wanted = [("ADDED", item.name) for item in store.list(CONFIG_MAPS, label_selector="odd=1").items]

        def meddle() -> None:
            store.create(CONFIG_MAPS, "default", {"metadata": {"name": "zzz", "labels": {"odd": "1"}}})
            store.delete(CONFIG_MAPS, "default", f"c{4 * BATCH - 1:05}")

        turns = Turns(meddle)
        turns.start()
        watch = await in_turns(
            store.watching(CONFIG_MAPS, resource_version="", label_selector="odd=1", send_initial_events=True)
        )
        assert turns.stop() >= 3
        parts = []
        while watch.pending:
            parts.append([(type_, item.name) for type_, item in watch.drain()])
        assert [len(part) for part in parts] == [INITIAL_BATCH, INITIAL_BATCH, 3]
        events = [event for part in parts for event in part]
        assert events == [*wanted, ("BOOKMARK", ""), ("ADDED", "zzz"), ("DELETED", f"c{4 * BATCH - 1:05}")]
        watch.close()

    in_loop(main)


def test_pages_in_one_process_are_read_in_turns_and_cost_their_own_objects_only() -> None:
    async def main(store: Store) -> None:
        fill(store, "default", 2 * COUNT)
        read: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        class Sink:
            async def replace(self, items: list[Item], version: int) -> None:
                read.set_result(len(items))

            def upsert(self, item: Item) -> None: ...
            def remove(self, items: Sequence[Item]) -> None: ...

        copied = 0
        copy = Moment.items

        def count(moment: Moment, start: int = 0, end: int | None = None) -> list[Stored]:
            nonlocal copied
            found = copy(moment, start, end)
            copied += len(found)
            return found

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Moment, "items", count)
            turns = Turns(lambda: fill(store, "kube-system", 1))
            turns.start()
            reflector = Reflector(InProcessClient(store), CONFIG_MAPS, Sink(), rng=Random(1), page_size=100)
            task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(reflector.run())
            assert await read == 2 * COUNT  # the moment of the first page
            assert turns.stop() >= 2 * COUNT // 100
            task.cancel()
        assert copied == 2 * COUNT

    in_loop(main)


def test_orphaning_many_dependents_takes_turns_and_keeps_the_owner_until_they_are_free() -> None:
    async def main(store: Store) -> None:
        owner = store.create(CONFIG_MAPS, "default", {"metadata": {"name": "zz-owner"}})
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name, "uid": owner.uid}
        for number in range(COUNT):
            store.create(
                CONFIG_MAPS, "default", {"metadata": {"name": f"d{number:05}", "ownerReferences": [reference]}}
            )
        seen: list[tuple[int, Any]] = []

        def look() -> None:
            bound = sum(1 for item in store.table(CONFIG_MAPS).items("default") if item.owners)
            seen.append((bound, store.get(CONFIG_MAPS, "default", "zz-owner").data()["metadata"].get("finalizers")))

        turns = Turns(look)
        turns.start()
        store.delete(CONFIG_MAPS, "default", "zz-owner", propagation_policy="Orphan")
        await pass_turns()
        assert turns.stop() >= COUNT // STEPS_PER_TURN
        assert 0 < seen[0][0] < COUNT
        assert seen[0][1] == ["orphan"]
        left = store.table(CONFIG_MAPS).items("default")
        assert len(left) == COUNT
        assert not any(item.owners for item in left)

    in_loop(main)


def test_orphaning_goes_on_in_a_restored_store(tmp_path: Path) -> None:
    async def main(store: Store) -> None:
        owner = store.create(CONFIG_MAPS, "default", {"metadata": {"name": "owner"}})
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name, "uid": owner.uid}
        store.create(CONFIG_MAPS, "default", {"metadata": {"name": "child", "ownerReferences": [reference]}})
        store.delete(CONFIG_MAPS, "default", "owner", propagation_policy="Orphan")
        save(store, tmp_path / "saved.jsonl")
        restored = Store(VirtualClock(asyncio.get_running_loop()), random=Random(1))
        read(tmp_path / "saved.jsonl").load_into(restored)
        await pass_turns()
        assert [(item.name, item.owners) for item in restored.table(CONFIG_MAPS).items()] == [("child", ())]

    in_loop(main)

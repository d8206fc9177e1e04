"""Views of objects: what an informer holds and delivers when its objects are shown in another way."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec

from kubesched.api.kinds import PODS
from kubesched.api.types import Pod
from kubesched.client.informer import Informer
from kubesched.cluster.store import InProcessClient, Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual


def without_labels(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels={}))


class Seen:
    def __init__(self) -> None:
        self.labels: list[dict[str, str]] = []

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self.labels.append(obj.metadata.labels)

    def on_update(self, old: Any, new: Any) -> None:
        self.labels.append(new.metadata.labels)

    def on_delete(self, obj: Any) -> None:
        self.labels.append(obj.metadata.labels)


def test_handlers_and_readers_see_the_view_of_listed_added_changed_and_deleted_objects() -> None:
    async def main() -> list[dict[str, str]]:
        store = Store(VirtualClock(asyncio.get_running_loop()), random=random.Random(1))
        body = {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        store.create(PODS, "default", body)
        informer, handler = Informer(InProcessClient(store), PODS, rng=random.Random(1)), Seen()
        informer.add_handler(handler)
        informer.show_as(without_labels)
        running = asyncio.create_task(informer.run())
        await informer.wait_synced()
        store.create(PODS, "default", {**body, "metadata": {"name": "q", "labels": {"a": "b"}}})
        store.patch(PODS, "default", "q", {"metadata": {"labels": {"c": "d"}}})
        await asyncio.sleep(1)
        assert [pod.metadata.labels for pod in informer.values()] == [{}, {}]
        store.delete(PODS, "default", "q", grace_period_seconds=0)
        await asyncio.sleep(1)
        informer.stop()
        await running
        return handler.labels

    assert run_virtual(main()) == [{}, {}, {}, {}]

"""Helpers for the tests of the embedded cluster: a clock, a store, builders, and assertions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from kubesched.api.kinds import PODS, Kind, kind_by_plural
from kubesched.api.wire import ApiError
from kubesched.cluster.schema import Stored
from kubesched.cluster.store import Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual

START = 1_750_000_000.0


class FakeClock:
    """A clock that moves on demand."""

    def __init__(self, now: float = START) -> None:
        self.time = now

    def now(self) -> float:
        return self.time


def a_store(clock: FakeClock | None = None, **options: Any) -> Store:
    return Store(clock or FakeClock(), random=Random(7), **options)


def kind(plural: str, group: str = "") -> Kind:
    found = kind_by_plural(group, plural)
    assert found is not None
    return found


def a_pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    """A pod manifest; keywords are fields of its spec, ``labels``/``annotations``/… go into its metadata."""
    metadata: dict[str, Any] = {"name": name} if name else {"generateName": "gen-"}
    for field in ("labels", "annotations", "finalizers", "ownerReferences", "namespace"):
        if field in spec:
            metadata[field] = spec.pop(field)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "pause"}], **spec},
    }


def a_node(name: str = "n1", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}, **status}}


def running(store: Store, name: str = "p", node: str = "n1", **spec: Any) -> Stored:
    """A pod that is bound and Running."""
    pod = store.create(PODS, "default", a_pod(name, **spec))
    store.bind("default", name, pod.uid, node)
    return store.patch(PODS, "default", name, {"status": {"phase": "Running"}}, subresource="status")


@contextmanager
def refused(code: int, reason: str = "", match: str = "") -> Iterator[None]:
    """The block must be refused with this code (and reason, and text)."""
    with pytest.raises(ApiError) as caught:
        yield
    error = caught.value
    assert error.code == code, error.message
    assert not reason or error.reason == reason
    assert match in error.message


def in_virtual_time(main: Callable[[VirtualClock], Coroutine[Any, Any, None]]) -> None:
    """Run a test in virtual time; it is handed the clock."""

    async def wrapped() -> None:
        await main(VirtualClock(asyncio.get_running_loop()))

    run_virtual(wrapped())

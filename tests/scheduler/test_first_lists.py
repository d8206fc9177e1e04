"""Lists that do not come at the start: the log names kind, reason and plugins, and a list that comes later is taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from harness import a_config, a_node, a_pod

from kubesched.api.kinds import BUDGETS, CSI_STORAGE_CAPACITIES, NODES, PODS, Kind
from kubesched.api.wire import ApiError, ListPage
from kubesched.client.port import ApiPort
from kubesched.cluster.store import InProcessClient, Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.scheduler import Scheduler

UNSERVED = ApiError(404, "NotFound", "the server could not find the requested resource")
REFUSED = ApiError(403, "Forbidden", "poddisruptionbudgets.policy is forbidden")
SPECIFIC = (
    "The API server does not serve policy/v1 poddisruptionbudgets. Wanted by DefaultPreemption: "
    "without the API, disable these plugins in every profile, or the feature gates that make them want it"
)


class WithoutAKind(InProcessClient):
    """A transport that fails on one kind until ``error`` is None."""

    lacking = BUDGETS
    error: ApiError | None = None

    async def list(self, kind: Kind, namespace: str = "", **options: Any) -> ListPage:
        if kind == self.lacking and self.error is not None:
            raise self.error
        return await super().list(kind, namespace, **options)

    async def watch(self, kind: Kind, namespace: str = "", **options: Any) -> AsyncIterator[Any]:
        if kind == self.lacking and self.error is not None:
            raise self.error
        async for batch in super().watch(kind, namespace, **options):
            yield batch


def scheduler_without(error: ApiError, *, preempts: bool = True) -> tuple[Scheduler, WithoutAKind, Store]:
    clock, rng = VirtualClock(asyncio.get_running_loop()), Random(1)
    store = Store(random=Random(2), clock=clock)
    client = WithoutAKind(store)
    client.error = error
    disabled = [{"name": "DynamicResources" if preempts else "DefaultPreemption"}]
    profile = {"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"disabled": disabled}}}
    port = ApiPort(client, clock=clock, rng=rng, watch_list=True)
    return Scheduler(a_config(profiles=[profile]), in_tree_registry(), port, clock=clock, rng=rng), client, store


@pytest.mark.parametrize(
    ("error", "reason"), [(UNSERVED, SPECIFIC), (REFUSED, f"The API server refuses it: {REFUSED}")]
)
def test_a_kind_that_is_not_served_is_named_and_waited_for(
    error: ApiError, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        scheduler, client, store = scheduler_without(error)
        starting = asyncio.create_task(scheduler.start())
        await asyncio.sleep(9.0)
        assert scheduler.first_lists.missing() == ["poddisruptionbudgets.policy"]
        assert "No pod is scheduled yet" not in caplog.text
        await asyncio.sleep(291.0)  # said again after five minutes, not with every try
        lines = [record.getMessage() for record in caplog.records if "No pod is scheduled yet" in record.getMessage()]
        assert lines == [
            f"No pod is scheduled yet: the first list of poddisruptionbudgets.policy has not come. {reason}"
        ]
        assert "cannot be streamed" not in caplog.text  # the list in pages says the same
        store.create(NODES, "", a_node("n1"))
        store.create(PODS, "default", a_pod("p"))
        client.error = None
        await starting
        assert scheduler.first_lists.missing() == []
        running = asyncio.create_task(scheduler.run())
        await asyncio.sleep(5.0)
        assert store.get(PODS, "default", "p").typed.spec.node_name == "n1"
        await scheduler.stop()
        await running

    run_virtual(main())


def test_plugins_that_wait_for_changes_of_the_kind_are_named_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        scheduler, client, _ = scheduler_without(UNSERVED)
        client.lacking = CSI_STORAGE_CAPACITIES
        starting = asyncio.create_task(scheduler.start())
        await asyncio.sleep(11.0)
        assert "csistoragecapacities. Wanted by VolumeBinding: without the API" in caplog.text
        client.error = None
        await starting
        await scheduler.stop()

    run_virtual(main())


def test_without_the_plugin_the_kind_is_not_wanted() -> None:
    async def main() -> None:
        scheduler, _, _ = scheduler_without(UNSERVED, preempts=False)
        async with asyncio.timeout(5.0):
            await scheduler.start()
        await scheduler.stop()

    run_virtual(main())

"""Status patches of one pod, one after the other."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kubesched.api.kinds import PODS
from kubesched.api.types import PodCondition
from kubesched.base.tasks import Supervisor
from kubesched.client.port import ApiPort
from kubesched.cluster.store import Faults, InProcessClient, Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.core.status_writer import StatusWriter


def failed(message: str) -> PodCondition:
    return PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)


@pytest.mark.parametrize("seconds", [0.0, 0.5], ids=["at once", "each takes half a second"])
def test_what_was_written_meanwhile_is_undone_by_the_newest_patch(seconds: float) -> None:
    """All three begin with the pod as it was before the first, as an informer shows it while they are written."""

    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        store, faults = Store(clock, random=Random(1), auto_namespaces=True), Faults(Random(1))
        body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        pod = store.create(PODS, "default", body).typed
        async with Supervisor("test") as tasks:
            port = ApiPort(InProcessClient(store, faults=faults), clock=clock, rng=Random(1))
            writer = StatusWriter(port, lambda namespace, name: pod, tasks)
            faults.delay("patch", seconds)
            writer.write(pod, failed("first"), "n1")
            await asyncio.sleep(0.1)
            if not seconds:
                pod = store.get(PODS, "default", "p").typed
            writer.write(pod, failed("second"), "n2")
            writer.write(pod, None, "")
            await writer.settle(pod.uid)
        status = store.get(PODS, "default", "p").typed.status
        assert status.nominated_node_name == ""
        assert [each.message for each in status.conditions] == ["second"]

    run_virtual(main(), start=1_700_000_000.0)

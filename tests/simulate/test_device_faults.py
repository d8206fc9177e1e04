"""Claims of devices on bad days: API faults, watch trouble and restarts; nothing is given out twice, lost or leaked.

A failure names its seed; ``KUBESCHED_SEED=<seed>`` plays it again, ``KUBESCHED_SEEDS=<n>`` plays n seeds. After every
step the objects in the store are checked by brute force, at the end also what the scheduler remembers.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kubesched.api.kinds import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Kind,
)
from kubesched.api.types import Pod
from kubesched.api.wire import MERGE_PATCH, ApiError
from kubesched.cluster.controllers import DEVICES_ANNOTATION
from kubesched.cluster.controllers.resource_claims import claims_of
from kubesched.cluster.files import read, save
from kubesched.cluster.kubelets import make_nodes, node_template
from kubesched.cluster.store.faults import connection_lost, server_error
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, VirtualTimeLoop, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.dra.check import check_allocations
from kubesched.scheduler.plugins import in_tree_registry

Data = dict[str, Any]

#: Whole GPUs and parts that share counters, devices that are shared by capacity, and devices that bind slowly.
DEVICES = """
- driver: gpu.example.com
  devices:
  - name: gpu
    count: 2
    attributes: {kind: whole}
    counters: {slices: 4}
    partitions:
    - {name: part, count: 4, attributes: {kind: part}, consumes: {slices: 1}}
- driver: nic.example.com
  binding: {seconds: 3, failure: 0.2}
  devices:
  - {name: shared, attributes: {kind: shared}, capacity: {rate: 10}, allowMultipleAllocations: true}
  - name: slow
    count: 2
    attributes: {kind: slow}
    bindingConditions: [attached]
    bindingFailureConditions: [broken]
"""
TAINTED = DEVICES.replace(
    "attributes: {kind: slow}", "attributes: {kind: slow}\n    taints: [{key: t, effect: NoExecute}]"
)
CLASSES = ("whole", "part", "shared", "slow")


def _class(kind: str) -> Data:
    expression = f'"kind" in device.attributes[device.driver] && device.attributes[device.driver].kind == "{kind}"'
    spec: Data = {"selectors": [{"cel": {"expression": expression}}]}
    if kind == "part":
        spec["extendedResourceName"] = "example.com/part"
    return {"metadata": {"name": kind}, "spec": spec}


def _request(kind: str, **more: Any) -> Data:
    exactly: Data = {"deviceClassName": kind, **more}
    if kind == "shared":
        exactly["capacity"] = {"requests": {"rate": "4"}}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


SPECS: dict[str, Data] = {
    **{kind: _request(kind) for kind in CLASSES},
    "two-parts": _request("part", count=2),
    "admin": _request("whole", adminAccess=True),
    "list": {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "firstAvailable": [
                        {"name": "a", "deviceClassName": "whole"},
                        {"name": "b", "deviceClassName": "part", "count": 2},
                    ],
                }
            ]
        }
    },
}


class Day:
    """One cluster, what happens to it, and what must hold."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = Random(seed)
        self.seed = seed
        self.made = 0
        self.restarts = 0
        self.file = directory / "cluster.jsonl"
        self.embedded = self._new()

    def _new(self) -> Embedded:
        return Embedded(
            default_config(),
            in_tree_registry(),
            clock=VirtualClock(asyncio.get_running_loop()),
            seed=self.seed + self.restarts,
            controllers=True,
        )

    # -- the cluster -----------------------------------------------------------------------------------

    def create(self, kind: Kind, obj: Data) -> None:
        self.embedded.store.create(kind, "default" if kind.namespaced else "", obj)

    def set_up(self) -> None:
        label = {"resource.kubernetes.io/admin-access": "true"}
        self.embedded.store.patch(NAMESPACES, "", "default", {"metadata": {"labels": label}})
        for kind in CLASSES:
            self.create(DEVICE_CLASSES, _class(kind))
        for name, spec in SPECS.items():
            self.create(RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": spec}})
        self.add_nodes(2)

    def add_nodes(self, count: int, start: int = 0, devices: str = DEVICES) -> None:
        template = node_template(cpu="32")
        template["metadata"]["annotations"] = {DEVICES_ANNOTATION: devices}
        for node in make_nodes(count, template, prefix="n", width=1, start=start):
            self.create(NODES, node)

    async def restart(self) -> None:
        """The scheduler and all else crash, whatever they were doing; only what is stored comes back."""
        save(self.embedded.store, self.file)
        await self.embedded.stop()
        self.restarts += 1
        self.embedded = self._new()
        read(self.file).load_into(self.embedded.store)
        await self.embedded.start()

    async def settle(self, limit: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        end = loop.time() + limit
        while True:
            await loop.idle()
            if self.embedded.is_settled or loop.time() >= end:
                return
            await asyncio.sleep(0.5)

    # -- what happens ----------------------------------------------------------------------------------

    def _names(self, kind: Kind) -> list[str]:
        return [item.name for item in self.embedded.store.list(kind, "default" if kind.namespaced else "").items]

    def new_pod(self) -> None:
        rng = self.rng
        self.made += 1
        name = f"p{self.made}"
        container: Data = {"name": "main", "image": "app"}
        spec: Data = {"containers": [container], "terminationGracePeriodSeconds": rng.choice((0, 0, 3))}
        metadata: Data = {"name": name}
        draw = rng.random()
        if draw < 0.15:
            container["resources"] = {"limits": {"example.com/part": str(rng.randint(1, 2))}}
        else:
            spec["resourceClaims"] = []
            for number in range(rng.choice((1, 1, 2))):
                entry: Data = {"name": f"c{number}", "resourceClaimTemplateName": rng.choice(sorted(SPECS))}
                spec["resourceClaims"].append(entry)
            if draw < 0.4:
                claim = f"shared-{rng.randint(1, 4)}"
                if claim not in self._names(RESOURCE_CLAIMS):
                    self.create(
                        RESOURCE_CLAIMS, {"metadata": {"name": claim}, "spec": SPECS[rng.choice(sorted(SPECS))]}
                    )
                spec["resourceClaims"].append({"name": "shared", "resourceClaimName": claim})
        if rng.random() < 0.4:
            metadata["annotations"] = {"kubesched.io/duration": f"{rng.randint(1, 20)}s"}
        self.create(PODS, {"metadata": metadata, "spec": spec})

    def _delete_one(self, kind: Kind) -> None:
        names = self._names(kind)
        if names:
            name = self.rng.choice(names)
            self.embedded.store.delete(kind, "default" if kind.namespaced else "", name)

    def delete_pod(self) -> None:
        self._delete_one(PODS)

    def delete_claim(self) -> None:
        self._delete_one(RESOURCE_CLAIMS)

    def delete_slice(self) -> None:
        self._delete_one(RESOURCE_SLICES)

    def taint(self) -> None:
        text = self.rng.choice((DEVICES, TAINTED))
        name = self.rng.choice(self._names(NODES))
        body = {"metadata": {"annotations": {DEVICES_ANNOTATION: text}}}
        self.embedded.store.patch(NODES, "", name, body, patch_type=MERGE_PATCH)

    def api_fault(self) -> None:
        rng, faults = self.rng, self.embedded.faults
        verb: Any = rng.choice(("patch", "patch", "create", "delete", "bind", "update", "get"))
        conflict = lambda: ApiError(409, "Conflict", "injected")  # noqa: E731 - a factory of errors
        error: Any = rng.choice((server_error, connection_lost, conflict))
        faults.fail(verb, error=error, when=rng.choice(("before", "after")), times=rng.randint(1, 3))

    def slow_api(self) -> None:
        verb: Any = self.rng.choice(("patch", "create", "bind"))
        self.embedded.faults.delay(
            verb, self.rng.choice((0.1, 2.0)), when=self.rng.choice(("before", "after")), times=3
        )

    def watch_fault(self) -> None:
        rng, faults = self.rng, self.embedded.faults
        kind = rng.choice((RESOURCE_CLAIMS, RESOURCE_CLAIMS, RESOURCE_SLICES, PODS))
        draw = rng.random()
        if draw < 0.15:
            faults.drop_watches()
        elif draw < 0.3:
            faults.expire_watches()
        elif draw < 0.45:
            faults.stall(rng.choice((0.5, 10.0)), kind=kind)
        else:
            trouble: Any = rng.choice(("duplicate", "stale", "reorder", "lose"))
            faults.disturb(trouble, kind=kind, times=rng.randint(1, 4))

    async def step(self) -> None:
        deeds = (
            (self.new_pod, 10),
            (self.delete_pod, 4),
            (self.delete_claim, 1),
            (self.delete_slice, 1),
            (self.taint, 1),
            (self.api_fault, 3),
            (self.slow_api, 1),
            (self.watch_fault, 3),
        )
        for _ in range(self.rng.randint(1, 3)):
            self.rng.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])[0]()
        await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.002, 0.1, 1.0, 6.0)))
        if self.rng.random() < 0.04:
            await self.restart()
        self.check_store()

    # -- what must hold --------------------------------------------------------------------------------

    def check_store(self) -> None:
        claims = [item.typed for item in self.embedded.store.list(RESOURCE_CLAIMS).items]
        slices = [item.typed for item in self.embedded.store.list(RESOURCE_SLICES).items]
        assert check_allocations(claims, slices) == []

    def check_placed(self) -> None:
        """Every pod that runs has its claims, allocated where it is and reserved for it."""
        store = self.embedded.store
        for pod in self.embedded.pods():
            if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
                continue
            extended = pod.status.extended_resource_claim_status
            for name in claims_of(pod):
                if extended is not None and name not in self._names(RESOURCE_CLAIMS):
                    # The answer to the binding was lost, and the claim deleted again, as upstream does.
                    continue
                claim = store.get(RESOURCE_CLAIMS, "default", name).typed
                assert claim.status.allocation is not None, (pod.name, name)
                assert pod.uid in {one.uid for one in claim.status.reserved_for}, (pod.name, name)
                assert {one.pool for one in claim.status.allocation.devices.results} == {pod.spec.node_name}

    def check_memory(self) -> None:
        assert self.embedded.check() == []
        manager = self.embedded.scheduler.frameworks["default-scheduler"].plugins["DynamicResources"]._manager
        assert len(manager.in_flight) == 0
        assert list(manager.claims.assumed()) == []

    async def end_well(self) -> None:
        """Nothing fails any more, and what watches have lost is listed again; then there is room for everything."""
        self.embedded.faults.clear()
        for name in self._names(NODES):
            body = {"metadata": {"annotations": {DEVICES_ANNOTATION: DEVICES}}}
            self.embedded.store.patch(NODES, "", name, body, patch_type=MERGE_PATCH)
        await asyncio.sleep(70)  # longer than any watch rests before it is opened again
        self.embedded.faults.expire_watches()
        await asyncio.sleep(70)
        await self.settle(200)
        self.check_store()
        self.check_placed()
        self.add_nodes(40, start=10, devices=DEVICES.replace("count: 2", "count: 6"))
        await asyncio.sleep(20)  # pods in backoff
        await self.settle(900)
        self.check_store()
        self.check_placed()
        waiting = [pod for pod in self.embedded.pods() if not pod.spec.node_name]
        assert [pod.name for pod in waiting if self._could_run(pod)] == []
        for name in self._names(PODS):
            self.embedded.store.delete(PODS, "default", name)
        await self.settle(900)
        self.check_memory()
        left = [item.typed for item in self.embedded.store.list(RESOURCE_CLAIMS).items]
        assert [claim.key for claim in left if claim.metadata.owner_references or claim.status.reserved_for] == []

    def _could_run(self, pod: Pod) -> bool:
        """Return True if nothing but devices was missing: its named claims exist, and can be satisfied together."""
        named = {claim.resource_claim_name for claim in pod.spec.resource_claims if claim.resource_claim_name}
        if not named <= set(self._names(RESOURCE_CLAIMS)):
            return False
        pools = set()
        for name in named:
            allocation = self.embedded.store.get(RESOURCE_CLAIMS, "default", name).typed.status.allocation
            if allocation is not None:
                pools |= {result.pool for result in allocation.devices.results}
        return not pools  # a shared claim ties the pod to a node, which may be full


def seeds() -> list[int]:
    if seed := os.environ.get("KUBESCHED_SEED"):
        return [int(seed)]
    return list(range(int(os.environ.get("KUBESCHED_SEEDS", "12"))))


@pytest.mark.parametrize("seed", seeds())
def test_a_bad_day_for_devices_breaks_no_invariant(seed: int, tmp_path: Path) -> None:
    async def main() -> None:
        day = Day(seed, tmp_path)
        day.set_up()
        await day.embedded.start()
        try:
            for _ in range(50):
                await day.step()
            await day.end_well()
        finally:
            await day.embedded.stop()

    try:
        run_virtual(main())
    except BaseException:
        print(f"reproduce: KUBESCHED_SEED={seed} pytest {__file__}")  # noqa: T201 - shown with the failure
        raise

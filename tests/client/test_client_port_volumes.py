"""The port's writes for storage: what changes of a volume or a claim, and what a version that is not current leads to."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from msgspec.structs import replace

from kubesched.api.kinds import CLAIMS, VOLUMES
from kubesched.api.storage import BOUND_BY_CONTROLLER, SELECTED_NODE
from kubesched.api.types import ObjectReference
from kubesched.api.wire import ApiError
from kubesched.client.port import ApiPort
from kubesched.cluster.store.inprocess import InProcessClient
from kubesched.cluster.store.store import Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual

REFERENCE = ObjectReference(
    api_version="v1", kind="PersistentVolumeClaim", namespace="default", name="c", uid="u", resource_version="7"
)


def a_store() -> tuple[Store, ApiPort]:
    clock = VirtualClock(asyncio.get_running_loop())
    store = Store(clock, random=Random(1), auto_namespaces=True)
    return store, ApiPort(InProcessClient(store), clock=clock, rng=Random(1))


def test_a_volume_gets_its_claim_and_keeps_everything_else() -> None:
    async def main() -> None:
        store, port = a_store()
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/p"}}
        volume = store.create(VOLUMES, "", {"metadata": {"name": "v", "annotations": {"a": "b"}}, "spec": spec}).typed
        marked = replace(volume.metadata, annotations={"a": "changed", BOUND_BY_CONTROLLER: "yes"})
        wanted = replace(volume, spec=replace(volume.spec, claim_ref=REFERENCE), metadata=marked)
        written = await port.bind_volume(wanted)
        assert written.spec.claim_ref == REFERENCE
        data = store.get(VOLUMES, "", "v").data()
        assert data["spec"]["nfs"] == {"server": "s", "path": "/p"}
        assert data["metadata"]["annotations"] == {"a": "b", BOUND_BY_CONTROLLER: "yes"}, "only what was decided"
        assert (
            written.metadata.resource_version == data["metadata"]["resourceVersion"] != volume.metadata.resource_version
        )
        # Another writer was faster: of the old version nothing is written.
        other = replace(REFERENCE, name="other", uid="w")
        with pytest.raises(ApiError) as refused:
            await port.bind_volume(replace(wanted, spec=replace(volume.spec, claim_ref=other)))
        assert refused.value.code == 409
        assert store.get(VOLUMES, "", "v").typed.spec.claim_ref == REFERENCE
        assert port.requests == {("PATCH", "200"): 1, ("PATCH", "409"): 1}

    run_virtual(main())


def test_a_claim_gets_its_node_and_a_successor_of_the_same_name_does_not() -> None:
    async def main() -> None:
        store, port = a_store()
        body = {
            "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        claim = store.create(CLAIMS, "default", body).typed
        wanted = replace(claim, metadata=replace(claim.metadata, annotations={SELECTED_NODE: "n1"}))
        written = await port.select_node(wanted)
        assert written.metadata.annotations == {SELECTED_NODE: "n1"}
        assert written.spec == claim.spec
        store.delete(CLAIMS, "default", "c", grace_period_seconds=0)
        with pytest.raises(ApiError) as gone:
            await port.select_node(wanted)
        assert gone.value.code == 404
        store.create(CLAIMS, "default", body)
        with pytest.raises(ApiError) as another:
            await port.select_node(wanted)
        assert another.value.code == 409

    run_virtual(main())

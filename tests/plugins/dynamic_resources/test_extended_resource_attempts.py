"""Attempts of pods with extended resources that a device class serves: the claim that is made, and left behind."""

from __future__ import annotations

import asyncio

import pytest
from dra_kit import claim, device_class, pod, results
from plugin_kit import House, message, post_filter, scenario

from kubesched.api.wire import ApiError

GPU = "example.com/gpu"


def test_a_claim_is_made_for_extended_resources() -> None:
    async def main() -> None:
        house = House(nodes=1, resource=GPU)
        attempt = house.decide(pod("p", requests={GPU: "2"}))
        assert house.in_use() == ["n1/gpu-0", "n1/gpu-1"]
        assert await house.bind(attempt) is None
        (stored,) = house.server.claims.values()
        assert stored.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
        assert house.devices(stored.metadata.name) == ["n1/gpu-0", "n1/gpu-1"]
        mapping = {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"}
        written = {"resourceClaimName": stored.metadata.name, "requestMappings": [mapping]}
        assert house.server.patches[-1]["status"] == {"extendedResourceClaimStatus": written}
        assert house.metrics.resourceclaim_creates_total.labels("success").value == 1
        assert (house.in_use(), len(house.manager.in_flight)) == (["n1/gpu-0", "n1/gpu-1"], 0)

    scenario(main)


@pytest.mark.parametrize("operation", ["create", "patch", "patch pod"])
def test_a_claim_for_extended_resources_is_deleted_when_the_attempt_fails(operation: str) -> None:
    async def main() -> None:
        house = House(nodes=1, resource=GPU)
        attempt = house.decide(pod("p", requests={GPU: "1"}))
        house.server.failures.append((operation, ApiError(403, "Forbidden", "not allowed")))
        status = await house.bind(attempt)
        assert status is not None
        await house.settle()
        assert (house.server.claims, house.in_use(), len(house.manager.in_flight)) == ({}, [], 0)

    scenario(main)


def test_a_claim_that_was_left_behind_is_deleted() -> None:
    async def main() -> None:
        house = House(nodes=1, resource=GPU)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
        metadata = {
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [owner],
            "finalizers": ["resource.kubernetes.io/delete-protection"],
        }
        house.server.put(claim("left", allocation=results("gpu-0"), metadata=metadata))
        asking = pod("p", requests={GPU: "1"})
        assert message(house, asking) == "0/1 nodes are available: 1 cannot schedule extended resource claim."
        house.server.late = True
        assert await post_filter(house, asking) == ("Unschedulable", "deletion of ResourceClaim completed")
        assert (house.server.claims, house.activated) == ({}, [])
        house.objects.remove("resourceclaims", "default/left")
        assert house.activated == ["default/p"]  # tried again when the claim is seen to be gone
        assert house.decide(asking)[2] == "n1"

    scenario(main)


def test_the_informer_may_show_a_made_claim_late() -> None:
    async def main() -> None:
        house = House(nodes=1, resource=GPU)
        house.server.late = True
        binding = asyncio.create_task(house.bind(house.decide(pod("p", requests={GPU: "1"}))))
        await asyncio.sleep(30)
        assert not binding.done()
        assert house.in_use() == ["n1/gpu-0"]
        house.server.show(house.server.history[0])
        assert await binding is None
        assert (house.in_use(), len(house.manager.in_flight)) == (["n1/gpu-0"], 0)

    scenario(main)


def test_a_class_that_comes_or_goes_is_seen_by_the_next_attempt() -> None:
    async def main() -> None:
        house = House(nodes=1)
        asking = pod("p", requests={GPU: "1"})
        house.decide(asking)  # NodeResourcesFit would say no; this plugin has nothing to do
        assert house.in_use() == []
        house.objects.put("deviceclasses", "gpu", device_class("gpu", GPU))
        house.decide(asking)
        assert house.in_use() == ["n1/gpu-0"]

    scenario(main)

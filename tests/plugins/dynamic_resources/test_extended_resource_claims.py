"""The claim that is made up for extended resources: requests, and which container they serve."""

from __future__ import annotations

from typing import Any

import pytest
from dra_kit import pod

from kubesched.api.types import Pod
from kubesched.scheduler.plugins.dynamic_resources.extended_resources import is_in_memory, made_up_claim, requests_for

GPU, NIC = "example.com/gpu", "example.com/nic"


def container(name: str, restart: str | None = None, **requests: Any) -> dict[str, Any]:
    named = {{"gpu": GPU, "nic": NIC}.get(key, key): value for key, value in requests.items()}
    found: dict[str, Any] = {"name": name, "image": "app", "resources": {"requests": named}}
    return found if restart is None else {**found, "restartPolicy": restart}


def of(init: list[dict[str, Any]], regular: list[dict[str, Any]], classes: dict[str, str]) -> tuple[Any, Any]:
    """Request name to (class, count), and the mappings as (container, resource, request)."""
    asking: Pod = pod(initContainers=init, containers=regular)
    found = requests_for(made_up_claim(asking, "uid-special"), asking, classes)
    requests = found.claim.spec.devices.requests
    assert [request.name for request in requests] == sorted(request.name for request in requests)
    assert {request.exactly.allocation_mode for request in requests if request.exactly} <= {"ExactCount"}
    asked = {each.name: (each.exactly.device_class_name, each.exactly.count) for each in requests if each.exactly}
    return asked, [(each.container_name, each.resource_name, each.request_name) for each in found.mappings]


def test_the_claim_in_memory() -> None:
    claim = made_up_claim(pod("p"), "uid-special")
    meta = claim.metadata
    assert is_in_memory(claim)
    assert (meta.name, meta.generate_name, meta.namespace) == (
        "<extended-resources>", "p-extended-resources-", "default",
    )  # fmt: skip
    assert meta.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    (owner,) = meta.owner_references
    assert (owner.api_version, owner.kind, owner.name, owner.uid, owner.controller) == ("v1", "Pod", "p", "uid-p", True)
    assert not claim.spec.devices.requests


def test_each_lasting_container_has_a_request_of_its_own() -> None:
    asked, mappings = of(
        [container("side", "Always", gpu="1")],
        [container("a", cpu="1", gpu="2", nic="1"), container("b", nic=3)],
        {NIC: "nics", GPU: "gpus"},
    )
    assert asked == {
        "container-0-request-0": ("gpus", 1),
        "container-1-request-1": ("gpus", 2),
        "container-1-request-2": ("nics", 1),
        "container-2-request-0": ("nics", 3),
    }
    assert mappings == [
        ("side", GPU, "container-0-request-0"),
        ("a", GPU, "container-1-request-1"),
        ("a", NIC, "container-1-request-2"),
        ("b", NIC, "container-2-request-0"),
    ]


def test_an_init_container_uses_the_devices_of_those_that_run_later() -> None:
    asked, mappings = of([container("init", gpu="3")], [container("a", gpu="2"), container("b", gpu="2")], {GPU: "g"})
    assert asked == {"container-1-request-0": ("g", 2), "container-2-request-0": ("g", 2)}
    assert mappings[2:] == [("init", GPU, "container-1-request-0"), ("init", GPU, "container-2-request-0")]


def test_a_sidecar_that_started_before_keeps_its_devices() -> None:
    asked, mappings = of(
        [container("side", "Always", gpu="2"), container("init", gpu="1")], [container("a")], {GPU: "g"}
    )
    assert asked == {"container-0-request-0": ("g", 2), "container-1-request-0": ("g", 1)}
    assert mappings[1:] == [("init", GPU, "container-1-request-0")]


def test_what_init_containers_lack_is_requested_once_for_the_one_that_lacks_most() -> None:
    asked, mappings = of(
        [container("first", gpu="2"), container("second", gpu="4"), container("third", gpu="4")],
        [container("a", gpu="1")],
        {GPU: "g"},
    )
    assert asked == {"container-1-request-0": ("g", 3), "container-3-request-0": ("g", 1)}
    shared = {
        ("first", "container-1-request-0"),
        ("second", "container-1-request-0"),
        ("third", "container-1-request-0"),
    }
    assert {(name, request) for name, _, request in mappings if request == "container-1-request-0"} == shared


@pytest.mark.parametrize("amount", ["0", "1500m", 0])
def test_amounts_that_are_no_whole_number_are_left_out(amount: Any) -> None:
    assert of([], [container("a", gpu=amount)], {GPU: "g"}) == ({}, [])


def test_only_resources_that_devices_serve_are_requested() -> None:
    asked, _ = of([], [container("a", gpu="1", nic="1")], {NIC: "n"})
    assert asked == {"container-0-request-1": ("n", 1)}

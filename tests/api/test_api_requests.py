"""Requests of pods: the worked examples of the specification, and the vector the amounts end in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import MIB, a_container, a_pod
from kubesched.api.quantity import Quantity, QuantityError
from kubesched.api.requests import (
    Resources,
    container_requests_with_defaults,
    is_extended_resource,
    is_scalar_resource,
    nonzero_requests,
    pod_request_amounts,
    pod_requests,
)
from kubesched.api.types import ContainerStatus, Pod, PodCondition, PodStatus, ResourceRequirements

MAIN = {"cpu": "500m", "memory": "500Mi"}
INIT = {"cpu": "700m", "memory": "800Mi"}


def resized(
    reason: str = "",
    *,
    status: dict[str, Any] | None = None,
    allocated: dict[str, Any] | None = None,
    spec: Any = None,
    init: bool = False,
) -> Pod:
    """A pod whose container's status says something else than its spec."""
    found = ContainerStatus(
        name="c",
        resources=None if status is None else ResourceRequirements(requests=status),
        allocated_resources=allocated or {},
    )
    container = a_container("c", INIT if spec is None else spec, always=init)
    return a_pod(
        containers=[] if init else [container],
        init=[container] if init else [],
        status=PodStatus(
            container_statuses=() if init else (found,),
            init_container_statuses=(found,) if init else (),
            conditions=(PodCondition(type="PodResizePending", reason=reason),) if reason else (),
        ),
    )


def level(spec: dict[str, Any], status: dict[str, Any] | None, reason: str = "") -> Pod:
    """A pod with pod-level requests in spec and status."""
    pod = a_pod(pod_level=spec, cpu="1")
    conditions = (PodCondition(type="PodResizePending", reason=reason),) if reason else ()
    resources = None if status is None else ResourceRequirements(requests=status)
    return msgspec.structs.replace(pod, status=PodStatus(resources=resources, conditions=conditions))


EMPTY = a_container()
TABLE: list[tuple[str, Pod, tuple[int, int], tuple[int, int]]] = [
    # name, pod, requested (milli-CPU, MiB), non-zero (the same)
    ("one container, no requests", a_pod(), (0, 0), (100, 200)),
    ("an ordinary init container", a_pod(requests=MAIN, init=[a_container("i", INIT)]), (700, 800), (700, 800)),
    ("a sidecar behind it", a_pod(requests=MAIN, init=[a_container("i", INIT), a_container("s", INIT, always=True)]), (1200, 1300), (1200, 1300)),
    ("a sidecar before it", a_pod(requests=MAIN, init=[a_container("s", INIT, always=True), a_container("i", INIT)]), (1400, 1600), (1400, 1600)),
    ("two sidecars add up", a_pod(requests=MAIN, init=[a_container("s", INIT, always=True), a_container("t", INIT, always=True)]), (1900, 2100), (1900, 2100)),
    ("two containers, only one with cpu", a_pod(containers=[a_container("a", {"cpu": "500m"}), a_container("b")]), (500, 0), (600, 400)),
    ("pod-level memory, empty containers", a_pod(pod_level={"memory": "1200Mi"}, init=[a_container("i")]), (0, 1200), (100, 1200)),
    ("pod-level memory, cpu in a container", a_pod(pod_level={"memory": "1200Mi"}, containers=[a_container("a", {"cpu": "500m"}), a_container("b")]), (500, 1200), (500, 1200)),
    ("an infeasible resize", resized("Infeasible", status=MAIN), (500, 500), (500, 500)),
    ("a deferred resize", resized("Deferred", status=MAIN), (700, 800), (700, 800)),
    ("an infeasible resize of a container that had no cpu", resized("Infeasible", status={"memory": "500Mi"}), (0, 500), (100, 500)),
    ("a resize going on", resized(status={"cpu": "900m", "memory": "1Mi"}), (900, 800), (900, 800)),
    ("allocated resources count", resized(status=MAIN, allocated={"cpu": "2"}), (2000, 800), (2000, 800)),
    ("not without resources in the status", resized(allocated={"cpu": "2"}), (700, 800), (700, 800)),
    ("a sidecar's status counts", resized(status={"cpu": "2"}, init=True), (2000, 800), (2000, 800)),
    ("an explicit zero is an entry", a_pod(requests={"cpu": "0", "memory": "0"}), (0, 0), (0, 0)),
    ("only cpu missing", a_pod(requests={"memory": "1Mi"}), (0, 1), (100, 1)),
    ("overhead is added", a_pod(requests=MAIN, overhead={"cpu": "50m", "memory": "1Mi"}), (550, 501), (550, 501)),
    ("overhead fills no gap", a_pod(overhead={"cpu": "50m"}), (50, 0), (150, 200)),
    ("pod level replaces, also when smaller", a_pod(requests=MAIN, pod_level={"cpu": "100m"}), (100, 500), (100, 500)),
    ("overhead on top of pod level", a_pod(pod_level={"cpu": "1", "memory": "2Mi"}, overhead={"cpu": "50m"}), (1050, 2), (1050, 2)),
    ("unsupported pod-level names alone do not count", a_pod(pod_level={"ephemeral-storage": "1"}), (0, 0), (100, 200)),
    ("pod-level status", level({"cpu": "2"}, {"cpu": "3"}), (3000, 0), (3000, 200)),
    ("pod-level status of an infeasible resize", level({"cpu": "4"}, {"cpu": "3"}, "Infeasible"), (3000, 0), (3000, 200)),
    ("no containers at all", a_pod(containers=[]), (0, 0), (0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "pod", "requested", "nonzero"), TABLE)
def test_pod_requests(name: str, pod: Pod, requested: tuple[int, int], nonzero: tuple[int, int]) -> None:
    total = pod_requests(pod)
    assert (total.milli_cpu, total.memory) == (requested[0], requested[1] * MIB), name
    cpu, memory = nonzero_requests(pod, total)
    assert (cpu, memory) == (nonzero[0], nonzero[1] * MIB)
    amounts = pod_request_amounts(pod)
    assert amounts.get("cpu", Quantity(0)).milli() == total.milli_cpu


def test_an_incoming_pod_is_filtered_by_its_spec() -> None:
    assert pod_requests(resized(status={"cpu": "9"}), status_aware=False).milli_cpu == 700
    assert pod_requests(level({"cpu": "2"}, {"cpu": "3"}), status_aware=False).milli_cpu == 2000


def test_an_incoming_pod_is_scored_by_its_containers() -> None:
    """Upstream quirk Q1, kept."""
    scored = container_requests_with_defaults(a_pod(pod_level={"cpu": "2"}, containers=[EMPTY, EMPTY]))
    assert (scored.milli_cpu, scored.memory) == (200, 400 * MIB)
    assert container_requests_with_defaults(a_pod(requests=MAIN)).milli_cpu == 500
    assert container_requests_with_defaults(a_pod(requests={"cpu": "0"})).memory == 200 * MIB


def test_hugepages_at_pod_level_replace_those_of_containers() -> None:
    pod = a_pod(pod_level={"hugepages-2Mi": "4Mi"}, requests={"hugepages-2Mi": "2Mi", "ephemeral-storage": "7"})
    total = pod_requests(pod)
    assert (total.scalars, total.ephemeral_storage) == ({"hugepages-2Mi": 4 * MIB}, 7)


def test_sums_are_rounded_once_and_up() -> None:
    thirds = [a_container(name, {"cpu": "300u", "memory": "300m"}) for name in "abc"]
    total = pod_requests(a_pod(containers=thirds))
    assert (total.milli_cpu, total.memory) == (1, 1)


def test_a_request_that_is_no_quantity_is_refused() -> None:
    for pod in (a_pod(cpu="much"), a_pod(overhead={"cpu": "much"}), a_pod(init=[a_container("i", {"memory": "much"})])):
        with pytest.raises(QuantityError, match="'much' is not a quantity"):
            pod_requests(pod)


KINDS = [
    # name, extended, scalar
    ("cpu", False, False), ("storage", False, False), ("example.com/gpu", True, True), ("kubernetes.io/x", False, True),
    ("x.kubernetes.io/y", False, True), ("hugepages-2Mi", False, True), ("attachable-volumes-csi", False, True), ("requests.example.com/gpu", False, False),
    ("gpu", False, False), ("example.com/", False, False), ("Example.com/gpu", False, False), ("a/b/c", False, False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "extended", "scalar"), KINDS)
def test_kinds_of_resources(name: str, extended: bool, scalar: bool) -> None:
    assert (is_extended_resource(name), is_scalar_resource(name)) == (extended, scalar)


def test_a_vector_reads_a_resource_list() -> None:
    listed: dict[str, str | int | float] = {
        "cpu": "1500u", "memory": "100m", "ephemeral-storage": 3, "pods": "110", "example.com/gpu": 0, "storage": "1Ti", "weird": 5,
    }  # fmt: skip
    vector = Resources.from_list(listed)
    assert vector == Resources(2, 1, 3, 110, {"example.com/gpu": 0})
    assert vector == Resources.from_amounts({name: Quantity.parse(text) for name, text in listed.items()})
    names = ("cpu", "memory", "ephemeral-storage", "pods", "example.com/gpu", "weird")
    assert [vector.get(name) for name in names] == [2, 1, 3, 110, 0, 0]
    assert vector.as_tuple() == (2, 1, 3, (("example.com/gpu", 0),))
    assert vector != Resources(2, 1, 3, 111, {"example.com/gpu": 0})
    assert vector != Resources(2, 1, 3, 110)
    assert (
        repr(vector)
        == "Resources(milli_cpu=2, memory=1, ephemeral_storage=3, allowed_pods=110, scalars={'example.com/gpu': 0})"
    )


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.sampled_from(["0", "1m", "1500u", "1", "2Gi"]), max_size=3
)


@given(amounts, amounts)
def test_the_short_way_for_plain_pods_is_the_long_way(asked: dict[str, str], more: dict[str, str]) -> None:
    """A pod with one container takes a shortcut; with an init container without requests it cannot."""
    plain = a_pod(requests=asked)
    long_way = a_pod(requests=asked, init=[a_container("i", {"cpu": "0", "memory": "0"})])
    total, other = pod_requests(plain), pod_requests(long_way)
    assert (total.milli_cpu, total.memory) == (other.milli_cpu, other.memory)
    assert total.scalars == other.scalars
    assert nonzero_requests(plain, total) == nonzero_requests(long_way, other)
    two = pod_requests(a_pod(containers=[a_container("a", asked), a_container("b", more)]))
    assert two == pod_requests(a_pod(containers=[a_container("b", more), a_container("a", asked)]))

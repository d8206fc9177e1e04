"""Objects that no API server should accept: they are reported, and other pods are not affected."""

from __future__ import annotations

from typing import Any

import pytest
from harness import NODES, PODS, World, a_node, a_pod, play


def asking(amount: Any, resource: str = "cpu") -> Any:
    def edit(pod: dict[str, Any]) -> None:
        pod["spec"]["containers"][0]["resources"] = {"requests": {resource: amount}}

    return edit


def offering(amount: Any, resource: str = "cpu") -> Any:
    def edit(node: dict[str, Any]) -> None:
        node["status"]["allocatable"][resource] = amount

    return edit


@pytest.mark.parametrize("amount", ["lots", "1Q", "", "0x10", "1e", "--1", "\uff11"], ids=repr)
def test_a_pod_with_a_malformed_request_is_reported_and_left_out(amount: str) -> None:
    async def scenario(world: World) -> None:
        world.nodes(1)
        await world.step()
        world.smuggle(PODS, a_pod("bad"), asking(amount))
        world.create(a_pod("good"))
        await world.sleep(1)
        assert world.node_of("good") == "n1"
        assert world.node_of("bad") == ""
        (note,) = world.notes("bad")
        assert note.startswith("the pod cannot be scheduled as it is: ")
        world.change(PODS, "bad", asking("100m"))
        await world.settle()
        assert world.node_of("bad") == "n1"

    play(scenario, expect_errors=["cannot queue pod default/bad"])


@pytest.mark.parametrize("amount", ["1e18", "9999999999999999999999", "8E", "-5", "1e-30"], ids=repr)
def test_absurd_requests_are_only_numbers(amount: str) -> None:
    async def scenario(world: World) -> None:
        world.nodes(2)
        world.smuggle(PODS, a_pod("odd"), asking(amount))
        world.smuggle(PODS, a_pod("odd2"), asking(amount, "memory"))
        world.smuggle(PODS, a_pod("odd3"), asking(amount, "example.com/device"))
        world.create(*(a_pod(f"p{number}") for number in range(4)))
        await world.sleep(2)
        assert all(world.node_of(f"p{number}") for number in range(4))
        for name in ("odd", "odd2", "odd3"):
            world.delete(name, grace_period_seconds=0)  # a negative request is an error, retried without end

    play(scenario)


@pytest.mark.parametrize("resource", ["cpu", "memory", "pods", "example.com/device"])
def test_a_node_with_a_malformed_capacity_is_left_out_until_it_is_fixed(resource: str) -> None:
    async def scenario(world: World) -> None:
        world.smuggle(NODES, a_node("bad", "8"), offering("lots", resource))
        world.nodes(1, "1")
        await world.step()
        world.create(a_pod("big", "4"), a_pod("small", "500m"))
        await world.settle()
        assert world.node_of("small") == "n1"
        assert world.condition("big").message == "0/1 nodes are available: 1 Insufficient cpu."
        world.change(NODES, "bad", offering("8", resource))
        took = await world.until(lambda: world.node_of("big"), "the big pod", 11)
        assert took < 11
        # Bad again: what was known before stays in force; then right again, and bigger.
        world.change(NODES, "bad", offering("lots", resource))
        await world.sleep(1)
        world.create(a_pod("big2", "7"))
        await world.sleep(1)
        assert world.where("big2") == "Unschedulable"
        world.change(NODES, "bad", lambda node: node["status"]["allocatable"].update({resource: "20", "cpu": "20"}))
        await world.until(lambda: world.node_of("big2"), "the second big pod", 11)
        await world.settle()

    play(scenario, expect_errors=["cannot ingest node bad"])


def test_a_malformed_node_that_goes_leaves_nothing() -> None:
    async def scenario(world: World) -> None:
        world.smuggle(NODES, a_node("bad"), offering("lots"))
        await world.step()
        world.delete_node("bad")
        await world.settle()
        assert not list(world.scheduler.cache.table.all_infos())

    play(scenario, expect_errors=["cannot ingest node bad", "?cannot remove node"])


@pytest.mark.parametrize("status", [{}, {"allocatable": {}}, {"allocatable": {"cpu": "0"}}], ids=repr)
def test_a_node_without_capacity_takes_no_pod(status: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        world.smuggle(NODES, a_node("empty"), lambda node: node.update(status=status))
        world.create(a_pod("p", None), a_pod("q"))
        await world.settle()
        assert world.condition("p").message == "0/1 nodes are available: 1 Too many pods."
        assert world.condition("q").message == "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods."
        world.nodes(1)
        await world.settle()
        assert world.node_of("p") == world.node_of("q") == "n1"

    play(scenario)


def test_a_pod_on_a_node_that_becomes_malformed_and_right_again_stays_accounted() -> None:
    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.create(a_pod("p", "600m"))
        await world.settle()
        world.change(PODS, "p", asking("lots"))
        await world.sleep(1)
        world.create(a_pod("q", "600m"))
        await world.settle()
        assert world.where("q") == "Unschedulable"
        world.change(PODS, "p", asking("300m"))
        await world.settle()
        assert world.node_of("q") == "n1"

    play(scenario, expect_errors=["cannot update pod default/p in the cache"])


def test_a_pod_first_seen_malformed_on_a_node_is_accounted_once_it_is_right() -> None:
    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        await world.step()
        world.smuggle(PODS, a_pod("p", nodeName="n1"), asking("lots"))
        await world.sleep(1)
        world.change(PODS, "p", asking("600m"))
        await world.sleep(1)
        assert world.scheduler.cache.table.info(0).requested.milli_cpu == 600
        world.create(a_pod("q", "600m"))
        await world.settle()
        assert world.where("q") == "Unschedulable"
        world.delete("p", grace_period_seconds=0)
        await world.settle()
        assert world.node_of("q") == "n1"

    play(scenario, expect_errors=["cannot add pod default/p to the cache"])


def test_a_pod_spoilt_while_its_attempt_is_under_way_is_tried_as_it_was() -> None:
    async def scenario(world: World) -> None:
        world.nodes(1)
        world.faults.delay("bind", 2, times=1)
        world.faults.fail("bind", times=1)
        world.create(a_pod("p"))
        await world.sleep(1)
        world.change(PODS, "p", asking("lots"))
        await world.sleep(2)
        world.check_always()
        world.change(PODS, "p", asking("200m"))
        await world.settle()
        assert world.node_of("p") == "n1"

    errors = ["?cannot queue pod", "?is tried again as it was before"]
    play(scenario, expect_errors=errors)


@pytest.mark.parametrize("kind", [PODS, NODES], ids=["pod", "node"])
def test_an_object_that_cannot_be_decoded_is_skipped(kind: Any) -> None:
    async def scenario(world: World) -> None:
        world.nodes(1)
        await world.step()
        made = world.create(a_pod("odd") if kind == PODS else a_node("odd"))[0]
        field = "containers" if kind == PODS else "taints"
        world.change(kind, "odd", lambda data: data["spec"].update({field: "what?"}), made.namespace)
        world.create(a_pod("good"))
        await world.sleep(1)
        assert world.node_of("good") == "n1"
        world.store.delete(kind, made.namespace, "odd", grace_period_seconds=0)
        await world.sleep(1)
        await world.settle()

    play(scenario, expect_errors=["odd .* skipped"])

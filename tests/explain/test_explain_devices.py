"""Explanations of devices: pods whose eviction frees them, and the parts of a request with alternatives."""

from __future__ import annotations

from typing import Any

from explain_kit import a_claim, a_class, a_house, a_slice, explained, helps, texts, uses

from builders import a_node
from kubesched.explain.groups import _eviction_hint
from kubesched.explain.report import EvictionReport


def part(name: str, count: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **more}


def test_the_fewest_pods_whose_claims_free_enough_devices_are_proposed() -> None:
    shared, own = (a_claim("s", held=["gpu-0"], users=["a", "b"]), a_claim("c", held=["gpu-1"], users=["c"]))
    pods = [uses(claim, name=name, uid=name, on="n1") for claim, name in (("s", "a"), ("s", "b"), ("c", "c"))]
    house = a_house([a_node("n1"), a_node("n2")], pods, [a_class(), a_slice("n1", 2), shared, own, a_claim("new")])
    found = explained(house, uses("new", name="new")).evictions
    assert found is not None
    assert (found.node, found.pods, found.frees) == ("n1", ("ns/c",), ("claim ns/c",))
    # The trial has left no trace.
    assert explained(house, uses("new", name="new")).evictions == found


def test_the_pod_that_keeps_a_claim_on_another_node_is_proposed() -> None:
    claim = a_claim("c", held=["gpu-0"], users=["a"])
    nodes = [a_node("n1", unschedulable=True), a_node("n2")]
    objects = [a_class(), a_slice("n1", 1), a_slice("n2", 1), claim]
    house = a_house(nodes, [uses("c", name="a", uid="a", on="n1")], objects)
    found = explained(house, uses("c", name="new")).evictions
    assert found is not None
    assert (found.node, found.pods, found.nodes, found.frees) == ("n2", ("ns/a",), ("n1",), ("claim ns/c",))


def test_what_evictions_free_is_said() -> None:
    report = EvictionReport(node="n1", pods=["ns/c"], of=3, nodes=["n1"], frees=["claim ns/c"])
    assert _eviction_hint(report) == (
        "remove ns/c from n1 (1 of its 3 pods), which frees claim ns/c: it would fit there"
    )


def test_each_part_of_a_request_has_its_numbers_and_the_smallest_change_of_any_is_proposed() -> None:
    selectors = [{"cel": {"expression": "false"}}]
    requests = [{"name": "gpu", "firstAvailable": [part("many", 3), part("none", 1, selectors=selectors)]}]
    house = a_house([a_node("n1")], [], [a_class(), a_slice("n1", 2), a_claim("c", requests=requests)])
    found = explained(house, uses("c"))
    assert texts(found) == [
        "claim c, request gpu: many asks for 3 devices of class gpu; n1 has 2 that match, 2 free; or "
        "none asks for 1 device of class gpu that false; none matches, but n1 has 2 of the class"
    ]
    assert helps(found) == [(("ask for 2 devices instead of 3 in request gpu/many of claim c",), 1)]
    assert found.obstacles.found[0].data["firstAvailable"] == [
        {"request": "gpu/many", "deviceClass": "gpu", "count": 3},
        {"request": "gpu/none", "deviceClass": "gpu", "count": 1},
    ]


def test_a_selector_of_one_part_is_dropped_where_no_smaller_change_of_another_helps() -> None:
    selectors = [{"cel": {"expression": "false"}}]
    requests = [{"name": "gpu", "firstAvailable": [part(name, 1, selectors=selectors) for name in ("a", "b")]}]
    house = a_house([a_node("n1")], [], [a_class(), a_slice("n1", 2), a_claim("c", requests=requests)])
    assert helps(explained(house, uses("c"))) == [(("drop the selector false of request gpu/a of claim c",), 1)]

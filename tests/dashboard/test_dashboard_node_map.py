"""Columns of nodes and their increments: a page that follows the changes shows what a page that was just opened shows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_kit import Page

from builders import a_node, a_pod, a_taint
from kubesched.api.resource import (
    AllocationResult,
    Device,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kubesched.api.types import ObjectMeta
from kubesched.base.turns import finish
from kubesched.dashboard.devices import DeviceCounts
from kubesched.dashboard.node_map import MOST_LABELS, MOST_RESOURCES, NodeMap
from kubesched.dashboard.schema import Change, NodeColumns, QueueCounts, Sample, State
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.nodes.podinfo import PodInfo

NAMES = [f"n{number}" for number in range(5)]


def state_of(cache: Cache, devices: DeviceCounts | None = None) -> State:
    """State for a page that is opened now."""
    fresh = NodeMap(cache.table, devices if devices is not None else DeviceCounts())
    return as_state(finish(fresh.columns()))


def as_state(columns: NodeColumns) -> State:
    sample = Sample(at=0.0, queue=QueueCounts(), on_nodes=0)
    return State(version=0, at=0.0, nodes=columns, sample=sample, profiles=[])


def follow(page: Page, nodes: NodeMap) -> Change:
    delta = nodes.changes()
    assert delta is not None
    change = Change(version=page.version + 1, at=0.0, rows=delta.rows, requested=delta.requested, nodes=delta.nodes)
    page.apply(change)
    return change


def a_slice(node: str, driver: str, devices: int) -> ResourceSlice:
    there = tuple(Device(name=f"d{number}") for number in range(devices))
    spec = ResourceSliceSpec(driver=driver, pool=ResourcePool(name=node), node_name=node, devices=there)
    return ResourceSlice(metadata=ObjectMeta(name=f"{node}-{driver}"), spec=spec)


def an_allocation(node: str, driver: str, count: int) -> AllocationResult:
    results = tuple(
        DeviceRequestAllocationResult(request="r", driver=driver, pool=node, device=f"d{number}")
        for number in range(count)
    )
    return AllocationResult(devices=DeviceAllocationResult(results=results))


@st.composite
def operations(draw: st.DrawFn) -> tuple[str, Any]:
    kind = draw(
        st.sampled_from(
            ["node", "node", "gone", "pod", "pod", "pod", "pod-gone", "slice", "slice-gone", "claim", "look"]
        )
    )
    name, number = draw(st.sampled_from(NAMES)), draw(st.integers(0, 9))
    if kind == "node":
        return kind, a_node(
            name,
            zone=draw(st.sampled_from(["", "a", "b"])),
            labels={f"key{number % 4}": f"value{number}"},
            cpu=str(1 + number),
            allocatable={"example.com/gpu": number} if number > 5 else {},
            taints=[a_taint("k=v:NoSchedule")] if number % 3 == 0 else [],
            unschedulable=number == 4,
            conditions={"Ready": "False"} if number == 7 else {},
        )
    if kind == "pod":
        gpu = {"example.com/gpu": 1} if number > 6 else {}
        return kind, (f"p{number}", name, f"{100 * (1 + number)}m", gpu)
    return kind, (name, number)


def carry_out(cache: Cache, devices: DeviceCounts, pods: dict[str, PodInfo], kind: str, what: Any) -> None:
    if kind == "node":
        cache.set_node(what)
    elif kind == "gone" and cache.table.row_of(what[0]) is not None:
        cache.remove_node(what[0])
    elif kind == "pod" and what[0] not in pods:
        name, on, cpu, more = what
        pods[name] = PodInfo(a_pod(name, on=on, cpu=cpu, requests=more))
        cache.add_pod(pods[name])
    elif kind == "pod-gone" and f"p{what[1]}" in pods:
        cache.remove_pod(pods.pop(f"p{what[1]}").pod)
    elif kind == "slice":
        devices.put(a_slice(what[0], f"driver{what[1] % 2}", what[1]))
    elif kind == "slice-gone":
        devices.remove(f"{what[0]}-driver{what[1] % 2}")
    elif kind == "claim":
        allocation = an_allocation(what[0], "driver0", what[1] % 3) if what[1] else None
        devices._use.set_claim(f"claim-{what[0]}", allocation)


@given(st.lists(operations(), min_size=1, max_size=40))
def test_a_state_and_the_changes_after_it_are_the_new_state(steps: list[tuple[str, Any]]) -> None:
    cache, devices, pods = Cache(), DeviceCounts(), dict[str, PodInfo]()
    nodes = NodeMap(cache.table, devices)
    assert nodes.changes() is None
    page = Page(as_state(finish(nodes.columns())))
    for kind, what in [*steps, ("look", None)]:
        if kind == "look":
            follow(page, nodes)
            assert page.nodes == Page(state_of(cache, devices)).nodes
        else:
            carry_out(cache, devices, pods, kind, what)


def test_only_what_changed_is_told() -> None:
    cache = Cache()
    for name in NAMES:
        cache.set_node(a_node(name))
    nodes = NodeMap(cache.table, DeviceCounts())
    nodes.changes()
    page = Page(as_state(finish(nodes.columns())))
    follow(page, nodes)
    cache.add_pod(PodInfo(a_pod("p", on="n1", cpu="500m")))
    change = follow(page, nodes)
    row = cache.table.row_of("n1")
    assert (change.rows, change.nodes) == ([row], [])
    assert change.requested == {"cpu": [500], "pods": [1]}
    cache.set_node(a_node("n1", annotations={"note": "nobody shows this"}))
    assert not nodes.changes()
    cache.set_node(a_node("n1", unschedulable=True))
    (one,) = follow(page, nodes).nodes
    assert (one.row, one.status, one.requested["cpu"]) == (row, "Cordoned", 500)


def test_a_page_asks_anew_when_the_journal_has_forgotten() -> None:
    cache = Cache()
    cache.set_node(a_node("n0"))
    nodes = NodeMap(cache.table, DeviceCounts())
    finish(nodes.columns())
    nodes.changes()
    cache.table.journal.forget()
    assert nodes.changes() is None
    assert not nodes.changes()


def test_devices_in_use_are_a_column_of_their_own() -> None:
    cache, devices = Cache(), DeviceCounts()
    cache.set_node(a_node("n0"))
    devices.put(a_slice("n0", "gpu.example.com", 4))
    nodes = NodeMap(cache.table, devices)
    nodes.changes()
    columns = finish(nodes.columns())
    (column,) = [one for one in columns.resources if one.devices]
    assert (column.name, column.allocatable, column.requested) == ("devices of gpu.example.com", [4], [0])
    devices._use.set_claim("c", an_allocation("n0", "gpu.example.com", 3))
    delta = nodes.changes()
    assert delta is not None
    assert (delta.rows, delta.requested["devices of gpu.example.com"], delta.nodes) == ([0], [3], [])


def test_labels_that_do_not_group_and_resources_of_nobody_are_left_out() -> None:
    cache = Cache()
    for number in range(1100):
        labels = {"kubernetes.io/hostname": f"n{number}", "rack": f"r{number // 10}"}
        cache.set_node(a_node(f"n{number}", zone=f"z{number % 3}", labels=labels))
    columns = finish(NodeMap(cache.table, DeviceCounts()).columns())
    assert [one.key for one in columns.labels] == ["rack", "topology.kubernetes.io/zone"]
    assert [one.name for one in columns.resources] == ["cpu", "memory", "pods"]


def test_a_node_with_very_many_labels_and_resources_costs_a_bounded_state() -> None:
    cache = Cache()
    cache.set_node(a_node("plain", zone="a"))
    labels = {f"label-{number}": "v" for number in range(3000)}
    cache.set_node(a_node("odd", labels=labels, allocatable={f"example.com/r{number}": 1 for number in range(500)}))
    nodes = NodeMap(cache.table, DeviceCounts())
    nodes.changes()
    columns = finish(nodes.columns())
    assert (len(columns.labels), len(columns.resources)) == (MOST_LABELS, MOST_RESOURCES)
    cache.set_node(a_node("odder", labels={f"other-{number}": "v" for number in range(3000)}))
    delta = nodes.changes()
    assert delta is not None
    assert len(delta.nodes[0].labels) <= MOST_LABELS
    assert len(msgspec.json.encode(columns)) < 20_000


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"; drop table', "\u2028", "ü" * 50])
def test_odd_texts_stay_as_they_are(text: str) -> None:
    cache = Cache()
    cache.set_node(a_node("n0", labels={"note": text}))
    columns = finish(NodeMap(cache.table, DeviceCounts()).columns())
    assert msgspec.json.decode(msgspec.json.encode(columns), type=NodeColumns) == columns
    assert columns.labels[0].values == [text]


def test_a_row_that_another_node_has_got_is_told_although_all_else_is_alike() -> None:
    cache = Cache()
    cache.set_node(a_node("old"))
    nodes = NodeMap(cache.table, DeviceCounts())
    nodes.changes()
    page = Page(as_state(finish(nodes.columns())))
    cache.remove_node("old")
    cache.set_node(a_node("new"))
    (one,) = follow(page, nodes).nodes
    assert (one.row, one.name) == (0, "new")


def test_changes_of_very_many_nodes_at_once_are_a_new_state() -> None:
    cache = Cache()
    nodes = NodeMap(cache.table, DeviceCounts())
    nodes.changes()
    for number in range(2001):
        cache.set_node(a_node(f"n{number}"))
    assert nodes.changes() is None
    cache.set_node(a_node("n1", unschedulable=True))
    delta = nodes.changes()
    assert delta is not None
    assert [one.name for one in delta.nodes] == ["n1"]

"""The values plugins and framework exchange: statuses, cycle state, what nodes and pods add up to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builders import a_node, a_pod, a_port, info
from kubesched.api.types import (
    Affinity,
    ContainerStatus,
    LabelSelector,
    LabelSelectorRequirement,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodStatus,
    ResourceRequirements,
)
from kubesched.scheduler.framework.cycle_state import PODS_TO_ACTIVATE, CycleState, PodsToActivate
from kubesched.scheduler.framework.status import Code, Status, is_rejected, is_success
from kubesched.scheduler.nodes import podinfo
from kubesched.scheduler.nodes.nodeinfo import NodeInfo, PortTable
from kubesched.scheduler.nodes.nominating import NominatingInfo, NominatingMode
from kubesched.scheduler.nodes.podinfo import PodInfo, affinity_terms

BOOM = ValueError("boom")

STATUSES: list[tuple[Code, str, int, bool, bool]] = [
    # code, label, value, rejected, as_error is None
    (Code.SUCCESS, "Success", 0, False, True),
    (Code.ERROR, "Error", 1, False, False),
    (Code.UNSCHEDULABLE, "Unschedulable", 2, True, False),
    (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "UnschedulableAndUnresolvable", 3, True, False),
    (Code.WAIT, "Wait", 4, False, True),
    (Code.SKIP, "Skip", 5, False, True),
    (Code.PENDING, "Pending", 6, True, False),
]


@pytest.mark.parametrize(("code", "label", "value", "rejected", "harmless"), STATUSES)
def test_code(code: Code, label: str, value: int, rejected: bool, harmless: bool) -> None:
    status = Status(code, "a", "b")
    assert (code.label, int(code), status.is_rejected, is_rejected(status)) == (label, value, rejected, rejected)
    error = status.as_error()
    assert (error is None) is harmless
    assert error is None or str(error) == "a, b"
    assert is_success(status) is (code is Code.SUCCESS)


def test_every_code_is_in_the_table() -> None:
    assert {row[0] for row in STATUSES} == set(Code)


def test_no_status_is_success() -> None:
    assert is_success(None)
    assert not is_rejected(None)


def test_a_wrapped_error_comes_before_the_reasons() -> None:
    status = Status(Code.ERROR, "more", error=BOOM)
    assert status.reasons() == ["boom", "more"]
    assert status.message() == "boom, more"
    assert status.as_error() is BOOM
    assert Status.from_error("text").message() == "text"
    assert Status(Code.SUCCESS).message() == ""


def test_statuses_are_equal_when_code_reasons_plugin_and_error_are() -> None:
    status = Status(Code.ERROR, "r", error=BOOM, plugin="P")
    assert status == Status(Code.ERROR, "r", error=BOOM, plugin="P")
    assert hash(status) == hash(Status(Code.ERROR, "r", error=BOOM, plugin="P"))
    for other in (
        Status(Code.PENDING, "r", error=BOOM, plugin="P"),
        Status(Code.ERROR, "s", error=BOOM, plugin="P"),
        Status(Code.ERROR, "r", error=ValueError("boom"), plugin="P"),
        Status(Code.ERROR, "r", error=BOOM, plugin="Q"),
        "Error",
    ):
        assert status != other


def test_copies_name_the_plugin_or_have_more_reasons_and_leave_the_status_alone() -> None:
    status = Status(Code.UNSCHEDULABLE, "a", error=BOOM)
    assert status.with_plugin("P") == Status(Code.UNSCHEDULABLE, "a", error=BOOM, plugin="P")
    assert status.with_plugin("P").with_reasons(["b"]).reasons() == ["boom", "a", "b"]
    assert (status.plugin, status.reasons()) == ("", ["boom", "a"])


def test_nominating_info() -> None:
    assert NominatingInfo() == NominatingInfo(NominatingMode.NOOP, "")
    assert NominatingInfo.override("n") == NominatingInfo(NominatingMode.OVERRIDE, "n")
    assert NominatingInfo.clear() == NominatingInfo(NominatingMode.OVERRIDE, "")


# -- cycle state -------------------------------------------------------------------------------------------


class Counter:
    def __init__(self, number: int = 0) -> None:
        self.number = number

    def clone(self) -> Counter:
        return Counter(self.number)


def test_what_was_not_written_is_not_found() -> None:
    state = CycleState()
    with pytest.raises(KeyError, match="not found"):
        state.read("x")
    assert state.get("x") is None
    state.write("x", 1)
    assert state.read("x") == state.get("x") == 1
    state.delete("x")
    state.delete("x")
    assert state.get("x") is None


def test_a_clone_has_its_own_copies_of_what_can_be_cloned() -> None:
    state = CycleState()
    shared: list[int] = []
    state.write("counter", Counter())
    state.write("shared", shared)
    state.write(PODS_TO_ACTIVATE, PodsToActivate())
    state.skip_filter, state.skip_score = frozenset("f"), frozenset("s")
    state.skip_pre_bind, state.parallel_pre_bind = frozenset("b"), frozenset("p")
    state.record_plugin_metrics = state.skip_all_post_filter = True
    twin = state.clone()
    twin.read("counter").number += 1
    twin.write("new", 1)
    assert state.read("counter").number == 0
    assert state.get("new") is None
    assert twin.read("shared") is shared
    assert twin.read(PODS_TO_ACTIVATE) is state.read(PODS_TO_ACTIVATE)
    for name in (
        "skip_filter", "skip_score", "skip_pre_bind", "parallel_pre_bind", "record_plugin_metrics", "skip_all_post_filter",
    ):  # fmt: skip
        assert getattr(twin, name) == getattr(state, name)


# -- nodes and pods ----------------------------------------------------------------------------------------

PORTS: list[tuple[str, str, bool]] = [
    ("0.0.0.0:TCP:80", "0.0.0.0:TCP:80", True),
    ("10.0.0.1:TCP:80", "10.0.0.1:TCP:80", True),
    ("10.0.0.1:TCP:80", "0.0.0.0:TCP:80", True),
    ("0.0.0.0:TCP:80", "10.0.0.1:TCP:80", True),
    ("10.0.0.1:TCP:80", "10.0.0.2:TCP:80", False),
    ("0.0.0.0:UDP:80", "0.0.0.0:TCP:80", False),
    ("0.0.0.0:TCP:81", "0.0.0.0:TCP:80", False),
    (":::TCP:80", "10.0.0.1:TCP:80", False),
]


def _port(text: str) -> tuple[str, str, int]:
    ip, protocol, port = text.rsplit(":", 2)
    return ip, protocol, int(port)


@pytest.mark.parametrize(("wanted", "held", "conflict"), PORTS)
def test_port_conflicts(wanted: str, held: str, conflict: bool) -> None:
    table = PortTable()
    assert not table.conflicts(_port(wanted))
    table.add([_port(held), _port(held)])
    assert table.conflicts(_port(wanted)) is conflict
    assert list(table) == [_port(held)]
    table.remove([_port(held)])
    table.remove([_port(held)])
    assert not table
    assert not table.conflicts(_port(wanted))


def test_a_node_adds_up_its_pods_and_gives_back_what_it_took() -> None:
    node = NodeInfo("n", node=a_node("n"))
    node.add_pod(info(name="p", cpu="1", requests={"example.com/gpu": 2}, ports=[a_port(80)], claims=["c"]))
    node.add_pod(info(name="q"))
    assert (node.requested.milli_cpu, node.requested.scalars) == (1000, {"example.com/gpu": 2})
    assert (node.nonzero_cpu, node.nonzero_memory) == (1100, 2 * 209715200)
    assert node.pvc_counts == {"ns/c": 1}
    node.remove_pod("p-uid")
    assert node.requested.scalars == {"example.com/gpu": 0}
    assert list(node.pods) == ["q-uid"]
    assert node.pvc_counts == {}
    assert not node.used_ports
    with pytest.raises(KeyError):
        node.remove_pod("p-uid")
    node.remove_node()
    assert (node.labels, node.taints, node.unschedulable) == ({}, (), False)


def affinity(term: PodAffinityTerm) -> Affinity:
    return Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))


EVERYTHING = LabelSelector()
WEB = LabelSelector(match_labels={"app": "web"})
TERMS: list[tuple[str, PodAffinityTerm, str, dict[str, str], bool]] = [
    # name, term, namespace of the other pod, labels of that namespace, want (the other pod is labelled app=web)
    ("own namespace", PodAffinityTerm(label_selector=WEB), "ns", {}, True),
    ("another namespace", PodAffinityTerm(label_selector=WEB), "other", {}, False),
    ("a namespace that is listed", PodAffinityTerm(label_selector=WEB, namespaces=("other",)), "other", {}, True),
    ("own namespace is not listed", PodAffinityTerm(label_selector=WEB, namespaces=("other",)), "ns", {}, False),
    ("an empty namespace selector", PodAffinityTerm(label_selector=WEB, namespace_selector=EVERYTHING), "other", {}, True),
    ("a namespace selector that matches", PodAffinityTerm(label_selector=WEB, namespace_selector=LabelSelector(match_labels={"env": "x"})), "other", {"env": "x"}, True),
    ("a namespace selector that does not", PodAffinityTerm(label_selector=WEB, namespace_selector=LabelSelector(match_labels={"env": "x"})), "other", {"env": "y"}, False),
    ("with a selector the own namespace is not implied", PodAffinityTerm(label_selector=WEB, namespace_selector=LabelSelector(match_labels={"env": "x"})), "ns", {}, False),
    ("listed or selected", PodAffinityTerm(label_selector=WEB, namespaces=("other",), namespace_selector=LabelSelector(match_labels={"env": "x"})), "other", {}, True),
    ("an absent selector matches no pod", PodAffinityTerm(), "ns", {}, False),
    ("an empty selector matches every pod", PodAffinityTerm(label_selector=EVERYTHING), "ns", {}, True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "term", "namespace", "labels", "want"), TERMS)
def test_affinity_term(name: str, term: PodAffinityTerm, namespace: str, labels: dict[str, str], want: bool) -> None:
    (processed,) = affinity_terms(_with(affinity(term))).required
    assert processed.matches(a_pod("o", namespace=namespace, labels={"app": "web"}), labels) is want, name


def _with(found: Affinity) -> Any:
    pod = a_pod()
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=found))


def test_one_invalid_selector_empties_its_list_and_is_remembered() -> None:
    bad = LabelSelector(match_expressions=(LabelSelectorRequirement(key="a", operator="Gt", values=("1",)),))
    terms = (PodAffinityTerm(label_selector=WEB), PodAffinityTerm(label_selector=bad))
    found = Affinity(
        pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms),
        pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms[:1]),
    )
    compiled = affinity_terms(_with(found))
    assert compiled.required == ()
    assert len(compiled.required_anti) == 1
    assert len(compiled.errors) == 1
    assert PodInfo(_with(found)).has_affinity
    assert not info().has_affinity


def test_compiled_terms_are_shared_and_limited_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podinfo, "_COMPILED", {})
    monkeypatch.setattr(podinfo, "_MOST_COMPILED", 4)

    def of(number: int) -> Pod:
        terms = (PodAffinityTerm(label_selector=WEB, topology_key=f"zone{number}"),)
        made: Pod = _with(Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms)))
        return made

    for number in range(20):
        assert affinity_terms(of(number)) is affinity_terms(of(number))
        assert len(podinfo._COMPILED) <= 4


def test_derived_totals_are_reused_only_where_they_cannot_differ() -> None:
    first = info(cpu="1")
    later = PodInfo.derive(a_pod(cpu="1", labels={"a": "b"}), first)
    assert later.requests is first.requests
    assert later.labels == {"a": "b"}
    assert PodInfo.derive(a_pod(cpu="2"), first).requests.milli_cpu == 2000
    assert PodInfo.derive(a_pod(cpu="1"), None).requests.milli_cpu == 1000


def test_a_status_counts_only_when_it_says_what_was_given() -> None:
    first = info(cpu="1")
    silent = ContainerStatus(name="c")
    resized = ContainerStatus(name="c", resources=ResourceRequirements(requests={"cpu": "3"}))

    def running(*found: ContainerStatus) -> Pod:
        return msgspec.structs.replace(a_pod(cpu="1"), status=PodStatus(phase="Running", container_statuses=found))

    assert PodInfo.derive(running(silent), first).requests is first.requests
    after = PodInfo.derive(running(resized), first)
    assert after.requests.milli_cpu == 3000
    assert after.fit_requests.milli_cpu == 1000
    assert PodInfo.derive(running(silent), after).requests.milli_cpu == 1000

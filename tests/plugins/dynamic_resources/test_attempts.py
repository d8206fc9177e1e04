"""Attempts from PreFilter to PreBind, and what becomes of them when something fails."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from dra_kit import DRIVER, claim, on_node, pod, resource_slice, results
from plugin_kit import House, message, post_filter, scenario

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.resource import CLAIM_FINALIZER, DeviceTaintRule, ResourceClaim
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError
from kubesched.scheduler.core.diagnosis import NodeStatuses, Rejection
from kubesched.scheduler.core.full_scan import Evaluation
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.interface import Plugin, PreBindPreFlight
from kubesched.scheduler.framework.status import Code, Status
from kubesched.scheduler.framework.waiting import PodInPreBind
from kubesched.scheduler.nodes.podinfo import PodInfo

GPU = "example.com/gpu"


class FailsSoon(Plugin):
    """Plugin whose PreBind fails after six seconds, beside others."""

    name = "FailsSoon"

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Any:
        return PreBindPreFlight(allow_parallel=True), None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        await asyncio.sleep(6)
        return Status.unschedulable("no such luck")


def conflict() -> ApiError:
    return ApiError(409, "Conflict", "the object has been modified")


def test_a_claim_is_allocated_reserved_and_protected() -> None:
    async def main() -> None:
        house = House()
        house.server.put(claim(count=2))
        attempt = house.decide(pod("p", "c"))
        assert house.devices() == []
        assert len(house.in_use()) == 2  # in flight
        assert await house.bind(attempt) is None
        stored = house.server.claims["default/c"]
        node = attempt[2]
        assert house.devices() == [f"{node}/gpu-0", f"{node}/gpu-1"]
        assert house.in_use() == house.devices()
        assert len(house.manager.in_flight) == 0
        assert stored.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
        assert [(each.resource, each.name, each.uid) for each in stored.status.reserved_for] == [("pods", "p", "uid-p")]
        assert stored.status.allocation is not None
        assert stored.status.allocation.allocation_timestamp is not None

    scenario(main)


def test_pods_without_claims_are_no_concern() -> None:
    async def main() -> None:
        house = House()
        absent = house.search.ask(PodInfo(pod("p"))).plan.absent
        assert absent == {house.plugin.name}
        assert house.framework.concerned(absent).reserve == ()
        assert not house.search.ask(PodInfo(pod("p", "c"))).plan.absent
        for requests in ({"cpu": "1", "hugepages-2Mi": "2Mi"}, {GPU: "1"}):  # no class serves the resource
            assert house.search.ask(PodInfo(pod("p", requests=requests))).plan.absent == absent

    scenario(main)


@pytest.mark.parametrize(
    ("asking", "text"),
    [
        (pod("p", "missing"), 'could not find ResourceClaim "default/missing"'),
        (pod("p", "leaving"), 'resourceclaim "leaving" is being deleted'),
        (
            pod("p", resourceClaims=[{"name": "r", "resourceClaimTemplateName": "t"}]),
            'pod "default/p": ResourceClaim not created yet',
        ),
        (
            pod("p", resourceClaims=[{"name": "r"}]),
            'pod "default/p", spec.resourceClaim "r": none of the supported fields are set',
        ),
        (
            pod(
                "p",
                resourceClaims=[{"name": "r", "resourceClaimTemplateName": "t"}],
                status={"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "c"}]},
            ),
            "ResourceClaim default/c was not created for Pod default/p (Pod is not owner)",
        ),
    ],
)
def test_a_pod_waits_for_claims_that_it_can_use(asking: Pod, text: str) -> None:
    async def main() -> None:
        house = House()
        house.server.put(claim())
        house.server.put(claim("leaving", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
        status = house.plugin.pre_enqueue(PodInfo(asking))
        assert status is not None
        assert (status.code, status.message()) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text)
        assert message(house, asking) == f"0/2 nodes are available: {text}."

    scenario(main)


def test_a_claim_that_is_absent_on_purpose_is_no_claim() -> None:
    async def main() -> None:
        house = House()
        reference = [{"name": "r", "resourceClaimTemplateName": "t"}]
        asking = pod("p", resourceClaims=reference, status={"resourceClaimStatuses": [{"name": "r"}]})
        assert house.plugin.pre_enqueue(PodInfo(asking)) is None
        state, info, node = house.decide(asking)
        assert await house.framework.binding.pre_bind(state, info, node) is None
        assert house.server.patches == []

    scenario(main)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            {"exactly": {"deviceClassName": "none", "allocationMode": "ExactCount", "count": 1}},
            "class none does not exist",
        ),
        (
            {"firstAvailable": [{"name": "s", "deviceClassName": "none"}]},
            "request gpu/s: device class none does not exist",
        ),
        ({}, "resource claim default/c, request gpu: unknown request type"),
    ],
)
def test_requests_that_cannot_be_served_anywhere_reject_the_pod(request_: dict[str, Any], text: str) -> None:
    async def main() -> None:
        house = House()
        house.server.put(claim(requests=[{"name": "gpu", **request_}]))
        assert text in message(house, pod("p", "c"))

    scenario(main)


def test_a_claim_that_another_pod_is_about_to_get_is_waited_for() -> None:
    async def main() -> None:
        house = House()
        house.server.put(claim())
        attempt = house.decide(pod("first", "c"))
        text = "resource claim default/c is in the process of being allocated"
        assert message(house, pod("second", "c")) == f"0/2 nodes are available: {text}."
        assert await house.bind(attempt) is None
        second = house.decide(pod("second", "c"))
        assert second[2] == attempt[2]  # where the devices are
        assert await house.bind(second) is None
        assert [each.name for each in house.server.claims["default/c"].status.reserved_for] == ["first", "second"]

    scenario(main)


def test_devices_in_flight_are_not_given_to_another_claim() -> None:
    async def main() -> None:
        house = House(nodes=1, devices=2)
        for name in ("a", "b", "c"):
            house.server.put(claim(name))
        first, second = house.decide(pod("p1", "a")), house.decide(pod("p2", "b"))
        assert message(house, pod("p3", "c")) == "0/1 nodes are available: 1 cannot allocate all claims."
        house.framework.unreserve(*first)
        third = house.decide(pod("p3", "c"))
        for attempt in (second, third):
            assert await house.bind(attempt) is None
        assert sorted((*house.devices("b"), *house.devices("c"))) == ["n1/gpu-0", "n1/gpu-1"]

    scenario(main)


@pytest.mark.parametrize("failures", [1, 4])
def test_a_conflict_is_tried_again_with_the_latest_version(failures: int) -> None:
    async def main() -> None:
        house = House()
        house.server.put(claim(metadata={"finalizers": ["resource.kubernetes.io/delete-protection"]}))
        attempt = house.decide(pod("p", "c"))
        house.server.failures.extend([("patch", conflict())] * failures)
        assert await house.bind(attempt) is None
        assert len(house.devices()) == 1

    scenario(main)


def test_after_five_conflicts_the_attempt_fails_and_nothing_is_held() -> None:
    async def main() -> None:
        house = House()
        house.server.put(claim(metadata={"finalizers": ["resource.kubernetes.io/delete-protection"]}))
        attempt = house.decide(pod("p", "c"))
        house.server.failures.extend([("patch", conflict())] * 5)
        status = await house.bind(attempt)
        assert status is not None
        assert status.code is Code.ERROR
        assert "the object has been modified" in status.message()
        assert (house.in_use(), house.devices(), len(house.manager.in_flight)) == ([], [], 0)

    scenario(main)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"allocation": results("gpu-1", pool="n2")}, "claim default/c got allocated elsewhere in the meantime"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "claim default/c got deleted in the meantime"),
        ({"uid": "another"}, "claim default/c got deleted in the meantime"),
    ],
)
def test_a_claim_that_changed_since_the_decision_is_not_overwritten(change: dict[str, Any], text: str) -> None:
    async def main() -> None:
        house = House()
        house.server.put(claim())
        attempt = house.decide(pod("p", "c"))
        house.server.late = True
        house.server.put(claim(**change))
        status = await house.bind(attempt)
        assert status is not None
        assert text in status.message()
        await house.settle()
        assert len(house.manager.in_flight) == 0

    scenario(main)


def test_a_refused_write_says_what_was_to_be_written() -> None:
    async def main() -> None:
        house = House()
        house.server.put(claim())
        for operation, text in (("patch metadata", "add finalizer to"), ("patch", "add allocation and reservation to")):
            attempt = house.decide(pod("p", "c"))
            house.server.failures.append((operation, ApiError(403, "Forbidden", "not allowed")))
            status = await house.bind(attempt)
            assert status is not None
            assert f"{text} claim default/c: not allowed" in status.message()
            assert house.in_use() == []

    scenario(main)


@pytest.mark.parametrize(
    "error",
    [ConnectionResetError("gone"), ApiError(504, "Timeout", "no answer"), conflict()],
    ids=["reset", "504", "409"],
)
@pytest.mark.parametrize(
    "unread",
    [
        (),
        (ApiError(503, "Busy", "busy"), ConnectionRefusedError("down")),
        (ApiError(401, "Unauthorized", "the token is being renewed"),),
        (ApiError(403, "Forbidden", "roles are being read"),),
    ],
    ids=["read", "down", "401", "403"],
)
def test_devices_of_a_write_whose_answer_was_lost_are_not_given_to_another_claim(
    error: Exception, unread: tuple[Exception, ...]
) -> None:
    """``unread``: errors of the reads that ask for the write's effect, before one succeeds."""

    async def main() -> None:
        house = House(nodes=1, devices=1)
        house.server.failures += [("get", one) for one in unread]
        for name in ("a", "b"):
            house.server.put(claim(name))
        house.server.late = True  # the informer shows nothing of the write
        house.server.lost.append(error)
        status = await house.bind(house.decide(pod("first", "a")))
        assert status is not None
        await house.settle()
        assert house.devices("a") == house.in_use() == ["n1/gpu-0"]
        assert "cannot allocate all claims" in message(house, pod("second", "b"))
        # The first pod goes on with what its claim has.
        assert await house.bind(house.decide(pod("first", "a"))) is None
        assert [each.name for each in house.server.claims["default/a"].status.reserved_for] == ["first"]
        assert len(house.manager.in_flight) == 0

    scenario(main)


@pytest.mark.parametrize("error", [None, ConnectionResetError("gone")], ids=["answered", "reset"])
def test_devices_of_a_write_that_preemptors_cancel_are_not_given_to_another_claim(error: Exception | None) -> None:
    async def main() -> None:
        house = House(nodes=1, devices=1)
        for name in ("a", "b"):
            house.server.put(claim(name))
        house.server.late = True  # the informer shows nothing of the write
        house.server.seconds = 5.0
        if error is not None:
            house.server.lost.append(error)
        attempt = house.decide(pod("first", "a"))
        entry = PodInPreBind(asyncio.ensure_future(house.bind(attempt)))
        house.handle.pods_in_pre_bind.add(attempt[1].uid, entry)
        await asyncio.sleep(6)
        assert house.devices("a") == ["n1/gpu-0"]
        for _ in range(2):
            assert entry.cancel("preempted")
            await asyncio.sleep(1)
            assert "cannot allocate all claims" in message(house, pod("second", "b"))
        status = await entry.result()
        assert status is not None
        assert "preempted" in status.message()
        house.framework.unreserve(*attempt)
        await house.settle()
        assert house.devices("a") == house.in_use() == ["n1/gpu-0"]
        assert "cannot allocate all claims" in message(house, pod("second", "b"))
        assert len(house.manager.in_flight) == 0

    scenario(main)


@pytest.mark.parametrize("later", [None, FailsSoon], ids=["alone", "beside another plugin"])
def test_a_preemptor_comes_before_the_write_of_the_next_claim(later: type[Plugin] | None) -> None:
    async def main() -> None:
        house = House(nodes=1, devices=2, later=later)
        for name in ("a", "b"):
            house.server.put(claim(name, metadata={"finalizers": [CLAIM_FINALIZER]}))
        house.server.late = True
        house.server.seconds = 5.0
        attempt = house.decide(pod("first", "a", "b"))
        state, info, node = attempt
        assert house.framework.binding.pre_bind_pre_flight(state, info, node) is None
        entry = PodInPreBind(asyncio.ensure_future(house.framework.binding.pre_bind(*attempt)))
        house.handle.pods_in_pre_bind.add(info.uid, entry)
        await asyncio.sleep(1)
        assert entry.cancel("preempted")
        status = await entry.result()
        assert status is not None
        assert "preempted" in status.message()
        house.framework.unreserve(*attempt)
        await house.settle()
        assert (house.devices("a"), house.devices("b")) == (house.in_use(), [])

    scenario(main)


@pytest.mark.parametrize("answer", ["another kind", "no JSON"])
def test_an_answer_that_is_no_claim_says_nothing_of_a_write(answer: str) -> None:
    async def main() -> None:
        house = House(nodes=1, devices=1)
        for name in ("a", "b"):
            house.server.put(claim(name))
        house.server.late = True
        house.server.lost.append(ConnectionResetError("gone"))
        real, answers = house.server.get_object, [answer]

        async def strange(*args: Any) -> Any:
            if not answers:
                return await real(*args)
            if answers.pop() == "no JSON":
                raise DecodeError("JSON is malformed")
            return from_builtins({"kind": "Status", "metadata": {}}, ResourceClaim)

        house.server.get_object = strange  # type: ignore[assignment, method-assign]
        assert await house.bind(house.decide(pod("first", "a"))) is not None
        await house.settle()
        assert answers == []
        assert house.devices("a") == house.in_use() == ["n1/gpu-0"]
        assert "cannot allocate all claims" in message(house, pod("second", "b"))

    scenario(main)


@pytest.mark.parametrize("end", ["stop", "preemption", "preemption as the claim changes", "preemption and deletion"])
def test_the_wait_for_devices_ends_at_once(end: str) -> None:
    async def main() -> None:
        house = House(nodes=1, devices=1)
        device = {"name": "gpu-0", "bindingConditions": ["ready"], "bindingFailureConditions": ["bad"]}
        house.objects.put("resourceslices", "n1", resource_slice("n1", [device]))
        house.server.put(claim())
        attempt = house.decide(pod("p", "c"))
        entry = PodInPreBind(asyncio.ensure_future(house.bind(attempt)))
        house.handle.pods_in_pre_bind.add(attempt[1].uid, entry)
        await asyncio.sleep(1)
        before = asyncio.get_running_loop().time()
        if end == "stop":
            house.handle.pods_in_pre_bind.stop()
        else:
            if "changes" in end:
                house.server.put(house.server.claims["default/c"])
            if "deletion" in end:
                house.handle.pods_in_pre_bind.removed(attempt[1].uid)
            assert entry.cancel("preempted")
        status = await entry.result()
        assert asyncio.get_running_loop().time() == before
        assert status is not None
        assert ("context canceled" if end == "stop" else "preempted") in status.message()

    scenario(main)


@pytest.mark.parametrize("end", ["stop", "early stop", "deletion"])
def test_the_wait_for_a_claim_that_was_created(end: str) -> None:
    """It ends when the scheduler stops. The deletion of the pod does not end it: the claim has the device."""

    async def main() -> None:
        house = House(nodes=1, devices=1, resource=GPU)
        house.server.late = True
        house.server.seconds = 1.0
        attempt = house.decide(pod("first", requests={GPU: "1"}))
        entry = PodInPreBind(asyncio.ensure_future(house.bind(attempt)))
        house.handle.pods_in_pre_bind.add(attempt[1].uid, entry)
        await asyncio.sleep(0.5 if end == "early stop" else 5)
        if end == "deletion":
            house.handle.pods_in_pre_bind.removed(attempt[1].uid)
            await asyncio.sleep(60)
            assert house.in_use() == ["n1/gpu-0"]
            house.server.show(house.server.claims["default/first-extended-resources-x1"])
        else:
            house.handle.pods_in_pre_bind.stop()
        before = asyncio.get_running_loop().time()
        await entry.result()
        assert asyncio.get_running_loop().time() - before < 2

    scenario(main)


def test_devices_of_a_write_are_not_given_away_when_another_plugin_fails_meanwhile() -> None:
    async def main() -> None:
        house = House(nodes=1, devices=1, later=FailsSoon)
        for name in ("a", "b"):
            house.server.put(claim(name))
        house.server.late = True
        house.server.seconds = 5.0
        attempt = house.decide(pod("first", "a"))
        state, info, node = attempt
        assert house.framework.binding.pre_bind_pre_flight(state, info, node) is None
        entry = PodInPreBind(asyncio.ensure_future(house.bind(attempt)))
        house.handle.pods_in_pre_bind.add(info.uid, entry)
        status = await entry.result()
        assert status is not None
        assert "no such luck" in status.message()
        await house.settle()
        assert house.devices("a") == house.in_use() == ["n1/gpu-0"]
        assert "cannot allocate all claims" in message(house, pod("second", "b"))

    scenario(main)


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), ApiError(504, "Timeout", "no answer")])
def test_a_reservation_whose_answer_was_lost_is_given_back(error: Exception) -> None:
    async def main() -> None:
        house = House(nodes=1)
        house.server.put(claim("c", allocation=on_node(results("gpu-0"), "n1"), reserved=("other",)))
        house.server.late = True
        house.server.lost.append(error)
        attempt = house.decide(pod("p", "c", uid="p"))
        assert await house.bind(attempt) is not None
        assert [each.uid for each in house.server.claims["default/c"].status.reserved_for] == ["other", "p"]
        await house.settle()
        assert [each.uid for each in house.server.claims["default/c"].status.reserved_for] == ["other"]
        assert house.in_use() == ["n1/gpu-0"]

    scenario(main)


def test_a_claim_that_a_pod_names_twice_is_allocated_once() -> None:
    async def main() -> None:
        house = House(nodes=1, devices=1)
        house.server.put(claim("c"))
        names = [{"name": name, "resourceClaimName": "c"} for name in ("first", "second")]
        assert await house.bind(house.decide(pod("p", resourceClaims=names))) is None
        assert house.devices() == house.in_use() == ["n1/gpu-0"]
        assert [each.name for each in house.server.claims["default/c"].status.reserved_for] == ["p"]

    scenario(main)


@pytest.mark.parametrize("reserved", [(), ("p",)], ids=["free", "reserved"])
@pytest.mark.parametrize("late", [False, True], ids=["shown", "late"])
def test_a_pod_is_not_bound_where_its_claim_was_and_is_no_more(late: bool, reserved: tuple[str, ...]) -> None:
    async def main() -> None:
        house = House(nodes=2, devices=1)
        house.server.put(claim("c", allocation=on_node(results("gpu-0", pool="n1"), "n1")))
        attempt = house.decide(pod("p", "c", uid="p"))
        assert attempt[2] == "n1"
        house.server.late = late
        moved = on_node(results("gpu-0", pool="n2"), "n2")
        stored = house.server.put(claim("c", allocation=moved, reserved=reserved))
        status = await house.bind(attempt)
        assert status is not None
        assert "claim default/c got allocated elsewhere in the meantime" in status.message()
        house.server.show(stored)
        again = house.decide(pod("p", "c", uid="p"))
        assert again[2] == "n2"
        assert await house.bind(again) is None

    scenario(main)


def test_an_allocation_with_a_node_selector_that_cannot_be_read_is_an_error_of_the_pod(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        house = House()
        term = {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["x"]}]}
        allocation = {**results("gpu-0"), "nodeSelector": {"nodeSelectorTerms": [term]}}
        house.server.put(claim("c", allocation=allocation))
        with pytest.raises(PluginFailedError) as caught:
            house.find(pod("p", "c"))
        assert 'Invalid value: "x"' in str(caught.value)
        assert not caplog.records, "it is no fault of the plugin, whose traceback would be logged"

    scenario(main)


def test_a_reservation_is_given_back_when_a_later_claim_fails() -> None:
    async def main() -> None:
        house = House()
        house.server.put(claim("a"))
        house.server.put(claim("b"))
        asking = pod("p", "a", "b")
        attempt = house.decide(asking)
        house.server.failures.append(("patch", conflict()))  # of a, which is tried again
        house.server.put(claim("b", allocation=results("gpu-1", pool="n2")))
        assert await house.bind(attempt) is not None
        await house.settle()
        stored = house.server.claims["default/a"]
        assert stored.status.allocation is not None  # kept, for the next attempt
        assert stored.status.reserved_for == ()
        assert house.manager.claims.get("default/a").status.reserved_for == ()

    scenario(main)


def test_the_next_attempt_waits_until_reservations_are_given_back() -> None:
    async def main() -> None:
        house = House(nodes=1)
        house.server.put(claim(allocation=on_node(results("gpu-0"), "n1"), reserved=("uid-p",)))
        first = house.decide(pod("p", "c"))
        assert await house.framework.binding.pre_bind(*first) is None
        house.framework.unreserve(*first)
        second = house.decide(pod("p", "c"))
        assert await house.bind(second) is None
        await house.settle()
        assert [each.uid for each in house.server.claims["default/c"].status.reserved_for] == ["uid-p"]

    scenario(main)


# -- deallocation ------------------------------------------------------------------------------------------


def test_a_claim_that_is_allocated_where_the_pod_cannot_run_is_deallocated() -> None:
    async def main() -> None:
        house = House(nodes=1)
        house.server.put(claim(allocation=on_node(results("gpu-0", pool="gone"), "gone"), reserved=("uid-p",)))
        asking = pod("p", "c")
        assert message(house, asking) == "0/1 nodes are available: 1 resourceclaim not available on the node."
        assert await post_filter(house, asking) == ("Unschedulable", "deallocation of ResourceClaim completed")
        stored = house.server.claims["default/c"].status
        assert (stored.allocation, stored.reserved_for, stored.devices) == (None, (), ())
        assert house.decide(asking)[2] == "n1"

    scenario(main)


def test_a_claim_that_others_use_is_not_deallocated() -> None:
    async def main() -> None:
        house = House(nodes=1)
        house.server.put(claim(allocation=on_node(results("gpu-0"), "gone"), reserved=("uid-other",)))
        assert await post_filter(house, pod("p", "c")) == ("Unschedulable", "still not schedulable")
        assert await post_filter(house, pod("p", "none")) == ("Unschedulable", "no new claims to deallocate")

    scenario(main)


def test_post_filter_fails_when_an_earlier_plugin_ended_pre_filter() -> None:
    async def main() -> None:
        house = House(nodes=1)
        state = CycleState()
        asking = PodInfo(pod("p"))
        statuses = NodeStatuses(house.cache.table)
        _, status = house.framework.post_filter(state, asking, statuses)  # type: ignore[misc]
        assert status is not None
        assert status.message() == "no new claims to deallocate"

    scenario(main)


@pytest.mark.parametrize("names", [(), ("c",)], ids=["plain", "claim"])
@pytest.mark.parametrize(
    ("lacking", "text"),
    [
        (("preFilter",), 'running "DynamicResources" filter plugin'),
        (("preFilter", "filter"), 'running Score plugins: plugin "DynamicResources" failed with'),
    ],
)
def test_in_a_profile_without_pre_filter_every_pod_fails(
    lacking: tuple[str, ...], text: str, names: tuple[str, ...]
) -> None:
    async def main() -> None:
        house = House(lacking=lacking)
        house.server.put(claim())
        with pytest.raises(PluginFailedError, match=f"^{text}: 'not found'$"):
            house.find(pod("p", *names))

    scenario(main)


@pytest.mark.parametrize("names", [(), ("c",)], ids=["plain", "claim"])
def test_in_a_profile_without_pre_filter_nothing_is_reserved_or_bound(names: tuple[str, ...]) -> None:
    async def main() -> None:
        house = House(lacking=("preFilter", "filter"), gates={"DRAPrioritizedList": False})
        house.server.put(claim(allocation=on_node(results("gpu-0"), "n1"), reserved=("uid-p",)))
        info = PodInfo(pod("p", *names))
        found = house.search.find(info)
        assert isinstance(found, Decision)  # nothing is scored without the gate
        attempt = (found.state, info, found.node.name)
        for status in (house.framework.reserve(*attempt), house.framework.binding.pre_bind_pre_flight(*attempt)):
            assert isinstance(status, Status)
            assert status.code is Code.ERROR
            assert status.message().endswith('"DynamicResources": not found')
        house.framework.unreserve(*attempt)
        await house.settle()
        assert house.server.claims["default/c"].status.reserved_for != ()

    scenario(main)


# -- binding conditions ------------------------------------------------------------------------------------

CONDITIONS = [{"name": "gpu-0", "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}]


def condition(kind: str) -> list[dict[str, Any]]:
    listed = [{"type": kind, "status": "True", "reason": "Why", "message": "so"}]
    return [{"driver": DRIVER, "pool": "n1", "device": "gpu-0", "conditions": listed}]


async def waiting(house: House, seconds: float, kind: str | None) -> tuple[str | None, float]:
    """Bind a pod whose device gets a condition after some time: the error, and how long it took."""
    house.objects.put("resourceslices", f"n1-{DRIVER}", resource_slice("n1", CONDITIONS))
    house.server.put(claim())
    start = house.clock.now()
    binding = asyncio.create_task(house.bind(house.decide(pod("p", "c"))))
    await asyncio.sleep(seconds)
    if kind is not None:
        stored = house.server.claims["default/c"]
        changed = claim(devices=condition(kind))
        status = msgspec.structs.replace(stored.status, devices=changed.status.devices)
        house.server.put(msgspec.structs.replace(stored, status=status))
    outcome = await binding
    return None if outcome is None else outcome.message(), house.clock.now() - start


@pytest.mark.parametrize(
    ("seconds", "kind", "error", "least", "most", "label"),
    [
        (42.0, "ready", None, 42.0, 42.1, "success"),
        (7.0, "failed", 'device binding failed: claim=c, reason=Why, message="so"', 7.0, 7.1, "failure"),
        (1.0, None, "device binding timeout: ", 600.0, 606.0, "timeout"),
    ],
)
def test_pre_bind_waits_for_devices(
    seconds: float, kind: str | None, error: str | None, least: float, most: float, label: str
) -> None:
    async def main() -> None:
        house = House(nodes=1)
        text, took = await waiting(house, seconds, kind)
        assert (text is None) if error is None else (text is not None and error in text)
        assert least <= took <= most
        assert house.events == [("BindingConditionsPending", "waiting for binding conditions for device on node n1")]
        counts = house.metrics.dra_bindingconditions_allocations_total
        assert counts.labels("default-scheduler", DRIVER, label).value == 1

    scenario(main)


def test_a_claim_whose_devices_failed_is_deallocated_by_the_next_attempt() -> None:
    async def main() -> None:
        house = House(nodes=1)
        await waiting(house, 7.0, "failed")
        await house.settle()
        asking = pod("p", "c")
        assert message(house, asking) == "0/1 nodes are available: 1 resourceclaim not available on the node."
        assert await post_filter(house, asking) == ("Unschedulable", "deallocation of ResourceClaim completed")

    scenario(main)


# -- explanations ------------------------------------------------------------------------------------------


def explained(house: House, asking: Pod) -> list[str]:
    assert isinstance(house.find(asking), Rejection)
    table = house.cache.table
    return [each.text(table.order()) for each in house.plugin.demands(PodInfo(asking), table)]


def test_what_is_missing_is_said_in_plain_words() -> None:
    async def main() -> None:
        house = House(nodes=2, devices=2)
        small = [{"name": f"gpu-{number}", "capacity": {"memory": {"value": "24Gi"}}} for number in range(2)]
        house.objects.put("resourceslices", f"n2-{DRIVER}", resource_slice("n2", small))
        expression = f'"memory" in device.capacity["{DRIVER}"] && device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
        exactly = {
            "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2,
            "selectors": [{"cel": {"expression": expression}}],
        }  # fmt: skip
        house.server.put(claim(requests=[{"name": "gpu", "exactly": exactly}]))
        house.objects.remove("resourceslices", f"n1-{DRIVER}")
        assert explained(house, pod("p", "c")) == [
            "claim c, request gpu: asks for 2 devices of class gpu with 40Gi; none matches, but n2 has 2 of the class with 24Gi"
        ]
        house.server.put(claim("many", count=3))
        assert explained(house, pod("p", "many")) == [
            "claim many, request gpu: asks for 3 devices of class gpu; n2 has 2 that match, 2 free"
        ]
        house.server.put(claim("taken", allocation=results("gpu-0", "gpu-1", pool="n2")))
        house.server.put(claim("one"))
        text = "claim one, request gpu: asks for 1 device of class gpu; n2 has 2 that match, 0 free, 2 used by claim default/taken"
        assert explained(house, pod("p", "one")) == [text]

    scenario(main)


# -- gates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_on", [True, False])
def test_taint_rules_count_with_their_gate(is_on: bool) -> None:
    async def main() -> None:
        house = House(nodes=1, devices=1, gates={"DRADeviceTaintRules": is_on})
        house.server.put(claim())
        spec = {"taint": {"key": "broken", "effect": "NoSchedule"}, "deviceSelector": {"driver": DRIVER}}
        rule = from_builtins({"metadata": {"name": "r"}, "spec": spec}, DeviceTaintRule)
        house.objects.put("devicetaintrules", "r", rule)
        asking = pod("p", "c")
        if is_on:
            assert message(house, asking) == "0/1 nodes are available: 1 cannot allocate all claims."
            house.objects.remove("devicetaintrules", "r")
        assert house.decide(asking)[2] == "n1"

    scenario(main)


def test_without_its_gate_a_class_serves_no_resource() -> None:
    async def main() -> None:
        house = House(nodes=1, resource=GPU, gates={"DRAExtendedResource": False})
        house.decide(pod("p", requests={GPU: "1"}))
        assert house.in_use() == []

    scenario(main)


def test_without_its_gate_a_prioritised_list_rejects_the_pod() -> None:
    async def main() -> None:
        house = House(gates={"DRAPrioritizedList": False})
        listed = [{"name": "s", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}]
        house.server.put(claim(requests=[{"name": "gpu", "firstAvailable": listed}]))
        text = "resource claim default/c, request gpu: has subrequests, but the DRAPrioritizedList feature is disabled"
        assert message(house, pod("p", "c")) == f"0/2 nodes are available: {text}."

    scenario(main)


def test_nodes_that_serve_an_earlier_choice_of_a_list_are_preferred() -> None:
    async def main() -> None:
        house = House(nodes=3, devices=1)
        for number, model in enumerate(("b", "a", "c"), 1):
            listed = [{"name": "gpu-0", "attributes": {"model": {"string": model}}}]
            house.objects.put("resourceslices", f"n{number}-{DRIVER}", resource_slice(f"n{number}", listed))

        def choice(model: str) -> dict[str, Any]:
            selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].model == "{model}"'}}
            exact = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
            return {"name": model, **exact, "selectors": [selector]}

        for name in ("first", "second", "third"):
            wanted = [choice("a"), choice("b"), choice("c")]
            house.server.put(claim(name, requests=[{"name": "gpu", "firstAvailable": wanted}]))
        nodes = [house.decide(pod(f"p-{name}", name))[2] for name in ("first", "second", "third")]
        assert nodes == ["n2", "n1", "n3"]

    scenario(main)


def test_all_devices_of_a_node_in_the_order_of_their_claims() -> None:
    async def main() -> None:
        house = House(nodes=2, devices=3)
        house.server.put(claim("two", count=2))
        exactly = {"deviceClassName": "gpu", "allocationMode": "All"}
        house.server.put(claim("all", requests=[{"name": "gpu", "exactly": exactly}]))
        first = house.decide(pod("p", "two"))
        second = house.decide(pod("q", "all"))
        assert first[2] != second[2]  # All needs every device of the node to be free
        assert await house.bind(second) is None
        assert house.devices("all") == [f"{second[2]}/gpu-{number}" for number in range(3)]

    scenario(main)


def test_a_pod_whose_claims_all_have_devices_scores_nothing_on_any_node() -> None:
    """Filter has no results of its own then; with one more claim to allocate, the stored allocation counts, too."""

    async def main() -> None:
        house = House(nodes=2, devices=2)
        listed = [{"name": "s", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}]
        requests = [{"name": "gpu", "firstAvailable": listed}]
        house.server.put(claim("old", requests=requests, allocation=results("gpu-0", request="gpu/s")))
        house.server.put(claim("new", requests=requests))
        scores = {}
        for names in (("old",), ("old", "new")):
            found = house.search.evaluate(CycleState(), PodInfo(pod("p", *names)))
            assert isinstance(found, Evaluation)
            assert found.scores is not None
            scores[names] = found.scores["DynamicResources"].tolist()
        assert scores == {("old",): [0, 0], ("old", "new"): [200, 200]}

    scenario(main)


def test_nothing_is_allocated_on_a_node_that_lacks_a_resource() -> None:
    async def main() -> None:
        house = House(nodes=1, resource="example.com/gpu")
        selectors = [{"cel": {"expression": f'device.attributes["{DRIVER}"].nothing == "a"'}}]
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": selectors}
        house.server.put(claim(requests=[{"name": "gpu", "exactly": exactly}]))
        with pytest.raises(PluginFailedError, match="no such key: nothing"):
            house.find(pod("p", "c", requests={"example.com/gpu": "1"}))
        asking = pod("p", "c", requests={"example.com/gpu": "1", "example.com/other": "1"})
        assert message(house, asking) == "0/1 nodes are available: 1 cannot fit resource."

    scenario(main)

"""The port: what requests it makes, how often, and how fast."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from client_fake_server import FakeServer, View

from kubesched.api.kinds import NODES, PODS
from kubesched.api.types import ObjectMeta, Pod, PodCondition, PodSpec, PodStatus
from kubesched.api.wire import ApiError
from kubesched.client.backoff import TokenBucket, is_write_retriable, token_bucket
from kubesched.client.port import ApiPort
from kubesched.cluster.store.inprocess import InProcessClient
from kubesched.cluster.store.store import Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual

EPOCH = 1_700_000_000.0
NOW_TEXT = "2023-11-14T22:13:20Z"
POD = Pod(
    metadata=ObjectMeta(name="p", namespace="ns", uid="u1", resource_version="7", generation=3),
    spec=PodSpec(scheduler_name="default-scheduler"),
)
FAILED = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="too little cpu")


def with_port(script: Callable[[FakeServer, ApiPort], Coroutine[Any, Any, Any]], **options: Any) -> FakeServer:
    server = FakeServer()

    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        await script(server, ApiPort(server, clock=clock, rng=Random(1), hostname="host", **options))

    run_virtual(main(), start=EPOCH)
    return server


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_binding_carries_the_uid_and_is_not_retried() -> None:
    async def script(server: FakeServer, port: ApiPort) -> None:
        await port.bind(POD, "n1")
        server.failures.append(ApiError(409, "Conflict", "bound already"))
        with pytest.raises(ApiError, match="bound already"):
            await port.bind(POD, "n2")
        assert port.requests == {("POST", "201"): 1, ("POST", "409"): 1}

    assert with_port(script).calls == [("bind", "ns", "p", "u1", "n1"), ("bind", "ns", "p", "u1", "n2")]


def test_a_pod_is_read_by_its_uid() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        clock = VirtualClock(loop)
        store = Store(clock, random=Random(1), auto_namespaces=True)
        port = ApiPort(InProcessClient(store), clock=clock, rng=Random(1))
        assert await port.read_pod(POD) is None
        spec = {"containers": [{"name": "c", "image": "i"}]}
        for name in ("p", "q"):
            store.create(PODS, "ns", {"metadata": {"name": name}, "spec": spec})
        stored = store.get(PODS, "ns", "p").typed
        store.bind("ns", "p", stored.uid, "n1")
        read = await port.read_pod(stored)
        assert read is not None
        assert (read.name, read.uid, read.spec.node_name) == ("p", stored.uid, "n1")
        assert await port.read_pod(POD) is None  # another pod has the name

    run_virtual(main(), start=EPOCH)


def test_condition_and_nomination_go_in_one_patch() -> None:
    async def script(server: FakeServer, port: ApiPort) -> None:
        assert await port.patch_pod_status(POD, condition=FAILED, nominated_node_name="n1")

    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "too little cpu",
        "lastTransitionTime": NOW_TEXT,
        "observedGeneration": 3,
    }
    patch = {"metadata": {"uid": "u1"}, "status": {"conditions": [condition], "nominatedNodeName": "n1"}}
    assert with_port(script).calls == [("patch", "ns", "p", patch, "status")]


def test_a_status_patch_never_reaches_a_successor_of_the_same_name() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        store = Store(clock, random=Random(1), auto_namespaces=True)
        port = ApiPort(InProcessClient(store), clock=clock, rng=Random(1))
        body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        first = store.create(PODS, "default", body)
        store.delete(PODS, "default", "p", grace_period_seconds=0)
        second = store.create(PODS, "default", body)
        with pytest.raises(ApiError) as refused:
            await port.patch_pod_status(first.typed, condition=FAILED, nominated_node_name="n1")
        assert refused.value.code == 404
        assert port.requests == {("PATCH", "409"): 1}
        assert store.get(PODS, "default", "p").resource_version == second.resource_version
        assert await port.patch_pod_status(second.typed, nominated_node_name="n1")
        assert store.get(PODS, "default", "p").typed.status.nominated_node_name == "n1"

    run_virtual(main(), start=EPOCH)


NO_CHANGES: list[tuple[str, PodStatus, dict[str, Any]]] = [
    ("nothing asked", PodStatus(), {}),
    ("the nomination is there already", PodStatus(nominated_node_name="n1"), {"nominated_node_name": "n1"}),
    ("no nomination to clear", PodStatus(), {"nominated_node_name": ""}),
    (
        "the condition is there already, of an older generation",
        PodStatus(conditions=(FAILED,)),
        {"condition": FAILED},
    ),
]


@pytest.mark.parametrize(("status", "change"), [case[1:] for case in NO_CHANGES], ids=[case[0] for case in NO_CHANGES])
def test_no_change_means_no_call(status: PodStatus, change: dict[str, Any]) -> None:
    async def script(server: FakeServer, port: ApiPort) -> None:
        pod = Pod(metadata=POD.metadata, status=status)
        assert await port.patch_pod_status(pod, **change) is None

    assert with_port(script).calls == []


REFUSED = OSError(errno.ECONNREFUSED, "refused")
ERRORS = [
    (ApiError(409, "Conflict", "x"), True),
    (ApiError(409, "AlreadyExists", "x"), False),
    (ApiError(500, "InternalError", "x"), True),
    (ApiError(503, "ServiceUnavailable", "x"), True),
    (ApiError(429, "TooManyRequests", "x"), False),
    (ApiError(404, "NotFound", "x"), False),
    (ConnectionRefusedError("x"), True),
    (REFUSED, True),
    (ConnectionResetError("x"), False),
    (ValueError("x"), False),
]


@pytest.mark.parametrize(("error", "retried"), ERRORS, ids=[repr(error) for error, _ in ERRORS])
def test_which_status_writes_are_tried_again(error: Exception, retried: bool) -> None:
    assert is_write_retriable(error) is retried

    async def script(server: FakeServer, port: ApiPort) -> None:
        server.failures.append(error)
        if retried:
            assert await port.patch_pod_status(POD, nominated_node_name="n1")
        else:
            with pytest.raises(type(error)):
                await port.patch_pod_status(POD, nominated_node_name="n1")

    assert len(with_port(script).calls) == (2 if retried else 1)


def test_a_status_write_is_tried_four_times() -> None:
    times: list[float] = []

    async def script(server: FakeServer, port: ApiPort) -> None:
        server.failures += [ApiError(409, "Conflict", str(number)) for number in range(4)]
        port.transport.on_request = lambda method, code, seconds: times.append(now())
        with pytest.raises(ApiError, match="3"):
            await port.patch_pod_status(POD, nominated_node_name="n1")
        assert port.requests == {("PATCH", "409"): 4}

    with_port(script)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    for pause, base in zip(pauses, [0.010, 0.050, 0.250], strict=True):
        assert base <= pause <= base * 1.1


def test_a_victim_that_is_gone_counts_as_deleted() -> None:
    async def script(server: FakeServer, port: ApiPort) -> None:
        assert await port.delete_pod(POD) is True
        server.failures.append(ApiError.not_found(PODS, "p"))
        assert await port.delete_pod(POD) is False
        server.failures.append(ApiError(403, "Forbidden", "no"))
        with pytest.raises(ApiError, match="no"):
            await port.delete_pod(POD)
        assert port.requests == {("DELETE", "200"): 1, ("DELETE", "404"): 1, ("DELETE", "403"): 1}

    with_port(script)


def test_recorders_speak_for_their_profile() -> None:
    async def script(server: FakeServer, port: ApiPort) -> None:
        recorder = port.recorder("gpu-scheduler")
        assert port.recorder("gpu-scheduler") is recorder
        assert (recorder.reporting_controller, recorder.reporting_instance) == ("gpu-scheduler", "gpu-scheduler-host")
        task = asyncio.create_task(port.events.run())
        recorder.record(POD, "Normal", "Scheduled", "Binding", "x")
        await asyncio.sleep(0)
        await port.events.drain()
        assert port.requests == {("POST", "201"): 1}
        port.events.stop()
        await task

    with_port(script)


def test_informers_take_tokens_for_pages_but_not_for_watches() -> None:
    async def script(server: FakeServer, port: ApiPort) -> None:
        for number in range(6):
            server.put(f"n{number}")
        informer = port.informer(NODES, page_size=2)
        view = View()
        informer.add_handler(view)
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
        assert now() == pytest.approx(2.0, abs=0.01)
        server.put("x")
        await asyncio.sleep(0.1)
        assert "x" in view.objects
        informer.stop()
        await task
        assert port.requests == {("GET", "200"): 4}

    with_port(script, limiter=TokenBucket(1, 1))


def test_requests_wait_in_line_for_the_limiter() -> None:
    done: list[float] = []

    async def script(server: FakeServer, port: ApiPort) -> None:
        async def bind() -> None:
            await port.bind(POD, "n")
            done.append(now())

        async with asyncio.TaskGroup() as group:
            for _ in range(7):
                group.create_task(bind())
        await asyncio.sleep(10)
        started = now()
        for _ in range(4):
            await bind()
        assert now() - started == pytest.approx(0.5)
        port.transport.limiter = token_bucket(-1, 1)
        started = now()
        for _ in range(100):
            await bind()
        assert now() == started

    with_port(script, limiter=TokenBucket(2, 3))
    assert done[:7] == pytest.approx([0, 0, 0, 0.5, 1.0, 1.5, 2.0])


def test_a_waiter_that_gives_up_returns_its_token(caplog: pytest.LogCaptureFixture) -> None:
    async def script(server: FakeServer, port: ApiPort) -> None:
        await port.bind(POD, "n")
        waiting = asyncio.create_task(port.bind(POD, "n"))
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await port.bind(POD, "n")
        assert now() == pytest.approx(10)

    with caplog.at_level(logging.INFO, "kubesched.client"):
        server = with_port(script, limiter=TokenBucket(0.1, 1))
    assert len(server.calls) == 2
    assert "waited 9.0 s because of client-side throttling" in caplog.text


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (-1, 1), (5, 0)])
def test_a_bucket_that_gives_nothing_is_refused(qps: float, burst: int) -> None:
    with pytest.raises(ValueError, match="token bucket"):
        TokenBucket(qps, burst)


def test_requests_without_an_answer_are_counted_as_such() -> None:
    async def script(server: FakeServer, port: ApiPort) -> None:
        transport = port.transport
        server.failures.append(ConnectionResetError("x"))
        with pytest.raises(ConnectionResetError):
            await transport.get(NODES, "", "n")
        for failure in (ConnectionResetError("x"), ApiError.expired("old")):
            server.watch_failures.append(failure)
            with pytest.raises(type(failure)):
                async for _ in transport.watch(NODES, resource_version="1"):
                    pass
        await transport.get(NODES, "", "n")
        await transport.update(NODES, "", "n", {})
        await transport.evict("ns", "p")
        assert port.requests == {
            ("GET", "<error>"): 2,
            ("GET", "410"): 1,
            ("GET", "200"): 1,
            ("PUT", "200"): 1,
            ("POST", "201"): 1,
        }

    with_port(script)

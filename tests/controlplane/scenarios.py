"""The scenarios: what a scheduler process has to live through, against any control plane."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from resource_scenarios import a_victim_makes_room, devices_are_allocated, volumes_wait_for_their_first_consumer
from scenario_world import BRISK, LEASE, World, create_once, shipped_account

from kubesched.api.kinds import DEVICE_CLASSES, LEASES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubesched.api.wire import ApiError
from kubesched.client.access import load_kubeconfig
from kubesched.client.http import HttpTransport


@dataclass(frozen=True)
class Scenario:
    """``only`` names the one control plane it can run against, with ``why``. ``since`` is the first minor version."""

    name: str
    run: Callable[[World], Awaitable[None]]
    only: str = ""
    why: str = ""
    since: int = 0


async def schedules_and_reports(world: World) -> None:
    """Events and conditions read as kube-scheduler's."""
    await world.nodes(2, cpu="2")
    scheduler = await world.scheduler("only")
    await world.create_pods(["fits"], cpu="500m")
    await world.create_pods(["huge"], cpu="3")
    await world.all_bound(["fits"])
    (event,) = await world.events("fits", "Scheduled")
    assert event["message"] == f"Successfully assigned default/fits to {world.node_of('fits')}"
    assert (event["type"], event["reportingComponent"], event["action"]) == ("Normal", "default-scheduler", "Binding")
    assert event["reportingInstance"].startswith("default-scheduler-")
    assert event["involvedObject"]["uid"] == world.pods.get("default", "fits").uid
    failed = (await world.events("huge", "FailedScheduling"))[0]
    assert (failed["type"], failed["action"]) == ("Warning", "Scheduling")
    assert re.match(r"0/2 nodes are available: 2 Insufficient cpu\.", failed["message"])

    def condition(name: str) -> tuple[str, str, str]:
        pod = world.pods.get("default", name)
        found = [item for item in pod.status.conditions if item.type == "PodScheduled"] if pod is not None else []
        return (found[0].status, found[0].reason, found[0].message) if found else ("", "", "")

    await world.until(lambda: condition("huge")[0], "a condition on the pending pod")
    assert condition("huge") == ("False", "Unschedulable", failed["message"])
    await world.until(lambda: condition("fits")[0] == "True", "a condition on the bound pod")
    assert await scheduler.terminate() == 0
    await world.until(lambda: world.lease.get("holderIdentity") == "", "the lease is released")


async def restarted_among_a_thousand_pods(world: World) -> None:
    """Killed in the middle; its successor binds the rest, and nothing twice."""
    await world.nodes(10)
    names = [f"p{number}" for number in range(1000)]
    killed = await world.scheduler("killed")
    await world.leader()
    creating = asyncio.ensure_future(world.create_pods(names))
    await world.until(lambda: world.bound() >= 100, "100 pods are bound")
    killed.signal(signal.SIGKILL)
    assert await killed.ended() == -signal.SIGKILL
    await creating
    await world.client.delete(LEASES, *LEASE)  # or its successor would wait for it to run out, as in the failover
    await world.scheduler("successor")
    await world.all_bound(names)


async def failover_between_two_replicas(world: World) -> None:
    """The standby takes over when the leader dies, and at once when it stops in good order."""
    await world.nodes(2)
    processes = {}
    for name in ("first", "second"):
        processes[name] = await world.scheduler(name, BRISK)
        if name == "first":
            one = await world.leader()
    await world.create_pods([f"a{number}" for number in range(20)])
    await world.all_bound([f"a{number}" for number in range(20)])
    processes["first"].signal(signal.SIGKILL)
    await processes["first"].ended()
    await world.create_pods([f"b{number}" for number in range(20)])
    two = await world.leader(but=("", one))
    await world.all_bound([f"b{number}" for number in range(20)])
    assert world.lease["leaseTransitions"] == 1
    third = await world.scheduler("third", BRISK)
    assert await processes["second"].terminate() == 0
    await world.leader(but=("", one, two))
    await world.create_pods(["last"])
    await world.all_bound(["last"])
    assert await third.terminate() == 0


async def the_api_server_restarts(world: World) -> None:
    """The scheduler stays, and sees what changed while it could not watch: its versions have expired."""
    await world.nodes(2, cpu="2")
    scheduler = await world.scheduler("only")
    await world.create_pods(["before", "filler1", "filler2"], cpu="1")
    await world.all_bound(["before", "filler1", "filler2"])
    scheduler.signal(signal.SIGSTOP)
    await asyncio.to_thread(world.plane.stop)
    await asyncio.to_thread(world.plane.start)
    await world.client.delete(PODS, "default", "filler1", grace_period_seconds=0)
    await world.client.delete(PODS, "default", "filler2", grace_period_seconds=0)
    await world.create_pods(["after1", "after2", "after3"], cpu="1")
    scheduler.signal(signal.SIGCONT)
    await world.all_bound(["after1", "after2", "after3"])
    await asyncio.to_thread(world.plane.stop)  # and while it runs
    await asyncio.to_thread(world.plane.start)
    await world.client.delete(PODS, "default", "after1", grace_period_seconds=0)
    await world.create_pods(["again"], cpu="1")
    await world.all_bound(["again"])
    assert scheduler.process.returncode is None
    assert await scheduler.terminate() == 0


async def another_scheduler_binds_the_same_pods(world: World) -> None:
    """Conflicts: the other's bindings stand, ours go on."""
    await world.nodes(3)
    await world.scheduler("only")
    await world.leader()
    rng = Random(5)
    names = [f"c{number}" for number in range(100)]
    won = 0

    async def rival(name: str) -> None:
        nonlocal won
        pod = await world.client.get(PODS, "default", name)
        if not await world.conflicts(world.client.bind("default", name, pod.uid, "n1")):
            won += 1

    for start in range(0, len(names), 10):
        batch = names[start : start + 10]
        await world.create_pods(batch)
        await asyncio.gather(*(rival(name) for name in rng.sample(batch, 5)))
    await world.all_bound(names)
    pods = [world.pods.get("default", name) for name in names]
    assert sum(pod.spec.node_name == "n1" for pod in pods) >= won


async def the_lease_is_taken(world: World) -> None:
    """Another program takes the lease: exit 1, and not one pod is bound after that."""
    await world.nodes(1)
    scheduler = await world.scheduler("robbed", BRISK)
    await world.leader()
    await world.create_pods(["before"])
    await world.all_bound(["before"])
    while True:
        lease = (await world.client.get(LEASES, *LEASE)).data()
        lease["spec"] |= {"holderIdentity": "thief", "leaseDurationSeconds": 3600}
        if not await world.conflicts(world.client.update(LEASES, *LEASE, lease)):
            break
    assert await scheduler.ended() == 1
    assert "Leaderelection lost" in scheduler.log
    assert (await world.client.get(LEASES, *LEASE)).data()["spec"]["holderIdentity"] == "thief"
    await world.create_pods(["after"])
    standby = await world.scheduler("standby", BRISK)
    await standby.says("attempting to acquire")
    assert not world.node_of("after")
    assert await standby.terminate() == 0


CANDIDATES_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "kubesched-candidates", "namespace": "kube-system"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": "system::leader-locking-kube-scheduler",
    },
    "subjects": [{"kind": "ServiceAccount", "name": "kubesched", "namespace": "kube-system"}],
}


async def the_election_is_coordinated(world: World) -> None:
    """With the gate on a candidate appears, answers a ping, and leads when the lease names it."""
    await world.nodes(1)
    # The gate is off by default, and the shipped role is for what is on; every cluster has a role for this.
    await create_once(world.client, CANDIDATES_BINDING)
    scheduler = await world.scheduler("candidate", BRISK, "--feature-gates", "CoordinatedLeaderElection=true")
    candidates = world.candidates
    assert candidates is not None
    await world.until(candidates.values, "a candidate")
    (candidate,) = candidates.values()
    spec, name = candidate["spec"], candidate["metadata"]["name"]
    assert (spec["leaseName"], spec["strategy"]) == ("kube-scheduler", "OldestEmulationVersion")
    ping = "2999-01-01T00:00:00.000000Z"
    await world.client.patch(
        candidates.kind, LEASE[0], name, {"spec": {"pingTime": ping}}, patch_type="application/merge-patch+json"
    )
    await world.until(lambda: candidates.get(LEASE[0], name)["spec"]["renewTime"] == ping, "the ping is answered")
    assert not world.lease
    await world.create_pods(["waits"])
    chosen = {"holderIdentity": name, "leaseDurationSeconds": 60, "strategy": "OldestEmulationVersion"}
    await world.client.create(LEASES, LEASE[0], {"metadata": {"name": LEASE[1]}, "spec": chosen})
    await world.all_bound(["waits"])
    assert world.lease["strategy"] == "OldestEmulationVersion"
    assert await scheduler.terminate() == 0


async def selectors_that_take_as_long_as_they_may(world: World) -> None:
    """Pods whose selectors go to the limit, or ask for more, hold up neither others nor the lease, nor the end."""
    await world.nodes(1)
    gpus = [{"name": f"gpu-{i}", "attributes": {"index": {"int": i}}} for i in range(8)]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": "n1", "pool": pool, "devices": gpus}
    await world.client.create(RESOURCE_SLICES, "", {"metadata": {"name": "n1"}, "spec": spec})
    await world.client.create(DEVICE_CLASSES, "", {"metadata": {"name": "gpu"}, "spec": {}})
    endless = "x25 == x25"
    for number in range(25, 0, -1):
        endless = f"cel.bind(x{number},[{','.join([f'x{number - 1}'] * 4)}],{endless})"

    async def create(name: str, expression: str) -> None:
        selectors = [{"cel": {"expression": expression}}]
        request = {"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
        await world.client.create(RESOURCE_CLAIMS, "default", claim)
        claims = [{"name": "c", "resourceClaimName": name}]
        pod = {"containers": [{"name": "c", "image": "pause"}], "resourceClaims": claims}
        await world.client.create(PODS, "default", {"metadata": {"name": name}, "spec": pod})

    await create("endless", f"cel.bind(x0,[1],{endless})")
    scheduler = await world.scheduler("only")
    leader = await world.leader()
    await world.create_pods(["ordinary"])
    await world.all_bound(["ordinary"])
    (event, *_) = await world.events("endless", "FailedScheduling")
    assert "operation cancelled: actual cost limit exceeded" in event["message"]
    assert world.holder == leader
    # Evaluated for each device, for about half a second each.
    index = 'device.attributes["gpu.example.com"].index'
    await create("long", f"lists.range(90000).all(i, i >= 0) && {index} == 100")
    await asyncio.sleep(0.5)
    assert await scheduler.terminate() == 0


async def explained_and_audited_by_a_reader(world: World) -> None:
    """``kubesched explain`` and ``audit`` read the cluster by the role that is shipped for them, and change nothing."""
    await world.nodes(2, cpu="2")
    await world.create_pods(["fits"], cpu="500m")
    await world.create_pods(["huge"], cpu="3")
    await world.until(lambda: len(world.pods.values()) == 2, "both pods are seen")
    await world.client.bind("default", "fits", world.pods.get("default", "fits").uid, "n1")
    await world.until(lambda: world.pods.get("default", "fits").status.phase == "Running", "the pod runs")
    versions = {pod.key: pod.metadata.resource_version for pod in world.pods.values()}
    kubeconfig = await shipped_account(world.plane, world.folder, world.client, "kubesched-reader")

    async def read(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "kubesched.cli", *words, "--kubeconfig", str(kubeconfig), "-o", "json", "-q"]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        assert "forbidden" not in err.decode()
        document: dict[str, Any] = json.loads(out)
        return document

    (group,) = (await read("explain"))["pending"]
    assert (group["pods"], group["reason"]) == (["default/huge"], "Unschedulable")
    assert group["message"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert group["remedies"] == [{"changes": ["ask for 1 less cpu"], "nodes": 1, "examples": ["n2"]}]
    (placed,) = (await read("explain", "fits"))["placed"]
    assert (placed["node"], placed["feasible"]) == ("n1", 2)
    audit = await read("audit")
    assert (audit["totals"]["nodes"], audit["totals"]["pods"], audit["totals"]["pending"]) == (2, 2, 1)
    found = {finding["rule"]: finding["objects"] for finding in audit["findings"]}
    assert found["pod-never-schedulable"] == ["default/huge"]
    async with HttpTransport.connect(await load_kubeconfig(kubeconfig)) as reader:
        with pytest.raises(ApiError, match="forbidden"):
            await reader.patch(PODS, "default", "fits", {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(ApiError, match="forbidden"):
            await reader.delete(PODS, "default", "huge")
    assert {
        item.key: item.data()["metadata"]["resourceVersion"] for item in (await world.client.list(PODS)).items
    } == versions


#: Minor version of Kubernetes with ``resource.k8s.io/v1``.
_DEVICES_SINCE = 34

SCENARIOS = (
    Scenario("events and conditions", schedules_and_reports),
    Scenario("restart among a thousand pods", restarted_among_a_thousand_pods),
    Scenario("failover", failover_between_two_replicas),
    Scenario("API server restart and expired watches", the_api_server_restarts),
    Scenario("volumes that wait for their first consumer", volumes_wait_for_their_first_consumer),
    Scenario("devices", devices_are_allocated, since=_DEVICES_SINCE),
    Scenario("preemption", a_victim_makes_room),
    Scenario("selectors at their limit", selectors_that_take_as_long_as_they_may, since=_DEVICES_SINCE),
    Scenario("conflicts", another_scheduler_binds_the_same_pods),
    Scenario("lease taken", the_lease_is_taken),
    Scenario("explained and audited by a reader", explained_and_audited_by_a_reader),
    Scenario(
        "coordinated election",
        the_election_is_coordinated,
        only="embedded",
        why="LeaseCandidate is beta and off there, and its own controller would choose the leader",
    ),
)

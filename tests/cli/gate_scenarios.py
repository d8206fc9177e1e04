"""For each feature gate with an effect a small scenario: what is decided, or done, under given gates."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kubesched.api.kinds import JOBS, NODES, POD_GROUPS, PODS, PRIORITY_CLASSES, WORKLOADS
from kubesched.cli.run import command, connections
from kubesched.cli.run.flags import FLAG_SET
from kubesched.cli.run.options import OptionsError, options_of
from kubesched.cli.run.serving import authentication_of
from kubesched.lab.conformance.world import World
from kubesched.lab.conformance.written_attempt import evaluated, rejection_of
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import (
    API_VERSION,
    DEFAULT_GATES,
    KIND,
    ConfigError,
    FeatureGates,
    default_config,
    load_config_data,
)
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry

__all__ = ["SCENARIOS"]

JSON = dict[str, Any]
DRIVER, HOST = "gpu.example.com", "kubernetes.io/hostname"


def node(name: str, cpu: str = "4", **members: Any) -> JSON:
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    labels = {HOST: name, **members.pop("labels", {})}
    return {"metadata": {"name": name, "labels": labels}, "spec": members, "status": {"allocatable": allocatable}}


def pod(name: str = "p", requests: Mapping[str, str] | None = None, **spec: Any) -> JSON:
    status, labels = spec.pop("status", {}), spec.pop("labels", {})
    container = {"name": "c", "image": "app:1", "resources": {"requests": dict(requests or {})}}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"containers": [container], **spec},
        "status": status,
    }


def decision(
    gates: FeatureGates,
    pending: JSON,
    nodes: Sequence[JSON],
    *,
    pods: Sequence[JSON] = (),
    objects: Sequence[JSON] = (),
    profile: JSON | None = None,
) -> Any:
    """The nodes that are best for a pod, with their devices; or why there is none."""
    config = None if profile is None else {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}
    scenario = {
        "config": config,
        "nodes": list(nodes),
        "pods": list(pods),
        "pending": [pending],
        "objects": list(objects),
    }
    world = World(scenario, in_tree_registry(), gates=gates)
    found = evaluated(world, world.pending[0])
    if found["outcome"] != "scheduled":
        return found["message"]
    devices = {name: [claim.key for claim, _ in listed] for name, listed in found["allocations"].items()}
    return found["best"], devices


# -- pods and nodes --------------------------------------------------------------------------------------------


def pod_level(gates: FeatureGates) -> Any:
    """A pod whose containers request little, and the pod itself more than the node has."""
    return decision(gates, pod(requests={"cpu": "1"}, resources={"requests": {"cpu": "8"}}), [node("n")])


def resized_pod_level(gates: FeatureGates) -> Any:
    """A running pod that was given more than its spec says."""
    given = {"phase": "Running", "resources": {"requests": {"cpu": "3"}}}
    running = pod("old", nodeName="n", resources={"requests": {"cpu": "1"}}, status=given)
    return decision(gates, pod(requests={"cpu": "2"}), [node("n")], pods=[running])


SPREAD: JSON = {
    "maxSkew": 1,
    "topologyKey": HOST,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
    "matchLabelKeys": ["revision"],
}


def label_keys(gates: FeatureGates) -> Any:
    """A pod of another revision is on one of two nodes, the one with more room."""
    old = pod("old", nodeName="a", labels={"app": "web", "revision": "1"}, status={"phase": "Running"})
    new = pod(labels={"app": "web", "revision": "2"}, topologySpreadConstraints=[SPREAD])
    return decision(gates, new, [node("a"), node("b", unschedulable=True)], pods=[old])


def declared_features(gates: FeatureGates) -> Any:
    return decision(gates, pod(hostNetwork=True, hostUsers=False), [node("n")])


def compared_tolerations(gates: FeatureGates) -> Any:
    tainted = node("n", taints=[{"key": "level", "value": "5", "effect": "NoSchedule"}])
    return decision(gates, pod(tolerations=[{"key": "level", "operator": "Gt", "value": "3"}]), [tainted])


# -- volumes ---------------------------------------------------------------------------------------------------


def volume(name: str, host: str, size: str) -> JSON:
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [host]}]}
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "csi": {"driver": "d", "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"phase": "Available"},
    }


def claim_of_volume(**spec: Any) -> JSON:
    body = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "local",
    }
    meta = {"name": "c", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {**body, **spec}}


CLAIMING: JSON = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
LOCAL = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def scored_storage(gates: FeatureGates) -> Any:
    """Two nodes, of which one has a far larger volume than the claim requests."""
    objects = [LOCAL, claim_of_volume(), volume("small", "a", "2Gi"), volume("large", "b", "100Gi")]
    return decision(gates, pod(**CLAIMING), [node("a"), node("b")], objects=objects)


def missing_driver(gates: FeatureGates) -> Any:
    """A volume of a driver that the node does not have, and that has to be there."""
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "d"},
        "spec": {"preventPodSchedulingIfMissing": True},
    }
    bound = claim_of_volume(volumeName="v") | {"status": {"phase": "Bound"}}
    bound["metadata"] = {**bound["metadata"], "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    owned = volume("v", "n", "2Gi")
    owned["spec"]["claimRef"] = {"namespace": "default", "name": "c", "uid": "persistentvolumeclaim/default/c"}
    return decision(gates, pod(**CLAIMING), [node("n")], objects=[LOCAL, bound, owned, driver])


# -- devices ---------------------------------------------------------------------------------------------------


def devices(
    gates: FeatureGates,
    device: JSON,
    request: JSON,
    *,
    objects: Sequence[JSON] = (),
    class_spec: JSON | None = None,
    requests: Mapping[str, str] | None = None,
    profile: JSON | None = None,
    **slice_spec: Any,
) -> Any:
    """A node with one device, and a pod with a claim of this request, or with these requests."""
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    place = {} if "perDeviceNodeSelection" in slice_spec else {"nodeName": "n"}
    body = {"driver": DRIVER, "pool": pool, "devices": [{"name": "d", **device}], **place, **slice_spec}
    kinds = [
        ("ResourceSlice", {"name": "s"}, body),
        ("DeviceClass", {"name": "gpu"}, class_spec or {}),
        ("ResourceClaim", {"name": "c", "namespace": "default"}, {"devices": {"requests": [{"name": "r", **request}]}}),
    ]
    made = [
        {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": meta, "spec": spec} for kind, meta, spec in kinds
    ]
    asking = pod(requests=requests) if requests else pod(resourceClaims=[{"name": "c", "resourceClaimName": "c"}])
    return decision(gates, asking, [node("n")], objects=[*made, *objects], profile=profile)


EXACTLY: JSON = {"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}


def selecting(expression: str) -> JSON:
    return {"exactly": {**EXACTLY["exactly"], "selectors": [{"cel": {"expression": expression}}]}}


def prioritized(gates: FeatureGates) -> Any:
    return devices(gates, {}, {"firstAvailable": [{"name": "s", **EXACTLY["exactly"]}]})


def partitioned(gates: FeatureGates) -> Any:
    return devices(gates, {"nodeName": "n"}, EXACTLY, perDeviceNodeSelection=True)


def tainted_device(gates: FeatureGates) -> Any:
    return devices(gates, {"taints": [{"key": "broken", "effect": "NoSchedule"}]}, EXACTLY)


def taint_rule(gates: FeatureGates) -> Any:
    spec = {"taint": {"key": "broken", "effect": "NoSchedule"}, "deviceSelector": {"driver": DRIVER}}
    kind = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "r"}}
    return devices(gates, {}, EXACTLY, objects=[{**kind, "spec": spec}])


def consumed(gates: FeatureGates) -> Any:
    device = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}
    request = {"exactly": {**EXACTLY["exactly"], "capacity": {"requests": {"memory": "1Gi"}}}}
    return devices(gates, device, request)


def bound_by_conditions(gates: FeatureGates) -> Any:
    device = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    return devices(gates, device, EXACTLY)


def listed_attributes(gates: FeatureGates) -> Any:
    return devices(
        gates, {"attributes": {"tags": {"strings": ["a"]}}}, selecting(f'"a" in device.attributes["{DRIVER}"].tags')
    )


def extended(gates: FeatureGates) -> Any:
    return devices(
        gates, {}, EXACTLY, class_spec={"extendedResourceName": "example.com/gpu"}, requests={"example.com/gpu": "1"}
    )


def accepted(gates: FeatureGates, plugin: str, args: JSON) -> Any:
    """Return "accepted" for a plugin's arguments, or the error that refuses them."""
    profile = {"pluginConfig": [{"name": plugin, "args": args}]}
    try:
        load_config_data({"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}, gates=gates)
    except ConfigError as error:
        return str(error)
    return "accepted"


# -- the whole scheduler, in virtual time --------------------------------------------------------------------------


class LatePreBind:
    """Takes five seconds to prepare a binding."""

    name = "Late"

    def __init__(self, args: Any, handle: Any) -> None:
        pass

    async def pre_bind(self, state: Any, pod: PodInfo, node_name: str) -> None:
        await asyncio.sleep(5)


def in_a_cluster(
    gates: FeatureGates, scenario: Callable[[Embedded], Awaitable[Any]], profile: JSON | None = None
) -> Any:
    """Return what a scenario finds in a running cluster."""

    async def main() -> Any:
        registry = in_tree_registry()
        registry.register(LatePreBind)
        document = {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile or {}]}
        config = load_config_data(document, gates=gates)
        clock = VirtualClock(asyncio.get_running_loop())
        embedded = Embedded(config, registry, clock=clock, gates=gates, kubelets=False)
        async with embedded.running():
            return await scenario(embedded)

    return run_virtual(main())


def popped_from_backoff(gates: FeatureGates) -> Any:
    """Return the node of a pod that backs off; it has one if it is tried when no other is active."""

    async def scenario(embedded: Embedded) -> Any:
        embedded.store.create(NODES, "", node("small", "1"))
        embedded.store.create(PODS, "default", pod(requests={"cpu": "2"}))
        await asyncio.sleep(0.2)
        embedded.store.create(NODES, "", node("n"))
        await asyncio.sleep(0.3)
        return embedded.pods()[0].spec.node_name

    return in_a_cluster(gates, scenario)


def published(gates: FeatureGates) -> Any:
    """Return the nominated node that a pod's status names while its binding is prepared."""

    async def scenario(embedded: Embedded) -> Any:
        embedded.store.create(NODES, "", node("n"))
        embedded.store.create(PODS, "default", pod())
        await asyncio.sleep(3)
        return embedded.pods()[0].status.nominated_node_name

    return in_a_cluster(gates, scenario, {"plugins": {"preBind": {"enabled": [{"name": "Late"}]}}})


def merged_label_keys(gates: FeatureGates) -> Any:
    """The selector that a pod is stored with."""

    async def scenario(embedded: Embedded) -> Any:
        asked = pod(labels={"revision": "2"}, topologySpreadConstraints=[SPREAD])
        stored = embedded.store.create(PODS, "default", asked).data()
        return stored["spec"]["topologySpreadConstraints"][0]["labelSelector"]

    return in_a_cluster(gates, scenario)


def group(name: str = "g", minimum: int = 2, **spec: Any) -> JSON:
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}, **spec}}


def members(gates: FeatureGates, *pods: JSON, nodes: Sequence[JSON] = (), **spec: Any) -> Any:
    """The nodes of the members of a gang of two, and whether other pods have to go."""

    async def scenario(embedded: Embedded) -> Any:
        embedded.store.create(PRIORITY_CLASSES, "", {"metadata": {"name": "high"}, "value": 100})
        for one in nodes or (node("n"),):
            embedded.store.create(NODES, "", one)
        for one in pods:
            embedded.store.create(PODS, "default", one)
            await asyncio.sleep(0.1)
        embedded.store.create(POD_GROUPS, "default", group(**spec))
        await asyncio.sleep(60)
        return sorted((one.name, one.spec.node_name, one.metadata.deletion_timestamp) for one in embedded.pods())

    return in_a_cluster(gates, scenario)


def member(name: str, cpu: str = "1", **spec: Any) -> JSON:
    return pod(name, {"cpu": cpu}, schedulingGroup={"podGroupName": "g"}, **spec)


def stored_group(gates: FeatureGates) -> Any:
    """The group that a pod is stored with."""

    async def scenario(embedded: Embedded) -> Any:
        return embedded.store.create(PODS, "default", member("a")).data()["spec"].get("schedulingGroup")

    return in_a_cluster(gates, scenario)


def in_one_rack(gates: FeatureGates) -> Any:
    """A gang that fits no rack, but two racks."""
    racks = [node(name, "1", labels={"rack": name}) for name in ("a", "b")]
    constraints = {"topology": [{"key": "rack"}]}
    return members(gates, member("a"), member("b"), nodes=racks, schedulingConstraints=constraints)


def evicting_group(gates: FeatureGates) -> Any:
    """A gang that needs the room of a pod. The group has a priority, its members have none."""
    running = pod("old", {"cpu": "3"}, nodeName="n", status={"phase": "Running"})
    return members(gates, running, member("a", "2"), member("b", "2"), priorityClassName="high")


def group_of_a_job(gates: FeatureGates) -> Any:
    """Number of workloads and groups that a Job gets."""

    async def main() -> Any:
        clock = VirtualClock(asyncio.get_running_loop())
        embedded = Embedded(
            default_config(gates=gates), in_tree_registry(), clock=clock, gates=gates, controllers=["job"]
        )
        async with embedded.running():
            template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app:1"}]}}
            numbers = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
            embedded.store.create(
                JOBS, "default", {"metadata": {"name": "j"}, "spec": {"template": template, **numbers}}
            )
            await asyncio.sleep(1)
            return [len(embedded.store.list(kind).items) for kind in (WORKLOADS, POD_GROUPS)]

    return run_virtual(main())


def claims_of_a_group(gates: FeatureGates) -> Any:
    """The claims that a group is stored with."""

    async def scenario(embedded: Embedded) -> Any:
        wanted = group(resourceClaims=[{"name": "net", "resourceClaimName": "shared"}])
        return embedded.store.create(POD_GROUPS, "default", wanted).data()["spec"].get("resourceClaims")

    return in_a_cluster(gates, scenario)


def preempted(gates: FeatureGates) -> Any:
    """Return "alongside" if PostFilter ends before the victims are evicted, else "in the cycle"."""
    running = pod("old", {"cpu": "4"}, nodeName="n", priority=1, status={"phase": "Running"})
    asking = pod(requests={"cpu": "2"}, priority=9)
    scenario = {"config": None, "nodes": [node("n")], "pods": [running], "pending": [asking], "objects": []}
    world = World(scenario, in_tree_registry(), gates=gates)
    rejection = rejection_of(world, world.pending[0])
    framework = world.frameworks["default-scheduler"]
    answer = framework.post_filter(rejection.state, world.pending[0], rejection.diagnosis.statuses)
    if isinstance(answer, tuple):
        return "alongside"
    asyncio.run(answer)  # type: ignore[arg-type]  # a coroutine
    return "in the cycle"


# -- the process ---------------------------------------------------------------------------------------------------


class _StoppedError(Exception):
    """The process is built as far as a scenario needs it."""


def process(gates: FeatureGates, folder: Path) -> JSON:
    """With what ``kubesched run`` builds its parts."""
    access = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}]}
    access["contexts"] = [{"name": "c", "context": {"cluster": "c", "user": ""}}]
    (folder / "kubeconfig").write_text(json.dumps({**access, "current-context": "c"}), encoding="utf-8")
    built: JSON = {"candidate": False}

    def part(name: str, note: Callable[..., Any]) -> Any:
        real = getattr(connections, name)

        def make(*args: Any, **options: Any) -> Any:
            built.update(note(options))
            return real(*args, **options)

        return make

    def pages(*args: Any, **options: Any) -> Any:
        built.update(flagz=options["flags"] is not None, statusz=options["versions"] is not None)
        raise _StoppedError

    running = command._Process(FLAG_SET.parse(flags_of(gates, f"--kubeconfig={folder / 'kubeconfig'}")))

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                connections, "ApiPort", part("ApiPort", lambda options: {"watch_list": options["watch_list"]})
            )
            patch.setattr(connections, "LeaseCandidate", part("LeaseCandidate", lambda options: {"candidate": True}))
            patch.setattr(command, "Pages", pages)
            with pytest.raises(_StoppedError):
                asyncio.run(running.run())
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    return built


def flags_of(gates: FeatureGates, *flags: str) -> list[str]:
    changed = {name: value for name, value in gates.values.items() if DEFAULT_GATES.values[name] is not value}
    return [*flags, *(f"--feature-gates={name}={str(value).lower()}" for name, value in changed.items())]


def refusal_of(gates: FeatureGates, *flags: str) -> str:
    """Return why these flags of ``kubesched run`` are refused; empty when they are not."""

    async def no_config_map(namespace: str, name: str) -> dict[str, str]:
        raise AssertionError

    try:
        asyncio.run(options_of(FLAG_SET.parse(flags_of(gates, *flags)), no_config_map))
    except OptionsError as error:
        return str(error)
    return ""


def believed_uid_headers(gates: FeatureGates) -> Any:
    given = authentication_of(FLAG_SET.parse(["--requestheader-uid-headers=x-remote-uid"]), gates)
    return given.believe_uid_headers, refusal_of(gates, "--requestheader-uid-headers=x-remote-uid")


#: Gate to what is decided, or done, under given gates.
SCENARIOS: Final[dict[str, Callable[[FeatureGates, Path], Any]]] = {
    "ComponentFlagz": lambda gates, folder: process(gates, folder)["flagz"],
    "ComponentStatusz": lambda gates, folder: process(gates, folder)["statusz"],
    "CoordinatedLeaderElection": lambda gates, folder: process(gates, folder)["candidate"],
    "DRAConsumableCapacity": lambda gates, folder: consumed(gates),
    "DRADeviceBindingConditions": lambda gates, folder: bound_by_conditions(gates),
    "DRADeviceTaintRules": lambda gates, folder: taint_rule(gates),
    "DRADeviceTaints": lambda gates, folder: tainted_device(gates),
    "DRAExtendedResource": lambda gates, folder: extended(gates),
    "DRAListTypeAttributes": lambda gates, folder: listed_attributes(gates),
    "DRAPartitionableDevices": lambda gates, folder: partitioned(gates),
    "DRAPrioritizedList": lambda gates, folder: prioritized(gates),
    "DRAResourceClaimDeviceStatus": lambda gates, folder: accepted(gates, "DynamicResources", {"bindingTimeout": "5s"}),
    "DRASchedulerFilterTimeout": lambda gates, folder: accepted(gates, "DynamicResources", {"filterTimeout": "5s"}),
    "DRAWorkloadResourceClaims": lambda gates, folder: claims_of_a_group(gates),
    "GangScheduling": lambda gates, folder: members(gates, member("a")),
    "GenericWorkload": lambda gates, folder: stored_group(gates),
    "InPlacePodLevelResourcesVerticalScaling": lambda gates, folder: resized_pod_level(gates),
    "LoggingAlphaOptions": lambda gates, folder: refusal_of(gates, "--log-text-split-stream"),
    "LoggingBetaOptions": lambda gates, folder: refusal_of(gates, "--logging-format=json"),
    "MatchLabelKeysInPodTopologySpread": lambda gates, folder: label_keys(gates),
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": lambda gates, folder: merged_label_keys(gates),
    "NodeDeclaredFeatures": lambda gates, folder: declared_features(gates),
    "NominatedNodeNameForExpectation": lambda gates, folder: published(gates),
    "PodLevelResources": lambda gates, folder: pod_level(gates),
    "RemoteRequestHeaderUID": lambda gates, folder: believed_uid_headers(gates),
    "SchedulerAsyncPreemption": lambda gates, folder: preempted(gates),
    "SchedulerPopFromBackoffQ": lambda gates, folder: popped_from_backoff(gates),
    "StorageCapacityScoring": lambda gates, folder: scored_storage(gates),
    "TaintTolerationComparisonOperators": lambda gates, folder: compared_tolerations(gates),
    "TopologyAwareWorkloadScheduling": lambda gates, folder: in_one_rack(gates),
    "VolumeLimitScaling": lambda gates, folder: missing_driver(gates),
    "WatchListClient": lambda gates, folder: process(gates, folder)["watch_list"],
    "WorkloadAwarePreemption": lambda gates, folder: evicting_group(gates),
    "WorkloadWithJob": lambda gates, folder: group_of_a_job(gates),
}

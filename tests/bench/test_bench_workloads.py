"""The benchmark's format and executor: what is understood, what is refused and how, and that operations do what they say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubesched.api.kinds import CLAIMS, CSI_NODES, DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, VOLUMES
from kubesched.api.kinds import NODES as NODE_KIND
from kubesched.lab.bench import Run, WorkloadError, load_workloads, measure_decisions, run_workload
from kubesched.lab.bench.execute import _Execution
from kubesched.lab.bench.measure import Percentiles
from kubesched.lab.bench.templates import Template
from kubesched.lab.bench.workloads import CreatePods, labels_match, topic_of
from kubesched.scheduler.plugins import in_tree_registry

MEASURED = {"opcode": "createPods", "countParam": "$measurePods", "collectMetrics": True}
NODES = {"opcode": "createNodes", "count": 3}


def workload_file(
    tmp_path: Path, *operations: dict[str, Any], params: dict[str, Any] | None = None, **case: Any
) -> Path:
    given = {"measurePods": 4} if params is None else params
    content = [
        {"name": "Case", "workloadTemplate": list(operations), "workloads": [{"name": "w", "params": given}], **case}
    ]
    path = tmp_path / "performance-config.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def go(path: Path) -> Run:
    [workload] = load_workloads(path)
    return asyncio.run(run_workload(workload, in_tree_registry()))


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("{{.Index}}", "3"),
        ("{{ .Count }}", "8"),
        ("{{Mod .Index 2}}", "1"),
        ("{{ DivideInt 30000 .Count }}", "3750"),
        ("{{DivideInt .Index 2}}", "1"),
        ("{{AddInt .Index 1 2}}", "6"),
        ("{{MultiplyInt .Index .Count}}", "24"),
        ("{{SubtractInt 1 .Index}}", "-2"),
        ("{{DivideFloat .Index 2}}", "1.5"),
        ("{{Mod -7 3}}", "-1"),
    ],
)
def test_template_actions(action: str, text: str) -> None:
    template = Template(f'{{kind: Pod, metadata: {{name: "p-{action}"}}}}', "t")
    assert template.make(3, 8)["metadata"]["name"] == f"p-{text}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: {{if .Index}}", "{{if .Index}} is not understood"),
        ("{kind: Pod, a: {{DivideInt 1 0}}}", "division by zero"),
        ("{kind: Pod, a: {{Mod .Index x}}}", "could not convert"),
        ("- a", "expected one Kubernetes object"),
        ("{a: {{.Index}}", "not valid YAML"),
    ],
)
def test_bad_templates_are_refused(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match="template t: ") as caught:
        Template(text, "t").make(0, 1)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("operations", "params", "message"),
    [
        ([MEASURED, {"opcode": "fly"}], None, "operation 1: unknown opcode 'fly'"),
        ([{"opcode": "updateAny"}, MEASURED], None, "missing required field `templatePath`"),
        ([{"opcode": "updateAny", "templatePath": "x", "updatePerSecond": -1}, MEASURED], None, "must not be negative"),
        ([{"opcode": "createResourceDriver"}, MEASURED], None, "missing required field `driverName`"),
        ([{**MEASURED, "steadyState": True}], None, "steadyState needs a duration and a count greater than 0"),
        ([{**MEASURED, "steadyState": True, "duration": "soon"}], None, "createPods): duration: "),
        ([{**MEASURED, "colour": "red"}], None, "unknown field `colour`"),
        ([{**MEASURED, "persistentVolumeTemplatePath": "pv.yaml"}], None, "need each other"),
        ([{**MEASURED, "skipWaitToCompletion": True}], None, "exclude each other"),
        ([{**MEASURED, "countParam": "measurePods"}], None, "must be $ and a parameter's name"),
        ([MEASURED], {}, "there is no parameter measurePods"),
        ([MEASURED], {"measurePods": 1, "spare": 2}, "nothing asks for the parameters spare"),
        ([MEASURED], {"measurePods": "many"}, "Expected `int`, got `str`"),
        ([MEASURED], {"measurePods": -1}, "count must not be negative"),
        ([NODES], {}, "nothing is measured"),
        (
            [MEASURED, {"opcode": "churn", "mode": "stir", "templatePaths": ["x"]}],
            None,
            "mode must be create or recreate",
        ),
        ([MEASURED, {"opcode": "barrier", "stageRequirement": "Done"}], None, "must be Scheduled or Attempted"),
    ],
)
def test_bad_operations_are_refused_before_anything_runs(
    tmp_path: Path, operations: list[dict[str, Any]], params: dict[str, Any] | None, message: str
) -> None:
    [workload] = load_workloads(workload_file(tmp_path, *operations, params=params))
    with pytest.raises(WorkloadError, match=r"^Case/w: ") as caught:
        workload.operations()
    assert message in str(caught.value)


def test_params_fill_in_and_can_be_overridden(tmp_path: Path) -> None:
    [workload] = load_workloads(workload_file(tmp_path, MEASURED, params={"measurePods": 2.9}))
    counts = [op.count for op in workload.operations() if isinstance(op, CreatePods)]
    assert counts == [2]
    again = workload.with_params(measurePods=7).operations()
    assert [op.count for op in again if isinstance(op, CreatePods)] == [7]
    with pytest.raises(WorkloadError, match="no parameter initNodes"):
        workload.with_params(initNodes=1)


def test_pod_sets_become_one_operation_per_namespace(tmp_path: Path) -> None:
    inner = {"opcode": "createPods", "count": 2}
    sets = {"opcode": "createPodSets", "count": 3, "namespacePrefix": "set", "createPodsOp": inner}
    path = workload_file(tmp_path, NODES, sets, MEASURED)
    [workload] = load_workloads(path)
    operations = workload.operations()
    assert [op.namespace for op in operations if isinstance(op, CreatePods)] == ["set-0", "set-1", "set-2", ""]
    run = go(path)
    # The default namespace is named after the place in the expanded list.
    assert [(section.name, section.pods, section.bound) for section in run.sections] == [("namespace-4", 4, 4)]
    assert run.sections[0].decision_us.p99 >= run.sections[0].decision_us.p50 > 0


def test_gates_barriers_deletions_and_collections(tmp_path: Path) -> None:
    (tmp_path / "gated.yaml").write_text(
        "{apiVersion: v1, kind: Pod, metadata: {generateName: g-}, spec: "
        "{schedulingGates: [{name: g}], containers: [{name: c, image: i}]}}"
    )
    path = workload_file(
        tmp_path,
        NODES,
        {
            "opcode": "createPods",
            "count": 2,
            "namespace": "g",
            "podTemplatePath": "gated.yaml",
            "skipWaitToCompletion": True,
        },
        {"opcode": "barrier", "stageRequirement": "Attempted"},
        {"opcode": "deletePods", "namespace": "g", "deletePodsPerSecond": 500},
        {"opcode": "sleep", "duration": "5ms"},
        {"opcode": "startCollectingMetrics", "name": "mine", "namespaces": ["late"]},
        {"opcode": "createPods", "count": 3, "namespace": "late", "skipWaitToCompletion": True},
        {"opcode": "barrier", "namespaces": ["late"]},
        {"opcode": "stopCollectingMetrics"},
        params={},
    )
    [section] = go(path).sections
    assert (section.name, section.pods, section.bound) == ("mine", 3, 3)
    assert section.latency_ms.p99 >= section.latency_ms.p50 > 0


GROUP = (
    "{apiVersion: scheduling.k8s.io/v1alpha2, kind: PodGroup, metadata: {name: 'g-{{.Index}}'}, "
    "spec: {schedulingPolicy: {gang: {minCount: 2}}}}"
)
MEMBER = (
    "{apiVersion: v1, kind: Pod, metadata: {generateName: p-}, spec: "
    "{schedulingGroup: {podGroupName: 'g-{{DivideInt .Index 2}}'}, containers: [{name: c, image: i}]}}"
)


def test_gates_of_pod_groups_are_in_effect(tmp_path: Path) -> None:
    for name, text in (("group", GROUP), ("member", MEMBER)):
        (tmp_path / f"{name}.yaml").write_text(text)
    operations = (
        NODES,
        {"opcode": "createAny", "count": 2, "namespace": "groups", "templatePath": "group.yaml"},
        {**MEASURED, "namespace": "groups", "podTemplatePath": "member.yaml"},
    )
    path = workload_file(
        tmp_path, *operations, featureGates={"GenericWorkload": True, "GangScheduling": True, "StorageVersionAPI": True}
    )
    [workload] = load_workloads(path)
    assert workload.gates.among(("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption")) == {
        "GenericWorkload",
        "GangScheduling",
    }
    [section] = go(path).sections
    assert (section.pods, section.bound) == (4, 4)
    lone = workload_file(tmp_path, *operations, featureGates={"GangScheduling": True})
    with pytest.raises(WorkloadError, match="Case/w: featureGates: GangScheduling is enabled, but depends on"):
        go(lone)


def test_updates_replace_objects_and_their_status_and_barriers_look_at_labels(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(
        "{apiVersion: v1, kind: Node, metadata: {name: 'closed-{{.Index}}'}, spec: {unschedulable: true}, "
        'status: {capacity: {pods: "9", cpu: "4", memory: 32Gi}}}'
    )
    (tmp_path / "open.yaml").write_text(
        "{apiVersion: v1, kind: Node, metadata: {name: 'closed-{{.Index}}', labels: {tier: '{{.Index}}'}}, "
        'status: {capacity: {pods: "7"}, allocatable: {pods: "7", cpu: "4", memory: 32Gi}}}'
    )
    for kind, selector in (("wanted", ""), ("never", "nodeSelector: {none: here}, ")):
        (tmp_path / f"{kind}.yaml").write_text(
            f"{{apiVersion: v1, kind: Pod, metadata: {{generateName: {kind}-, labels: {{type: {kind}}}}}, "
            f"spec: {{{selector}containers: [{{name: c, image: i}}]}}}}"
        )
    pods = {"opcode": "createPods", "namespace": "ns", "count": 3, "skipWaitToCompletion": True}
    path = workload_file(
        tmp_path,
        {"opcode": "createNodes", "count": 2, "nodeTemplatePath": "node.yaml"},
        {
            "opcode": "startCollectingMetrics",
            "name": "wanted",
            "namespaces": ["ns"],
            "labelSelector": {"type": "wanted"},
        },
        {**pods, "podTemplatePath": "wanted.yaml"},
        {**pods, "podTemplatePath": "never.yaml"},
        {"opcode": "barrier", "stageRequirement": "Attempted"},
        {"opcode": "updateAny", "templatePath": "open.yaml", "count": 2, "updatePerSecond": 500},
        {"opcode": "barrier", "labelSelector": {"type": "wanted"}},
        {"opcode": "stopCollectingMetrics"},
        params={},
    )
    [workload] = load_workloads(path)

    async def main() -> None:
        operations = workload.operations()
        execution = _Execution(workload, operations, in_tree_registry(), 0, None, lambda done, total: None)
        async with execution.embedded.running():
            for index, op in enumerate(operations):
                await execution.do(index, op)
        [section] = execution.sections
        assert (section.name, section.pods, section.bound) == ("wanted", 3, 3)
        nodes = {node.metadata.name: node for node in execution.embedded.nodes()}
        # The label that the runner had added is lost with the rest; the status is the template's.
        assert nodes["closed-1"].metadata.labels == {"tier": "1"}
        assert not nodes["closed-1"].spec.unschedulable
        assert nodes["closed-1"].status.allocatable["pods"] == "7"
        assert {pod.metadata.labels["type"] for pod in execution.embedded.pods() if not pod.spec.node_name} == {"never"}

    asyncio.run(main())


def test_nodes_change_alongside_what_is_measured() -> None:
    shape = Path(__file__).parents[2] / "bench" / "million.yaml"
    [workload] = [one for one in load_workloads(shape) if one.case == "MillionOnChangingNodes"]
    small = workload.with_params(initNodes=20, measurePods=300)

    async def main() -> None:
        operations = small.operations()
        execution = _Execution(small, operations, in_tree_registry(), 0, None, lambda done, total: None)
        async with execution.embedded.running():
            for index, op in enumerate(operations):
                await execution.do(index, op)
            assert [(section.pods, section.bound) for section in execution.sections] == [(300, 300)]
            _, updates = execution._background
            await asyncio.wait_for(updates, 30)
            assert len(execution.embedded.store.list(NODE_KIND, label_selector="release=two").items) == 20
            execution.stop_background()

    asyncio.run(main())


def test_unique_labels_and_fake_features(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(
        "{apiVersion: v1, kind: Pod, metadata: {generateName: p-}, "
        "spec: {resources: {requests: {cpu: 100m}}, containers: [{name: c, image: i}]}}"
    )
    nodes = {**NODES, "uniqueNodeLabelStrategy": {"labelKey": "own"}}
    params = {"measurePods": 2, "numNodeDeclaredFeatures": 70}
    path = workload_file(tmp_path, nodes, {**MEASURED, "podTemplatePath": "pod.yaml"}, params=params)
    [workload] = load_workloads(path)
    with pytest.raises(WorkloadError, match="nothing asks for the parameters numNodeDeclaredFeatures"):
        workload.operations()
    text = path.read_text()
    path.write_text(text.replace("name: w\n", "name: w\n    featureGates: {NodeDeclaredFeatures: true}\n"))
    [workload] = load_workloads(path)
    assert len(workload.fake_features) == 70

    async def main() -> None:
        operations = workload.operations()
        execution = _Execution(workload, operations, in_tree_registry(), 0, None, lambda done, total: None)
        async with execution.embedded.running():
            await execution.do(0, operations[0])
            made = execution.embedded.nodes()
            assert len({node.metadata.labels["own"] for node in made}) == 3
            assert set(made[0].status.declared_features) == set(workload.fake_features)
            bare = execution.embedded.store.get(NODE_KIND, "", made[0].metadata.name).data()
            bare["status"]["declaredFeatures"] = bare["status"]["declaredFeatures"][1:]
            execution.embedded.store.update(NODE_KIND, "", made[0].metadata.name, bare, subresource="status")
            await execution.do(1, operations[1])
            assert made[0].metadata.name not in {pod.spec.node_name for pod in execution.embedded.pods()}

    asyncio.run(main())


def test_thresholds_and_labels_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "dra" / "extendedresource"
    folder.mkdir(parents=True)
    content = [
        {
            "name": "Case",
            "labels": ["performance"],
            "workloadTemplate": [NODES, {"opcode": "createPods", "count": 1, "collectMetrics": True}],
            "workloads": [
                {"name": "a", "threshold": 40, "labels": ["short"]},
                {"name": "b", "threshold": {"dra_extendedresource": 50, "dra": 60}},
                {"name": "c", "threshold": {"dra": 60}},
            ],
        }
    ]
    (folder / "performance-config.yaml").write_text(yaml.safe_dump(content))
    first, second, third = load_workloads(folder)
    assert (first.threshold, second.threshold, third.threshold) == (40, 50, 0)
    assert first.labels == {"performance", "short"}
    assert labels_match(first.labels, "performance,+short")
    assert not labels_match(first.labels, "performance,-short")
    assert labels_match(second.labels, " performance , -short,")
    assert not labels_match(second.labels, "integration-test")
    assert [topic_of(Path(name)) for name in ("a/event_handling", "x/dra/y/z", "misc")] == [
        "eventhandling",
        "dra_y_z",
        "misc",
    ]


def test_pods_that_fit_nowhere_end_the_workload_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubesched.lab.bench.execute._STILL_SECONDS", 0.05)
    with pytest.raises(WorkloadError, match=r"3 pods have no node.*0/1 nodes are available: 1 Insufficient cpu"):
        go(workload_file(tmp_path, {"opcode": "createNodes", "count": 1}, MEASURED, params={"measurePods": 43}))


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"opcode": "createPods", "podTemplatePath": "gone.yaml", "count": 1}, "template .*gone.yaml: No such file"),
        ({"opcode": "barrier", "namespaces": ["nowhere"]}, "no pods were created in namespace nowhere"),
        ({"opcode": "sleep", "duration": "soon"}, "'soon' is not a duration"),
        ({"opcode": "stopCollectingMetrics"}, "without a start"),
    ],
)
def test_what_goes_wrong_while_running_is_reported(tmp_path: Path, operation: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        go(workload_file(tmp_path, NODES, operation, MEASURED))


def test_pods_with_volumes_have_bound_claims_and_nodes_their_drivers(tmp_path: Path) -> None:
    (tmp_path / "pv.yaml").write_text(
        "{apiVersion: v1, kind: PersistentVolume, spec: {accessModes: [ReadOnlyMany], capacity: {storage: 1Gi}, "
        "csi: {driver: d.example}, persistentVolumeReclaimPolicy: Retain}}"
    )
    (tmp_path / "pvc.yaml").write_text(
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {annotations: "
        '{pv.kubernetes.io/bind-completed: "true"}}, '
        "spec: {accessModes: [ReadOnlyMany], resources: {requests: {storage: 1Gi}}}}"
    )
    strategy = {
        "nodeAllocatable": {"attachable-volumes-csi-d.example": "2"},
        "csiNodeAllocatable": {"d.example": {"count": 2}},
        "migratedPlugins": ["kubernetes.io/aws-ebs"],
    }
    paths = {"persistentVolumeTemplatePath": "pv.yaml", "persistentVolumeClaimTemplatePath": "pvc.yaml"}
    path = workload_file(tmp_path, {**NODES, "nodeAllocatableStrategy": strategy}, {**MEASURED, **paths})
    [workload] = load_workloads(tmp_path)

    async def main() -> None:
        execution = _Execution(workload, workload.operations(), in_tree_registry(), 0, None, lambda done, total: None)
        async with execution.embedded.running():
            for index, op in enumerate(workload.operations()):
                await execution.do(index, op)
        store = execution.embedded.store
        node = store.get(CSI_NODES, "", "node-000001").data()
        assert node["metadata"]["annotations"] == {
            "storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"
        }
        assert node["spec"]["drivers"] == [{"name": "d.example", "nodeID": "node-000001", "allocatable": {"count": 2}}]
        claim = store.get(CLAIMS, "namespace-1", "pvc-3").data()
        volume = store.get(VOLUMES, "", "namespace-1-vol-3").data()
        assert (claim["spec"]["volumeName"], claim["status"]["phase"]) == ("namespace-1-vol-3", "Bound")
        assert volume["spec"]["claimRef"]["name"] == "pvc-3"
        assert (volume["spec"]["csi"]["volumeHandle"], volume["status"]["phase"]) == ("namespace-1-vol-3", "Bound")
        pods = execution.embedded.pods()
        assert all(pod.spec.node_name for pod in pods)
        claimed = [pod.spec.volumes[0].persistent_volume_claim for pod in pods]
        assert len(claimed) == 4
        assert None not in claimed

    asyncio.run(main())
    assert path.parent == workload.folder


DEVICE_CLASS = """
apiVersion: resource.k8s.io/v1beta1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: device.driver == "d.example"}}]}
"""
CLAIM_TEMPLATE = """
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec: {spec: {devices: {requests: [{name: gpu, deviceClassName: gpu}]}}}
"""
CLAIMING_POD = """
apiVersion: v1
kind: Pod
metadata: {generateName: claiming-}
spec:
  containers: [{name: main, image: pause}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
"""


def test_a_driver_has_devices_on_the_nodes_it_is_for_and_pods_come_in_batches(tmp_path: Path) -> None:
    for name, text in (("class", DEVICE_CLASS), ("template", CLAIM_TEMPLATE), ("pod", CLAIMING_POD)):
        (tmp_path / f"{name}.yaml").write_text(text)
    driver = {"opcode": "createResourceDriver", "driverName": "d.example", "nodes": "*-00000[12]"}
    pods = {"namespace": "test", "podTemplatePath": "pod.yaml", "steadyState": True, "duration": "1ms"}
    workload_file(
        tmp_path,
        NODES,
        {**driver, "maxClaimsPerNode": 3},
        {"opcode": "createAny", "templatePath": "class.yaml"},
        {"opcode": "createAny", "templatePath": "template.yaml", "namespace": "test"},
        {**MEASURED, **pods},
        featureGates={"DynamicResourceAllocation": True},
    )
    [workload] = load_workloads(tmp_path)

    async def main() -> None:
        execution = _Execution(workload, workload.operations(), in_tree_registry(), 0, None, lambda done, total: None)
        store = execution.embedded.store
        async with execution.embedded.running():
            for index, op in enumerate(workload.operations()):
                await execution.do(index, op)
        slices = {item.name: item.data()["spec"] for item in store.list(RESOURCE_SLICES).items}
        assert sorted(slices) == ["node-000001", "node-000002"]
        assert slices["node-000001"]["nodeName"] == "node-000001"
        assert [device["name"] for device in slices["node-000001"]["devices"]] == [f"instance-{n}" for n in range(3)]
        (section,) = execution.sections
        assert section.bound >= 4
        assert section.bound % 4 == 0
        left = execution.embedded.pods()
        assert len(left) == 4
        claims = {status.resource_claim_name for pod in left for status in pod.status.resource_claim_statuses}
        assert claims <= {item.name for item in store.list(RESOURCE_CLAIMS, "test").items}
        assert store.get(DEVICE_CLASSES, "", "gpu").data()["apiVersion"] == "resource.k8s.io/v1"

    asyncio.run(main())


@pytest.mark.parametrize("claims", [6, 7])
def test_claims_are_allocated_beforehand_as_long_as_there_are_devices(tmp_path: Path, claims: int) -> None:
    (tmp_path / "class.yaml").write_text(DEVICE_CLASS)
    (tmp_path / "claim.yaml").write_text(
        "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: 'c-{{.Index}}'}, "
        "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}"
    )
    driver = {"opcode": "createResourceDriver", "driverName": "d.example", "nodes": "*", "maxClaimsPerNode": 2}
    workload_file(
        tmp_path,
        NODES,
        driver,
        {"opcode": "createAny", "templatePath": "class.yaml"},
        {"opcode": "createResourceClaims", "templatePath": "claim.yaml", "namespace": "init", "count": claims},
        {"opcode": "allocResourceClaims", "namespace": "init"},
        MEASURED,
    )
    [workload] = load_workloads(tmp_path)

    async def main() -> None:
        execution = _Execution(workload, workload.operations(), in_tree_registry(), 0, None, lambda done, total: None)
        async with execution.embedded.running():
            for index, op in enumerate(workload.operations()[:-1]):
                await execution.do(index, op)
        found = [item.typed.status.allocation for item in execution.embedded.store.list(RESOURCE_CLAIMS, "init").items]
        devices = {(one.pool, one.device) for given in found if given is not None for one in given.devices.results}
        assert len(devices) == len(found) == 6

    if claims == 6:
        asyncio.run(main())
    else:
        with pytest.raises(WorkloadError, match="cannot be allocated on any of 3 nodes"):
            asyncio.run(main())


def test_decisions_alone_count_what_does_not_fit(tmp_path: Path) -> None:
    path = workload_file(tmp_path, {"opcode": "createNodes", "count": 1}, MEASURED, params={"measurePods": 43})
    [workload] = load_workloads(path)
    decisions = asyncio.run(measure_decisions(workload, in_tree_registry()))
    assert (decisions.decisions, decisions.unschedulable) == (43, 3)
    assert decisions.decision_us.p99 >= decisions.decision_us.p50 > 0


def test_percentiles_are_nearest_rank() -> None:
    numbers = Percentiles.of([float(number) for number in range(1, 101)])
    assert (numbers.p50, numbers.p90, numbers.p99) == (50, 90, 99)
    assert Percentiles.of([]) == Percentiles(p50=0, p90=0, p99=0)

"""Defaults, priority, runtime classes, and what pods and other kinds must satisfy."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_world import a_node, a_pod, a_store, kind, refused

from kubesched.api.kinds import NODES, PODS, Kind
from kubesched.api.wire import MERGE_PATCH, ApiError
from kubesched.cluster.store import Store

PRIORITY_CLASSES = kind("priorityclasses", "scheduling.k8s.io")
STORAGE_CLASSES = kind("storageclasses", "storage.k8s.io")
CLAIMS = kind("persistentvolumeclaims")


def spec_of(store: Store, **spec: Any) -> dict[str, Any]:
    stored: dict[str, Any] = store.create(PODS, "default", a_pod("", **spec)).data()["spec"]
    return stored


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "main", "image": "pause", **fields}


def resources(requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"containers": [container(resources={"requests": requests or {}, "limits": limits or {}})]}


def test_a_bare_pod_gets_the_defaults_that_scheduling_sees() -> None:
    data = a_store().create(PODS, "default", a_pod("p", nodeName="")).data()
    spec = data["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert "nodeName" not in spec
    assert [(item["key"], item["effect"], item["tolerationSeconds"]) for item in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    ]
    assert data["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_the_status_a_client_sends_is_not_believed_but_a_restored_one_is() -> None:
    pod = {**a_pod("p", priority=77), "status": {"phase": "Running"}}
    pod["metadata"]["uid"] = "kept"
    store = a_store()
    with refused(403, match="the integer value of priority"):
        store.create(PODS, "default", pod)
    item = store.create(PODS, "default", pod, restore=True)
    assert (item.uid, item.data()["status"]["phase"], item.data()["spec"]["priority"]) == ("kept", "Running", 77)
    del pod["spec"]["priority"]
    pod["metadata"]["name"] = "q"
    item = store.create(PODS, "default", pod)
    assert (item.uid == "kept", item.data()["status"]["phase"]) == (False, "Pending")


def test_restored_pods_with_equal_specs_keep_their_own_nodes() -> None:
    store = a_store()

    def restored(name: str, **spec: Any) -> dict[str, Any]:
        pod = {**a_pod(name, priority=77, **spec), "status": {"phase": "Running"}}
        spec_as_stored: dict[str, Any] = store.create(PODS, "default", pod, restore=True).data()["spec"]
        return spec_as_stored

    specs = [restored(f"p{number}", nodeName=f"n{number}") for number in range(3)]
    assert [spec.pop("nodeName") for spec in specs] == ["n0", "n1", "n2"]
    assert specs[0] == specs[1] == specs[2] == restored("waits")
    assert (specs[0]["priority"], specs[0]["restartPolicy"]) == (77, "Always")
    with refused(422, match="spec.nodeName"):
        restored("q", nodeName="No Name")
    with refused(422, match="until all schedulingGates have been cleared"):
        restored("gated", nodeName="n1", schedulingGates=[{"name": "example.com/wait"}])
    restored("gated", schedulingGates=[{"name": "example.com/wait"}])


def test_tolerations_are_added_only_where_missing_and_only_when_wanted() -> None:
    everything = [{"operator": "Exists"}]
    assert spec_of(a_store(), tolerations=everything)["tolerations"] == everything
    ours = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    keys = [item["key"] for item in spec_of(a_store(), tolerations=[ours])["tolerations"]]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    assert "tolerations" not in spec_of(a_store(default_tolerations=False))


def test_ports_and_requests_are_filled_in() -> None:
    spec = spec_of(a_store(), hostNetwork=True, containers=[container(ports=[{"containerPort": 80}])])
    assert spec["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP", "hostPort": 80}]
    spec = spec_of(a_store(), **resources({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}))
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


QOS: list[tuple[dict[str, Any], str]] = [
    ({}, "BestEffort"),
    (resources({"cpu": "1"}), "Burstable"),
    (resources(None, {"cpu": "1", "memory": "1Gi"}), "Guaranteed"),
    (resources({"cpu": "1000m"}, {"cpu": "1", "memory": "1Gi"}), "Guaranteed"),
    (resources({"cpu": "500m"}, {"cpu": "1", "memory": "1Gi"}), "Burstable"),
    (resources({"example.com/gpu": 1}, {"example.com/gpu": 1}), "BestEffort"),
]


@pytest.mark.parametrize(("spec", "want"), QOS)
def test_quality_of_service(spec: dict[str, Any], want: str) -> None:
    assert a_store().create(PODS, "default", a_pod("p", **spec)).data()["status"]["qosClass"] == want


# -- priority ----------------------------------------------------------------------------------------------


def a_class(name: str, value: int, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "value": value, **fields}


def test_priority_comes_from_the_class() -> None:
    store = a_store()
    store.create(PRIORITY_CLASSES, "", a_class("high", 1000, preemptionPolicy="Never"))
    spec = spec_of(store, priorityClassName="high")
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
    assert spec_of(store, priorityClassName="system-node-critical")["priority"] == 2_000_001_000
    assert spec_of(store, priorityClassName="high", priority=1000)["priority"] == 1000
    with refused(403, "Forbidden", "priority admission controller computed 1000 from the given PriorityClass name"):
        spec_of(store, priorityClassName="high", priority=5)
    with refused(403, "Forbidden", "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided"):
        spec_of(store, priorityClassName="high", preemptionPolicy="PreemptLowerPriority")
    with refused(403, "Forbidden", 'pods "p" is forbidden: no PriorityClass with name none was found'):
        store.create(PODS, "default", a_pod("p", priorityClassName="none"))


def test_a_global_default_counts_from_when_it_exists() -> None:
    store = a_store()
    assert spec_of(store)["priority"] == 0
    store.create(PRIORITY_CLASSES, "", a_class("usual", 50, globalDefault=True))
    spec = spec_of(store)
    assert (spec["priority"], spec["priorityClassName"]) == (50, "usual")
    with refused(403, match="PriorityClass usual is already marked as default. Only one default can exist"):
        store.create(PRIORITY_CLASSES, "", a_class("other", 60, globalDefault=True))
    store.delete(PRIORITY_CLASSES, "", "usual")
    assert spec_of(store)["priority"] == 0


def test_without_priority_admission_a_pods_own_number_counts() -> None:
    store = a_store(priority_admission=False)
    assert spec_of(store, priority=10)["priority"] == 10
    assert spec_of(store, priorityClassName="system-node-critical")["priority"] == 2_000_001_000
    assert spec_of(store)["priority"] == 0


def test_priority_classes_have_limits_and_do_not_change() -> None:
    store = a_store()
    with refused(422, match="maximum allowed value of a user defined priority is 1000000000"):
        store.create(PRIORITY_CLASSES, "", a_class("huge", 1_000_000_001))
    with refused(422, match="reserved for system use only"):
        store.create(PRIORITY_CLASSES, "", a_class("system-mine", 5))
    store.create(PRIORITY_CLASSES, "", a_class("high", 1000))
    with refused(422, match="value: Invalid value: 2000: may not be changed in an update."):
        store.patch(PRIORITY_CLASSES, "", "high", {"value": 2000}, patch_type=MERGE_PATCH)


def test_a_runtime_class_brings_overhead_and_placement() -> None:
    store, runtimes = a_store(), kind("runtimeclasses", "node.k8s.io")
    scheduling = {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}
    overhead = {"podFixed": {"cpu": "250m"}}
    with refused(403, match='RuntimeClass "vm" not found'):
        spec_of(store, runtimeClassName="vm")
    store.create(
        runtimes, "", {"metadata": {"name": "vm"}, "handler": "vm", "overhead": overhead, "scheduling": scheduling}
    )
    spec = spec_of(store, runtimeClassName="vm", nodeSelector={"a": "b"})
    assert spec["overhead"] == {"cpu": "250m"}
    assert spec["nodeSelector"] == {"a": "b", "vm": "yes"}
    assert spec["tolerations"][0] == {"key": "vm", "operator": "Exists"}
    with refused(403, match="conflict: node selector vm"):
        spec_of(store, runtimeClassName="vm", nodeSelector={"vm": "no"})


# -- invalid pods ------------------------------------------------------------------------------------------


def affinity(**fields: Any) -> dict[str, Any]:
    return {"affinity": fields}


def required_terms(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return affinity(nodeAffinity={"requiredDuringSchedulingIgnoredDuringExecution": required})


def spread(**fields: Any) -> dict[str, Any]:
    base = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**base, **fields}]}


INVALID_PODS: list[tuple[dict[str, Any], str, str]] = [
    ({"containers": []}, "spec.containers", "Required value"),
    ({"containers": [{"image": "i"}]}, "spec.containers[0].name", "Required value"),
    ({"containers": [{"name": "c"}]}, "spec.containers[0].image", "Required value"),
    ({"containers": [container(name="A_b")]}, "spec.containers[0].name", "RFC 1123 label"),
    ({"containers": [container(), container()]}, "spec.containers[1].name", 'Duplicate value: "main"'),
    ({"initContainers": [container()]}, "spec.containers[0].name", 'Duplicate value: "main"'),
    ({"containers": [container(ports=[{"containerPort": 0}])]}, "ports[0].containerPort", "between 1 and 65535"),
    ({"containers": [container(ports=[{"containerPort": 1, "protocol": "X"}])]}, "ports[0].protocol", '"SCTP", "TCP"'),
    (
        {"containers": [container(ports=[{"containerPort": port, "hostPort": 80} for port in (1, 2)])]},
        "spec.containers[0].ports[1].hostPort",
        "Duplicate value",
    ),
    (
        {"hostNetwork": True, "containers": [container(ports=[{"containerPort": 1, "hostPort": 2}])]},
        "hostPort",
        "must match `containerPort`",
    ),
    (resources({"cpu": "-1"}), "spec.containers[0].resources.requests[cpu]", "must be greater than or equal to 0"),
    (resources({"cpu": "2"}, {"cpu": "1"}), "resources.requests", "must be less than or equal to cpu limit of 1"),
    (resources({"weird": "1"}), "resources.requests[weird]", "must be a standard resource for containers"),
    (resources({"a.b/gpu": "500m"}, {"a.b/gpu": "500m"}), "resources.requests[a.b/gpu]", "must be an integer"),
    (resources({"a.b/gpu": 1}), "resources.limits", "Limit must be set for non overcommitable resources"),
    (resources({"a.b/gpu": 1}, {"a.b/gpu": 2}), "resources.requests", "must be equal to a.b/gpu limit of 2"),
    ({"restartPolicy": "Sometimes"}, "spec.restartPolicy", 'supported values: "Always", "OnFailure", "Never"'),
    ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "must be between 1 and 2147483647, inclusive"),
    ({"dnsPolicy": "Never"}, "spec.dnsPolicy", '"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"'),
    (
        {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
        "spec.containers[0].volumeMounts[0].name",
        'Not found: "v"',
    ),
    (
        {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/v"}}]},
        "spec.volumes[0].hostPath",
        "Forbidden: may not specify more than 1 volume type",
    ),
    ({"volumes": [{"name": "v", "hostPath": {}}]}, "spec.volumes[0].hostPath.path", "Required value"),
    ({"nodeSelector": {"bad key": "x"}}, "spec.nodeSelector", "name part"),
    ({"nodeName": "Bad Name"}, "spec.nodeName", "subdomain"),
    ({"tolerations": [{"operator": "Equal"}]}, "spec.tolerations[0].operator", "operator must be Exists when `key`"),
    ({"tolerations": [{"key": "a", "operator": "Near"}]}, "spec.tolerations[0].operator", "Unsupported value"),
    ({"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]}, "operator", "value must be empty"),
    ({"tolerations": [{"key": "a", "effect": "Never"}]}, "spec.tolerations[0].effect", "Unsupported value"),
    ({"tolerations": [{"key": "a", "tolerationSeconds": 5}]}, "effect", "effect must be 'NoExecute'"),
    (required_terms(), "nodeSelectorTerms", "must have at least one node selector term"),
    (
        required_terms({"matchExpressions": [{"key": "a", "operator": "Like"}]}),
        "nodeSelectorTerms[0].matchExpressions[0].operator",
        "not a valid selector operator",
    ),
    (
        required_terms({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]}),
        "values[0]",
        "an integer",
    ),
    (
        affinity(nodeAffinity={"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101, "preference": {}}]}),
        "preferredDuringSchedulingIgnoredDuringExecution[0].weight",
        "must be in the range 1-100",
    ),
    (
        affinity(podAntiAffinity={"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}}]}),
        "podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey",
        "can not be empty",
    ),
    (spread(maxSkew=0), "spec.topologySpreadConstraints[0].maxSkew", "must be greater than zero"),
    (spread(topologyKey=""), "topologyKey", "can not be empty"),
    (spread(whenUnsatisfiable=None), "whenUnsatisfiable", 'Unsupported value: "": supported values: "DoNotSchedule"'),
    (spread(whenUnsatisfiable="Maybe"), "whenUnsatisfiable", "Unsupported value"),
    (spread(whenUnsatisfiable="ScheduleAnyway", minDomains=2), "minDomains", "whenUnsatisfiable=DoNotSchedule"),
    (spread(nodeTaintsPolicy="Ask"), "nodeTaintsPolicy", '"Honor", "Ignore"'),
    (spread(matchLabelKeys=["a"]), "matchLabelKeys", "labelSelector is not set"),
    ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, "spec.schedulingGates[1]", "Duplicate value"),
    ({"schedulingGates": [{"name": "a"}], "nodeName": "n"}, "spec.nodeName", "until all schedulingGates"),
    ({"volumes": [{"name": "v"}, {"name": "v"}]}, "spec.volumes[1].name", "Duplicate value"),
]


@pytest.mark.parametrize(("spec", "field", "text"), INVALID_PODS, ids=[f"{row[1]}: {row[2]}" for row in INVALID_PODS])
def test_an_invalid_pod_is_refused_with_the_field_and_the_reason(spec: dict[str, Any], field: str, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        a_store().create(PODS, "default", a_pod("p", **spec))
    error = caught.value
    assert (error.code, error.reason) == (422, "Invalid")
    assert error.message.startswith('Pod "p" is invalid: ')
    assert any(cause["field"].endswith(field) and text in cause["message"] for cause in error.details["causes"])


WRONG_TYPES = [
    ({"containers": "main"}, "spec.containers"),
    ({"containers": [container(name=5)]}, "spec.containers[0].name"),
    ({"tolerations": {}}, "spec.tolerations"),
    (resources({"cpu": "lots"}), "spec.containers[0].resources.requests.cpu: quantities must match"),
]


@pytest.mark.parametrize(("spec", "text"), WRONG_TYPES)
def test_a_field_of_the_wrong_type_is_a_bad_request_with_its_path(spec: dict[str, Any], text: str) -> None:
    with refused(400, "BadRequest", text):
        a_store().create(PODS, "default", a_pod("p", **spec))


def test_valid_pods_of_every_shape_are_accepted() -> None:
    term = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
    spec: dict[str, Any] = {
        **spread(labelSelector={"matchLabels": {"a": "b"}}, minDomains=2),
        "tolerations": [{"key": "a", "operator": "Gt", "value": "5"}, {"operator": "Exists"}],
        "initContainers": [container(name="init", restartPolicy="Always")],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
                    ]
                }
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}],
            },
        },
    }
    assert spec_of(a_store(), **spec)["affinity"] == spec["affinity"]


# -- pod updates -------------------------------------------------------------------------------------------

ONE_GATE = {"schedulingGates": [{"name": "a"}, {"name": "b"}]}
NARROW = required_terms({"matchExpressions": [{"key": "x", "operator": "Exists"}]})
NARROWER = required_terms(
    {"matchExpressions": [{"key": "x", "operator": "Exists"}, {"key": "y", "operator": "Exists"}]}
)

CONTAINER_DEFAULTS: dict[str, Any] = {
    "imagePullPolicy": "Always",
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
ALLOWED_UPDATES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("another image", {}, {"containers": [container(image="other", **CONTAINER_DEFAULTS)]}),
    ("a deadline", {}, {"activeDeadlineSeconds": 5}),
    ("a shorter deadline", {"activeDeadlineSeconds": 9}, {"activeDeadlineSeconds": 5}),
    ("one more toleration", {}, {"tolerations": [{"key": "new", "operator": "Exists"}]}),
    ("one gate less", ONE_GATE, {"schedulingGates": [{"name": "a"}]}),
    ("a gated pod's node selector", ONE_GATE, {"nodeSelector": {"a": "b"}}),
    ("a gated pod's first node affinity", ONE_GATE, NARROW),
    ("a gated pod's narrower node affinity", {**ONE_GATE, **NARROW}, NARROWER),
]
REFUSED_UPDATES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("requests", {}, {**resources({"cpu": "1"})}, "pod updates may not change fields other than"),
    ("the node", {}, {"nodeName": "n1"}, "pod updates may not change fields other than"),
    ("the node selector", {}, {"nodeSelector": {"a": "b"}}, "pod updates may not change fields other than"),
    ("the scheduler", {}, {"schedulerName": "other"}, "pod updates may not change fields other than"),
    ("one more container", {}, {"containers": [container(), container(name="x")]}, "pod updates may not change"),
    ("a longer deadline", {"activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": 9}, "less than or equal to previous"),
    ("the grace period", {}, {"terminationGracePeriodSeconds": 5}, "pod updates may not change"),
    ("a new gate", ONE_GATE, {"schedulingGates": [{"name": "c"}]}, "only deletion is allowed"),
    ("a gate on an ungated pod", {}, {"schedulingGates": [{"name": "c"}]}, "only deletion is allowed"),
    ("wider affinity of a gated pod", {**ONE_GATE, **NARROWER}, NARROW, "only additions are allowed"),
    (
        "a toleration taken away",
        {"tolerations": [{"key": "t", "operator": "Exists"}]},
        {"tolerations": []},
        "existing toleration",
    ),
]


def changed(before: dict[str, Any], change: dict[str, Any]) -> Store:
    store = a_store(default_tolerations=False)
    data = store.create(PODS, "default", a_pod("p", **before)).data()
    data["spec"].update(change)
    store.update(PODS, "default", "p", data)
    return store


@pytest.mark.parametrize(("what", "before", "change"), ALLOWED_UPDATES, ids=[row[0] for row in ALLOWED_UPDATES])
def test_a_pod_may_change(what: str, before: dict[str, Any], change: dict[str, Any]) -> None:
    data = changed(before, change).get(PODS, "default", "p").data()
    assert all(data["spec"][key] == value for key, value in change.items())
    assert data["metadata"]["generation"] == 2


@pytest.mark.parametrize(("what", "before", "change", "text"), REFUSED_UPDATES, ids=[row[0] for row in REFUSED_UPDATES])
def test_a_pod_may_not_change(what: str, before: dict[str, Any], change: dict[str, Any], text: str) -> None:
    with refused(422, "Invalid", text):
        changed(before, change)


def test_resources_change_through_the_resize_subresource_only() -> None:
    store = a_store()
    store.create(PODS, "default", a_pod("p", **resources({"cpu": "2"})))
    patch = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
    with refused(422):
        store.patch(PODS, "default", "p", patch)
    after = store.patch(PODS, "default", "p", patch, subresource="resize").data()
    assert after["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    more = {"spec": {"nodeSelector": {"a": "b"}, **patch["spec"]}}
    assert "nodeSelector" not in store.patch(PODS, "default", "p", more, subresource="resize").data()["spec"]
    whole = a_pod("p", **resources({"cpu": "3"}))
    whole["spec"]["nodeName"] = "elsewhere"
    spec = store.update(PODS, "default", "p", whole, subresource="resize").data()["spec"]
    assert "nodeName" not in spec
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "3"}
    with refused(422, match="only cpu and memory resources are mutable"):
        whole["spec"]["containers"][0]["name"] = "other"
        store.update(PODS, "default", "p", whole, subresource="resize")


def test_a_plain_manifest_can_be_put_again() -> None:
    store = a_store(default_tolerations=False)
    manifest = a_pod("p", priorityClassName="system-node-critical")
    item = store.create(PODS, "default", manifest)
    assert store.update(PODS, "default", "p", manifest).data()["spec"]["priority"] == 2_000_001_000
    assert store.get(PODS, "default", "p").data()["metadata"]["generation"] == item.data()["metadata"]["generation"]


# -- other kinds -------------------------------------------------------------------------------------------

TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container()]}}
OTHERS: list[tuple[str, Kind, dict[str, Any], str]] = [
    ("a taint with an unknown effect", NODES, {"spec": {"taints": [{"key": "a", "effect": "No"}]}}, "Unsupported value"),
    ("a taint without effect", NODES, {"spec": {"taints": [{"key": "a"}]}}, "spec.taints[0].effect: Required value"),
    ("the same taint twice", NODES, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}}, "must be unique"),
    ("negative capacity", NODES, {"status": {"capacity": {"cpu": "-1"}}}, "must be greater than or equal to 0"),
    ("a budget with both bounds", kind("poddisruptionbudgets", "policy"), {"spec": {"minAvailable": 1, "maxUnavailable": 1}}, "cannot be both set"),
    ("a lease of no length", kind("leases", "coordination.k8s.io"), {"spec": {"leaseDurationSeconds": 0}}, "must be greater than 0"),
    ("a claim without size", CLAIMS, {"spec": {"accessModes": ["ReadWriteOnce"]}}, "spec.resources[storage]: Required value"),
    ("a storage class without provisioner", STORAGE_CLASSES, {}, "provisioner: Required value"),
    ("a deployment without selector", kind("deployments", "apps"), {"spec": {"template": TEMPLATE}}, "spec.selector: Required value"),
    ("a selector that misses its own pods", kind("replicasets", "apps"), {"spec": {"selector": {"matchLabels": {"a": "c"}}, "template": TEMPLATE}}, "`selector` does not match template `labels`"),
    ("a template without image", kind("deployments", "apps"), {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {**TEMPLATE, "spec": {"containers": [{"name": "c"}]}}}}, "spec.template.spec.containers[0].image: Required value"),
    ("a job that always restarts", kind("jobs", "batch"), {"spec": {"template": TEMPLATE}}, "spec.template.spec.restartPolicy"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "of", "rest", "text"), OTHERS, ids=[row[0] for row in OTHERS])
def test_other_kinds_are_checked_too(what: str, of: Kind, rest: dict[str, Any], text: str) -> None:
    with refused(422, "Invalid", text):
        a_store().create(of, "default", {"metadata": {"name": "x"}, **rest})


def test_members_that_no_kind_knows_may_be_in_what_an_update_compares() -> None:
    store, sets = a_store(), kind("statefulsets", "apps")
    selector = {"matchLabels": {"a": "b"}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {"metadata": {"name": "d"}, "spec": claim, "more": 1}
    spec = {"selector": selector, "template": TEMPLATE, "volumeClaimTemplates": [template]}
    store.create(sets, "default", {"metadata": {"name": "s"}, "spec": spec})
    assert store.patch(sets, "default", "s", {"spec": {"replicas": 3}}).data()["spec"]["replicas"] == 3
    with refused(422, match="updates to statefulset spec"):
        store.patch(sets, "default", "s", {"spec": {"volumeClaimTemplates": [{**template, "more": 2}]}})


def test_only_pod_templates_get_the_defaults_of_pod_templates() -> None:
    """A kind without a template may have members of these names that are anything: they are not looked into."""
    strange = {"spec": {"containers": {"a": [1]}}}
    made = a_store().create(NODES, "", {"metadata": {"name": "n"}, **strange}).data()
    assert made["spec"] == strange["spec"]


def test_a_malformed_node_quantity_is_a_bad_request() -> None:
    with refused(400, match="status.capacity.cpu: quantities must match"):
        a_store().create(NODES, "", a_node("n", capacity={"cpu": "many"}))


def test_claims_get_the_newest_default_storage_class() -> None:
    store = a_store()
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    storage = {"metadata": {"name": "fast", "annotations": default}, "provisioner": "p"}
    assert store.create(STORAGE_CLASSES, "", storage).data()["volumeBindingMode"] == "Immediate"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = store.create(CLAIMS, "default", {"metadata": {"name": "c"}, "spec": claim}).data()
    assert (made["spec"]["storageClassName"], made["status"]) == ("fast", {"phase": "Pending"})
    made = store.create(
        CLAIMS, "default", {"metadata": {"name": "d"}, "spec": {**claim, "storageClassName": ""}}
    ).data()
    assert made["spec"]["storageClassName"] == ""
    with refused(422, match="updates to provisioner are forbidden"):
        store.patch(STORAGE_CLASSES, "", "fast", {"provisioner": "q"})

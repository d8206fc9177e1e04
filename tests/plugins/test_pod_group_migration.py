"""PodGroupMigration: manifests for other projects are scheduled as gangs, and what has no effect is said once."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import msgspec
import pytest

import kubesched
from kubesched.api.kinds import COSCHEDULING_GROUPS, DEFINITIONS, EVENTS, NODES, POD_GROUPS, PODS, VOLCANO_GROUPS, Kind
from kubesched.api.wire import MERGE_PATCH, ApiError
from kubesched.base.times import FixedClock
from kubesched.cluster.http.catalog import Catalog
from kubesched.cluster.store import Store
from kubesched.explain.records.schema import Put
from kubesched.lab.decisions.objects import Objects
from kubesched.lab.decisions.port import ReplayPort
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import FeatureGates, load_config_data
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.scheduler import Scheduler

JSON = dict[str, Any]

ENABLED = {"multiPoint": {"enabled": [{"name": "PodGroupMigration"}]}}
CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {"schedulerName": "default-scheduler", "plugins": ENABLED},
        {"schedulerName": "volcano", "plugins": ENABLED},
        {"schedulerName": "plain"},
    ],
}
KUEUE = {"kueue.x-k8s.io/pod-group-total-count": "6"}
GATES = dict.fromkeys(("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption"), True)


def pod(name: str, labels: JSON | None = None, annotations: JSON | None = None, **spec: Any) -> JSON:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def group(kind: Kind, least: int = 3, name: str = "train", **spec: Any) -> JSON:
    return {
        "apiVersion": kind.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": least, **spec},
    }


def simulated(objects: list[JSON], cpu: int, **options: Any) -> kubesched.SimulationResult:
    given: JSON = {"config": CONFIG, "gates": GATES, **options}
    return kubesched.simulate(objects, nodes=1, node_resources={"cpu": cpu}, until=200, **given)


OLD = "pod-group.scheduling.sigs.k8s.io"
FORMS: dict[str, tuple[JSON, JSON, list[JSON]]] = {
    "coscheduling": ({"scheduling.x-k8s.io/pod-group": "train"}, {}, [group(COSCHEDULING_GROUPS)]),
    "coscheduling, old label": ({OLD: "train"}, {}, [group(COSCHEDULING_GROUPS)]),
    "coscheduling without objects": ({f"{OLD}/name": "train", f"{OLD}/min-available": "3"}, {}, []),
    "Volcano": ({}, {"scheduling.k8s.io/group-name": "train"}, [group(VOLCANO_GROUPS)]),
    "Volcano, own annotation": ({}, {"scheduling.volcano.sh/group-name": "train"}, [group(VOLCANO_GROUPS)]),
    "Kueue": ({"kueue.x-k8s.io/pod-group-name": "train"}, {"kueue.x-k8s.io/pod-group-total-count": "3"}, []),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_group_of_another_project_is_a_gang(form: str) -> None:
    labels, annotations, objects = FORMS[form]
    pods = [pod(f"p{number}", labels, {**annotations, "kubesched.io/duration": "1m"}) for number in range(3)]
    short = simulated([*objects, *pods], cpu=2)
    assert short.placements == []
    assert [(one.name, one.min_count, one.waiting) for one in short.groups] == [("train", 3, 3)]
    assert short.groups[0].why is not None
    whole = simulated([*objects, *pods], cpu=3)
    assert whole.totals.succeeded == 3
    assert [(one.name, one.policy, one.placed, one.bound) for one in whole.groups] == [("train", "gang", 3, 0.0)]
    assert simulated([*objects, *pods[:2]], cpu=3).placements == [], "the third member is not there"


def test_the_pods_of_a_controller_with_the_annotation_of_volcano_are_a_gang() -> None:
    annotations = {"scheduling.volcano.sh/group-min-member": "3"}
    template = {**pod("", {"app": "a"}, annotations), "apiVersion": None, "kind": None}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    replicas = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a"}, "spec": spec}
    assert simulated([replicas], cpu=2).placements == []
    assert len(simulated([replicas], cpu=3).placements) == 3


def test_only_profiles_with_the_plugin_read_groups() -> None:
    labels, annotations, _ = FORMS["Kueue"]
    pods = [pod(f"p{number}", labels, annotations, schedulerName="plain") for number in range(3)]
    assert len(simulated(pods, cpu=2).placements) == 2


def test_a_pod_group_object_comes_before_other_kinds_of_the_same_name() -> None:
    native = {
        "apiVersion": POD_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    }
    pods = [pod(f"p{number}", {"scheduling.x-k8s.io/pod-group": "train"}) for number in range(3)]
    assert len(simulated([native, group(COSCHEDULING_GROUPS), *pods], cpu=2).placements) == 2


def test_what_has_no_effect_is_said_once_for_each_kind() -> None:
    limits = {"minResources": {"cpu": 3}, "scheduleTimeoutSeconds": 10}
    objects = [group(COSCHEDULING_GROUPS, 1, f"g{number}", **limits) for number in range(2)]
    objects.append(group(VOLCANO_GROUPS, 1, "v", queue="q", priorityClassName="high"))
    labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/pod-group-name": "k"}
    counted = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    said = simulated([*objects, pod("a", labels, counted), pod("b", labels, counted)], cpu=9).warnings
    assert sorted(text.removeprefix("PodGroupMigration: ").partition(" has no effect")[0] for text in said) == [
        "kueue.x-k8s.io/queue-name of pods",
        "minResources of PodGroups of other projects",
        "priorityClassName of PodGroups of other projects",
        "queue of PodGroups of other projects",
        "scheduleTimeoutSeconds of PodGroups of other projects",
    ]


def test_a_wrong_number_of_members_keeps_the_pod_and_says_what_would_be_right() -> None:
    labels = {"kueue.x-k8s.io/pod-group-name": "train"}
    result = simulated([pod("p", labels, {"kueue.x-k8s.io/pod-group-total-count": "three"})], cpu=4)
    assert result.placements == []
    assert result.pending[0].message == (
        "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: 'three'; expected the number of the group's pods, 1 or more"
    )


def test_without_the_plugin_or_the_gate_that_is_said() -> None:
    objects = [group(VOLCANO_GROUPS), group(VOLCANO_GROUPS, name="other"), pod("p")]
    (unread,) = simulated(objects, cpu=4, config=None).warnings
    assert unread.endswith(
        "scheduling.volcano.sh/v1beta1 PodGroup train has no effect: no profile enables PodGroupMigration (and so for 1 more object)"
    )
    ungated = simulated(objects, cpu=4, gates=None).warnings
    assert "PodGroupMigration has no effect without the feature gate GenericWorkload" in ungated
    assert any("PodGroup train has no effect: pods are scheduled one by one" in text for text in ungated)


# -- in a running cluster ----------------------------------------------------------------------------------------


def embedded() -> Embedded:
    gates = FeatureGates.of(GATES)
    config = load_config_data(CONFIG, gates=gates)
    return Embedded(
        config,
        in_tree_registry(),
        clock=VirtualClock(asyncio.get_running_loop()),
        gates=gates,
        kubelets=False,
        believe_priority=True,
    )


def make(cluster: Embedded, *objects: JSON, cpu: str = "4") -> None:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    cluster.store.create(NODES, "", {"metadata": {"name": "n"}, "status": {"allocatable": amounts}})
    for each in objects:
        cluster.store.create(PODS, "default", each)


def placed(cluster: Embedded) -> list[str]:
    return sorted(each.name for each in cluster.pods() if each.spec.node_name)


def test_a_member_with_a_gate_of_kueue_holds_its_group_until_the_gate_is_gone() -> None:
    labels, annotations, _ = FORMS["Kueue"]
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]

    async def main() -> None:
        cluster = embedded()
        async with cluster.running():
            free = [pod(f"p{number}", labels, annotations) for number in range(2)]
            make(cluster, *free, pod("gated", labels, annotations, schedulingGates=gates))
            await asyncio.sleep(60)
            assert placed(cluster) == []
            for left in (gates[1:], []):
                cluster.store.patch(
                    PODS, "default", "gated", {"spec": {"schedulingGates": left}}, patch_type=MERGE_PATCH
                )
                await asyncio.sleep(60)
                assert placed(cluster) == ([] if left else ["gated", "p0", "p1"])
            assert cluster.check() == []

    run_virtual(main())


def test_a_pod_whose_label_changes_leaves_one_group_and_joins_the_other() -> None:
    def member(name: str, of: str) -> JSON:
        return pod(name, {"kueue.x-k8s.io/pod-group-name": of}, {"kueue.x-k8s.io/pod-group-total-count": "2"})

    async def main() -> None:
        cluster = embedded()
        async with cluster.running():
            make(cluster, member("p", "a"), member("q", "b"))
            await asyncio.sleep(5)
            assert placed(cluster) == []
            other = {"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "b"}}}
            cluster.store.patch(PODS, "default", "p", other)
            await asyncio.sleep(60)
            assert placed(cluster) == ["p", "q"]
            assert cluster.scheduler.groups is not None
            assert list(cluster.scheduler.groups) == ["default/b"]
            assert cluster.check() == []

    run_virtual(main())


def test_a_group_has_the_priority_of_its_members_and_evicts_as_a_whole() -> None:
    async def main() -> None:
        cluster = embedded()
        async with cluster.running():
            make(cluster, *(pod(f"low-{number}", terminationGracePeriodSeconds=0) for number in range(4)))
            await asyncio.sleep(5)
            cluster.store.create(VOLCANO_GROUPS, "default", {"metadata": {"name": "train"}, "spec": {"minMember": 3}})
            named = {"scheduling.k8s.io/group-name": "train"}
            for number in range(3):
                body = pod(f"high-{number}", {}, named, priority=10, schedulerName="volcano")
                cluster.store.create(PODS, "default", body)
            await asyncio.sleep(60)
            groups = cluster.scheduler.informers.objects("podgroups")
            assert groups["default/train"].priority == 10
            assert list(groups) == ["default/train"]
            assert [name for name in placed(cluster) if name.startswith("high")] == ["high-0", "high-1", "high-2"]

    run_virtual(main())


def test_two_groups_without_a_uid_evict_at_the_same_time() -> None:
    async def main() -> None:
        cluster = embedded()
        async with cluster.running():
            make(cluster, *(pod(f"low-{number}", terminationGracePeriodSeconds=0) for number in range(4)))
            await asyncio.sleep(5)
            for name in ("a", "b"):
                cluster.store.create(VOLCANO_GROUPS, "default", {"metadata": {"name": name}, "spec": {"minMember": 2}})
                for number in range(2):
                    named = {"scheduling.k8s.io/group-name": name}
                    body = pod(f"{name}-{number}", {}, named, priority=10, schedulerName="volcano")
                    cluster.store.create(PODS, "default", body)
            await asyncio.sleep(60)
            assert placed(cluster) == ["a-0", "a-1", "b-0", "b-1"]
            notes = {one.data()["note"] for one in cluster.store.list(EVENTS).items if "Preempted" in str(one.data())}
            assert notes == {f"Preempted by podgroup default/{name} on node cluster" for name in ("a", "b")}

    run_virtual(main())


def test_members_that_share_a_spec_share_it_in_their_group_too() -> None:
    async def main() -> None:
        cluster = embedded()
        async with cluster.running():
            members = [
                pod(f"p{number}", {"kueue.x-k8s.io/pod-group-name": f"g{number % 2}"}, KUEUE) for number in range(12)
            ]
            make(cluster, *members, cpu="5")
            await asyncio.sleep(5)
            specs = {id(each.spec): each.spec for each in cluster.scheduler.informers.pods.values()}
            groups = [spec.scheduling_group.pod_group_name for spec in specs.values() if spec.scheduling_group]
            assert sorted(groups) == ["g0", "g1"]

    run_virtual(main())


def test_kinds_that_the_api_server_does_not_serve_are_not_watched(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        cluster = embedded()

        async def is_served(kind: Kind) -> bool:
            if kind == VOLCANO_GROUPS:
                raise ApiError(403, "Forbidden", "podgroups.scheduling.volcano.sh is forbidden")
            return kind == COSCHEDULING_GROUPS

        cluster.port.is_served = is_served  # type: ignore[method-assign]
        async with cluster.running():
            cluster.store.create(
                COSCHEDULING_GROUPS, "default", {"metadata": {"name": "train"}, "spec": {"minMember": 2}}
            )
            make(cluster, *(pod(f"p{number}", {"scheduling.x-k8s.io/pod-group": "train"}) for number in range(2)))
            await asyncio.sleep(5)
            assert placed(cluster) == ["p0", "p1"]
            assert POD_GROUPS.plural not in cluster.scheduler.informers
            assert VOLCANO_GROUPS.group_resource not in cluster.scheduler.informers

    with caplog.at_level(logging.WARNING, "kubesched"):
        run_virtual(main())
    assert [record.getMessage() for record in caplog.records] == [
        "scheduling.k8s.io/v1alpha2 podgroups are not read: the API server does not serve them",
        "scheduling.volcano.sh/v1beta1 podgroups are not read: podgroups.scheduling.volcano.sh is forbidden",
    ]


@pytest.mark.parametrize("gate", [True, False])
def test_the_embedded_cluster_serves_the_kinds_with_the_gate_and_otherwise_by_their_definition(gate: bool) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition = {
        "metadata": {"name": VOLCANO_GROUPS.group_resource},
        "spec": {
            "group": VOLCANO_GROUPS.group,
            "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": schema}],
        },
    }
    store = Store(FixedClock(), random=random.Random(0), features={"GenericWorkload"} if gate else set())
    catalog = Catalog(store)
    catalog.refresh()
    assert ("scheduling.volcano.sh" in catalog.groups, "scheduling.x-k8s.io" in catalog.groups) == (gate, gate)
    store.create(DEFINITIONS, "", definition)
    catalog.refresh()
    found = catalog.find("scheduling.volcano.sh", "v1beta1", "podgroups")
    assert found is not None
    store.create(found.kind, "default", {"metadata": {"name": "train"}, "spec": {"minMember": 2}})
    assert [item.name for item in store.list(found.kind).items] == ["train"]


def test_groups_in_a_record_of_decisions_are_read_again() -> None:
    native = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    lines = [(POD_GROUPS.plural, native)]
    lines += [(VOLCANO_GROUPS.group_resource, {**native, "metadata": {"name": "v"}})]

    async def main() -> None:
        port, gates = ReplayPort(), FeatureGates.of(GATES)
        clock = VirtualClock(asyncio.get_running_loop())
        config = load_config_data(CONFIG, gates=gates)
        scheduler = Scheduler(config, in_tree_registry(), port, clock=clock, rng=random.Random(0), gates=gates)
        for kind, data in lines:
            Objects(port).put(Put(kind=kind, object=msgspec.Raw(msgspec.json.encode(data))))
        groups = scheduler.informers.objects("podgroups")
        assert [groups[key].min_count for key in ("g", "v")] == [2, 2]

    run_virtual(main())


def test_any_labels_and_annotations_are_read_without_an_exception() -> None:
    rng = random.Random(7)
    keys = [key for labels, annotations, _ in FORMS.values() for key in (*labels, *annotations)]
    values = ["", "train", "3", "0", "-1", "٣", "9" * 5000, "a/b", "\x00"]
    names = [{}, {"kueue.x-k8s.io/pod-group-name": "train"}, {f"{OLD}/name": "train", f"{OLD}/min-available": "x"}]
    pods = [
        pod(f"p{number}", rng.choice(names), {rng.choice(keys): rng.choice(values) for _ in range(3)} | {"x": "y"})
        for number in range(60)
    ]
    result = simulated(pods, cpu=4)
    assert result.errors == []
    assert result.totals.pods == 60

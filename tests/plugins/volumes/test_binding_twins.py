"""VolumeBinding's columns, choices, scores and remembered results against a twin that looks at one node after the other.

Random clusters change step by step: objects come, change and go, pods reserve volumes and give them back.
"""

from __future__ import annotations

from typing import Any

import binding_twins as twins
from binding_kit import Binding, capacity, claim, driver, on, scoring, storage_class, volume
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from limits_kit import JSON, SKIP, a_csi_node, claims, with_volumes

from builders import a_node
from kubesched.api.types import Node, Pod
from kubesched.scheduler.config import FeatureGates
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.nodes.podinfo import PodInfo

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NAMES = [f"n{number}" for number in range(12)]
CLASSES = ["local", "local", "local", "fast", "zonal", "capped"]

TEN, FIVE = st.integers(0, 9), st.integers(0, 4)
rare = st.integers(0, 20).map(lambda number: number in (11, 13))

nodes = st.builds(
    lambda name, zone, disk: a_node(
        name, labels={HOST: name, **({ZONE: zone} if zone else {}), **({"disk": disk} if disk else {})}
    ),
    st.sampled_from(NAMES),
    st.sampled_from(["", "a", "b", "c"]),
    st.sampled_from(["", "", "ssd"]),
)

affinities = st.one_of(
    st.none(),
    st.sampled_from(NAMES).map(lambda name: on(HOST, name)),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True).map(lambda zones: on(ZONE, *zones)),
    st.just(on("disk", operator="Exists")),
    st.just(on(ZONE, "a", operator="NotIn")),
    st.just(on(ZONE, operator="Near")),
    st.just({"required": {"nodeSelectorTerms": []}}),
    st.just(
        {
            "required": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["z"]}]}]
            }
        }
    ),
    st.just(
        {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]},
                    {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
                ]
            }
        }
    ),
)


@st.composite
def volumes(draw: st.DrawFn, numbers: st.SearchStrategy[int] = TEN) -> JSON:
    """No two volumes are of one size, and no two name one claim: there, upstream's choice is left to chance."""
    number = draw(numbers)
    more: dict[str, Any] = {}
    if draw(rare):
        more = {"claim": f"c{number % 5}", "uid": draw(st.sampled_from(["", f"c{number % 5}", "earlier"]))}
        if number > 4:
            more = {}
    if draw(rare):
        more["awsElasticBlockStore"] = {"volumeID": draw(st.sampled_from(["vol-1", "vol-1", "aws:///bad"]))}
    if draw(rare):
        more["volumeMode"] = "Block"
    if draw(rare):
        more["volumeAttributesClassName"] = "gold"
    return volume(
        f"v{number}",
        str(draw(st.sampled_from([1, 2, 5])) * 1000 + number),
        storage="fast" if draw(rare) else "local",
        affinity=draw(affinities),
        phase=draw(st.sampled_from(["Available", "Available", "Available", "Available", "Available", "Bound"])),
        modes=draw(st.sampled_from([["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadOnlyMany"]])),
        labels=draw(st.sampled_from([{}, {"k": "v"}])),
        deleting=draw(rare),
        **more,
    )


@st.composite
def pvcs(draw: st.DrawFn, numbers: st.SearchStrategy[int] = FIVE) -> JSON:
    number = draw(numbers)
    more: dict[str, Any] = {}
    if draw(rare):
        more["volume"] = f"v{draw(st.integers(0, 9))}"
    elif draw(rare):
        more["node"] = draw(st.sampled_from([*NAMES, ""]))
    if draw(rare):
        more["selector"] = draw(
            st.sampled_from(
                [
                    {"matchLabels": {"k": "v"}},
                    {},
                    {"matchExpressions": [{"key": "k", "operator": "Near", "values": ["v"]}]},
                ]
            )
        )
    if draw(rare):
        more["volumeMode"] = draw(st.sampled_from(["Block", "Filesystem"]))
    if draw(rare):
        more["volumeAttributesClassName"] = draw(st.sampled_from(["gold", ""]))
    return claim(
        f"c{number}",
        str(draw(st.sampled_from([1000, 2000, 0, 5000]))),
        storage=draw(st.sampled_from(["now", "none"])) if draw(rare) else draw(st.sampled_from(CLASSES)),
        modes=draw(st.sampled_from([["ReadWriteOnce"], ["ReadOnlyMany"], []])),
        **more,
    )


capacities = st.builds(
    capacity,
    st.sampled_from(["s0", "s1", "s2"]),
    st.sampled_from(["capped", "fast"]),
    free=st.sampled_from([None, "1500", "3000", "9000"]),
    largest=st.sampled_from([None, None, "2500"]),
    labels=st.sampled_from([None, {}, {ZONE: "a"}, {ZONE: "b"}, {"disk": "ssd"}]),
)

csi_nodes = st.builds(
    lambda name, listed: a_csi_node(name, {"storage.alpha.kubernetes.io/migrated-plugins": listed}),
    st.sampled_from(NAMES),
    st.sampled_from(["", "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd,kubernetes.io/aws-ebs"]),
)

drivers = st.builds(driver, st.just("cap"), capacity=st.sampled_from([True, True, False, None]))

pods = st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True).map(
    lambda numbers: with_volumes("p", *claims(*(f"c{number}" for number in numbers)))
)

LINE = [(0, 0), (50, 30), (100, 100)]


class BindingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        rows = [
            storage_class(),
            storage_class("fast", "csi"),
            storage_class("zonal", "csi", topologies=[{ZONE: ["a"]}, {ZONE: ["b"], "disk": ["ssd"]}]),
            storage_class("capped", "cap"),
            storage_class("now", "csi", mode="Immediate"),
        ]
        self.cluster = Binding((), rows, gates=FeatureGates.parse("StorageCapacityScoring=true"), args=scoring(*LINE))
        self.nodes: dict[str, Node] = {}
        #: Reserved: cycle state, pod and node.
        self.held: list[tuple[CycleState, PodInfo, str]] = []
        self.version = 0

    @initialize(
        found=st.lists(nodes, min_size=3, max_size=8),
        given=st.tuples(
            *(volumes(st.just(number)) for number in range(6)),
            *(pvcs(st.just(number)) for number in range(5)),
            drivers,
            capacities,
        ),
    )
    def begin(self, found: list[Node], given: tuple[JSON, ...]) -> None:
        for node in found:
            self.set_node(node)
        for obj in given:
            self.put(obj)

    def put(self, obj: JSON) -> None:
        self.version += 1
        self.cluster.put({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}})

    @rule(node=nodes)
    def set_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.cluster.cache.set_node(node)

    @rule(name=st.sampled_from(NAMES))
    def remove_node(self, name: str) -> None:
        if name in self.nodes and len(self.nodes) > 2:
            del self.nodes[name]
            self.cluster.cache.remove_node(name)

    @rule(obj=st.one_of(volumes(), pvcs(), capacities, csi_nodes, drivers))
    def change(self, obj: JSON) -> None:
        self.put(obj)

    @rule(
        what=st.sampled_from(
            ["persistentvolumes", "persistentvolumeclaims", "csistoragecapacities", "csinodes", "csidrivers"]
        ),
        number=st.integers(0, 11),
    )
    def remove(self, what: str, number: int) -> None:
        keys = sorted(self.cluster.objects.informed(what))
        if keys:
            self.cluster.objects.remove(what, keys[number % len(keys)])

    @rule()
    def give_back(self) -> None:
        if self.held:
            state, pod, node = self.held.pop(0)
            self.cluster.binding.plugin.unreserve(state, pod, node)

    @rule(pod=pods, number=st.integers(0, 11))
    def reserve(self, pod: Pod, number: int) -> None:
        found = self.answers(pod)
        if not isinstance(found, dict):
            return
        fitting = [name for name, answer in found.items() if not answer.reasons]
        if fitting:
            node = fitting[number % len(fitting)]
            state, info = self.cluster.filtered(pod)
            assumed = info.on_node(node)
            assert self.cluster.binding.plugin.reserve(state, assumed, node) is None
            self.held.append((state, assumed, node))

    def world(self) -> twins.World:
        cache, informed = self.cluster.state.cache, self.cluster.objects.informed
        return twins.World(
            {obj.name: obj for obj in cache.volumes.values()},
            {obj.key: obj for obj in cache.claims.values()},
            informed("storageclasses"),
            informed("csidrivers"),
            informed("csistoragecapacities"),
            informed("csinodes"),
        )

    def answers(self, pod: Pod) -> dict[str, twins.Answer] | str | None:
        """By the twin: None when PreFilter rejects the pod, a text when some node is an error."""
        world = self.world()
        for name in twins.claim_names(pod):
            found = world.claims.get(f"ns/{name}")
            if found is None:
                return None
            row = world.classes.get(found.spec.storage_class_name or "")
            waits = row is not None and row.volume_binding_mode == "WaitForFirstConsumer"
            if not twins.is_bound(found) and (found.spec.volume_name or not waits):
                return None
        try:
            return {name: twins.evaluate(world, pod, node) for name, node in self.nodes.items()}
        except twins.Problem as problem:
            return str(problem)

    @invariant()
    def look_at_all(self) -> None:
        there = sorted(key.removeprefix("ns/") for key in self.cluster.objects.informed("persistentvolumeclaims"))
        if self.nodes and there:
            for names in filter(None, (there[:1], there[:2], there[1:4])):
                self.look(with_volumes("p", *claims(*names)))

    def look(self, pod: Pod) -> None:
        expected, found = self.answers(pod), self.cluster.verdicts(pod)
        if expected is None:
            assert isinstance(found, tuple)
            assert self.cluster.decide(pod)[0] == 0
            return
        if isinstance(expected, str):
            assert found.startswith('running "VolumeBinding" filter plugin: ')
            assert self.cluster.decide(pod)[0] == -1
            return
        assert found is not SKIP
        assert found == {name: (3, answer.reasons) if answer.reasons else None for name, answer in expected.items()}
        fitting = [name for name, answer in expected.items() if not answer.reasons]
        for name in fitting:
            static, dynamic = self.cluster.chosen(pod, name)
            assert static == expected[name].static
            assert sorted(dynamic) == sorted(expected[name].dynamic)
        self.check_scores(pod, {name: expected[name] for name in fitting})
        # What layers remember gives the same as a search that remembers nothing.
        fresh = self.cluster.fresh_search().evaluate(CycleState(), PodInfo(pod))
        count, message = self.cluster.decide(pod)
        assert count == len(fitting)
        if isinstance(fresh, Rejection):
            assert message == fresh.message()

    def check_scores(self, pod: Pod, expected: dict[str, twins.Answer]) -> None:
        state, info = self.cluster.filtered(pod)
        table = self.cluster.cache.table
        rows = self.cluster.cache.snapshot().nodes().rows
        names = [table.info(int(row)).name for row in rows]
        values = dict(
            zip(names, self.cluster.binding.question(state, info, "score").scores(rows).tolist(), strict=True)
        )
        assert {name: values[name] for name in expected} == {
            name: twins.score(answer, LINE) for name, answer in expected.items()
        }

    @rule()
    def check(self) -> None:
        self.cluster.check()
        assert [problem for problem in self.cluster.problems() if "reserved" not in problem] == []


BindingMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestBinding = BindingMachine.TestCase

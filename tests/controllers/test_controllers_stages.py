"""Stage rules for hollow nodes, images on nodes, and pods that others still wait for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from builders import create_nodes
from kubesched.api.kinds import NODES, PODS
from kubesched.api.types import ObjectMeta
from kubesched.cluster.kubelets import HollowKubelets, Stage, StageError, job_end, load_stages, node_template, rules_of
from kubesched.cluster.kubelets.stages import default_stages, parse_stages
from kubesched.cluster.store import InProcessClient, Store
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual

Scenario = Callable[[Store, HollowKubelets], Awaitable[None]]


def play(scenario: Scenario, stages: str | Sequence[Stage] = "", **options: Any) -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        store = Store(clock, random=Random(1))
        create_nodes(store, 2)
        if stages:
            options["stages"] = parse_stages(stages) if isinstance(stages, str) else stages
        hollow = HollowKubelets(InProcessClient(store), clock, rng=Random(5), **options)
        task = asyncio.create_task(hollow.run())
        await asyncio.sleep(0.001)
        await scenario(store, hollow)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main())


def bound(store: Store, name: str, node: str = "hollow-00000", image: str = "app", **metadata: Any) -> None:
    spec = {"containers": [{"name": "c", "image": image}], "terminationGracePeriodSeconds": 3}
    pod = store.create(PODS, "default", {"metadata": {"name": name, **metadata}, "spec": spec})
    store.bind("default", name, pod.uid, node)


def phases(store: Store) -> Counter[str]:
    return Counter(item.typed.status.phase for item in store.list(PODS).items)


def test_jitter_spreads_the_starts() -> None:
    rules = "stages: [{name: go, selector: {phase: Pending}, delay: {seconds: 2, jitter: 8}, next: {phase: Running}}]"

    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        for index in range(200):
            bound(store, f"p{index}")
        seen = []
        for _ in range(11):
            await asyncio.sleep(1)
            seen.append(phases(store)["Running"])
        assert seen[0] == seen[1] == 0 or seen[1] < 5
        assert 20 < seen[3] < 80
        assert 110 < seen[7] < 190
        assert seen[10] == 200

    play(scenario, rules)


def test_some_pods_fail_at_the_rate_that_is_given() -> None:
    rules = """
stages:
- {name: go, selector: {phase: Pending}, next: {phase: Running}}
- name: end
  selector: {phase: Running}
  delay: {seconds: 5}
  failure: {rate: 0.25, reason: OOMKilled, exitCode: 137}
  next: {phase: Succeeded}
"""

    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        for index in range(400):
            bound(store, f"p{index}")
        await asyncio.sleep(10)
        found = phases(store)
        assert found["Failed"] + found["Succeeded"] == 400
        assert 70 < found["Failed"] < 130
        failed = next(item.data() for item in store.list(PODS).items if item.typed.status.phase == "Failed")
        state = failed["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (state["reason"], state["exitCode"]) == ("OOMKilled", 137)

    play(scenario, rules)


def test_of_several_stages_the_weight_decides() -> None:
    rules = """
stages:
- {name: go, selector: {phase: Pending}, weight: 3, next: {phase: Running}}
- {name: die, selector: {phase: Pending}, weight: 1, next: {phase: Failed}}
- {name: never, selector: {phase: Pending}, weight: 0, next: {phase: Succeeded}}
"""

    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        for index in range(400):
            bound(store, f"p{index}")
        await asyncio.sleep(1)
        found = phases(store)
        assert 250 < found["Running"] < 350
        assert found["Running"] + found["Failed"] == 400

    play(scenario, rules)


def test_pods_may_lose_and_regain_readiness() -> None:
    rules = """
stages:
- {name: go, selector: {phase: Pending}, next: {phase: Running, status: {message: hello}}}
- {name: hiccup, selector: {phase: Running, ready: true}, delay: {seconds: 10}, next: {ready: false}}
- {name: better, selector: {phase: Running, ready: false}, delay: {seconds: 1}, next: {ready: true}}
"""

    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, "p")
        seen = []
        for _ in range(46):
            await asyncio.sleep(0.5)
            conditions = store.get(PODS, "default", "p").typed.status.conditions
            seen.append(next((item.status for item in conditions if item.type == "Ready"), ""))
        changes = [state for state, before in zip(seen[1:], seen, strict=False) if state != before]
        assert changes == ["False", "True", "False", "True"]
        assert store.get(PODS, "default", "p").data()["status"]["message"] == "hello"

    play(scenario, rules)


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ("matchLabels: {app: a}", {"a"}),
        ("matchExpressions: [{key: app, operator: NotIn, values: [a]}]", {"b", "none"}),
        ("matchAnnotations: {speed: slow}", {"b"}),
        ("hasAnnotations: [speed]", {"a", "b"}),
        ("namespaces: [elsewhere]", set()),
        ("phase: [Pending, Running], deleted: false", {"a", "b", "none"}),
        ("deleted: true", set()),
    ],
)
def test_selectors_choose_pods(selector: str, want: set[str]) -> None:
    rules = f"stages: [{{name: go, selector: {{{selector}}}, next: {{phase: Failed}}}}]"

    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, "a", labels={"app": "a"}, annotations={"speed": "fast"})
        bound(store, "b", labels={"app": "b"}, annotations={"speed": "slow"})
        bound(store, "none")
        # A phase that matches again would fire without end.
        await asyncio.sleep(1)
        assert {item.name for item in store.list(PODS).items if item.typed.status.phase == "Failed"} == want

    play(scenario, rules)


def test_delays_may_come_from_annotations() -> None:
    rules = """
stages:
- {name: go, selector: {phase: Pending}, delay: {seconds: 1, secondsFrom: boot}, next: {phase: Running}}
- {name: end, selector: {phase: Running}, delay: {secondsFrom: life}, next: {phase: Succeeded, phaseFrom: fate}}
"""

    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, "slow", annotations={"boot": "20s", "life": "1m", "fate": "Failed"})
        bound(store, "quick", annotations={"life": "2s"})
        await asyncio.sleep(2)
        assert phases(store) == {"Pending": 1, "Running": 1}
        await asyncio.sleep(20)
        assert phases(store) == {"Running": 1, "Succeeded": 1}
        await asyncio.sleep(60)
        assert phases(store) == {"Failed": 1, "Succeeded": 1}

    play(scenario, rules)


def test_a_pod_that_others_wait_for_ends_as_failed_before_it_goes() -> None:
    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, "p", finalizers=["example.com/wait"])
        await asyncio.sleep(2)
        store.delete(PODS, "default", "p")
        await asyncio.sleep(10)
        assert phases(store) == {"Failed": 1}
        change = {"metadata": {"finalizers": None}}
        store.patch(PODS, "default", "p", change, patch_type="application/merge-patch+json")
        assert phases(store) == {}

    play(scenario)


def test_a_failed_node_does_nothing_until_it_recovers() -> None:
    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, "early", annotations={"kubesched.io/duration": "5s"})
        bound(store, "other", "hollow-00001")
        await asyncio.sleep(2)
        hollow.fail_node("hollow-00000")
        bound(store, "late")
        await asyncio.sleep(100)
        assert phases(store) == {"Running": 2, "Pending": 1}
        assert hollow.next_timer() is None
        hollow.recover_node("hollow-00000")
        await asyncio.sleep(2)
        assert phases(store) == {"Running": 2, "Succeeded": 1}

    play(scenario)


def test_nodes_report_the_images_that_ran_there() -> None:
    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        bound(store, "a", image="app")
        bound(store, "b", image="app:latest")
        bound(store, "c", image="registry:5000/x/big:v1")
        bound(store, "d", "hollow-00001", image="other@sha256:1")
        await asyncio.sleep(5)
        first = store.get(NODES, "", "hollow-00000").data()["status"]["images"]
        assert [image["names"] for image in first] == [["here:1"], ["app:latest"], ["registry:5000/x/big:v1"]]
        assert first[2]["sizeBytes"] == 12345
        second = store.get(NODES, "", "hollow-00001").data()["status"]["images"]
        assert [image["names"] for image in second] == [["here:1"], ["other@sha256:1"]]

    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        store = Store(clock, random=Random(1))
        create_nodes(store, 2, node_template(images={"here:1": 5}))
        sizes = {"registry:5000/x/big:v1": 12345}
        hollow = HollowKubelets(InProcessClient(store), clock, report_images=True, image_sizes=sizes)
        task = asyncio.create_task(hollow.run())
        await scenario(store, hollow)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main())


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("[]", "expected an object with a list `stages:`"),
        ("stages: [{}]", "stages[0].name: is missing; give the stage a name"),
        ("stages: [{name: a}]", "stages[0] (a).next: is missing"),
        ("stages: [{name: a, next: {phase: Runing}}]", "(a).next.phase: 'Runing' is not a phase"),
        ("stages: [{name: a, nxt: {}}]", "'nxt' is not known here; there are name, kind, selector"),
        ("stages: [{name: a, next: {delete: 1}}]", "next.delete: must be true or false, got 1"),
        ("stages: [{name: a, delay: {seconds: soon}, next: {delete: true}}]", "'soon' is not a duration"),
        ("stages: [{name: a, delay: {jitter: -1}, next: {delete: true}}]", "a number that is not negative, got -1"),
        (
            f"stages: [{{name: a, delay: {{seconds: {'9' * 400}s}}, next: {{delete: true}}}}]",
            "(a).delay.seconds: must be a finite number",
        ),
        ("stages: [{name: a, delay: {jitter: 1e999}, next: {delete: true}}]", "line 1: json: unsupported value: +Inf"),
        ("stages: [{name: a, weight: .inf, next: {delete: true}}]", "line 1: json: unsupported value: +Inf"),
        (
            "stages: [{name: a, next: {status: {containerStatuses: 3}}}]",
            '(a).next.status: cannot be a pod\'s status: Pod in version "v1" cannot be handled as a Pod: '
            "Expected `array`, got `int`",
        ),
        ("stages: [{name: a, failure: {rate: 2}, next: {delete: true}}]", "must be between 0 and 1, got 2"),
        ("stages: [{name: a, kind: Node}]", "stages[0].kind: 'Node' has no stage rules; there are Pod, Persistent"),
        ("stages: [{name: a, kind: VolumeAttachment, next: {delete: true}}]", "'next' is not known here"),
        ("stages: [{name: a, kind: PersistentVolumeClaim, selector: {phase: Bound}}]", "'phase' is not known here"),
        ("stages: [{name: a, kind: PersistentVolumeClaim, delay: {grace: true}}]", "'grace' is not known here"),
        ("stages: [{name: a, selector: {matchLabels: {a: 1}}, next: {delete: true}}]", "(a).selector: "),
        ("stages: [{name: a, next: {delete: true}}, {name: a, next: {delete: true}}]", "'a' is given twice"),
        ("stages: [", "not valid YAML"),
    ],
)
def test_rules_that_cannot_be_used_are_explained(text: str, want: str) -> None:
    with pytest.raises(StageError) as caught:
        parse_stages(text, "rules.yaml")
    assert want in str(caught.value)
    assert str(caught.value).startswith("rules.yaml")


def test_stages_are_read_from_files(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("stages: [{name: a, next: {delete: true}}]")
    assert [stage.name for stage in load_stages([path])] == ["a"]
    with pytest.raises(StageError, match="cannot be read"):
        load_stages([tmp_path / "none.yaml"])


def test_rules_of_one_kind_leave_the_default_ones_of_others() -> None:
    rules = parse_stages(
        "stages: [{name: a, kind: PersistentVolumeClaim, selector: {storageClasses: [fast], nodeLabels: {zone: b}, "
        "matchLabels: {app: db}}, delay: {seconds: 3}, failure: {rate: 1, reason: ResourceExhausted}}]"
    )
    [rule] = rules_of("PersistentVolumeClaim", rules)
    metadata = ObjectMeta(name="c", namespace="default", labels={"app": "db"})
    assert rule.matches_volume(metadata, "fast", {"zone": "b"})
    assert not rule.matches_volume(metadata, "slow", {"zone": "b"})
    assert not rule.matches_volume(metadata, "fast", {"zone": "a"})
    assert not rule.matches_volume(ObjectMeta(name="c", namespace="default"), "fast", {"zone": "b"})
    assert (rule.seconds(Random(1)), rule.fails(Random(1)), rule.failure.reason) == (3.0, True, "ResourceExhausted")
    assert [stage.name for stage in rules_of("VolumeAttachment", rules)] == ["volume-attach"]
    assert [stage.name for stage in rules_of("Pod", rules)] == ["pod-stop", "pod-start", "pod-finish"]


def test_the_built_in_stages_take_the_two_delays() -> None:
    stop, start, finish = default_stages(2.5, 4.0)
    assert (stop.delay.grace, stop.delay.most, start.delay.seconds) == (True, 4.0, 2.5)
    assert finish.next.phase_from == "kubesched.io/exit"


def test_pods_of_jobs_can_be_given_an_end() -> None:
    async def scenario(store: Store, hollow: HollowKubelets) -> None:
        label = {"batch.kubernetes.io/job-name": "j"}
        for name, labels, notes in (
            ("job", label, {}),
            ("long", label, {"kubesched.io/duration": "20s", "kubesched.io/exit": "Failed"}),
            ("web", {"app": "web"}, {}),
            ("test", {}, {"helm.sh/hook": "test"}),
        ):
            metadata = {"name": name, "labels": labels, "annotations": notes}
            spec = {"nodeName": "hollow-00000", "containers": [{"name": "c", "image": "i"}]}
            store.create(PODS, "default", {"metadata": metadata, "spec": spec})

        def phases() -> list[str]:
            return [
                store.get(PODS, "default", name).data()["status"]["phase"] for name in ("job", "long", "web", "test")
            ]

        await asyncio.sleep(5)
        assert phases() == ["Running", "Running", "Running", "Running"]
        await asyncio.sleep(2)
        assert phases() == ["Succeeded", "Running", "Running", "Succeeded"]
        await asyncio.sleep(15)
        assert phases() == ["Succeeded", "Failed", "Running", "Succeeded"]

    play(scenario, stages=(*default_stages(), *job_end(5.0)))

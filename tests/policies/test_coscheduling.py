"""Gangs of pods: all of a group or none of it, in the whole scheduler; order of the queue, and the published rules."""

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from policy_kit import POLICIES, load, nodes_of, simulated

from builders import a_pod
from kubesched.api.types import Pod
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.nodes.podinfo import PodInfo

plugin = load("coscheduling.plugin")
groups = load("coscheduling.groups")


def member(name: str, group: str, least: int = 2, **more: Any) -> Pod:
    return a_pod(name, labels={groups.NAME: group, groups.MIN_AVAILABLE: str(least)}, **more)


class Handle:
    """The parts of the handle that the plugin uses, without a scheduler."""

    def __init__(self) -> None:
        self.waiting_pods: list[Any] = []
        self.activated: list[str] = []
        self.time = 0.0
        self.clock = SimpleNamespace(now=lambda: self.time)

    def watch(self, kind: str, handler: Any) -> None:
        """Nothing happens by itself."""

    def activate(self, pods: dict[str, Pod]) -> None:
        self.activated += sorted(pods)

    def wait(self, pod: Pod) -> SimpleNamespace:
        found = SimpleNamespace(pod=PodInfo(pod), verdict="")
        found.allow = lambda name: setattr(found, "verdict", "allowed")
        found.reject = lambda name, message: setattr(found, "verdict", message)
        self.waiting_pods.append(found)
        return found


@pytest.fixture
def handle() -> Handle:
    return Handle()


def made(handle: Handle, **args: Any) -> Any:
    return plugin.Coscheduling(args, handle)


def queued(pod: Pod, timestamp: float) -> QueuedPodInfo:
    return QueuedPodInfo(PodInfo(pod), timestamp)


def test_the_pods_of_a_group_follow_one_another(handle: Handle) -> None:
    """KEP 2: never Pod-A1, Pod-B1, Pod-A2."""
    sort = made(handle)
    pods = [
        queued(member("a1", "a"), 1),
        queued(member("b1", "b"), 2),
        queued(a_pod("plain"), 2.5),
        queued(member("a2", "a"), 3),
        queued(member("b2", "b"), 4),
        queued(a_pod("late"), 5),
        queued(member("urgent", "c", priority=5), 6),
    ]
    keys = {pod.pod_info.name: sort.sort_key(pod) for pod in pods}
    assert sorted(keys, key=keys.__getitem__) == ["urgent", "a1", "a2", "b1", "b2", "plain", "late"]
    assert sort.less(pods[3], pods[1])


def test_permit_waits_until_the_group_has_enough_nodes(handle: Handle) -> None:
    gang = made(handle, permitWaitingTimeSeconds=5)
    pods = [member(f"p{index}", "g", 3) for index in range(4)]
    for pod in pods:
        gang.groups.on_add(pod, False)
    waiting = []
    for pod in pods[:2]:
        gang.reserve(None, PodInfo(pod), "n")
        status, seconds = gang.permit(None, PodInfo(pod), "n")
        assert (status.code.label, seconds) == ("Wait", 5)
        waiting.append(handle.wait(pod))
    assert handle.activated == ["ns/p1", "ns/p2", "ns/p3", "ns/p2", "ns/p3"]
    other = handle.wait(member("other", "h"))
    gang.reserve(None, PodInfo(pods[2]), "n")
    assert gang.permit(None, PodInfo(pods[2]), "n") is None
    assert [one.verdict for one in (*waiting, other)] == ["allowed", "allowed", ""]
    assert gang.permit(None, PodInfo(a_pod()), "n") is None


def test_one_that_gives_up_its_node_takes_the_others_along(handle: Handle) -> None:
    gang = made(handle)
    pods = [member(f"p{index}", "g", 3) for index in range(3)]
    for pod in pods[:2]:
        gang.groups.on_add(pod, False)
        gang.reserve(None, PodInfo(pod), "n")
    waiting = handle.wait(pods[0])
    gang.unreserve(None, PodInfo(pods[1]), "n")
    assert waiting.verdict == "pod group g is rejected: p1 gave up its node"
    # The pods are deleted: the group is forgotten, also if the pod's node is given up afterwards.
    for pod in pods[:2]:
        gang.groups.on_delete(SimpleNamespace(obj=pod))
    gang.unreserve(None, PodInfo(pods[0]), "n")
    assert list(gang.groups) == []


@pytest.mark.parametrize(("placed", "least", "kept"), [(8, 10, False), (9, 10, True), (0, 2, False), (2, 2, True)])
def test_a_group_is_rejected_when_more_than_a_tenth_is_missing(
    handle: Handle, placed: int, least: int, kept: bool
) -> None:
    """KEP 42: "if the gap to reach the quorum is greater than 10%, we reject the whole PodGroup"."""
    gang = made(handle)
    pods = [PodInfo(member(f"p{index}", "g", least)) for index in range(least + 1)]
    for pod in pods:
        gang.groups.on_add(pod.pod, False)
    for pod in pods[:placed]:
        gang.reserve(None, pod, "n")
    waiting = handle.wait(pods[0].pod)
    _, status = gang.post_filter(None, pods[-1], None)
    assert (waiting.verdict == "") == kept
    assert (gang.ask(pods[-1], None) is None) == kept
    assert status.code.label == "Unschedulable"


def test_a_rejected_group_is_tried_again_when_something_changes(handle: Handle) -> None:
    gang = made(handle, podGroupBackoffSeconds=30)
    first, second = PodInfo(member("a", "g")), PodInfo(member("b", "g"))
    for pod in (first, second):
        gang.groups.on_add(pod.pod, False)

    def denied() -> bool:
        gang.post_filter(None, first, None)
        return gang.ask(second, None) is not None

    assert denied()
    handle.time = 31
    assert gang.ask(second, None) is None
    assert denied()
    gang.on_update(None, None)  # a node
    assert gang.ask(second, None) is None
    assert denied()
    gang.groups.on_delete(a_pod("other", on="n"))
    assert gang.ask(second, None) is None
    assert denied()
    gang.groups.on_delete(a_pod("pending"))
    gang.groups.on_delete(member("own", "g", on="n"))
    assert gang.ask(second, None) is not None
    gang.groups.on_add(first.pod, False)
    assert gang.ask(second, None).pre_filter(None).message() == "pod group g did not fit, and nothing has changed since"


def test_a_group_that_failed_while_another_held_nodes_is_tried_when_that_gives_them_up(handle: Handle) -> None:
    gang = made(handle)
    own = [PodInfo(member(name, "g")) for name in "ab"]
    holder = PodInfo(member("x", "h"))
    for pod in (*own, holder):
        gang.groups.on_add(pod.pod, False)
    gang.reserve(None, holder, "n")
    handle.wait(holder.pod)
    gang.post_filter(None, own[0], None)
    assert gang.ask(own[1], None) is not None
    gang.unreserve(None, holder, "n")
    assert gang.ask(own[1], None) is None


def test_which_events_help(handle: Handle) -> None:
    gang = made(handle)
    pod = PodInfo(member("a", "g"))
    hint = gang._after_pod
    assert [hint(pod, None, member("b", "g")).name, hint(pod, None, member("c", "h")).name] == ["QUEUE", "SKIP"]
    assert [hint(pod, member("b", "g"), None).name, hint(pod, a_pod("c"), None).name] == ["SKIP", "QUEUE"]


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "1.5"])
def test_a_label_that_is_no_number_is_named(text: str) -> None:
    pod = a_pod("p", labels={groups.NAME: "g", groups.MIN_AVAILABLE: text})
    with pytest.raises(ValueError, match=r"pod p: label .*min-available: .*expected a whole number above 0"):
        groups.least_of(pod)


def test_arguments_that_cannot_be_used_are_refused(handle: Handle) -> None:
    with pytest.raises(ValueError, match="permitWaitingTimeSeconds: '1m'; expected a number of seconds above 0"):
        made(handle, permitWaitingTimeSeconds="1m")


def gangs(capsys: Any, manifests: Path | str, *more: str) -> dict[str, Any]:
    return simulated(capsys, str(manifests), "config/gangs.yaml", "coscheduling", *more)


def test_the_example_runs_one_training_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    result = gangs(capsys, "gangs.yaml")
    times: dict[str, set[float]] = {}
    for placed in result["placements"]:
        times.setdefault(placed["workload"], set()).add(placed["boundAt"])
    (first,), (second,) = times["Job/first"], times["Job/second"]
    assert first < 1
    assert 3600 <= second < 3700
    assert (result["totals"]["succeeded"], result["totals"]["pending"]) == (8, 0)


def test_a_group_without_enough_pods_waits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = (POLICIES / "gangs.yaml").read_text()
    file = tmp_path / "gangs.yaml"
    file.write_text(text.replace('second, pod-group.scheduling.sigs.k8s.io/min-available: "4"',
                                 'second, pod-group.scheduling.sigs.k8s.io/min-available: "5"'))  # fmt: skip
    result = gangs(capsys, file)
    assert {name.split("-")[0] for name in nodes_of(result)} == {"first"}
    (pending,) = result["pending"]
    assert pending["reasons"][0]["text"] == "pod group second has 4 of at least 5 pods"


@pytest.mark.parametrize("seed", range(3))
def test_every_group_has_all_of_its_pods_or_none(capsys: pytest.CaptureFixture[str], tmp_path: Path, seed: int) -> None:
    """Groups of random sizes on too few nodes; some are too large for the whole cluster."""
    rng = random.Random(seed)
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{index}"},
            "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
        }
        for index in range(3)
    ]
    least = {f"g{index}": rng.choice((2, 3, 5, 16)) for index in range(6)}
    members = [(group, index) for group, count in least.items() for index in range(count)]
    rng.shuffle(members)
    for group, index in members:
        labels = {groups.NAME: group, groups.MIN_AVAILABLE: str(least[group])}
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
        metadata = {"name": f"{group}-{index}", "labels": labels}
        objects.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})
    file = tmp_path / "gangs.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    result = gangs(capsys, file, "--seed", str(seed))
    found = Counter(name.split("-")[0] for name in nodes_of(result))
    assert found
    assert all(count == least[group] for group, count in found.items())
    free = 12 - sum(found.values())
    # What is left is too little for any group that waits.
    assert all(least[group] > free for group in least if group not in found)

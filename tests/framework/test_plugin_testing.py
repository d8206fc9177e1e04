"""``kubesched.testing``: a plugin in three lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import kubesched
from kubesched.scheduler.config import ConfigError
from kubesched.scheduler.framework import (
    ActionType,
    ClusterEvent,
    ClusterEventWithHint,
    EventResource,
    Normalize,
    Plugin,
    PluginError,
    Question,
    Reads,
    Status,
)
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.registry import load_module
from kubesched.scheduler.framework.wrong_answer import WrongAnswerError
from kubesched.testing import PluginCluster, node, pod

EXAMPLES = Path(__file__).parents[2] / "examples"


class OneTenantPerNode(Plugin):
    name = "OneTenantPerNode"

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        tenants = {other.labels.get("tenant") for other in node.pods.values()}
        if tenants - {pod.labels.get("tenant")}:
            return Status.unschedulable("node(s) belonged to another tenant")
        return None


class Emptier(Plugin):
    name = "Emptier"
    normalize = Normalize.REVERSE

    def score(self, state: Any, pod: Any, node: Any) -> int:
        factor: int = (self.args or {}).get("factor", 1)
        return len(node.pods) * factor


def test_the_readmes_plugin_in_three_lines() -> None:
    cluster = PluginCluster(OneTenantPerNode, nodes=["a", "b"], pods=[pod("x", on="a", labels={"tenant": "red"})])
    assert cluster.feasible(pod("p", labels={"tenant": "blue"})) == ["b"]
    assert cluster.rejections(pod("p")) == {"a": ["node(s) belonged to another tenant"]}
    assert cluster.feasible(pod("p", labels={"tenant": "red"})) == ["a", "b"]
    cluster.check(pod("p"), pod("q", labels={"tenant": "red"}))


def test_pods_are_placed_and_count_from_then_on() -> None:
    cluster = PluginCluster(OneTenantPerNode, nodes=["a", "b"])
    places = [cluster.place(pod(name, labels={"tenant": name})) for name in ("red", "blue", "green")]
    assert sorted(name for name in places if name) == ["a", "b"]
    assert places[2] is None
    assert len(cluster.rejections(pod("p"))) == 2


def test_scores_are_normalised_and_arguments_arrive() -> None:
    pods = [pod("x", on="a"), pod("y", on="a"), pod("z", on="b")]
    cluster = PluginCluster(Emptier, nodes=["a", "b", "c"], pods=pods, args={"factor": 3})
    assert cluster.plugin.args == {"factor": 3}
    assert cluster.scores(pod("p")) == {"a": 0, "b": 50, "c": 100}
    assert cluster.place(pod("p")) == "c"
    assert PluginCluster(OneTenantPerNode, nodes=["a"]).scores(pod("p")) == {}


def test_the_default_plugins_decide_as_well_when_wanted() -> None:
    nodes = [
        node("a", cpu=1),
        node("b", cpu=4, **cast("dict[str, Any]", {"x/gpu": 1})),
        node("c", labels={"pool": "z"}),
    ]
    big = pod("big", requests={"cpu": 2})
    assert PluginCluster(OneTenantPerNode, nodes=nodes).feasible(big) == ["a", "b", "c"]
    cluster = PluginCluster(OneTenantPerNode, nodes=nodes, with_defaults=True)
    assert cluster.rejections(big) == {"a": ["Insufficient cpu"]}
    assert cluster.feasible(pod("g", requests={"x/gpu": 1})) == ["b"]
    assert cluster.feasible(pod("s", nodeSelector={"pool": "z"})) == ["c"]


def test_a_pod_rejected_everywhere_has_the_reason_at_every_node() -> None:
    class Never(Plugin):
        name = "Never"

        def pre_filter(self, state: Any, pod: Any, nodes: Any) -> Status | None:
            return Status.unresolvable("not today")

    assert PluginCluster(Never, nodes=["a", "b"]).rejections(pod("p")) == {"a": ["not today"], "b": ["not today"]}


class Unwanted(Question):
    """The node that a label names; ``wrong`` makes the answers for one row and for many disagree."""

    key = ()

    def __init__(self, pod: Any, nodes: Any, *, wrong: bool) -> None:
        self.unwanted, self.nodes, self.wrong = pod.labels.get("not"), nodes, wrong

    def verdicts(self, rows: Any) -> Any:
        return np.array([self.nodes.info(row).name == self.unwanted for row in rows.tolist()], np.uint64)

    def verdict(self, node: Any) -> int:
        return int(node.name == self.unwanted) ^ self.wrong

    def why(self, verdict: int) -> Status:
        return Status.unschedulable("not this one")


class Elsewhere(Plugin):
    name = "Elsewhere"
    asks = Unwanted
    wrong: bool = False

    def ask(self, pod: Any, nodes: Any) -> Question:
        return Unwanted(pod, nodes, wrong=self.wrong)


def test_answers_that_must_be_equal_are_compared() -> None:
    cluster = PluginCluster(Elsewhere, nodes=["a", "b"])
    cluster.check(pod("p"), pod("q"))
    with pytest.raises(
        AssertionError,
        match=r"pods p and q have equal keys, \(\), but Elsewhere answers differently: Filter a: None and <",
    ):
        cluster.check(pod("p"), pod("q", labels={"not": "a"}))
    wrong = type("Wrong", (Elsewhere,), {"wrong": True})
    with pytest.raises(AssertionError, match=r"pod p: Filter a: .* for one row, None for many"):
        PluginCluster(wrong, nodes=["a"]).check(pod("p"))

    class Forgetful(Plugin):
        name = "Forgetful"
        calls = 0

        def score(self, state: Any, pod: Any, node: Any) -> int:
            self.calls += 1
            return self.calls

    with pytest.raises(AssertionError, match=r"pod p: .*(for one row|when asked again)"):
        PluginCluster(Forgetful, nodes=["a"]).check(pod("p"))


class Sees(Question):
    """A verdict made by a function of the plugin; what the class says of how long it holds may be wrong."""

    why = Unwanted.why

    def __init__(self, pod: Any, nodes: Any, rejects: Any) -> None:
        self.key = pod.labels.get("key")
        self.pod, self.nodes, self.rejects = pod, nodes, rejects

    def pre_filter(self, nodes: Any) -> None:
        return None

    def verdicts(self, rows: Any) -> Any:
        return np.array([self.rejects(self, self.nodes.info(row)) for row in rows.tolist()], np.uint64)


def seeing(rejects: Any, **members: Any) -> type:
    asks: Any = type("Seen", (Sees,), members)
    return type(
        "Seer", (Plugin,), {"name": "Seer", "asks": asks, "ask": lambda self, pod, nodes: asks(pod, nodes, rejects)}
    )


def has_a_pod(question: Any, node: Any) -> bool:
    return bool(node.pods)


def is_one_anywhere(question: Any, node: Any) -> bool:
    return any(question.nodes.info(row).pods for row in question.nodes.order().tolist())


def no_rows(self: Any) -> Any:
    return np.zeros(0, np.intp)


KEYED = [pod("p", labels={"key": "k"}), pod("q")]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (seeing(has_a_pod, reads=Reads.PODS), seeing(has_a_pod, reads=Reads.NODE)),
        (seeing(is_one_anywhere, is_local=False, changed=lambda self: None), seeing(is_one_anywhere)),
        (seeing(is_one_anywhere, is_local=False), seeing(is_one_anywhere, is_local=False, changed=no_rows)),
    ],
    ids=["reads too little", "is not local", "names too few rows"],
)
def test_kept_answers_are_compared_with_new_ones_while_pods_come_and_go(right: type, wrong: type) -> None:
    cluster = PluginCluster(right, nodes=["a", "b", "c"])
    cluster.check(*KEYED)
    assert cluster.feasible(KEYED[0]) == ["a", "b", "c"]  # nothing was left behind
    with pytest.raises(
        AssertionError, match=r"pod p-\d, while .*by kept.*Seer stay valid: key, reads, is_local, changed"
    ):
        PluginCluster(wrong, nodes=["a", "b", "c"]).check(*KEYED)


def test_scores_that_are_kept_too_long_are_found() -> None:
    class Emptiest(Question):
        reads = Reads.NODE
        key = ()
        normalize = Normalize.REVERSE

        def __init__(self, nodes: Any) -> None:
            self.nodes = nodes

        def scores(self, rows: Any) -> Any:
            return np.array([len(self.nodes.info(row).pods) for row in rows.tolist()], np.int64)

    plugin = type(
        "Spread", (Plugin,), {"name": "Spread", "asks": Emptiest, "ask": lambda self, pod, nodes: Emptiest(nodes)}
    )
    with pytest.raises(
        AssertionError, match=r"by kept scores . is the best node; by a new scan it has 0, and . has 100"
    ):
        PluginCluster(plugin, nodes=["a", "b", "c"]).check(pod("p"))


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"follow": lambda self, kept: 5}, "follow returned 5; expected one of the two questions"),
        ({"changed": lambda self: [1]}, r"changed returned \[1\]; expected an array of row numbers or None"),
        ({"changed": lambda self: np.array([3])}, "changed returned row 3; there are 3 rows"),
    ],
    ids=["follow", "a list", "a row"],
)
def test_the_check_finds_wrong_answers_about_kept_ones(members: dict[str, Any], text: str) -> None:
    wrong = seeing(lambda question, node: False, is_local=False, **{"changed": no_rows, **members})
    with pytest.raises(PluginFailedError, match=f'running PreFilter plugin "Seer": {text}') as caught:
        PluginCluster(wrong, nodes=["a", "b", "c"]).check(*KEYED)
    cause: Any = caught.value.__cause__
    assert isinstance(cause, WrongAnswerError)
    assert cause.file == __file__


def test_a_question_by_the_spec_must_not_read_labels() -> None:
    wrong = seeing(lambda question, node: False, by_spec=True)
    PluginCluster(wrong, nodes=["a"]).check(pod("q"))
    with pytest.raises(
        AssertionError,
        match=r"pod p: by_spec of Seen is True, but ask of Seer reads more .*: key 'k', and no key without the pod's labels",
    ):
        PluginCluster(wrong, nodes=["a"]).check(*KEYED)


@pytest.mark.parametrize(
    ("amounts", "error", "text"),
    [
        ([(3, 1)], None, ""),
        ([(3, 999)], AssertionError, r"pod p: amounts returned \(\(3, 999\),\), by which a does not fit; its verdict is 0"),
        ([("pods", 1)], PluginFailedError, r'running "Seer" filter plugin: amounts returned \[.*; expected \(index, amount\) pairs'),
        ([(77, 1)], PluginFailedError, r"amounts returned \[\(77, 1\)\]; expected"),
        (5, PluginFailedError, r"amounts returned 5; expected"),
    ],
)  # fmt: skip
def test_amounts_must_say_what_the_verdicts_say(amounts: Any, error: Any, text: str) -> None:
    cluster = PluginCluster(seeing(lambda question, node: False, amounts=lambda self: amounts), nodes=["a"])
    if error is None:
        cluster.check(pod("p"))
        return
    with pytest.raises(error, match=text):
        cluster.check(pod("p"))


def test_reserve_is_undone_by_the_check_and_its_failure_is_raised() -> None:
    class Counts(Plugin):
        name = "Counts"
        most = count = 0

        def reserve(self, state: Any, pod: Any, node_name: str) -> Status | None:
            if pod.labels.get("key"):
                raise ValueError("boom")
            self.count += 1
            self.most = max(self.most, self.count)
            return Status.unschedulable("one is enough") if self.count > 1 else None

        def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
            self.count -= 1

    cluster = PluginCluster(Counts, nodes=["a"])
    cluster.check(pod("p"))
    assert (cluster.plugin.count, cluster.plugin.most) == (0, 2)
    assert (cluster.place(pod("p")), cluster.place(pod("q"))) == ("a", None)
    with pytest.raises(PluginFailedError, match='running Reserve plugin "Counts": boom'):
        cluster.place(pod("r", labels={"key": "k"}))


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (ClusterEventWithHint(ClusterEvent("Nodes", ActionType.ADD)), "names the resource 'Nodes'; expected one of EventResource: Pod, "),
        (ClusterEventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD), cast("Any", lambda pod: None)),
         r"the hint for Node/Add is .* cannot be called as hint\(pod, old, new\) -> QueueingHint: too many"),
    ],
)  # fmt: skip
def test_events_that_cannot_be_are_refused(event: ClusterEventWithHint, text: str) -> None:
    plugin = seeing(has_a_pod)
    plugin.events_to_register = lambda self: [event]  # type: ignore[attr-defined]
    with pytest.raises(PluginError, match=text):
        PluginCluster(plugin, nodes=["a"])


@pytest.mark.parametrize("file", ["zone_maintenance", "gpu_last", "teams_per_zone"])
def test_the_example_plugins_pass_the_check(file: str) -> None:
    module = load_module(str(EXAMPLES / "plugins" / f"{file}.py"))
    plugin = next(
        each
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__ and hasattr(each, "name")
    )
    nodes = [node(name, labels={"topology.kubernetes.io/zone": f"zone-{name}"}, **{"nvidia.com/gpu": gpus})
             for name, gpus in (("a", 0), ("b", 8), ("c", 0))]  # fmt: skip
    cluster = PluginCluster(plugin, nodes=nodes)
    cluster.check(pod("p"), pod("q", requests={"nvidia.com/gpu": 1}), pod("r", labels={"team": "red"}))
    expected = {"zone_maintenance": ("a", "b"), "gpu_last": ("a", "c"), "teams_per_zone": ("a", "b", "c")}[file]
    assert {cluster.place(pod(f"p{number}")) for number in range(12)} == set(expected)
    del sys.modules[module.__name__]


def test_what_cannot_be_used_is_refused() -> None:
    with pytest.raises(PluginError, match="has no name"):
        PluginCluster(int, nodes=["a"])
    with pytest.raises(ValueError, match="pod x runs on 'c'; nodes are a, b"):
        PluginCluster(OneTenantPerNode, nodes=["a", "b"], pods=[pod("x", on="c")])

    class Picky(Plugin):
        name = "Picky"

        def __init__(self, args: Any, handle: Any) -> None:
            raise ValueError("no args")

        def score(self, state: Any, pod: Any, node: Any) -> int:
            return 0

    with pytest.raises(ConfigError, match="no args"):
        PluginCluster(Picky, nodes=["a"])


def test_the_example_of_teams_keeps_to_its_limit_and_preempts_for_it() -> None:
    file = str(EXAMPLES / "plugins" / "teams_per_zone.py")
    nodes = [node(f"n{number}", labels={"topology.kubernetes.io/zone": f"z{number % 2}"}) for number in range(4)]
    red = {"team": "red"}
    pods = [pod(f"p{number}", labels=red) for number in range(5)]
    pods.append(pod("late", labels=red, annotations={"kubesched.io/arrival": "5s"}, priorityClassName="high"))
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": {"multiPoint": {"enabled": [{"name": "TeamsPerZone"}]}},
                "pluginConfig": [{"name": "TeamsPerZone", "args": {"most": 2}}],
            }
        ],
    }
    result = kubesched.simulate([high, *nodes, *pods], config=config, plugins=[file])
    assert not result.errors
    zones = sorted(int(placed.node[1:]) % 2 for placed in result.placements)
    assert zones == [0, 0, 1, 1]
    assert [(one.pod, len(one.victims)) for one in result.preemptions] == [("default/late", 1)]
    assert [waiting.reasons[0].text for waiting in result.pending] == [
        "node(s) were in a zone with enough pods of the team"
    ]

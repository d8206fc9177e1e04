"""``kubesched.simulate(...)`` and ``kubesched.Simulation``: what they take, where they run, and that steps change nothing."""

from __future__ import annotations

import asyncio
import gzip
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kubesched
from kubesched.api.wire import ApiError
from kubesched.cluster.files import ManifestError, parse_manifests
from kubesched.scheduler.config import ConfigError, default_config
from kubesched.scheduler.framework import Plugin, PluginError, PodInfo, Status
from kubesched.scheduler.nodes.nodeinfo import NodeInfo

EXAMPLES = Path(__file__).parents[2] / "examples"
JSON = dict[str, Any]


def pod(name: str, cpu: str = "1", *, duration: str = "", **metadata: Any) -> JSON:
    annotations = {"kubesched.io/duration": duration} if duration else {}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "annotations": annotations, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def node(name: str, cpu: str = "4") -> JSON:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}}


#: An object that contains itself.
CYCLE: JSON = pod("p")
CYCLE["spec"]["self"] = CYCLE


class NotOnFirst(Plugin):
    name = "NotOnFirst"

    def filter(self, state: Any, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("is the first") if node.name == "a" else None


def where(result: kubesched.SimulationResult) -> dict[str, str]:
    return {item.name: item.node for item in result.placements}


# -- imports ---------------------------------------------------------------------------------------------------


def test_the_package_is_imported_fast_and_its_parts_when_they_are_used() -> None:
    code = (
        "import sys, kubesched; heavy = {'numpy', 'msgspec', 'asyncio', 'yaml'} & set(sys.modules); assert not heavy, heavy;"
        "assert {'simulate', 'Simulation'} <= set(dir(kubesched));"
        "import kubesched.lab.simulate.results.result; r = kubesched.simulate([], nodes=1); print(r.totals.nodes)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match="module 'kubesched' has no attribute 'simulat'"):
        kubesched.simulat  # noqa: B018


# -- inputs ----------------------------------------------------------------------------------------------------


class FromAClient:
    """As the models of the official client."""

    attribute_map = {"api_version": "apiVersion", "kind": "kind", "metadata": "metadata", "spec": "spec"}

    def __init__(self) -> None:
        self.api_version, self.kind, self.metadata = "v1", "Pod", {"name": "p"}
        self.spec = SimpleNamespace(
            attribute_map={"containers": "containers", "node_name": "nodeName"},
            containers=[{"name": "c", "image": "i"}],
            node_name=None,
        )


class WithToDict:
    """As the models of lightkube and kr8s."""

    def to_dict(self) -> JSON:
        return pod("p")


_TEXT = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"


@pytest.mark.parametrize(
    "given",
    [
        pod("p"),
        [pod("p")],
        (item for item in [pod("p")]),
        _TEXT,
        [_TEXT],
        "FILE",
        ["FILE"],
        FromAClient(),
        [WithToDict()],
        parse_manifests(_TEXT),
        [parse_manifests(_TEXT)],
        parse_manifests(_TEXT).objects[0],
    ],
    ids=["dict", "list", "generator", "text", "texts", "path", "paths", "model", "to_dict", "loaded", "loadeds", "one"],
)
def test_objects_come_in_many_forms(given: Any, tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(_TEXT)
    if given in ("FILE", ["FILE"]):
        given = path if given == "FILE" else [str(path)]
    assert where(kubesched.simulate(given, nodes=[node("n")])) == {"p": "n"}


def test_an_official_clients_model_is_used() -> None:
    from kubernetes.client import (  # type: ignore[import-untyped]
        V1Container,
        V1ObjectMeta,
        V1Pod,
        V1PodSpec,
        V1ResourceRequirements,
    )

    resources = V1ResourceRequirements(requests={"cpu": "3"})
    spec = V1PodSpec(containers=[V1Container(name="c", image="i", resources=resources)], node_selector={"x": "y"})
    model = V1Pod(api_version="v1", kind="Pod", metadata=V1ObjectMeta(name="p"), spec=spec)
    labelled = node("b")
    labelled["metadata"]["labels"] = {"x": "y"}
    result = kubesched.simulate(model, nodes=[node("a"), labelled])
    assert where(result) == {"p": "b"}
    [cpu] = [use for use in result.nodes[1].resources if use.name == "cpu"]
    assert cpu.requested == 3000


def test_hollow_nodes_have_the_resources_and_zones_asked_for() -> None:
    amounts: dict[str, str | int] = {"nvidia.com/gpu": 8, "cpu": "64"}
    result = kubesched.simulate(nodes=4, node_resources=amounts, zones=["north", "south"])
    assert [item.zone for item in result.nodes] == ["north", "south", "north", "south"]
    totals = {use.name: use.allocatable for use in result.resources}
    assert (totals["nvidia.com/gpu"], totals["cpu"]) == (32, 256_000)
    template = {"metadata": {"labels": {"a": "b"}}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}}
    result = kubesched.simulate(nodes=2, node_template=template, node_resources={"memory": "2Gi"}, zones=1)
    assert [(item.zone, item.resources[0].allocatable) for item in result.nodes] == [("zone-a", 2000)] * 2
    assert result.nodes[0].resources[1].allocatable == 2 << 30


@pytest.mark.parametrize("form", ["path", "dict", "object"])
def test_a_configuration_comes_in_many_forms_and_plugins_run_in_it(form: str, tmp_path: Path) -> None:
    document: JSON = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler"}],
    }
    config: Any = document
    if form == "path":
        config = tmp_path / "config.json"
        config.write_text(__import__("json").dumps(document))
    elif form == "object":
        config = default_config()
    nodes = [node("a", "8"), node("b", "1")]
    assert where(kubesched.simulate(pod("p"), nodes=nodes, config=config)) == {"p": "a"}
    assert where(kubesched.simulate(pod("p"), nodes=nodes, config=config, plugins=[NotOnFirst])) == {"p": "b"}


def test_a_profile_that_disables_a_plugin_is_obeyed() -> None:
    disabled = {"filter": {"disabled": [{"name": "NotOnFirst"}]}}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": disabled}],
    }
    result = kubesched.simulate(pod("p"), nodes=[node("a")], config=config, plugins=[NotOnFirst])
    assert where(result) == {"p": "a"}
    assert result.warnings == ["plugin NotOnFirst was loaded, but no profile of the configuration enables it"]


def test_a_plugin_file_works_as_on_the_command_line() -> None:
    file = EXAMPLES / "plugins" / "zone_maintenance.py"
    given: JSON = {"nodes": 3, "zones": ["zone-a", "zone-b", "zone-c"]}
    assert len(set(where(kubesched.simulate([pod(f"p{n}", "3") for n in range(3)], **given)).values())) == 3
    result = kubesched.simulate([pod(f"p{n}", "3") for n in range(3)], plugins=[file], **given)
    assert set(where(result).values()) == {"hollow-00000", "hollow-00001"}


def test_feature_gates_are_settings_or_text() -> None:
    for gates in ("SchedulerQueueingHints=true", {"SchedulerQueueingHints": True}, None):
        assert kubesched.simulate(pod("p"), nodes=1, gates=gates).totals.placed == 1
    with pytest.raises(ValueError, match="unrecognized feature gate: Nothing"):
        kubesched.simulate(gates={"Nothing": True})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"manifests": "no/such/file.yaml"}, ManifestError, "no/such/file.yaml: there is no such file"),
        ({"manifests": 5}, ManifestError, "manifests: expected a path, a text of YAML or JSON, .* found int"),
        ({"manifests": [pod("p"), 5.5]}, ManifestError, r"manifests\[1\]: expected .* found float"),
        ({"manifests": {"kind": "Pod"}}, ManifestError, "manifests.*apiVersion is missing"),
        ({"manifests": {**pod("p"), "x": object()}}, ManifestError, "manifests: is no plain data"),
        ({"manifests": "kind: Pod\nx: ["}, ManifestError, "manifests: document 1, line 3: not valid YAML"),
        ({"manifests": ""}, ManifestError, "manifests: is an empty text"),
        ({"manifests": [[pod("p")]]}, ManifestError, r"manifests\[0\]: expected .* found list"),
        ({"nodes": 10**9}, ValueError, "nodes=1000000000: must be at most 1000000"),
        ({"node_template": 5}, ManifestError, "node_template: expected a Node as a dict, or a path, found int"),
        ({"node_resources": ["cpu"]}, ManifestError, "node_resources: expected a dict of amounts, found list"),
        ({"config": 5}, ConfigError, "config: expected a path, a document as a dict, .* found int"),
        ({"zones": "zone-a"}, ValueError, "zones='zone-a': must be a number of zones, or a list of names"),
        ({"stages": ["x"]}, ValueError, "stages: expected a path, or stages .* found 'x'"),
        ({"extenders": ["x"]}, ValueError, "extenders: expected objects such as InProcessExtender, found 'x'"),
        ({"manifests": CYCLE}, ManifestError, "manifests: is no plain data: it contains itself"),
        ({"gates": 5}, ValueError, "gates=5: expected a text such as"),
        ({"plugins": 5}, PluginError, "plugins=5: give a list of plugin classes"),
        ({"nodes": "3"}, ValueError, "nodes='3': a number of nodes is written without quotes"),
        (
            {"nodes": [pod("q")]},
            ManifestError,
            r"nodes\[0\]: is a Pod; nodes are Node objects, others belong into manifests",
        ),
        ({"zones": ["a", 2]}, ValueError, r"zones=\['a', 2\]: must be a number of zones, or a list of names"),
        ({"zones": None}, ValueError, r"zones=\[None\]: must be a number of zones, or a list of names"),
        ({"stages": 5}, ValueError, "stages=5: expected a path, or stages from load_stages"),
        ({"extenders": 5}, ValueError, "extenders=5: expected a list of objects such as InProcessExtender"),
        ({"on_progress": 5}, ValueError, "on_progress=5: expected a function of two numbers"),
        ({"nodes": -1}, ValueError, "nodes=-1: must be a whole number, 0 or more"),
        ({"nodes": True}, ValueError, "nodes=True: must be a whole number"),
        ({"zones": -2}, ValueError, "zones=-2: must be a whole number"),
        ({"seed": "x"}, ValueError, "seed='x': must be a whole number"),
        ({"until": "soon"}, ValueError, "until='soon': .*write numbers with units"),
        ({"until": -1}, ValueError, "until=-1: must be a number of seconds"),
        ({"until": float("nan")}, ValueError, "until=nan: must be a number of seconds"),
        ({"node_resources": {"cpu": "many"}}, ManifestError, "node resource cpu=many: "),
        ({"node_template": {"kind": "Pod"}}, ManifestError, "node_template: is a Pod"),
        ({"plugins": NotOnFirst}, PluginError, "give a list of plugin classes"),
        ({"plugins": [NotOnFirst(None, None)]}, PluginError, "is no plugin: expected a class"),  # type: ignore[arg-type]
        ({"plugins": [int]}, PluginError, "has no name"),
        ({"config": {"kind": "Nothing"}}, ConfigError, "Nothing|apiVersion"),
    ],
    ids=lambda item: "-".join(item) if isinstance(item, dict) else "",
)
@pytest.mark.parametrize("call", [kubesched.simulate, kubesched.Simulation], ids=["simulate", "Simulation"])
def test_what_cannot_be_used_is_named(call: Any, options: JSON, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(**options)


def test_all_bad_objects_are_in_one_error(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("kind: Pod\n")
    with pytest.raises(ManifestError) as caught:
        kubesched.simulate([pod("p"), {"kind": "Pod"}, tmp_path, 7])
    lines = str(caught.value).splitlines()
    assert ["manifests[1]" in lines[0], "bad.yaml" in lines[1], "manifests[3]" in lines[2]] == [True] * 3


# -- where it runs ---------------------------------------------------------------------------------------------


def test_the_result_is_the_same_inside_a_running_event_loop() -> None:
    objects = [pod(f"p{number}", "3", duration="5m") for number in range(4)]

    async def inside() -> tuple[kubesched.SimulationResult, bool]:
        before = asyncio.get_running_loop()
        result = kubesched.simulate(objects, nodes=[node("a"), node("b")], seed=3)
        return result, before is asyncio.get_running_loop()

    outside = kubesched.simulate(objects, nodes=[node("a"), node("b")], seed=3)
    assert asyncio.run(inside()) == (outside, True)
    assert outside.totals.succeeded == 4


def test_errors_reach_the_caller_inside_a_running_event_loop() -> None:
    async def inside() -> None:
        kubesched.simulate({**pod("p"), "metadata": {"name": "p", "labels": 5}})

    with pytest.raises(ManifestError, match="labels"):
        asyncio.run(inside())


def test_an_interrupt_ends_a_plugin_that_never_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = threading.Event()

    class Endless(Plugin):
        name = "Endless"

        def filter(self, state: Any, pod: PodInfo, node: NodeInfo) -> Status | None:
            entered.set()
            while True:
                pass

    join = threading.Thread.join

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        monkeypatch.setattr(threading.Thread, "join", join)
        entered.wait()
        raise KeyboardInterrupt

    async def inside() -> None:
        monkeypatch.setattr(threading.Thread, "join", interrupted)
        kubesched.simulate(pod("p"), nodes=1, plugins=[Endless])

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(inside())
    assert not [thread for thread in threading.enumerate() if thread.name == "simulation"]


# -- step by step ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", ["web-shop", "gpu-batch", "stateful", "gpu-dra"])
def test_a_run_with_stops_is_the_run_without(example: str) -> None:
    options: JSON = {"nodes": 6, "zones": 3, "node_resources": {"nvidia.com/gpu": 2}, "seed": 5, "until": "100h"}
    manifests = [EXAMPLES / example, EXAMPLES / "nodes"]
    whole = kubesched.simulate(manifests, **options)
    with kubesched.Simulation(manifests, **options) as simulation:
        for _ in range(3):
            simulation.step()
        simulation.advance("7m")
        assert simulation.result().placements
        assert where(simulation.run()) == where(whole)
        # The run with stops has gone on after nothing moved: unschedulable pods are tried again after a while.
        totals = simulation.result().totals
        assert (totals.placed, totals.succeeded) == (whole.totals.placed, whole.totals.succeeded)


def test_time_stands_still_between_steps_and_moves_to_the_next_event() -> None:
    objects = [node("n", "1"), pod("first", duration="10m"), pod("second", duration="5m")]
    with kubesched.Simulation(objects) as simulation:
        assert simulation.now == 0
        assert {one.name: one.spec.node_name for one in simulation.pods} == {"first": "n", "second": ""}
        [waiting] = simulation.queue
        assert waiting[:5] == ("default", "second", "Unschedulable", 1, ("NodeResourcesFit",))
        assert [use.requested for use in simulation.nodes[0].resources if use.name == "cpu"] == [1000]
        moments = []
        while simulation.step():
            moments.append(simulation.now)
        assert moments == sorted(moments)
        result = simulation.result()
        assert result.totals.succeeded == 2
        assert not simulation.step()
        assert simulation.advance(60) == moments[-1] + 60


def test_objects_are_created_and_deleted_on_the_way() -> None:
    with kubesched.Simulation([node("a", "1"), pod("p")]) as simulation:
        assert simulation.create([pod("q"), pod("r")]) == []
        assert [one.name for one in simulation.queue] == ["q", "r"]
        simulation.create(node("b", "1"))
        simulation.run()
        assert [one.spec.node_name for one in simulation.pods] == ["a", "b", ""] or simulation.queue[0].name == "q"
        simulation.delete("pod", "p")
        simulation.run()
        assert {one.name for one in simulation.pods} == {"q", "r"}
        assert all(one.spec.node_name for one in simulation.pods)
        workload = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "d"},
            "spec": {
                "selector": {"matchLabels": {"a": "d"}},
                "template": {"metadata": {"labels": {"a": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
        }
        simulation.create(workload)
        assert sorted(one.spec.node_name for one in simulation.pods if one.name.startswith("d-")) == ["a", "b"]
        simulation.delete("Node", "b")
        assert [use.name for use in simulation.nodes] == ["a"]
        with pytest.raises(ValueError, match="no kind is named 'Thing'"):
            simulation.delete("Thing", "x")
        with pytest.raises(ApiError, match="not found"):
            simulation.delete("Pod", "nothing")
        with pytest.raises(ManifestError, match="objects: expected"):
            simulation.create(5)  # type: ignore[arg-type]
        [refused] = simulation.create({**pod("bad"), "metadata": {"name": "Not A Name"}})
        assert "Not A Name" in refused.message
        assert simulation.result().refused == [refused]
        late = pod("late", annotations={"kubesched.io/arrival": "5m"})
        with pytest.raises(
            ManifestError, match=r"Pod late: annotation kubesched.io/arrival: objects are created at once"
        ):
            simulation.create(late)
        claim = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}
        with_claim = pod("with-claim")
        with_claim["spec"].update(volumes=[claim], nothing=1)
        simulation.create(with_claim)
        texts = simulation.result().warnings
        assert 'objects: Pod with-claim: unknown field "spec.nothing" is ignored' in " ".join(texts)
        assert any(
            "use volumes, but the controllers for them run only if objects at the start use them" in text
            for text in texts
        )


def test_what_arrives_later_arrives_step_by_step() -> None:
    objects = [node("n"), pod("late", annotations={"kubesched.io/arrival": "5m"}), pod("now")]
    with kubesched.Simulation(objects) as simulation:
        assert [one.name for one in simulation.pods] == ["now"]
        simulation.advance("299s")
        assert [one.name for one in simulation.pods] == ["now"]
        assert "1 object was still to arrive" in simulation.result().warnings[0]
        while len(simulation.pods) == 1:
            assert simulation.step()
        assert simulation.now == 300
        assert where(simulation.run()) == {"late": "n", "now": "n"}


def test_a_simulation_steps_inside_a_running_event_loop_and_closes() -> None:
    async def inside() -> kubesched.Simulation:
        simulation = kubesched.Simulation(pod("p", duration="1m"), nodes=1)
        while simulation.step():
            pass
        assert simulation.result().totals.succeeded == 1
        simulation.close()
        simulation.close()
        return simulation

    simulation = asyncio.run(inside())
    with pytest.raises(RuntimeError, match="the simulation is closed"):
        simulation.step()


def test_one_that_is_forgotten_leaves_nothing_behind() -> None:
    simulation = kubesched.Simulation(pod("p"), nodes=1)
    loop = simulation._engine._loop
    del simulation
    assert loop.is_closed()


def test_two_simulations_keep_their_problems_apart() -> None:
    class Raises(Plugin):
        name = "Raises"

        def filter(self, state: Any, pod: PodInfo, node: NodeInfo) -> Status | None:
            raise ValueError("on purpose")

    with (
        kubesched.Simulation(pod("p"), nodes=1) as good,
        kubesched.Simulation(pod("p"), nodes=1, plugins=[Raises], until=10) as bad,
    ):
        assert not good.run().errors
        assert "on purpose" in bad.run().errors[0].text
        assert not good.result().errors


def test_compressed_text_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(gzip.compress(b"kind: Pod"))
    with pytest.raises(ManifestError, match=r"x\.yaml"):
        kubesched.simulate(path)


@pytest.mark.parametrize("function", [kubesched.simulate, kubesched.Simulation])
def test_an_argument_that_does_not_exist_or_cannot_be_used_is_named(function: Any) -> None:
    with pytest.raises(TypeError, match=r"^kubesched\.simulate has no argument nodez; did you mean nodes\?$"):
        function(pod("p"), nodez=1)
    with pytest.raises(ValueError, match=r"^gates: DRADeviceTaintRules='false': must be True or False$"):
        function(pod("p"), gates={"DRADeviceTaintRules": "false"})
    with pytest.raises(TypeError, match=r"^kubesched\.simulate has no argument q; there are manifests, nodes, "):
        function(pod("p"), q=1)


def priority_class(name: str, **more: Any) -> JSON:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1,
        **more,
    }


@pytest.mark.parametrize(
    ("objects", "problems"),
    [
        ([node("b"), pod("p", namespace="new"), node("a")], ['Node a was refused: nodes "a" already exists']),
        (
            [node("b"), priority_class("x", value=2_000_000_000), node("a")],
            ["PriorityClass x was refused", 'nodes "a" already exists'],
        ),
        (
            [priority_class("one", globalDefault=True), priority_class("two", globalDefault=True)],
            ["PriorityClass two was refused: .*Only one default"],
        ),
        ([node("b"), pod("p", namespace="NO")], ['namespace NO: Namespace "NO" is invalid']),
    ],
    ids=["is there already", "value, and is there", "each other", "namespace"],
)
def test_what_is_created_on_the_way_is_created_together_or_not_at_all(objects: list[JSON], problems: list[str]) -> None:
    with kubesched.Simulation([node("a")]) as simulation:
        version = simulation.embedded.store.resource_version
        with pytest.raises(ManifestError) as refused:
            simulation.create(objects)
        assert len(refused.value.problems) == len(problems)
        for problem in problems:
            assert re.search(problem, str(refused.value))
        assert simulation.embedded.store.resource_version == version
        assert [one.name for one in simulation.nodes] == ["a"]
        assert not simulation.result().warnings
        assert simulation.create([node("b"), priority_class("system-node-critical", value=2_000_001_000)]) == []
        assert [one.name for one in simulation.nodes] == ["a", "b"]


@pytest.mark.parametrize(
    "first", ["import kubesched", "import kubesched.lab.simulate", "import kubesched.scheduler.loading"]
)
def test_help_shows_the_function_whichever_is_imported_first(first: str) -> None:
    program = f"""
{first}
import inspect, pydoc
text = pydoc.plain(pydoc.render_doc(kubesched.simulate))
assert text.startswith("Python Library Documentation: function simulate in module kubesched"), text
assert "node_template: a Node that hollow nodes are made from" in text
assert list(inspect.signature(kubesched.simulate).parameters)[:2] == ["manifests", "nodes"]
from kubesched.lab.simulate import Result, stepping
assert kubesched.Simulation is stepping.Simulation
assert kubesched.simulate(nodes=1).totals.pods == 0
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (5, "WrongAnswerError", "PostFilter for pod default/p failed; the pod waits: .*returned 5 from post_filter; expected a pair"),
        (ValueError("boom"), "ValueError", "plugin Remedy failed in post_filter"),
    ],
)  # fmt: skip
def test_a_remedy_that_fails_is_reported(answer: Any, kind: str, text: str) -> None:
    class Remedy(Plugin):
        name = "Remedy"

        def post_filter(self, state: Any, pod: PodInfo, statuses: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    result = kubesched.simulate(pod("p", cpu="100"), nodes=1, plugins=[Remedy])
    (error,) = result.errors
    assert re.match(text, error.text)
    assert (error.type, error.file) == (kind, __file__)
    assert result.pending[0].reason == "Unschedulable"

"""``kubesched simulate``: the table as a golden text, stable JSON, and the messages for bad input."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
import yaml
from cli_kit import EXAMPLES, run, spawn

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: blue, labels: {topology.kubernetes.io/zone: z1, disk: ssd}}
status: {allocatable: {cpu: "2", memory: 4Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: red, labels: {topology.kubernetes.io/zone: z2}}
spec: {taints: [{key: team, value: red, effect: NoSchedule}]}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10", example.com/fpga: "1"}}
"""
PODS = """
apiVersion: v1
kind: Pod
metadata: {name: on-blue, namespace: demo}
spec:
  nodeSelector: {disk: ssd}
  containers: [{name: c, image: i, resources: {requests: {cpu: 1500m, memory: 1Gi}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: on-red, namespace: demo, annotations: {kubesched.io/duration: 5m}}
spec:
  tolerations: [{key: team, operator: Exists}]
  containers: [{name: c, image: i, resources: {limits: {example.com/fpga: 1}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: too-large, namespace: demo}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: gated, namespace: demo}
spec:
  schedulingGates: [{name: example.com/wait}]
  containers: [{name: c, image: i}]
---
apiVersion: v1
kind: Pod
metadata: {name: elsewhere, namespace: demo}
spec:
  schedulerName: other-scheduler
  containers: [{name: c, image: i}]
"""
GOLDEN_TABLE = """\
2 nodes, 5 pods: 2 placed, 1 of them succeeded, 3 pending, 1 of them gated
after 5m 1s of virtual time nothing moves any more (seed 0)
makespan 5m 1s

Placed
NAMESPACE  POD      NODE  PHASE      BOUND AT
demo       on-blue  blue  Running          0s
demo       on-red   red   Succeeded        0s

Nodes (requested/allocatable)
NODE  STATUS  ZONE        CPU       MEMORY      PODS  EXAMPLE.COM/FPGA
blue  Ready   z1    1.5/2 75%  1Gi/4Gi 25%  1/10 10%                 -
red   Ready   z2       0/4 0%   0Gi/8Gi 0%   0/10 0%            0/1 0%

Cluster
RESOURCE          REQUESTED  ALLOCATABLE  SHARE  PEAK  MEAN  GOODPUT
cpu                     1.5            6    25%   1.5   25%      25%
memory                  1Gi         12Gi     8%   1Gi    8%       8%
pods                      1           20     5%     2   10%      10%
example.com/fpga          0            1     0%     1  100%     100%

Pending
demo/elsewhere: UnknownScheduler
  no profile is named "other-scheduler" (there is default-scheduler); another scheduler would take it

demo/gated: SchedulingGated
  waiting for scheduling gates: [example.com/wait]
  what would help: remove the gate example.com/wait from the pod: 1 node would fit

demo/too-large: Unschedulable
  0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s).
    1 node: cpu: asks for 1; at most 500m is free (blue, used by demo/on-blue 1500m) [NodeResourcesFit]: blue
    1 node: taint team=red:NoSchedule [TaintToleration]: red
  what would help: ask for 500m less cpu: 1 node would fit
  what would help: tolerate the taint team=red:NoSchedule: 1 node would fit
  what would help: remove demo/on-blue from blue (1 of its 1 pods): it would fit there
  what would help: one more node like blue (1 such node now): it would fit there
"""


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    (tmp_path / "a-cluster.yaml").write_text(CLUSTER)
    (tmp_path / "b-pods.yaml").write_text(PODS)
    return tmp_path


def test_the_table_is_the_golden_text(capsys: pytest.CaptureFixture[str], manifests: Path) -> None:
    ran = run(capsys, "simulate", "-f", manifests)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == GOLDEN_TABLE


def test_json_and_yaml_say_the_same_and_follow_the_schema(capsys: pytest.CaptureFixture[str], manifests: Path) -> None:
    from kubesched.api.decode import from_builtins
    from kubesched.lab.simulate import Result

    as_json = json.loads(run(capsys, "simulate", "-f", manifests, "-o", "json").out)
    as_yaml = yaml.safe_load(run(capsys, "simulate", "-f", manifests, "-o", "yaml").out)
    assert as_json == as_yaml
    assert (as_json["apiVersion"], as_json["kind"]) == ("kubesched.io/v1alpha1", "SimulationResult")
    result = from_builtins(as_json, Result)
    assert (result.totals.placed, result.totals.pending, result.stopped) == (2, 3, "settled")
    assert [use.name for use in result.resources] == ["cpu", "memory", "pods", "example.com/fpga"]


def test_same_seed_same_bytes_whatever_the_hash_seed() -> None:
    argv = (
        "simulate",
        "-f",
        EXAMPLES / "web-shop",
        EXAMPLES / "gpu-batch",
        EXAMPLES / "gates-and-taints",
        EXAMPLES / "nodes",
    )
    first, second = (spawn(*argv, "--nodes", "20", "-o", "json", PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert first.code == 0
    assert first.out == second.out
    assert first.out != spawn(*argv, "--nodes", "20", "-o", "json", "--seed", "7").out


def test_time_ends_where_until_says(capsys: pytest.CaptureFixture[str], manifests: Path) -> None:
    result = json.loads(run(capsys, "simulate", "-f", manifests, "--until", "100", "-o", "json").out)
    assert (result["stopped"], result["virtualSeconds"]) == ("until", 100)
    assert result["totals"]["succeeded"] == 0


def test_many_pods_are_reported_by_workload_and_wide_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("simulate", "-f", EXAMPLES / "web-shop", "--nodes", "40")
    brief = run(capsys, *argv).out
    rows = [line.split() for line in brief.splitlines()]
    assert ["shop", "DaemonSet/log-agent", "40", "40", "40", "Running"] in rows
    assert "(61 pods by workload; --wide lists each of them)" in brief
    wide = run(capsys, *argv, "--wide").out
    assert "shop       cache-0 " in wide
    assert "hollow-00039" in wide


def test_what_is_not_honoured_is_said_also_under_quiet(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t}\n---" + PODS)
    loud = run(capsys, "simulate", "-f", tmp_path, "--nodes", "1", "-o", "json")
    assert "left out: example.com/v1 Thing is not known here" in loud.err
    assert "Thing" in json.loads(loud.out)["warnings"][0]
    quiet = run(capsys, "simulate", "-f", tmp_path, "--nodes", "1", "-o", "json", "--quiet")
    assert [line for line in quiet.err.splitlines() if "Thing" in line] == quiet.err.splitlines()
    assert quiet.out == loud.out


def test_what_the_configuration_does_not_get_is_in_the_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(PODS)
    (tmp_path / "p.py").write_text(
        "class Idle:\n  name = 'Idle'\n  def __init__(self, a, h): ...\n  def filter(self, s, p, n): ...\n"
    )
    (tmp_path / "c.cfg").write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    argv = ("--config", tmp_path / "c.cfg", "--plugin-module", tmp_path / "p.py", "--nodes", "1", "-o", "json", "-q")
    ran = run(capsys, "simulate", "-f", tmp_path / "a.yaml", *argv)
    (warning,) = json.loads(ran.out)["warnings"]
    assert warning.startswith("plugin Idle was loaded, but no profile of")
    assert warning in ran.err


# -- bad input -------------------------------------------------------------------------------------------------

_POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: x}]}\n"
_DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w}\nspec: "
_CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
_UNKNOWN_PLUGIN = _CONFIG + "profiles: [{schedulerName: s, plugins: {filter: {enabled: [{name: NodeResourceFit}]}}}]\n"

BAD_MANIFESTS = {
    "only unknown kinds": (
        "apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: a}\n",
        "left out: example.com/v1 Foo is not known here",
    ),
    "malformed YAML": ("kind: Pod\nmetadata: {name: a\n", "bad.yaml: document 1, line 3: not valid YAML: "),
    "no object": ("just text\n", "bad.yaml: document 1, line 1: expected an object with apiVersion and kind"),
    "no kind": ("apiVersion: v1\nmetadata: {name: a}\n", "kind is missing; write for example `kind: Pod`"),
    "no name": ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", "metadata.name is missing; give the Pod a name"),
    "wrong type": (
        _POD.replace("[{name: c, image: x}]", "nope"),
        "line 4: spec.containers: expected `array`, got `str`",
    ),
    "key twice": ("apiVersion: v1\nkind: Pod\nkind: Pod\n", "line 3: key 'kind' is given twice"),
    "duplicate name": (_POD + "---\n" + _POD, "document 2, line 6: Pod default/a was defined already in "),
    "negative request": (
        _POD.replace("image: x", 'image: x, resources: {requests: {cpu: "-1"}}'),
        "1 pod was refused; the first: ",
    ),
    "not a quantity": (
        _POD.replace("image: x", "image: x, resources: {requests: {cpu: lots}}"),
        "quantities must match the regular expression",
    ),
    "negative node": (
        'apiVersion: v1\nkind: Node\nmetadata: {name: "n"}\nstatus: {allocatable: {cpu: "-4"}}\n',
        'Node n was refused: Node "n" is invalid: status.allocatable.cpu: Invalid value: "-4"',
    ),
    "negative replicas": (_DEPLOYMENT + "{replicas: -3, template: {spec: {}}}\n", "spec.replicas: must be a number"),
    "no template": (_DEPLOYMENT + "{replicas: 1}\n", "spec.template.spec is missing"),
    "odd template": (
        _DEPLOYMENT.replace("Deployment", "DaemonSet")
        + "{template: {metadata: {labels: 3}, spec: {tolerations: 5, containers: []}}}\n",
        "DaemonSet w: spec.template.metadata.labels: expected `object`, got `int`",
    ),
    "nothing but comments": ("# nothing\n", "there are no manifests"),
    "unknown priority class": (
        _POD.replace("spec: {", "spec: {priorityClassName: urgent, "),
        "no PriorityClass with name urgent was found",
    ),
}


@pytest.mark.parametrize("name", BAD_MANIFESTS)
def test_a_bad_manifest_gets_one_clear_message(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    text, message = BAD_MANIFESTS[name]
    (tmp_path / "bad.yaml").write_text(text)
    ran = run(capsys, "simulate", "-f", tmp_path / "bad.yaml", "--nodes", "1")
    assert ran.code == 1
    assert ran.err.startswith("kubesched: ")
    assert message in ran.err
    assert "bad.yaml" in ran.err
    assert "internal error" not in ran.err


BAD_OPTIONS: dict[str, tuple[dict[str, str], list[str], str]] = {
    "missing file": ({}, ["-f", "gone.yaml"], "gone.yaml: there is no such file or directory"),
    "empty directory": ({}, ["-f", "."], "there are no manifests"),
    "not UTF-8": ({"a.yaml": "\udcff"}, ["-f", "a.yaml"], "cannot be read"),
    "missing config": ({"a.yaml": _POD}, ["-f", "a.yaml", "--config", "gone"], "open gone: no such file or directory"),
    "unknown plugin": (
        {"a.yaml": _POD, "c": _UNKNOWN_PLUGIN},
        ["-f", "a.yaml", "--config", "c"],
        'FilterPlugin "NodeResourceFit" does not exist\n  no plugin is named NodeResourceFit; did you mean NodeResourcesFit?',
    ),
    "invalid config": (
        {"a.yaml": _POD, "c": _CONFIG + "parallelism: -1\n"},
        ["-f", "a.yaml", "--config", "c"],
        "c: parallelism: Invalid value: -1",
    ),
    "no such module": (
        {"a.yaml": _POD},
        ["-f", "a.yaml", "--plugin-module", "no.such.module"],
        "plugin module no.such.module cannot be imported: ModuleNotFoundError",
    ),
    "module that raises": (
        {"a.yaml": _POD, "p.py": "raise ValueError('boom')\n"},
        ["-f", "a.yaml", "--plugin-module", "p.py"],
        "plugin module p.py cannot be imported: ValueError: boom",
    ),
    "module that exits": (
        {"a.yaml": _POD, "p.py": "import sys\nsys.exit(3)\n"},
        ["-f", "a.yaml", "--plugin-module", "p.py"],
        "plugin module p.py ended the program while it was imported",
    ),
    "module without plugins": (
        {"a.yaml": _POD, "p.py": "x = 1\n"},
        ["-f", "a.yaml", "--plugin-module", "p.py"],
        "module p.py defines no plugin",
    ),
    "plugin that does not fit": (
        {"a.yaml": _POD, "p.py": "class P:\n  name = 'P'\n  def filter(self, pod): ...\n"},
        ["-f", "a.yaml", "--plugin-module", "p.py"],
        "it has    filter(self, pod)\n  expected  filter(self, state",
    ),
    "plugin that cannot be built": (
        {"a.yaml": _POD, "p.py": "class P:\n  name = 'P'\n  def filter(self, s, p, n): ...\n"},
        ["-f", "a.yaml", "--plugin-module", "p.py"],
        'initializing plugin "P": TypeError: P() takes no arguments',
    ),
    "plugin whose constructor raises": (
        {
            "a.yaml": _POD,
            "p.py": "class P:\n  name = 'P'\n  def __init__(self, args, handle):\n    args['x']\n"
            "  def filter(self, s, p, n): ...\n",
        },
        ["-f", "a.yaml", "--plugin-module", "p.py"],
        "initializing plugin \"P\": TypeError: 'NoneType' object is not subscriptable (at ",
    ),
    "plugin with a constructor of its own": (
        {
            "a.yaml": _POD,
            "p.py": "class P:\n  name = 'P'\n  def __init__(self): ...\n  def filter(self, s, p, n): ...\n",
        },
        ["-f", "a.yaml", "--plugin-module", "p.py"],
        "  it has    __init__(self)\n  expected  __init__(self, args: Any, handle: Handle) -> None",
    ),
    "plugin module that raises": (
        {"a.yaml": _POD, "p.py": "import math\n\nmath.nothing\n"},
        ["-f", "a.yaml", "--plugin-module", "p.py"],
        "AttributeError: module 'math' has no attribute 'nothing' (line 3)",
    ),
    "node amount": (
        {"a.yaml": _POD},
        ["-f", "a.yaml", "--node-cpu", "many"],
        "--node-cpu many: 'many' is not a quantity; write a number",
    ),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_a_bad_option_gets_one_clear_message(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    files, argv, message = BAD_OPTIONS[name]
    monkeypatch.chdir(tmp_path)
    for file, text in files.items():
        (tmp_path / file).write_bytes(text.encode(errors="surrogateescape"))
    ran = run(capsys, "simulate", *argv, "--nodes", "1")
    assert ran.code == 1
    assert ran.out == ""
    assert message in ran.err
    assert "internal error" not in ran.err


def test_a_plugin_that_fails_is_named_and_the_simulation_ends(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(_POD)
    (tmp_path / "p.py").write_text(
        "class Boom:\n  name = 'Boom'\n  def __init__(self, a, h): ...\n"
        "  def filter(self, s, p, n): raise RuntimeError('out of order')\n"
    )
    ran = run(capsys, "simulate", "-f", tmp_path / "a.yaml", "--nodes", "2", "--plugin-module", tmp_path / "p.py")
    assert ran.code == 1
    assert 'default/a: SchedulerError\n  running "Boom" filter plugin: out of order' in ran.out
    assert "pods are tried again and again without success" in ran.out
    assert ran.err.count("out of order") == 1
    assert re.search(rf"\(RuntimeError at {re.escape(str(tmp_path / 'p.py'))}:4, \d+ times\)", ran.err)
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("point", ["pre_enqueue(self, pod)", "reserve(self, s, p, n)", "post_bind(self, s, p, n)"])
def test_a_plugin_that_raises_anywhere_makes_the_exit_code_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, point: str
) -> None:
    (tmp_path / "a.yaml").write_text(_POD)
    (tmp_path / "p.py").write_text(
        f"class Boom:\n  name = 'Boom'\n  def __init__(self, a, h): ...\n  def {point}: return {{}}['lost']\n"
        "  def unreserve(self, s, p, n): ...\n"
    )
    ran = run(
        capsys,
        "simulate",
        "-f",
        tmp_path / "a.yaml",
        "--nodes",
        "2",
        "--plugin-module",
        tmp_path / "p.py",
        "-o",
        "json",
    )
    (error,) = json.loads(ran.out)["errors"]
    assert (ran.code, error["type"], error["file"], error["line"]) == (1, "KeyError", str(tmp_path / "p.py"), 4)
    assert ran.err.count("p.py:4") == 1


def test_all_bad_objects_are_reported_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {}\n---\nkind: Pod\n---\n"
        "apiVersion: v1\nkind: Node\nmetadata: {name: m}\nspec: {taints: 3}\n"
    )
    (tmp_path / "b.yaml").write_text("a: [\n")
    (tmp_path / "c.yaml").write_text(_POD + "\n---\n" + _POD)
    ran = run(capsys, "simulate", "-f", tmp_path, "--nodes", "1")
    assert (ran.code, ran.out) == (1, "")
    for text in (
        "metadata.name is missing",
        "apiVersion is missing",
        "spec.taints",
        "b.yaml",
        "was defined already in",
    ):
        assert text in ran.err
    assert len(ran.err.splitlines()) >= 5


def test_pods_of_a_refused_template_are_reported_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: w}\n"
        "spec: {parallelism: 3, template: {spec: {priorityClassName: gone, restartPolicy: Never, "
        "containers: [{name: c, image: x}]}}}\n---\n" + _POD
    )
    ran = run(capsys, "simulate", "-f", tmp_path, "--nodes", "1")
    assert ran.code == 1
    assert "3 pods were refused; the first: " in ran.err
    assert "1 pod: 1 placed, 0 pending, 3 refused" in ran.out
    assert "3 pods of Job/w" in ran.out
    assert ran.out.count("no PriorityClass with name gone was found") == 1


def test_a_field_that_kubernetes_does_not_know_is_remarked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: "
        "[{name: c, image: i, resources: {requets: {cpu: 1}}}]}}"
    )
    ran = run(capsys, "simulate", "-f", manifest, "--nodes", "1")
    assert ran.code == 0
    assert 'Pod p: unknown field "spec.containers[0].resources.requets" is ignored' in ran.err + ran.out


def test_manifests_come_from_standard_input_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    ran = run(capsys, "simulate", "-f", "-", "--nodes", "1")
    assert (ran.code, "1 placed" in ran.out) == (0, True)


def test_an_absurd_number_of_pods_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(
        "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 100000000, completions: 100000000, "
        "template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}"
    )
    ran = run(capsys, "simulate", "-f", manifest, "--nodes", "1")
    assert ran.code == 1
    assert "more than the 250000" in ran.err


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("def sign(self, pod): return [1]", "unhashable type"),
        ("def sign(self, pod): raise SystemExit(3)", "signing pod with plugin"),
    ],
)
def test_a_signature_that_cannot_be_used_names_its_plugin(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, body: str, text: str
) -> None:
    plugin = tmp_path / "odd.py"
    plugin.write_text(
        f"class Odd:\n    name = 'Odd'\n    def __init__(self, args, handle): pass\n    {body}\n"
        "    def filter(self, state, pod, node): return None\n"
    )
    manifest = tmp_path / "pod.yaml"
    manifest.write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}")
    ran = run(capsys, "simulate", "-f", manifest, "--nodes", "1", "--plugin-module", plugin)
    assert 'signing pod with plugin "Odd"' in ran.out
    assert text in ran.out


def test_a_table_of_arrivals_is_simulated_and_results_are_saved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "pods.csv").write_text("arrival,name,duration,cpu\n0,a,60,8\n1h,b,60,8\n")
    page, pods = tmp_path / "out.html", tmp_path / "pods.json"
    files = ("--report", page, "--save", f"pods={pods}")
    ran = run(capsys, "simulate", "--trace", tmp_path / "pods.csv", "--nodes", "1", "--until", "2h", *files)
    assert (ran.code, ran.err) == (0, "")
    assert "makespan 1h 1m" in ran.out
    assert [one["created"] for one in json.loads(pods.read_text())] == [0, 3600]
    assert "Simulation of pods.csv" in page.read_text()
    cut = run(capsys, "simulate", "--trace", tmp_path / "pods.csv", "--nodes", "1", "--until", "90")
    assert (cut.code, "1 object was still to arrive" in cut.err) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--nodes", "1"), 2, "give manifests with -f, a cluster with --from, or a table of pods with --trace"),
        (("--trace", "gone.csv"), 1, "gone.csv"),
        (("--trace", "pods.csv", "--until", "soon"), 2, "'soon' is not a duration"),
        (("--trace", "pods.csv", "--until=-1h"), 2, "must be a duration that is not negative"),
        (("--trace", "pods.csv", "--until", "inf"), 2, "must be a duration that is not negative"),
        (("--trace", "pods.csv", "--save", "things=x.csv"), 2, "must be TABLE=FILE, where TABLE is one of pods"),
        (("--trace", "pods.csv", "--save", "pods=x.txt"), 1, "the name must end with .csv"),
        (("--trace", "pods.csv", "--report", "none/x.html"), 1, "there is no directory none"),
        (("--trace", "bad.csv"), 1, "bad.csv:2: column arrival: 'x'"),
    ],
)
def test_mistakes_of_times_and_files_are_named(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pods.csv").write_text("arrival\n0\n")
    (tmp_path / "bad.csv").write_text("arrival\nx\n")
    ran = run(capsys, "simulate", *arguments)
    assert ran.code == code
    assert text in ran.err
    assert "Traceback" not in ran.err


def test_feature_gates_and_settings_without_effect_are_said_also_when_quiet(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(_POD)
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 3\n")
    common = ("-f", tmp_path / "p.yaml", "--nodes", "1", "-q", "-o", "json")
    ran = run(capsys, "simulate", *common, "--config", config, "--feature-gates", "ComponentFlagz=false")
    assert ran.code == 0
    assert ran.err.splitlines() == [
        "kubesched: the configuration's parallelism has no effect in a simulation: decisions are made in one thread",
        "kubesched: the feature gate ComponentFlagz=false has no effect in a simulation",
    ]
    assert len(json.loads(ran.out)["warnings"]) == 2
    bad = run(capsys, "simulate", *common, "--feature-gates", "Nonsense=true")
    assert (bad.code, "unrecognized feature gate: Nonsense" in bad.err, "Traceback" in bad.err) == (1, True, False)


def test_the_saved_cluster_has_the_results_of_attempts_and_the_run_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifests = [EXAMPLES / "explain" / "why-here.yaml", EXAMPLES / "explain" / "two-causes.yaml"]
    plain, annotated = tmp_path / "plain.jsonl", tmp_path / "annotated.jsonl"
    given = ("simulate", "-f", *manifests, "-o", "json")
    one = run(capsys, *given, "--save-cluster", plain)
    two = run(capsys, *given, "--save-cluster", annotated, "--annotate-simulator-results")
    assert (one.code, two.code, two.err) == (0, 0, one.err)
    assert one.out == two.out
    pods = {}
    for line in annotated.read_text().splitlines():
        item = json.loads(line)
        if item.get("kind") == "Pod":
            pods[item["metadata"]["name"]] = item
    prefix = "kube-scheduler-simulator.sigs.k8s.io/"
    db, trainer = (pods[name]["metadata"]["annotations"] for name in ("db", "trainer"))
    assert db[f"{prefix}selected-node"] == pods["db"]["spec"]["nodeName"]
    assert db[f"{prefix}selected-node"] in json.loads(db[f"{prefix}finalscore-result"])
    assert trainer[f"{prefix}selected-node"] == ""
    assert json.loads(trainer[f"{prefix}filter-result"])["gpu-1"]
    assert prefix not in plain.read_text()
    again = run(capsys, "explain", "--from", annotated)
    assert again.out.startswith("\nPending\ndefault/trainer: Unschedulable\n")


def test_results_of_attempts_need_a_saved_cluster_that_overwrites_no_other_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("simulate", "-f", EXAMPLES / "explain" / "why-here.yaml")
    ran = run(capsys, *given, "--annotate-simulator-results")
    assert (ran.code, "give --save-cluster FILE, too" in ran.err) == (2, True)
    other = tmp_path / "notes.txt"
    other.write_text("mine\n")
    ran = run(capsys, *given, "--save-cluster", other)
    assert (ran.code, "exists and is not a saved cluster" in ran.err) == (1, True)
    assert other.read_text() == "mine\n"

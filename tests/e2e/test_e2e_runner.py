"""The runner of upstream's e2e suite, with a small program in place of ``e2e.test``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from run_e2e import HERE, compare, expected, find_program, kubesched, main, read_rules, run_specs

#: Program with six specs. It asks the cluster of its kubeconfig for its nodes, and reports the specs in focus.
FAKE = """#!{python}
import re, ssl, sys, urllib.request, yaml
given = dict(one.lstrip("-").partition("=")[::2] for one in sys.argv[1:])
is_old = {is_old}
specs = ["[sig-a] good", "[sig-a] bad (1.5)", "[sig-a] known", "[sig-b] other", "[sig-c] unlisted", "[sig-a] skips itself"]
if is_old and given.keys() & {{"list-tests", "ginkgo.no-color", "ginkgo.timeout"}}:
    sys.exit(2)
if "ginkgo.dryRun" in given:
    given["ginkgo.focus"] = ""
elif "list-tests" in given:
    print("The specs:")
    for number, spec in enumerate(specs):
        print(f"    test/e2e/a.go:{{number}}: {{spec}}")
    sys.exit()
nodes = 1
if "kubeconfig" in given:
    server = yaml.safe_load(open(given["kubeconfig"]))["clusters"][0]["cluster"]["server"]
    context = ssl._create_unverified_context()
    nodes = urllib.request.urlopen(server + "/api/v1/nodes", context=context).read().count(b'"kubernetes.io/hostname"')
with open(given["report-dir"] + "/junit_01.xml", "w") as report:
    report.write("<testsuites><testsuite>")
    for spec in specs:
        if re.search(given["ginkgo.focus"], spec + " [Conformance]") and nodes:
            end = "<skipped/>" if "skips" in spec else "<failure/>" if "good" not in spec else ""
            report.write(f'<testcase name="[It] {{spec}} [Conformance]">{{end}}</testcase>')
    report.write("</testsuite></testsuites>")
sys.exit("kubeconfig" in given)
"""
LIST = "# a list\nskip sig-b\n  needs containers\nfail known\n  it is known\npass sig-a\n"


def fake(folder: Path, *, is_old: bool = False) -> dict[str, str]:
    program = folder / "e2e.test"
    program.write_text(FAKE.format(python=sys.executable, is_old=is_old))
    program.chmod(0o755)
    (folder / "specs.txt").write_text(LIST)
    return {"KUBEBUILDER_ASSETS": str(folder)}


def test_without_the_program_one_line_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([], {"E2E_TEST": str(tmp_path / "none")}) == 0
    said = "skipped: no e2e.test; give its path in E2E_TEST, or its folder in KUBEBUILDER_ASSETS\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("is_old", [False, True])
def test_specs_run_against_a_cluster_and_results_are_compared_with_the_list(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, *, is_old: bool
) -> None:
    environment = fake(tmp_path, is_old=is_old)
    options = ["--nodes", "1", "--specs", str(tmp_path / "specs.txt"), "--report", str(tmp_path / "report")]
    assert main(options, environment) == 1
    label = " [Conformance]" if is_old else ""
    assert f"failed   [sig-a] bad (1.5){label}  (expected: pass)\n" in capsys.readouterr().out
    results = (tmp_path / "report" / "results.txt").read_text()
    assert f"passed   [sig-a] good{label}\n" in results
    assert f"failed   [sig-a] known{label}\n" in results
    assert f"not run  [sig-b] other{label}  (needs containers)\n" in results
    assert f"not run  [sig-c] unlisted{label}  (no line of specs.txt is about it)\n" in results


def test_specs_run_against_a_given_control_plane_with_a_scheduler_and_hollow_nodes(tmp_path: Path) -> None:
    program = find_program(fake(tmp_path))
    assert program is not None
    given = tmp_path / "given"
    with kubesched(tmp_path, "up", "-q", "--no-scheduler", "--tls", "--kubeconfig-out", str(given)):
        results = run_specs(program, ["[sig-a] good", "[sig-a] known"], tmp_path, 2, 0.1, str(given))
    assert results == {"[sig-a] good [Conformance]": "passed", "[sig-a] known [Conformance]": "failed"}


@pytest.mark.parametrize(
    ("spec", "result", "good"),
    [
        ("sig-a", "passed", True),
        ("sig-a", "failed", False),
        ("sig-a", "skipped", True),
        ("sig-a known", "failed", True),
        ("sig-a known", "passed", False),
        ("sig-a", "", False),
        ("sig-b", "", True),
    ],
)
def test_only_expected_results_are_good(spec: str, result: str, *, good: bool) -> None:
    results = {f"{spec} [Conformance]": result} if result else {}
    assert compare(read_rules(LIST), [spec], results)[1] is good


def test_a_result_is_that_of_the_spec_and_not_of_one_whose_name_is_longer() -> None:
    results = {"sig-a run simple for CRDs [Conformance]": "passed", "sig-a run simple [Conformance]": "failed"}
    assert not compare(read_rules(LIST), ["sig-a run simple"], results)[1]
    assert compare(read_rules(LIST), ["sig-a run simple for CRDs"], results)[1]


@pytest.mark.parametrize(
    ("focus", "said"),
    [
        ("nothing like it", "no spec of 6 is run: none is found by --focus 'nothing like it' and expected to run"),
        ("skips itself", "every spec skipped itself: this shows nothing"),
    ],
)
def test_a_run_that_shows_nothing_is_no_success(
    focus: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    environment = fake(tmp_path)
    options = ["--nodes", "1", "--specs", str(tmp_path / "specs.txt"), "--report", str(tmp_path / "report")]
    assert main([*options, "--focus", focus], environment) == 1
    assert capsys.readouterr().out.splitlines()[-1] == said


def test_the_named_program_comes_first(tmp_path: Path) -> None:
    for name in ("e2e.test", "mine"):
        (tmp_path / name).touch()
    assert find_program({"E2E_TEST": f"{tmp_path}/mine", "KUBEBUILDER_ASSETS": str(tmp_path)}) == tmp_path / "mine"
    assert find_program({"KUBEBUILDER_ASSETS": str(tmp_path)}) == tmp_path / "e2e.test"


def test_every_line_of_the_list_is_a_rule_and_says_why_a_spec_is_not_run() -> None:
    rules = read_rules((HERE / "specs.txt").read_text(encoding="utf-8"))
    assert all(rule.reason for rule in rules if rule.word != "pass")
    for spec, word in {
        "[sig-scheduling] SchedulerPredicates [Serial] validates that NodeSelector is respected [Conformance]": "pass",
        "[sig-apps] Job should apply changes to a job status [Conformance]": "pass",
        "[sig-node] Probing container should be restarted with a exec liveness probe [Conformance]": "skip",
        "[sig-network] Services should provide secure master service [Conformance]": "pass",
        "[sig-network] DNS should provide DNS for the cluster [Conformance]": "skip",
        "[sig-api-machinery] ResourceQuota should verify ResourceQuota with terminating scopes. [Conformance]": "pass",
        "[sig-api-machinery] AdmissionWebhook should honor timeout [Conformance]": "skip",
        "[sig-apps] Job should manage the lifecycle of a job [Conformance]": "skip",
        "[sig-apps] CronJob should not schedule jobs when suspended [Slow] [Conformance]": "pass",
        "[sig-apps] Deployment deployment should support proportional scaling [Conformance]": "pass",
    }.items():
        rule = expected(rules, spec)
        assert rule is not None
        assert rule.word == word, spec
    named = [rule for rule in rules if rule.pattern.pattern.startswith("^")]
    assert len(named) == 159
    assert all(expected(rules, re.sub(r"\\(.)", r"\1", one.pattern.pattern[1:-7])) is one for one in named)
    with pytest.raises(ValueError, match=r"line 1: expected 'pass\|fail\|skip REGEX'"):
        read_rules("maybe x")

"""``kubesched config check`` says what is wrong in words for people: no Go types, no source files, no empty braces."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_kit import run

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PROFILE = f"{HEAD}profiles:\n- schedulerName: a\n"
SCORE = f"{PROFILE}  plugins: {{score: {{enabled: [%s]}}}}\n"
ARGS = f"{PROFILE}  pluginConfig: [{{name: InterPodAffinity, args: {{%s}}}}]\n"
OLD = "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n"

#: A file, and what its message says.
CASES = (
    (SCORE % "{name: ImageLocality, weight: -1}", "name a: a weight cannot be used\n  the weight of ImageLocality at score is -1; it must be at least 1"),
    (SCORE % "{}, {}", "a plugin has no name\n  an entry of plugins.score.enabled has no name"),
    (SCORE % "{name: ImageLocality}, {name: ImageLocality}", "plugins.score.enabled names ImageLocality twice"),
    (SCORE % "{name: ImageLocality, weight: 99999999999}", 'score.enabled[0].weight: the number 99999999999 is not'),
    (f"{PROFILE}  plugins: {{multiPoint: {{enabled: [{{}}]}}}}\n", "an entry of plugins.multiPoint.enabled has no name"),
    (f"{PROFILE}- schedulerName: a\n", "profiles[1].schedulerName: another profile has the same name"),
    (f"{PROFILE}  pluginConfig: [{{}}, {{}}]\n", "two entries have no name"),
    (HEAD.replace("/v1", "/v9"), "there is no apiVersion kubescheduler.config.k8s.io/v9 with kind KubeSched"),
    (HEAD.replace("/v1", "/v9"), "reads apiVersion kubescheduler.config.k8s.io/v1, and converts v1alpha1, v1alpha2, v1beta1"),
    (HEAD.replace("Configuration", ""), "there is no apiVersion kubescheduler.config.k8s.io/v1 with kind KubeScheduler\n"),
    ("parallelism: 3\n", "the field kind is missing\n  a configuration starts with the lines apiVersion: "),
    ("", "the field kind is missing"),
    ("- a\n", "the file is no mapping of fields"),
    ("hello\n", "the file is no mapping of fields"),
    (f"{HEAD}parallelism: many\n", 'parallelism: the text "many" is not a whole number'),
    (f"{HEAD}parallelism: 1\nparallelism: 2\n", 'line 4: key "parallelism" already set in map'),
    (f"{HEAD}paralelism: 1\n", "paralelism: no such field; did you mean parallelism?"),
    (f"{HEAD}profiles: {{}}\n", "profiles: an object with 0 fields is not a list"),
    (f"{HEAD}leaderElection: {{leaseDuration: 5}}\n", "leaderElection.leaseDuration: the number 5 is not a duration"),
    (f"{HEAD}extenders: [{{urlPrefix: 'http://x', prioritizeVerb: p, weight: -1}}]\n", "extenders[0].weight: "),
    (ARGS % "hardPodAffinityWeight: x", 'args.hardPodAffinityWeight: the text "x" is not a whole number'),
    (ARGS % "kind: Foo, apiVersion: kubescheduler.config.k8s.io/v1", "plugin InterPodAffinity: there is no apiVersion"),
    (f"{OLD}profiles: {{}}\n", "profiles: an object with 0 fields is not a list"),
    (f"{OLD}profiles: [{{plugins: {{score: {{enabled: [{{}}]}}}}}}]\n", "an entry of plugins.score.enabled has no name"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "words"), CASES, ids=[str(number) for number in range(len(CASES))])
def test_a_bad_configuration_is_explained_in_words(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    for action in ("check", "convert"):
        ran = run(capsys, "config", action, file)
        if action == "convert" and ran.code == 0:
            continue  # it does not expand profiles
        assert ran.code == 1
        assert ran.err.startswith(f"kubesched: {file}: ")
        assert words in ran.err
        assert not re.search(r"Go |struct|\.go\b|unmarshal|\{\}|int32|\[\]", ran.err), ran.err

"""Options of ``kubesched run``: what flags and files make together, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubesched.cli.run import command
from kubesched.cli.run.flags import FLAG_SET
from kubesched.cli.run.options import OptionsError, RunOptions, options_of
from kubesched.scheduler.config import ConfigError, Duration


async def config_map(namespace: str, name: str) -> dict[str, str]:
    assert (namespace, name) == ("kube-system", "mine")
    return {"policy.cfg": '{"kind": "Policy", "apiVersion": "v1", "predicates": [], "priorities": []}'}


def options(*arguments: str) -> RunOptions:
    return asyncio.run(options_of(FLAG_SET.parse(arguments), config_map))


def refusal(*arguments: str) -> str:
    with pytest.raises(OptionsError) as error:
        options(*arguments)
    return str(error.value)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "clientConnection: {kubeconfig: /from/file, qps: 7}\nleaderElection: {leaseDuration: 60s, resourceName: mine}\n"
        "enableProfiling: false\n"
    )
    return str(path)


def test_a_file_wins_over_deprecated_flags_and_loses_to_leader_election_flags(file: str) -> None:
    config = options(
        "--config",
        file,
        "--kubeconfig=/from/flag",
        "--kube-api-qps=9",
        "--profiling",
        "--leader-elect-lease-duration=30s",
    ).config
    assert (config.client_connection.kubeconfig, config.client_connection.qps) == ("/from/file", 7)
    assert config.enable_profiling is False
    assert config.leader_election.lease_duration == Duration.parse("30s")
    assert config.leader_election.resource_name == "mine"


def test_without_a_file_flags_fill_the_default_configuration() -> None:
    config = options("--kubeconfig=/k", "--kube-api-qps=9", "--kube-api-burst=11", "--profiling=false").config
    connection = config.client_connection
    assert (connection.kubeconfig, connection.qps, connection.burst) == ("/k", 9, 11)
    assert config.enable_profiling is False
    assert config.leader_election.leader_elect


def test_a_file_merged_with_flags_is_validated(file: str) -> None:
    with pytest.raises(ConfigError, match="leaseDuration"):
        options("--config", file, "--leader-elect-lease-duration=1s")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--feature-gates=X=true"], "unrecognized feature gate: X"),
        (
            ["--feature-gates=DynamicResourceAllocation=false"],
            "cannot set feature gate DynamicResourceAllocation to false, feature is locked to true",
        ),
        (
            ["--feature-gates=GangScheduling=true"],
            "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
        ),
        (
            ["--secure-port=70000"],
            "--secure-port 70000 must be between 1 and 65535, inclusive. It cannot be turned off with 0",
        ),
        (
            ["--secure-port=-1"],
            "--secure-port -1 must be between 0 and 65535, inclusive. 0 for turning off secure port",
        ),
        (["--logging-format=xml"], 'format: Invalid value: "xml": Unsupported log format'),
        (
            ["--show-hidden-metrics-for-version=1.30"],
            "metrics.showHiddenMetricsForVersion: Invalid value: \"1.30\": must be omitted or have the value '1.35'; "
            "only the previous minor version is allowed",
        ),
        (
            ["--emulated-version=1.20", "--min-compatibility-version=1.33"],
            "[emulation version 1.20 is not between [1.33, 1.36.0], minCompatibilityVersion version 1.33 is not "
            "between [1.33, 1.20]]",
        ),
        (
            ["--emulated-version=1.20"],
            "[emulation version 1.20 is not between [1.33, 1.36.0], minCompatibilityVersion version 1.33 is not "
            "between [1.33, 1.20]]",
        ),
        (
            ["--kube-api-burst=0"],
            "burst is required to be greater than 0 when RateLimiter is not set and QPS is set to greater than 0",
        ),
        (
            ["--leader-elect-resource-lock=endpoints"],
            "couldn't create resource lock: endpoints lock is removed, migrate to leases",
        ),
        (["--leader-elect-resource-lock=x"], "couldn't create resource lock: Invalid lock-type x"),
        (["--vmodule=a=b"], 'vmodule: Invalid value: "a=b": must be pattern=N'),
        (["--vmodule=a=1", "--logging-format=json"], "vmodule: Forbidden: Only supported for text log format"),
        (["--log-json-split-stream"], "options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"),
    ],
)
def test_bad_options_are_refused_in_upstreams_words(arguments: list[str], text: str) -> None:
    assert refusal(*arguments) == text


def test_an_emulated_version_turns_younger_gates_off_unless_they_are_set() -> None:
    gates = options("--emulated-version=1.34").gates
    assert not gates.enabled("NodeDeclaredFeatures")  # beta since 1.36
    assert not gates.enabled("InPlacePodLevelResourcesVerticalScaling")  # needs it
    assert not gates.enabled("OpportunisticBatching")  # 1.35
    assert gates.enabled("SchedulerAsyncPreemption")  # 1.33
    gates = options("--emulated-version=1.34", "--feature-gates=OpportunisticBatching=true").gates
    assert gates.enabled("OpportunisticBatching")


def test_older_files_and_retired_flags_are_converted_with_warnings(tmp_path: Path) -> None:
    old = tmp_path / "old.yaml"
    old.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\nparallelism: 3\n"
    )
    found = options("--config", str(old))
    assert found.config.parallelism == 3
    assert any("v1beta3" in warning for warning in found.warnings)
    found = options("--scheduler-name=mine", "--leader-elect=false")
    assert [profile.scheduler_name for profile in found.config.profiles] == ["mine"]
    assert "--scheduler-name" in found.warnings[0]


def test_a_policy_in_a_config_map_is_read_from_the_cluster() -> None:
    found = options("--policy-configmap=mine")
    assert found.config.profiles[0].plugins.at("score").enabled == ()
    assert any("policy" in warning for warning in found.warnings)


def test_a_plugin_that_ends_the_process_does_not_choose_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(flags: object) -> int:
        raise SystemExit(0)

    monkeypatch.setattr(command, "_run", work)
    assert command.main([]) == 1

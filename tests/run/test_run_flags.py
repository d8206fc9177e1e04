"""Flags of ``kubesched run``: the table of kube-scheduler 1.36, and how bad command lines are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.cli.run.flags import FLAG_SET
from kubesched.cli.run.flagset import FlagError
from kubesched.cli.run.options import OptionsError
from kubesched.cli.run.serving import exposition_of
from kubesched.scheduler.config.durations import Duration

#: Group, flag, default as text (rules/configuration §7).
TABLE = """
Misc|config|
Misc|master|
Misc|write-config-to|
Secure serving|bind-address|0.0.0.0
Secure serving|secure-port|10259
Secure serving|cert-dir|
Secure serving|tls-cert-file|
Secure serving|tls-private-key-file|
Secure serving|tls-sni-cert-key|[]
Secure serving|tls-min-version|
Secure serving|tls-cipher-suites|[]
Secure serving|tls-curve-preferences|[]
Secure serving|disable-http2-serving|false
Secure serving|http2-max-streams-per-connection|0
Secure serving|permit-address-sharing|false
Secure serving|permit-port-sharing|false
Authentication|authentication-kubeconfig|
Authentication|authentication-skip-lookup|false
Authentication|authentication-tolerate-lookup-failure|true
Authentication|authentication-token-webhook-cache-ttl|10s
Authentication|client-ca-file|
Authentication|requestheader-client-ca-file|
Authentication|requestheader-allowed-names|[]
Authentication|requestheader-username-headers|[x-remote-user]
Authentication|requestheader-group-headers|[x-remote-group]
Authentication|requestheader-uid-headers|[]
Authentication|requestheader-extra-headers-prefix|[x-remote-extra-]
Authorization|authorization-kubeconfig|
Authorization|authorization-always-allow-paths|[/healthz,/readyz,/livez]
Authorization|authorization-webhook-cache-authorized-ttl|10s
Authorization|authorization-webhook-cache-unauthorized-ttl|10s
Deprecated|kubeconfig|
Deprecated|kube-api-qps|50
Deprecated|kube-api-burst|100
Deprecated|kube-api-content-type|application/vnd.kubernetes.protobuf
Deprecated|profiling|true
Deprecated|contention-profiling|true
Deprecated|pod-max-in-unschedulable-pods-duration|5m0s
Leader election|leader-elect|true
Leader election|leader-elect-lease-duration|15s
Leader election|leader-elect-renew-deadline|10s
Leader election|leader-elect-retry-period|2s
Leader election|leader-elect-resource-lock|leases
Leader election|leader-elect-resource-name|kube-scheduler
Leader election|leader-elect-resource-namespace|kube-system
Feature gate|feature-gates|
Feature gate|emulated-version|[]
Feature gate|min-compatibility-version|[]
Metrics|allow-metric-labels|[]
Metrics|allow-metric-labels-manifest|
Metrics|disabled-metrics|[]
Metrics|show-hidden-metrics-for-version|
Logs|logging-format|text
Logs|v|0
Logs|vmodule|
Logs|log-flush-frequency|5s
Logs|log-json-info-buffer-size|0
Logs|log-text-info-buffer-size|0
Logs|log-json-split-stream|false
Logs|log-text-split-stream|false
Global|help|false
Global|version|false
"""
OURS = {
    "annotate-simulator-results",
    "annotate-why-pending",
    "event-why-pending",
    "decisions",
    "decisions-kept",
    "ui",
    "enable-plugin",
    "plugin-module",
    "seed",
}


def refusal(*arguments: str) -> str:
    with pytest.raises(FlagError) as error:
        FLAG_SET.parse(arguments)
    return str(error.value)


def test_the_flags_are_those_of_kube_scheduler_in_groups_and_with_defaults() -> None:
    expected = [tuple(line.split("|")) for line in TABLE.strip().splitlines()]
    found = [
        (flag.group, flag.name, flag.type.write(flag.default))
        for flag in FLAG_SET.flags
        if flag.name not in OURS and flag.group != "Retired"
    ]
    assert found == expected
    assert {flag.name for flag in FLAG_SET.flags} >= OURS


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--bogus"], "unknown flag: --bogus"),
        (["--bogus=1"], "unknown flag: --bogus"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["--config"], "flag needs an argument: --config"),
        (["-v"], "flag needs an argument: 'v' in -v"),
        (["--=1"], "bad flag syntax: --=1"),
        (["foo"], '"kubesched run" does not take any arguments, got ["foo"]'),
        (["--leader-elect", "false"], '"kubesched run" does not take any arguments, got ["false"]'),
        (["--", "--config"], '"kubesched run" does not take any arguments, got ["--config"]'),
        (
            ["--leader-elect-lease-duration", "abc"],
            'invalid argument "abc" for "--leader-elect-lease-duration" flag: time: invalid duration "abc"',
        ),
        (["-v", "x"], 'invalid argument "x" for "-v, --v" flag: strconv.ParseUint: parsing "x": invalid syntax'),
        (["-v=-1"], 'invalid argument "-1" for "-v, --v" flag: strconv.ParseUint: parsing "-1": invalid syntax'),
        (
            ["--secure-port=1e3"],
            'invalid argument "1e3" for "--secure-port" flag: strconv.ParseInt: parsing "1e3": invalid syntax',
        ),
        (
            ["--kube-api-burst=2147483648"],
            'invalid argument "2147483648" for "--kube-api-burst" flag: strconv.ParseInt: parsing "2147483648": '
            "value out of range",
        ),
        (
            ["--kube-api-qps=fast"],
            'invalid argument "fast" for "--kube-api-qps" flag: strconv.ParseFloat: parsing "fast": invalid syntax',
        ),
        (
            ["--leader-elect=maybe"],
            'invalid argument "maybe" for "--leader-elect" flag: strconv.ParseBool: parsing "maybe": invalid syntax',
        ),
        (
            ["--bind-address=host"],
            'invalid argument "host" for "--bind-address" flag: invalid string being converted to IP address: host',
        ),
    ],
)
def test_bad_command_lines_are_refused_in_upstreams_words(arguments: Sequence[str], text: str) -> None:
    assert refusal(*arguments) == text


def test_values_are_read_in_every_form() -> None:
    flags = FLAG_SET.parse(
        ["--config", "a.yaml", "--secure_port=0", "-v2", "--leader-elect=false", "--leader-elect-retry-period=500ms"]
    )
    assert (flags["config"], flags["secure-port"], flags["v"], flags["leader-elect"]) == ("a.yaml", 0, 2, False)
    assert flags["leader-elect-retry-period"] == Duration.parse("500ms")
    assert flags.changed == {"config", "secure-port", "v", "leader-elect", "leader-elect-retry-period"}


def test_the_first_list_replaces_the_default_and_later_ones_add() -> None:
    name = "authorization-always-allow-paths"
    assert FLAG_SET.parse([])[name] == ("/healthz", "/readyz", "/livez")
    assert FLAG_SET.parse([f"--{name}=/a,/b", f"--{name}=/c"])[name] == ("/a", "/b", "/c")


def test_metric_labels_are_read_with_and_without_quotes() -> None:
    flags = FLAG_SET.parse(["--allow-metric-labels=m1,l1='a,b',m2,l2=c"])
    assert flags["allow-metric-labels"] == {"m1,l1": "a,b", "m2,l2": "c"}
    assert "must be formatted as" in refusal("--allow-metric-labels=nonsense")


def test_a_manifest_of_metric_labels_is_a_regular_file() -> None:
    flags: Any = {"allow-metric-labels": {}, "allow-metric-labels-manifest": "/dev/zero", "disabled-metrics": []}
    process: Any = None  # they are not asked
    scheduler: Any = None
    with pytest.raises(OptionsError, match="--allow-metric-labels-manifest /dev/zero: is no regular file"):
        exposition_of(flags, process, scheduler)


def test_version_needs_no_value() -> None:
    assert FLAG_SET.parse(["--version"])["version"] == "true"
    assert FLAG_SET.parse(["--version=raw"])["version"] == "raw"


def test_help_names_every_flag_once_under_its_group() -> None:
    page = FLAG_SET.help()
    for flag in FLAG_SET.flags:
        assert sum(f"--{flag.name} " in f"{line} " for line in page.splitlines() if line.startswith("  ")) >= 1
    groups = [line for line in page.splitlines() if line.endswith(" flags:")]
    assert groups == [f"{group} flags:" for group in dict.fromkeys(flag.group for flag in FLAG_SET.flags)]


@given(st.lists(st.text(max_size=20), max_size=5))
def test_any_command_line_is_read_or_refused(arguments: list[str]) -> None:
    try:
        flags = FLAG_SET.parse(arguments)
    except FlagError:
        return  # refused
    assert set(flags.texts()) == {flag.name for flag in FLAG_SET.flags}

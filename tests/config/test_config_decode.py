"""Reading configuration documents: what is refused, in which words, and what odd but legal YAML means."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubesched.api.types import NodeAffinity
from kubesched.api.yamltext import resolve_plain
from kubesched.scheduler.config import (
    ConfigError,
    Duration,
    NodeAffinityArgs,
    NodeResourcesFitArgs,
    decode_config,
    default_config,
    load_config,
    load_config_data,
    load_config_file,
)
from kubesched.scheduler.config.decode import MAX_BYTES, parse_document

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
SCHEME = 'in scheme "pkg/scheduler/apis/config/scheme/scheme.go:29"'


def one_arg(name: str, args: str) -> str:
    """A document with one ``pluginConfig`` entry; ``args`` in YAML flow style."""
    return f"{HEAD}profiles:\n- pluginConfig:\n  - name: {name}\n    args: {args}\n"


def refused(document: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(document, source="scheduler.yaml")
    assert caught.value.stage == "decode"
    return caught.value


CASES = [
    (
        "unknown fields are named in one go, with their paths",
        HEAD + "foo: 1\nprofiles:\n- bar: 2\n",
        'strict decoding error: unknown field "foo", unknown field "profiles[0].bar"',
    ),
    (
        "a key given twice is reported with its line",
        HEAD + "parallelism: 8\n\nparallelism: 9\n",
        'strict decoding error: yaml: unmarshal errors:\n  line 5: key "parallelism" already set in map',
    ),
    (
        "a key given twice deep inside counts too, and unknown fields follow",
        HEAD + "clientConnection:\n  qps: 1\n  qps: 2\nfoo: 1\n",
        'strict decoding error: yaml: unmarshal errors:\n  line 5: key "qps" already set in map, unknown field "foo"',
    ),
    (
        "an unknown field inside args is reported with its path",
        one_arg("InterPodAffinity", "{foo: 1}"),
        "strict decoding error: decoding .profiles[0].pluginConfig[0]: strict decoding error: "
        'decoding args for plugin InterPodAffinity: strict decoding error: unknown field "foo"',
    ),
    (
        "args of another kind are refused",
        one_arg(
            "InterPodAffinity", "{apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeAffinityArgs, surprise: 1}"
        ),
        "decoding .profiles[0].pluginConfig[0]: args for plugin InterPodAffinity were not of type "
        "InterPodAffinityArgs.kubescheduler.config.k8s.io, got NodeAffinityArgs.kubescheduler.config.k8s.io",
    ),
    (
        "args of another version are refused",
        one_arg("NodeAffinity", "{apiVersion: kubescheduler.config.k8s.io/v1beta3, kind: NodeAffinityArgs}"),
        "decoding .profiles[0].pluginConfig[0]: decoding args for plugin NodeAffinity: no kind "
        f'"NodeAffinityArgs" is registered for version "kubescheduler.config.k8s.io/v1beta3" {SCHEME}',
    ),
    (
        "a wrong type inside args names the args",
        one_arg("InterPodAffinity", "{hardPodAffinityWeight: x}"),
        "decoding .profiles[0].pluginConfig[0]: decoding args for plugin InterPodAffinity: json: cannot unmarshal "
        "string into Go struct field InterPodAffinityArgs.hardPodAffinityWeight of type int32",
    ),
    (
        "a wrong type wins over unknown fields",
        HEAD + "foo: 1\nparallelism: many\n",
        "json: cannot unmarshal string into Go struct field KubeSchedulerConfiguration.parallelism of type int32",
    ),
    (
        "of several wrong types the alphabetically first field is reported",
        HEAD + "podMaxBackoffSeconds: a\nparallelism: b\n",
        "json: cannot unmarshal string into Go struct field KubeSchedulerConfiguration.parallelism of type int32",
    ),
    (
        "an integer out of range is a wrong type",
        HEAD + "profiles: [{plugins: {score: {enabled: [{name: A, weight: 2147483648}]}}}]\n",
        "json: cannot unmarshal number 2147483648 into Go struct field "
        "Plugin.profiles.plugins.score.enabled.weight of type int32",
    ),
    (
        "a 64 bit field takes no more than 64 bits",
        HEAD + "podMaxBackoffSeconds: 9223372036854775808\n",
        "json: cannot unmarshal number 9223372036854775808 into Go struct field "
        "KubeSchedulerConfiguration.podMaxBackoffSeconds of type int64",
    ),
    (
        "a fraction is no integer",
        HEAD + "parallelism: 1.5\n",
        "json: cannot unmarshal number 1.5 into Go struct field KubeSchedulerConfiguration.parallelism of type int32",
    ),
    (
        "a number is no boolean",
        HEAD + "enableProfiling: 1\n",
        "json: cannot unmarshal number into Go struct field "
        "KubeSchedulerConfiguration.DebuggingConfiguration.enableProfiling of type bool",
    ),
    (
        "a boolean is no text",
        HEAD + "leaderElection: {resourceName: yes}\n",
        "json: cannot unmarshal bool into Go struct field "
        "LeaderElectionConfiguration.leaderElection.resourceName of type string",
    ),
    (
        "an object is no list",
        HEAD + "profiles: {a: 1}\n",
        "json: cannot unmarshal object into Go struct field "
        "KubeSchedulerConfiguration.profiles of type []v1.KubeSchedulerProfile",
    ),
    (
        "a list is no object",
        HEAD + "leaderElection: []\n",
        "json: cannot unmarshal array into Go struct field "
        "KubeSchedulerConfiguration.leaderElection of type v1alpha1.LeaderElectionConfiguration",
    ),
    (
        "a rate beyond float32 is out of range",
        HEAD + "clientConnection: {qps: 1e39}\n",
        "json: cannot unmarshal number 1e+39 into Go struct field "
        "ClientConnectionConfiguration.clientConnection.qps of type float32",
    ),
    (
        "a bare number is no duration",
        HEAD + "leaderElection: {leaseDuration: 15}\n",
        "json: cannot unmarshal number into Go value of type string",
    ),
    (
        "a duration needs a unit",
        HEAD + "leaderElection: {leaseDuration: '15'}\n",
        'time: missing unit in duration "15"',
    ),
    ("certificate data is base64", HEAD + "extenders: [{tlsConfig: {caData: '*'}}]\n", "illegal base64 data"),
    (
        "a retired version is unknown",
        HEAD.replace("/v1\n", "/v1beta3\n"),
        f'no kind "KubeSchedulerConfiguration" is registered for version "kubescheduler.config.k8s.io/v1beta3" {SCHEME}',
    ),
    (
        "a policy is unknown",
        "apiVersion: v1\nkind: Policy\n",
        f'no kind "Policy" is registered for version "v1" {SCHEME}',
    ),
    (
        "a known kind that is not the configuration is refused",
        HEAD.replace("KubeSchedulerConfiguration", "NodeAffinityArgs"),
        "couldn't decode as KubeSchedulerConfiguration, got kubescheduler.config.k8s.io/v1, Kind=NodeAffinityArgs: ",
    ),
    ("the kind must be there", "apiVersion: v1\n", "Object 'Kind' is missing in 'apiVersion: v1\n'"),
    ("the version must be there", "kind: X\n", "Object 'apiVersion' is missing in 'kind: X\n'"),
    ("nothing has no kind", "", "Object 'Kind' is missing in ''"),
    ("a version has one slash at most", "apiVersion: a/b/c\nkind: X\n", "unexpected GroupVersion string: a/b/c"),
]


@pytest.mark.parametrize(("document", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_bad_document_is_refused_in_upstreams_words(document: str, text: str) -> None:
    assert str(refused(document)) == text


@pytest.mark.parametrize(
    ("document", "start"),
    [
        ("- a\n", "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type"),
        ("hello", "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type"),
        (
            "kind: 5\n",
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field",
        ),
        (
            one_arg("NodeAffinity", "7"),
            "decoding .profiles[0].pluginConfig[0]: decoding args for plugin NodeAffinity: couldn't get version/kind",
        ),
    ],
)
def test_what_is_no_object_has_no_version_and_kind(document: str, start: str) -> None:
    assert str(refused(document)).startswith(start)


@pytest.mark.parametrize(
    ("document", "detail"),
    [
        (
            HEAD + "profiles: [{percentageOfNodesToScore: ten}]",
            'profiles[0].percentageOfNodesToScore: the text "ten" is not a whole number from -2147483648 to 2147483647',
        ),
        (
            HEAD + "leaderElection: {leaseDuration: 15}",
            'leaderElection.leaseDuration: the number 15 is not a duration with units such as "15s" or "1m30s"',
        ),
        (HEAD + "paralelism: 3", "paralelism: no such field; did you mean parallelism?"),
        (HEAD + "enableprofiling: true", "enableprofiling: no such field; did you mean enableProfiling?"),
        (
            one_arg("InterPodAffinity", "{hardWeight: 3}"),
            "profiles[0].pluginConfig[0].args.hardWeight: no such field; "
            "known are hardPodAffinityWeight, ignorePreferredTermsOfExistingPods",
        ),
        (
            one_arg("NodeAffinity", "[1]"),
            "profiles[0].pluginConfig[0].args: a list of length 1 is not an object (name: value lines)",
        ),
        (
            HEAD.replace("/v1\n", "/v1beta2\n"),
            "v1beta2 was removed in Kubernetes 1.28; rewrite the file for kubescheduler.config.k8s.io/v1",
        ),
    ],
)
def test_the_users_message_names_file_path_value_and_remedy(document: str, detail: str) -> None:
    message = refused(document).user_message
    assert message.startswith("scheduler.yaml: ")
    assert message.splitlines()[-1] == f"  {detail}"


def test_control_characters_do_not_reach_the_terminal() -> None:
    message = refused(HEAD + '"a\\e[31mb": 1\n').user_message
    assert "\x1b" not in message
    assert r"a\x1b[31mb" in message


def test_only_some_of_many_complaints_are_explained() -> None:
    error = refused(HEAD + "".join(f"field{number}: 1\n" for number in range(500)))
    assert str(error).count("unknown field") == 500
    assert len(error.user_message.splitlines()) == 21


# -- hostile input -------------------------------------------------------------------------------------------


def _bomb() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, after in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]")
    return HEAD + "\n".join(lines)


@pytest.mark.parametrize(
    ("document", "part"),
    [
        pytest.param("[" * 500_000, "nested more than 200 levels deep", id="brackets without end"),
        pytest.param(HEAD + "x: " + "{a: " * 300 + "}" * 300, "nested more than", id="deep flow maps"),
        pytest.param(HEAD + "".join(" " * i + "a:\n" for i in range(300)), "nested more than", id="deep block maps"),
        pytest.param("- " * 100_000, "nested more than", id="deep block lists"),
        pytest.param(_bomb(), "excessive aliasing", id="anchor bomb"),
        pytest.param(HEAD + "a: [" + "1," * 210_000 + "]", 'unknown field "a"', id="very many values"),
        pytest.param(HEAD + "a: &a [*a]", "anchor 'a' value contains itself", id="an anchor inside itself"),
        pytest.param(HEAD + "a: *b", "anchor", id="an anchor that is not there"),
        pytest.param(HEAD + "parallelism: " + "9" * 100_000, "unsupported value: +Inf", id="huge integer"),
        pytest.param(HEAD + "parallelism: -" + "9" * 100_000, "unsupported value: -Inf", id="huge negative integer"),
        pytest.param(HEAD + "parallelism: 0x" + "f" * 300, "unsupported value: +Inf", id="long hexadecimal"),
        pytest.param(HEAD + "parallelism: " + "9" * 300, "cannot unmarshal number 1e+300", id="long decimal"),
        pytest.param(HEAD + "parallelism: 0x" + "f" * 257, "+Inf", id="just too long hexadecimal"),
        pytest.param(HEAD + "parallelism: .nan", "unsupported value: NaN", id="not a number"),
        pytest.param(HEAD + "x: !!python/object/apply:os.system ['true']", "not supported", id="object tag"),
        pytest.param(HEAD + "x: !!python/name:os.system", "not supported", id="scalar tag"),
        pytest.param(HEAD + "x: !!int abc", "cannot read 'abc' as int", id="a tag that lies"),
        pytest.param(HEAD + "x: !!set {a}", "not supported", id="set tag"),
        pytest.param(HEAD + "? [a]\n: b", "invalid map key", id="a list as a key"),
        pytest.param(HEAD + "? {a: b}\n: b", "invalid map key", id="a map as a key"),
        pytest.param(HEAD + "~: b", "invalid map key", id="null as a key"),
        pytest.param(HEAD + "<<: 5", "map merge requires map", id="merging a number"),
        pytest.param(HEAD + "---\n" + HEAD, "line 3: a second document starts here", id="two documents"),
        pytest.param(HEAD + "a:\n\t- b", "line 4: ", id="a tab"),
        pytest.param(HEAD + "a: 'b", "line ", id="an open quote"),
        pytest.param(HEAD + "a: \x00", "yaml: ", id="a NUL"),
        pytest.param(HEAD + "a: \ud800", "yaml: ", id="half a surrogate pair"),
        pytest.param(b"\x7fELF\x02\x01\x01\x00\xff\xfe" * 50, "invalid UTF-8 text at byte 8", id="a program"),
        pytest.param(b"\xff\xfea", "invalid UTF-16 text", id="half a UTF-16 character"),
        pytest.param(bytes(range(128)), "control characters are not allowed", id="control characters"),
        pytest.param(b"a" * (MAX_BYTES + 1), f"larger than {MAX_BYTES} bytes", id="a huge file"),
    ],
)
def test_hostile_text_is_refused_without_ado(document: str | bytes, part: str) -> None:
    assert part in str(refused(document))


def test_a_number_that_json_does_not_have_is_named_with_its_field() -> None:
    for text, field in (
        ("profiles: [{a: 1}, {b: {c: [0, .inf]}}]", "profiles[1].b.c[1]: .inf"),
        ("podMaxBackoffSeconds: 1e999", "podMaxBackoffSeconds: 1e999"),
    ):
        assert refused(HEAD + text).details == [f"line 3: {field} is out of range"]


@pytest.mark.parametrize("document", [HEAD + "---\n", HEAD + "...\n", HEAD + "--- ~\n", "%YAML 1.1\n---\n" + HEAD])
def test_an_empty_document_behind_is_no_second_document(document: str) -> None:
    assert load_config(document) == default_config()


def test_files_that_cannot_be_read_give_the_systems_reason(tmp_path: Path) -> None:
    missing, folder = tmp_path / "missing.yaml", tmp_path
    with pytest.raises(ConfigError) as caught:
        load_config_file(missing)
    assert str(caught.value) == f"open {missing}: no such file or directory"
    with pytest.raises(ConfigError) as caught:
        load_config_file(folder)
    assert str(caught.value) == f"read {folder}: is a directory"
    with pytest.raises(ConfigError, match="invalid argument"):
        load_config_file("a\0b")
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * (MAX_BYTES + 5))
    with pytest.raises(ConfigError, match="larger than"):
        load_config_file(big)


def test_a_files_name_is_part_of_the_message(tmp_path: Path) -> None:
    file = tmp_path / "conf.yaml"
    file.write_text(HEAD + "parallelism: 0\n")
    with pytest.raises(ConfigError) as caught:
        load_config_file(file)
    assert caught.value.stage == "validate"
    assert caught.value.user_message == (
        f"{file}: parallelism: Invalid value: 0: should be an integer value greater than zero"
    )


# -- odd but legal -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("0x10", 16),
        ("010", 8),
        ("0o10", 8),
        ("0b11", 3),
        ("1_000", 1000),
        ("+5", 5),
        ("-7", -7),
        ("09", 9.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e+2", 100.0),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
        (".", "."),
        ("1a", "1a"),
        ("yes", True),
        ("off", False),
        ("~", None),
        ("", None),
        ("nil", "nil"),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", float(2**64)),
    ],
)
def test_a_plain_scalar_means_what_it_means_to_upstream(text: str, value: object) -> None:
    found = resolve_plain(text)
    assert (type(found), found) == (type(value), value)


def test_quoted_scalars_and_text_tags_are_text() -> None:
    _, document = parse_document("""a: '1'\nb: "true"\nc: !!str 5\nd: ! 6\ne: |\n  7\nf: !!int '8'\n""")
    assert document.data == {"a": "1", "b": "true", "c": "5", "d": "6", "e": "7\n", "f": 8}


def test_keys_that_are_no_text_become_text() -> None:
    _, document = parse_document("1: a\ntrue: b\n1.5: c\n2.0: d\n")
    assert document.data == {"1": "a", "true": "b", "1.5": "c", "2": "d"}


def test_merged_mappings_yield_to_the_mappings_own_keys() -> None:
    text = "a: &a {k: 1, l: 1}\nb: &b {l: 2, m: 2}\nc: {m: 3, <<: [*a, *b]}\n'<<': {q: 1}\n"
    _, document = parse_document(text)
    assert document.data["c"] == {"k": 1, "l": 1, "m": 3}
    assert document.data["<<"] == {"q": 1}
    assert document.duplicates == []


def test_aliases_within_reason_are_fine() -> None:
    config = load_config(
        HEAD + "profiles:\n- schedulerName: a\n  plugins: &p {score: {disabled: [{name: '*'}]}}\n"
        "- schedulerName: b\n  plugins: *p\n"
    )
    assert config.profiles[0].plugins == config.profiles[1].plugins
    assert config.profiles[1].plugins.score.disables_all


def test_text_in_utf_16_and_with_a_byte_order_mark_is_read() -> None:
    document = HEAD + "parallelism: 4\n"
    for raw in (document.encode("utf-16"), document.encode("utf-8-sig"), "\ufeff" + document):
        assert load_config(raw).parallelism == 4


def test_null_means_absent() -> None:
    document = HEAD + (
        "parallelism: null\nleaderElection: ~\nclientConnection:\nprofiles:\nextenders: null\n"
        "enableProfiling: null\npercentageOfNodesToScore:\n"
    )
    assert load_config(document) == default_config()


def test_null_in_a_list_is_an_empty_item() -> None:
    config = decode_config(HEAD + "extenders: [null]\nprofiles: [~]\n")
    assert config.extenders[0].url_prefix == ""
    assert config.profiles[0].scheduler_name == "default-scheduler"


def test_whole_floats_are_integers() -> None:
    assert load_config(HEAD + "parallelism: 5.0\npodMaxBackoffSeconds: 1e3\n").pod_max_backoff_seconds == 1000


def test_args_may_leave_out_version_and_kind() -> None:
    config = load_config(one_arg("NodeResourcesFit", "{ignoredResources: [example.com/a]}"))
    args = config.profiles[0].args_as("NodeResourcesFit", NodeResourcesFitArgs)
    assert args.ignored_resources == ("example.com/a",)
    assert args.scoring_strategy.type == "LeastAllocated"


def test_added_affinity_is_typed() -> None:
    config = load_config(
        one_arg("NodeAffinity", "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}}")
    )
    args = config.profiles[0].args_as("NodeAffinity", NodeAffinityArgs)
    assert isinstance(args.added_affinity, NodeAffinity)


def test_args_of_other_plugins_pass_as_they_are() -> None:
    config = load_config(one_arg("Mine", "{kind: Whatever, depth: [1, {a: null}]}"))
    assert config.profiles[0].args_for("Mine") == {"kind": "Whatever", "depth": [1, {"a": None}]}
    assert config.profiles[0].args_for("Other") is None
    with pytest.raises(TypeError, match="want args to be of type NodeAffinityArgs, got dict"):
        config.profiles[0].args_as("Mine", NodeAffinityArgs)


def test_plain_data_is_read_like_text() -> None:
    data = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "parallelism": 3}
    assert load_config_data(data).parallelism == 3
    with pytest.raises(ConfigError, match='unknown field "5"'):
        load_config_data({**data, 5: 1})  # type: ignore[dict-item]


def test_every_field_can_be_set() -> None:
    config = load_config(
        HEAD
        + """
parallelism: 2
leaderElection: {leaderElect: false, leaseDuration: 1m30s, renewDeadline: 20s, retryPeriod: 500ms,
                 resourceLock: leases, resourceName: a, resourceNamespace: b}
clientConnection: {kubeconfig: /k, acceptContentTypes: a/b, contentType: c/d, qps: -1, burst: 3}
enableProfiling: false
percentageOfNodesToScore: 30
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
delayCacheUntilActive: true
extenders:
- {urlPrefix: "http://a", filterVerb: f, preemptVerb: p, prioritizeVerb: s, weight: 5, bindVerb: b, enableHTTPS: true,
   tlsConfig: {insecure: true, serverName: srv, certFile: c, keyFile: k, caFile: a, certData: AQI=, keyData: "", caData: Aw==},
   httpTimeout: 300ms, nodeCacheCapable: true, ignorable: true,
   managedResources: [{name: example.com/x, ignoredByScheduler: true}]}
"""
    )
    assert config.leader_election.lease_duration == Duration.of_seconds(90)
    assert config.leader_election.retry_period.seconds == 0.5
    assert config.client_connection.qps == -1
    assert not config.enable_contention_profiling
    assert config.delay_cache_until_active
    extender = config.extenders[0]
    assert extender.enable_https
    assert extender.tls_config is not None
    assert extender.tls_config.cert_data == b"\x01\x02"
    assert extender.timeout_seconds == 0.3
    assert extender.managed_resources[0].ignored_by_scheduler


def test_an_extender_has_five_seconds_by_default() -> None:
    assert load_config(HEAD + "extenders: [{urlPrefix: 'http://a'}]").extenders[0].timeout_seconds == 5.0


def test_an_empty_list_of_preferred_terms_is_as_good_as_none() -> None:
    args = "{addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}"
    assert load_config(one_arg("NodeAffinity", args)) == load_config(one_arg("NodeAffinity", "{addedAffinity: {}}"))

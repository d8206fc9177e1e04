"""``kubectl kubesched``: which cluster and namespace a command gets, and explanations of a live scheduler."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_cluster import cluster
from cli_kit import run

from kubesched.cli.kubectl import arguments_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "explain" / "two-causes.yaml"
CONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: here, context: {cluster: c, namespace: shop}}
- {name: there, context: {cluster: c}}
"""


@pytest.mark.parametrize(
    ("given", "added"),
    [
        (["explain", "web-1"], ["--kubeconfig", "FILE", "--namespace", "shop"]),
        (["explain", "web-1", "--context", "there"], ["--kubeconfig", "FILE"]),
        (["explain", "web-1", "-n", "db"], ["--kubeconfig", "FILE"]),
        (["explain"], ["--kubeconfig", "FILE"]),
        (["audit"], ["--kubeconfig", "FILE"]),
        (["explain", "web-1", "--from", "dump.yaml"], []),
        (["explain", "web-1", "--server=https://127.0.0.1"], []),
        (["explain", "--help"], []),
        (["simulate", "-f", "x"], []),
        ([], []),
    ],
)
def test_a_command_reads_the_cluster_that_kubectl_uses(
    given: list[str], added: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config"
    file.write_text(CONFIG)
    monkeypatch.setenv("KUBECONFIG", str(file))
    expected = [str(file) if word == "FILE" else word for word in added]
    assert arguments_of(given, tmp_path) == [*given, *expected]


def test_without_a_variable_it_is_the_file_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert arguments_of(["audit"], tmp_path)[1:] == ["--kubeconfig", str(tmp_path / ".kube" / "config")]


def test_several_files_are_merged_by_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "kubectl"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint('merged:', sys.argv[1:])\n")
    program.chmod(0o755)
    for name in ("a", "b"):
        (tmp_path / name).write_text(CONFIG)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    *_, merged = arguments_of(["audit"], tmp_path)
    assert Path(merged).read_text() == "merged: ['config', 'view', '--raw', '--flatten']\n"
    assert Path(merged).stat().st_mode & 0o777 == 0o600
    program.unlink()
    with pytest.raises(SystemExit, match="kubectl cannot merge them"):
        arguments_of(["audit"], tmp_path)


def test_a_live_scheduler_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with cluster(tmp_path, "--nodes", "1", "-f", str(EXAMPLE)) as running:
        server = ("--server", running.url)
        pending = run(capsys, "explain", *server)
        while "in the queue: waits for an event" not in pending.out:  # its first attempt may not be over
            assert pending.code == 0, pending.err
            pending = run(capsys, "explain", *server)
        document = json.loads(run(capsys, "explain", "trainer", "--node", "gpu-1", *server, "-o", "json").out)
        missing = run(capsys, "explain", "moon", *server)
        nowhere = run(capsys, "explain", "--server", "http://127.0.0.1:1")
        other = run(capsys, "explain", "--server", running.url + "/healthz")
    assert "default/trainer: Unschedulable" in pending.out
    (group,) = document["pending"]
    assert group["queue"]["rejectedBy"] == ["NodeAffinity", "TaintToleration"]
    assert [other["node"] for other in group["alternatives"]] == ["gpu-1"]
    assert (missing.code, "no pod is named default/moon" in missing.err) == (1, True)
    assert (nowhere.code, "--server http://127.0.0.1:1: " in nowhere.err) == (1, True)
    assert (other.code, "404" in other.err) == (1, True)


def test_wrong_options_for_a_live_scheduler_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("a b\n")
    for options, text in (
        (("--server", "127.0.0.1:10259"), "expected a URL such as https://127.0.0.1:10259"),
        (("--server", "http://127.0.0.1:1", "-f", str(EXAMPLE)), "give no --kubeconfig, --from or -f with it"),
        (
            ("--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "token")),
            "expected a bearer token on one line",
        ),
        (("--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "none")), "No such file"),
        (("--server", "http://127.0.0.1:1", "--token-file", "/dev/zero"), "is no regular file"),
        (("--server", "https://127.0.0.1:1", "--certificate-authority", "/dev/zero"), "is no regular file"),
        (
            ("--server", "https://127.0.0.1:1", "--certificate-authority", str(tmp_path / "token")),
            "cannot be used as certificate",
        ),
    ):
        ran = run(capsys, "explain", *options)
        assert ran.code in (1, 2)
        assert text in ran.err

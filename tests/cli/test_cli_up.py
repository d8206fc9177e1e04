"""``kubesched up`` and ``kubesched import``: a cluster that answers, stops on a signal, and is saved to a file."""

from __future__ import annotations

import http.cookiejar
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from cli_cluster import POD, cluster

from kubesched.api.yamltext import to_yaml
from kubesched.cli.main import main


def test_a_pod_is_placed_and_the_cluster_survives_in_a_file(tmp_path: Path) -> None:
    saved = tmp_path / "cluster.jsonl.gz"
    with cluster(tmp_path, "--nodes", "3", "--zones", "3", "--snapshot", str(saved)) as running:
        nodes = running.request("/api/v1/nodes")["items"]
        assert sorted(node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in nodes) == [
            "zone-a",
            "zone-b",
            "zone-c",
        ]
        running.request("/api/v1/namespaces/default/pods", POD)
        node = running.wait_bound("one")
        assert running.stop() == (0, "")
    with cluster(tmp_path, "--snapshot", str(saved)) as again:
        assert again.pod("one")["spec"]["nodeName"] == node
        assert len(again.request("/api/v1/nodes")["items"]) == 3
        assert again.stop() == (0, "")


def test_the_server_publishes_its_address_again_when_a_saved_cluster_moves_to_another_port(tmp_path: Path) -> None:
    saved = tmp_path / "cluster.jsonl"
    seen = []
    for _ in range(2):
        with cluster(tmp_path, "--snapshot", str(saved)) as running:
            service = running.request("/api/v1/namespaces/default/services/kubernetes")
            assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
            assert service["spec"]["clusterIP"] == "10.96.0.1"
            port = int(running.url.rpartition(":")[2])
            assert [one["targetPort"] for one in service["spec"]["ports"]] == [port]
            path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
            found = running.request(path)
            assert (found["endpoints"][0]["addresses"], found["ports"][0]["port"]) == (["127.0.0.1"], port)
            endpoints = running.request("/api/v1/namespaces/default/endpoints/kubernetes")
            assert endpoints["subsets"][0]["addresses"] == [{"ip": "127.0.0.1"}]
            seen.append(service["metadata"]["uid"])
            assert running.stop() == (0, "")
    assert seen[0] == seen[1]


def test_the_kubeconfig_leads_to_the_cluster_and_a_token_is_asked_for(tmp_path: Path) -> None:
    with cluster(tmp_path, "--nodes", "1", "--token") as running:
        config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
        assert config["clusters"][0]["cluster"]["server"] == running.url
        token = config["users"][0]["user"]["token"]
        assert len(running.request("/api/v1/nodes", token=token)["items"]) == 1
        with pytest.raises(urllib.error.HTTPError, match="401"):
            running.request("/api/v1/nodes")
        code, errors = running.stop()
        assert code == 0
        assert "add --tls" in errors, "kubectl drops tokens on plain HTTP; the user of such a cluster has to know"


def test_all_addresses_without_a_token_only_when_insisted_on(tmp_path: Path) -> None:
    with cluster(tmp_path, "--host", "0.0.0.0", "--insecure-without-token", "--allowed-host", "a.example") as running:
        url = f"http://127.0.0.1:{running.url.rpartition(':')[2]}/api/v1/nodes"
        for host in ("a.example", "127.0.0.1"):
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": host}), timeout=30) as answer:
                assert answer.status == 200, host
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(urllib.request.Request(url, headers={"Host": "b.example"}), timeout=30)
        refused.value.close()
        assert running.stop() == (0, "")


def test_without_a_scheduler_pods_stay_pending_and_manifests_are_created(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump(POD))
    with cluster(tmp_path, "--nodes", "1", "--no-scheduler", "--speed", "100", "-f", str(manifest)) as running:
        pod = running.pod("one")
        assert "nodeName" not in pod["spec"]
        assert pod["status"]["phase"] == "Pending"
        assert running.stop()[0] == 0


def test_pod_groups_are_served_and_scheduled_when_their_gates_are_on(tmp_path: Path) -> None:
    groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    }
    container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
    member = {**POD, "spec": {"containers": [container], "schedulingGroup": {"podGroupName": "g"}}}
    manifest = tmp_path / "gang.yaml"
    manifest.write_text(yaml.safe_dump_all([member, group]))
    with cluster(tmp_path, "--nodes", "1", "-f", str(manifest), "--feature-gates", "AllPodGroups=true") as running:
        running.wait_bound("one")
        assert running.request(f"{groups}/g")["spec"]["schedulingPolicy"] == {"gang": {"minCount": 1}}
        assert running.stop() == (0, "")
    with cluster(tmp_path, "--nodes", "1", "-f", str(manifest)) as without:
        without.wait_bound("one")
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            without.request(groups)
        missing.value.close()
        code, errors = without.stop()
        assert code == 0
        assert (
            "PodGroup g has no effect: pods are scheduled one by one without the feature gate GenericWorkload" in errors
        )


def test_a_running_cluster_is_imported_by_its_kubeconfig(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "copy.jsonl"
    with cluster(tmp_path, "--nodes", "2") as running:
        running.request("/api/v1/namespaces/default/pods", POD)
        node = running.wait_bound("one")
        assert main(["import", "--kubeconfig", str(tmp_path / "kubeconfig"), "-o", str(saved)]) == 0
        assert running.stop()[0] == 0
    assert f"to {saved}" in capsys.readouterr().out
    objects = [json.loads(line) for line in saved.read_text().splitlines()[1:]]
    pods = [item for item in objects if item.get("kind") == "Pod" or item.get("object", {}).get("kind") == "Pod"]
    text = saved.read_text()
    assert pods or '"one"' in text
    assert node in text


def test_pending_pods_of_a_running_cluster_are_explained_by_its_kubeconfig(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = {"cpu": "100"}
    container = {"name": "c", "image": "app:1", "resources": {"requests": large}}
    with cluster(tmp_path, "--nodes", "2", "--no-scheduler") as running:
        running.request("/api/v1/namespaces/default/pods", {**POD, "spec": {"containers": [container]}})
        assert main(["explain", "one", "--kubeconfig", str(tmp_path / "kubeconfig"), "-q"]) == 0
        assert "nodeName" not in running.pod("one")["spec"]
        assert running.stop()[0] == 0
    out = capsys.readouterr().out
    assert "cpu: asks for 100, but the largest of these nodes has 8" in out
    assert "what would help: ask for 92 less cpu: 2 nodes would fit" in out


def test_dumps_are_imported_without_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = tmp_path / "dump.yaml"
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "default"},
        "data": {"k": "aGV5"},
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1"}}}
    bound = {**POD, "spec": {**POD["spec"], "nodeName": "n"}}  # type: ignore[dict-item]
    dump.write_text(to_yaml({"apiVersion": "v1", "kind": "List", "items": [secret, node, bound]}))
    saved = tmp_path / "copy.jsonl"
    assert main(["import", str(dump), "-o", str(saved)]) == 0
    assert "left out: 1 secrets" in capsys.readouterr().out
    assert "aGV5" not in saved.read_text()
    assert '"one"' in saved.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "-f", "absent.yaml"], "absent.yaml"),
        (["up", "--node-template", "pod.yaml", "--nodes", "1"], "holds no Node"),
        (["up", "--snapshot", "pod.yaml"], "is not a saved cluster"),
        (["up", "--tls-cert", "pod.yaml"], "needs its key"),
        (["up", "--stages", "pod.yaml"], "pod.yaml"),
        (["up", "--config", "absent.yaml"], "absent.yaml"),
        (["import", "-o", "x.jsonl"], "give either dumps"),
        (["import", "absent.yaml", "-o", "x.jsonl"], "absent.yaml"),
        (["import", "--kubeconfig", "absent", "-o", "x.jsonl"], "absent"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_used_is_said_in_one_message(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(POD))
    assert main(arguments) in (1, 2)
    errors = capsys.readouterr().err
    assert message in errors
    assert "Traceback" not in errors


def test_the_dashboard_is_served_by_a_link_and_a_session_outlives_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with cluster(tmp_path, "--nodes", "3", "--ui", "0", "--speed", "10") as running:
        assert running.process.stdout is not None
        link = running.process.stdout.readline().strip()
        root = link.partition("?key=")[0]
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            browser.open(f"{root}api/v1/dashboard", timeout=30)
        refused.value.close()
        with browser.open(link, timeout=30) as page:
            assert (page.url, "<html" in page.read().decode()) == (root, True)
        assert running.process.stdout.readline().strip().startswith(f"{root}?key=")
        with browser.open(f"{root}api/v1/runs/0/state", timeout=30) as answer:
            assert sorted(json.load(answer)["nodes"]["names"]) == ["hollow-00000", "hollow-00001", "hollow-00002"]
        with browser.open(f"{root}api/v1/runs/0/changes", timeout=30) as stream:
            assert stream.readline() == b"event: resync\n"
            code, errors = running.stop()
            assert (code, errors) == (0, "")
    (session,) = jar
    with cluster(tmp_path, "--ui", "0") as again:
        assert again.process.stdout is not None
        root = again.process.stdout.readline().partition("?key=")[0]
        headers = {"Cookie": f"{session.name}={session.value}"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{root}api/v1/dashboard", headers=headers), timeout=30
        ) as answer:
            assert json.load(answer)["runs"][0]["mode"] == "embedded"
        assert again.stop() == (0, "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ui", "0.0.0.0:80"], "no loopback address"),
        (["--ui", "example.com:80"], "no loopback address"),
        (["--ui", "65536"], "a port from 0 to 65535"),
        (["--ui", "127.0.0.1:"], "no PORT and no ADDRESS:PORT"),
        (["--ui", "-1"], "no PORT"),
        (["--ui=0", "--no-scheduler"], "there is none with --no-scheduler"),
    ],
)
def test_a_dashboard_that_cannot_be_is_refused(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    try:
        code = main(["up", "--port", "0", "--kubeconfig-out", str(tmp_path / "kubeconfig"), *options])
    except SystemExit as end:
        code = int(str(end.code))
    errors = capsys.readouterr().err
    assert (code, "Traceback" in errors) == (2, False)
    assert words in " ".join(errors.split())

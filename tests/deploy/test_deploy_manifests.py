"""The manifests, the chart and the Containerfile: they fit together, are restricted, and start the scheduler."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_kit import configuration_definitions
from rbac_kit import DEPLOY, KUSTOMIZE, ROOT, documents, permissions

from kubesched.cli.run.flags import FLAG_SET
from kubesched.cluster.files import IMPORTED_KINDS
from kubesched.retired.config import load_any
from kubesched.scheduler.config import KubeSchedulerConfiguration
from kubesched.scheduler.loading import load_registry

CHART = DEPLOY / "helm" / "kubesched"
HELM = shutil.which("helm", path=sysconfig.get_path("scripts")) or shutil.which("helm")
KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")
VARIANTS = {"second-scheduler": ("kubesched", "kubesched"), "replacement": ("default-scheduler", "kube-scheduler")}
COMPONENTS = ("kubelets", "monitoring", "network-policy", "own-plugins", "pod-groups", "reader")
BASE = documents(KUSTOMIZE / "base" / "rbac.yaml", KUSTOMIZE / "base" / "deployment.yaml")
STATIC_POD = documents(DEPLOY / "static-pod" / "kubesched.yaml")[0]


def one(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    """The only object of a kind (and name)."""
    (found,) = [item for item in objects if item["kind"] == kind and name in ("", item["metadata"]["name"])]
    return found


def pod_spec(objects: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = one(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def config_of(text: str) -> KubeSchedulerConfiguration:
    loaded = load_any(text)
    assert loaded.warnings == ()
    return loaded.config


def built(variant: str) -> list[dict[str, Any]]:
    """Return the objects that kustomize makes of a variant."""
    return built_folder(KUSTOMIZE / variant)


def built_folder(folder: Path) -> list[dict[str, Any]]:
    """Return the objects that kustomize makes of a folder."""
    if KUBECTL is None:
        pytest.skip("kubectl is not on the PATH")
    command = [KUBECTL, "kustomize", str(folder)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [item for item in yaml.safe_load_all(output) if item]


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects that Helm makes of the chart, by its program or by its Python binding, whichever is there."""
    if HELM is not None:
        command = [HELM, "template", "mine", str(CHART), "--namespace", "schedulers", "--values", "-"]
        result = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
        if result.returncode:
            raise ValueError(result.stderr)
        texts = [result.stdout]
    else:
        try:
            binding = importlib.import_module("helm_python.chart")
        except ImportError:
            pytest.skip("neither helm nor helm-python-sdk is installed")
        try:
            files = binding.Chart.load(CHART).render(values, name="mine", namespace="schedulers")
        except importlib.import_module("helm_python.errors").HelmError as error:
            raise ValueError(str(error)) from None
        texts = [text for name, text in files.items() if name.endswith(".yaml")]
    return [item for text in texts for item in yaml.safe_load_all(text) if item]


# -- structure -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["base", *VARIANTS, *(f"components/{name}" for name in COMPONENTS)])
def test_every_file_that_a_kustomization_names_exists(variant: str) -> None:
    folder = KUSTOMIZE / variant
    (content,) = documents(folder / "kustomization.yaml")
    files = [*content.get("resources", ()), *(patch["path"] for patch in content.get("patches", ()) if "path" in patch)]
    files += [file for generated in content.get("configMapGenerator", ()) for file in generated["files"]]
    assert files
    for file in files:
        assert (folder / file).exists(), file


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_configuration_of_a_variant_is_read_without_warnings(variant: str) -> None:
    config = config_of((KUSTOMIZE / variant / "config.yaml").read_text(encoding="utf-8"))
    assert (config.profiles[0].scheduler_name, config.leader_election.resource_name) == VARIANTS[variant]
    assert config.leader_election.leader_elect


def check_restricted(spec: dict[str, Any]) -> None:
    """The rules of the restricted Pod Security Standard, and a root file system that is read-only."""
    assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    allowed = {"configMap", "emptyDir", "secret", "projected", "downwardAPI"}
    assert all(volume.keys() - {"name"} <= allowed for volume in spec["volumes"])
    check_container(spec)


def check_container(spec: dict[str, Any]) -> None:
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        request = container[probe]["httpGet"]
        assert (request["path"], request["scheme"]) == (path, "HTTPS")
        assert request["port"] in (10259, "https")
    FLAG_SET.parse(container["args"])


def test_the_pods_are_restricted_and_their_flags_are_known() -> None:
    check_restricted(pod_spec(BASE))


def test_the_static_pod_has_the_identity_of_kube_scheduler_and_no_capability() -> None:
    spec = STATIC_POD["spec"]
    check_container(spec)
    flags = FLAG_SET.parse(spec["containers"][0]["args"])
    files = {flags[name] for name in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")}
    assert files == {spec["volumes"][0]["hostPath"]["path"]} == {spec["containers"][0]["volumeMounts"][0]["mountPath"]}


def test_replicas_are_spread_and_disrupted_one_at_a_time() -> None:
    deployment, budget = one(BASE, "Deployment"), one(BASE, "PodDisruptionBudget")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["replicas"] == 2
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    (spread,) = pod_spec(BASE)["topologySpreadConstraints"]
    assert spread["labelSelector"] == {"matchLabels": labels} == deployment["spec"]["selector"]
    assert one(BASE, "Service")["spec"]["selector"] == labels


# -- as built --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_kustomize_builds_a_variant_that_is_restricted_and_may_hold_its_lease(variant: str) -> None:
    objects = built(variant)
    spec = pod_spec(objects)
    check_restricted(spec)
    config_map = one(objects, "ConfigMap")
    assert spec["volumes"][0]["configMap"]["name"] == config_map["metadata"]["name"] != "kubesched-config"
    lease = config_of(config_map["data"]["config.yaml"]).leader_election.resource_name
    leases = [item for item in permissions(objects, ("kube-system", "kubesched")) if item.resource == "leases"]
    assert {(item.verb, item.name) for item in leases} == {("create", ""), ("get", lease), ("update", lease)}
    assert (spec.get("priorityClassName") == "system-cluster-critical") == (variant == "replacement")
    assert {item["metadata"].get("namespace", "kube-system") for item in objects} == {"kube-system"}


def test_the_chart_has_the_permissions_of_the_manifests() -> None:
    rules = yaml.safe_load((CHART / "files" / "cluster-role-rules.yaml").read_text(encoding="utf-8"))
    assert rules == one(BASE, "ClusterRole")["rules"]


def test_pod_groups_have_the_same_flag_and_permissions_in_the_chart_and_the_component(tmp_path: Path) -> None:
    rules = yaml.safe_load((CHART / "files" / "pod-group-rules.yaml").read_text(encoding="utf-8"))
    assert rules == one(documents(KUSTOMIZE / "components" / "pod-groups" / "rbac.yaml"), "ClusterRole")["rules"]
    flags = FLAG_SET.parse(["--feature-gates=AllPodGroups=true"])["feature-gates"]
    where = [os.path.relpath(KUSTOMIZE / name, tmp_path) for name in ("second-scheduler", "components/pod-groups")]
    content = {"resources": where[:1], "components": where[1:]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(content))
    twin = built_folder(tmp_path)
    assert FLAG_SET.parse(pod_spec(twin)["containers"][0]["args"])["feature-gates"] == flags
    objects = rendered({"podGroups": {"enabled": True}})
    assert FLAG_SET.parse(pod_spec(objects)["containers"][0]["args"])["feature-gates"] == flags
    granted = permissions(objects, ("schedulers", "mine-kubesched"))
    assert sorted(granted) == sorted(permissions(twin, ("kube-system", "kubesched")))


@pytest.mark.parametrize(("mode", "variant"), [("second", "second-scheduler"), ("replacement", "replacement")])
def test_helm_renders_what_kustomize_builds(mode: str, variant: str) -> None:
    objects, twin = rendered({"mode": mode}), built(variant)
    spec, expected = pod_spec(objects), pod_spec(twin)
    check_restricted(spec)
    for one_spec in (spec, expected):
        one_spec["containers"][0].pop("imagePullPolicy", None)
        for key in ("serviceAccountName", "topologySpreadConstraints"):
            assert one_spec.pop(key)
        one_spec["volumes"][0]["configMap"].clear()
    assert spec == expected
    texts = [one(found, "ConfigMap")["data"]["config.yaml"] for found in (objects, twin)]
    assert config_of(texts[0]) == config_of(texts[1])
    granted = permissions(objects, ("schedulers", "mine-kubesched"))
    assert sorted(granted) == sorted(permissions(twin, ("kube-system", "kubesched")))


def test_values_reach_the_configuration_and_the_pods() -> None:
    values = {
        "schedulerName": "fast",
        "leaseName": "fast",
        "config": {"percentageOfNodesToScore": 40},
        "profile": {"plugins": {"score": {"disabled": [{"name": "ImageLocality"}]}}},
        "extraArgs": ["--v=3"],
        "replicas": 3,
    }
    objects = rendered(values)
    config = config_of(one(objects, "ConfigMap")["data"]["config.yaml"])
    assert (config.percentage_of_nodes_to_score, config.leader_election.resource_name) == (40, "fast")
    assert config.profiles[0].scheduler_name == "fast"
    assert [plugin.name for plugin in config.profiles[0].plugins.score.disabled] == ["ImageLocality"]
    assert FLAG_SET.parse(pod_spec(objects)["containers"][0]["args"])["v"] == 3
    assert one(objects, "Deployment")["spec"]["replicas"] == 3


WRONG: dict[str, dict[str, Any]] = {
    "mode": {"mode": "both"},
    "Additional property replica is not allowed": {"replica": 3},
    "replicas: Must be greater than or equal to 1": {"replicas": 0},
    "config: Additional property profiles is not allowed": {"config": {"profiles": []}},
    "config: Additional property percentageOfNodeToScore is not allowed": {"config": {"percentageOfNodeToScore": 5}},
    "config.leaderElection: Additional property leaseDurration is not allowed": {
        "config": {"leaderElection": {"leaseDurration": "15s"}}
    },
    "config.leaderElection: Additional property resourceName is not allowed": {
        "config": {"leaderElection": {"resourceName": "mine"}}
    },
    "config.leaderElection.leaseDuration: Invalid type. Expected: string, given: integer": {
        "config": {"leaderElection": {"leaseDuration": 15}}
    },
    "config.clientConnection: Additional property QPS is not allowed": {"config": {"clientConnection": {"QPS": 5}}},
    "profile: Additional property schedulerName is not allowed": {"profile": {"schedulerName": "x"}},
    "profile.plugins: Additional property scores is not allowed": {"profile": {"plugins": {"scores": {}}}},
    "profile.plugins.score.enabled.0: Additional property wieght is not allowed": {
        "profile": {"plugins": {"score": {"enabled": [{"name": "ImageLocality", "wieght": 2}]}}}
    },
    "profile.pluginConfig.0.args: Additional property scoringStrategi is not allowed": {
        "profile": {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategi": {}}}]}
    },
    "serviceMonitor: Additional property enable is not allowed": {"serviceMonitor": {"enable": True}},
    "networkPolicy: Additional property ingressFrom is not allowed": {"networkPolicy": {"ingressFrom": []}},
    "extraVolumes.0.name": {"extraVolumes": [{"name": "tmp", "emptyDir": {}}]},
}


@pytest.mark.parametrize("message", WRONG)
def test_helm_refuses_values_that_the_schema_does_not_know(message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        rendered(WRONG[message])


def test_the_schema_knows_every_field_of_the_configuration() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert schema["definitions"] == configuration_definitions(), "run tests/deploy/chart_kit.py"


def test_what_the_page_says_may_be_tuned_may_be_set_in_the_chart() -> None:
    config = {
        "clientConnection": {"qps": 500, "burst": 1000},
        "percentageOfNodesToScore": 40,
        "podInitialBackoffSeconds": 2,
        "podMaxBackoffSeconds": 20,
        "leaderElection": {"leaderElect": True, "leaseDuration": "30s", "renewDeadline": "20s", "retryPeriod": "4s"},
        "delayCacheUntilActive": True,
    }
    page = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    table = page[page.index("## Tune") : page.index("## Troubleshoot")]
    for line in re.findall(r"^\| (`[a-z].*?) \|", table, re.MULTILINE):
        for name in re.findall(r"`([A-Za-z.]+)`", line):
            assert f'"{name.rpartition(".")[2]}"' in json.dumps(config), name
    objects = rendered({"config": config})
    loaded = config_of(one(objects, "ConfigMap")["data"]["config.yaml"])
    assert (loaded.leader_election.lease_duration.seconds, loaded.leader_election.resource_name) == (30.0, "kubesched")
    assert (loaded.client_connection.burst, loaded.delay_cache_until_active) == (1000, True)


# -- monitoring, network, own plugins --------------------------------------------------------------------


def test_the_chart_has_no_optional_objects_unless_asked() -> None:
    kinds = {item["kind"] for item in rendered({})}
    assert kinds.isdisjoint({"ServiceMonitor", "NetworkPolicy"})


def test_the_monitor_and_the_policy_choose_the_service_and_the_pods() -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    reader = {"name": "prometheus", "namespace": "monitoring"}
    values = {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "readers": [reader]},
        "networkPolicy": {"enabled": True, "from": peers, "egress": [{"ports": [{"port": 6443}]}]},
    }
    objects = rendered(values)
    service, template = one(objects, "Service"), one(objects, "Deployment")["spec"]["template"]
    monitor, policy = one(objects, "ServiceMonitor"), one(objects, "NetworkPolicy")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["scheme"]) == (service["spec"]["ports"][0]["name"], "https")
    binding = one(objects, "ClusterRoleBinding", "mine-kubesched-readers")
    assert binding["roleRef"]["name"] == "system:monitoring"
    assert binding["subjects"] == [{"kind": "ServiceAccount", **reader}]
    spec = policy["spec"]
    assert spec["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert spec["ingress"] == [{"ports": [{"port": "https", "protocol": "TCP"}], "from": peers}]
    assert (spec["policyTypes"], spec["egress"]) == (["Ingress", "Egress"], values["networkPolicy"]["egress"])


def test_own_plugins_volumes_and_permissions_reach_the_pods() -> None:
    extra = {"apiGroups": ["example.com"], "resources": ["tenants"], "verbs": ["list", "watch"]}
    values = {
        "plugins": {"configMap": "mine", "modules": ["my_plugin.py", "my_package.plugins", "/opt/other.py"]},
        "extraVolumes": [{"name": "ca", "secret": {"secretName": "extender-ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/extender", "readOnly": True}],
        "extraRules": [extra],
    }
    objects = rendered(values)
    spec = pod_spec(objects)
    check_restricted(spec)
    flags = FLAG_SET.parse(spec["containers"][0]["args"])
    assert list(flags["plugin-module"]) == ["/opt/plugins/my_plugin.py", "my_package.plugins", "/opt/other.py"]
    assert {"name": "plugins", "configMap": {"name": "mine"}} in spec["volumes"]
    assert {"name": "PYTHONPATH", "value": "/opt/plugins"} in spec["containers"][0]["env"]
    assert one(objects, "ClusterRole")["rules"] == [*one(BASE, "ClusterRole")["rules"], extra]


def test_the_reader_may_list_what_is_read_of_a_cluster_and_nothing_else() -> None:
    role = one(documents(KUSTOMIZE / "components" / "reader" / "rbac.yaml"), "ClusterRole")
    rules = role["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list"}
    listed = [(group, name) for rule in rules for group in rule["apiGroups"] for name in rule["resources"]]
    assert sorted(listed) == sorted([*((kind.group, kind.plural) for kind in IMPORTED_KINDS), ("", "events")])


def test_the_components_fit_a_variant(tmp_path: Path) -> None:
    def path(*parts: str) -> str:
        return os.path.relpath(KUSTOMIZE.joinpath(*parts), tmp_path)

    content = {"resources": [path("second-scheduler")], "components": [path("components", name) for name in COMPONENTS]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(content))
    objects = built_folder(tmp_path)
    spec, service = pod_spec(objects), one(objects, "Service")
    check_restricted(spec)
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "plugins"]
    (plugins,) = [item for item in objects if item["metadata"]["name"] == volume["configMap"]["name"]]
    (module,) = FLAG_SET.parse(spec["containers"][0]["args"])["plugin-module"]
    assert Path(module).name in plugins["data"]
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert one(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    assert one(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]


def test_the_plugin_of_the_component_is_one() -> None:
    registry, enabled = load_registry([str(KUSTOMIZE / "components" / "own-plugins" / "my_plugin.py")])
    assert "OneTenantPerNode" in registry.capabilities()
    assert enabled


# -- the image -------------------------------------------------------------------------------------------


def _instructions(name: str = "Containerfile") -> list[tuple[str, str]]:
    text = (DEPLOY / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def test_the_image_runs_the_scheduler_without_root() -> None:
    last = dict(_instructions())
    assert int(last["USER"].split(":")[0]) == pod_spec(BASE)["securityContext"]["runAsUser"] > 0
    assert json.loads(last["ENTRYPOINT"]) == ["kubesched", "run"]
    assert last["EXPOSE"] == "10259"


def test_an_image_with_plugins_runs_as_the_same_user_and_finds_them() -> None:
    instructions = dict(_instructions("Containerfile.plugins"))
    assert instructions["USER"] == dict(_instructions())["USER"]
    assert instructions["FROM"] == "${IMAGE}"
    assert "ENTRYPOINT" not in instructions
    assert instructions["ENV"] == f"PYTHONPATH={instructions['COPY'].split()[-1]}"


def test_the_image_is_made_of_files_that_exist_and_fetches_nothing_by_address() -> None:
    instructions = _instructions()
    assert {"ADD"}.isdisjoint(name for name, _ in instructions)
    assert not [text for _, text in instructions if "://" in text]
    sources = [text.split()[:-1] for name, text in instructions if name == "COPY" and not text.startswith("--from=")]
    for source in (file for files in sources for file in files):
        assert (ROOT / source).exists(), source


@pytest.mark.parametrize(
    "file",
    sorted(file for file in DEPLOY.rglob("*") if file.is_file() and file.suffix != ".pyc"),
    ids=lambda file: file.name,
)
def test_no_file_names_a_registry(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for image in re.findall(r"(?:image|newName|repository|FROM|PYTHON_IMAGE)[:= ]+\"?([\w./:${}-]+)", text):
        assert "." not in image.split("/")[0] or "/" not in image, image

"""A session with kubectl, wherever it is installed. Its transcript is docs/kubectl-session.md.

``KUBESCHED_WRITE_TRANSCRIPT=1`` writes the transcript anew. ``KUBECTL`` names another program to use.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from http_thread import cluster

from kubesched.cluster.http import make_certificates, write_kubeconfig

KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")
TRANSCRIPT = Path(__file__).parents[2] / "docs" / "kubectl-session.md"

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: one}}
spec:
  containers:
  - {name: main, image: pause, resources: {requests: {cpu: 100m, memory: 64Mi}}}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: nginx, ports: [{containerPort: 80}]}
"""
WIDGETS = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wg]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.count, statusReplicasPath: .status.count}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer, description: How big.}, count: {type: integer}}
"""
WIDGET = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3, count: 1}\n"


class _Now:
    """The real time: certificates are checked against it."""

    def now(self) -> float:
        return time.time()


#: A heading, or a command, what its output must hold (a pattern), and its exit code; ``{}`` files are in the directory.
Step = tuple[str, str] | tuple[str, str, int]
SESSION: list[str | Step] = [
    "Looking around",
    ("get nodes", r"n0 +Ready"),
    ("get nodes -o wide", r"INTERNAL-IP"),
    ("api-resources", r"priorityclasses +pc +scheduling.k8s.io/v1 +false +PriorityClass"),
    ("explain pod.spec.tolerations", r"effect\s+<string>"),
    ("auth can-i create pods", r"^yes"),
    ("version", r"v1\.36\.0"),
    "A pod",
    ("create -f pod.yaml", r"pod/p created"),
    ("create -f pod.yaml", r"AlreadyExists", 1),
    ("wait --for=condition=Ready pod/p --timeout=10s", r"condition met"),
    ("get pods", r"p +1/1 +Running +0"),
    ("get pods -o wide", r"NOMINATED NODE"),
    ("get pod p -o yaml", r"nodeName: n0"),
    ("get pods --field-selector spec.nodeName=n0 -l app=one", r"^p "),
    ("get pods -l app=two", r"No resources found"),
    ("get events", r"Normal +Scheduled +pod/p +Successfully assigned default/p to n0"),
    ("describe pod p", r"(?s)Node: +n0/.*Requests:.*cpu: +100m.*Successfully assigned"),
    ("label pod p tier=front", r"pod/p labeled"),
    ("patch pod p -p {\"metadata\":{\"annotations\":{\"a\":\"b\"}}}", r"pod/p patched"),
    ("logs p", r"hollow", 1),
    "A deployment",
    ("apply -f web.yaml", r"deployment.apps/web created"),
    ("apply -f web.yaml", r"deployment.apps/web unchanged"),
    ("scale deployment web --replicas=5", r"web scaled"),
    ("rollout status deployment web --timeout=10s", r"successfully rolled out"),
    ("get deployments", r"web +5/5"),
    ("edit deployment web", r"web edited"),
    ("get deployment web -o jsonpath={.spec.replicas}", r"^6$"),
    ("apply --server-side -f web.yaml", r"conflict", 1),
    ("apply --server-side --force-conflicts -f web.yaml", r"serverside-applied"),
    ("apply --server-side --field-manager=other -f other.yaml", r"(?i)conflict.*kubectl", 1),
    ("delete deployment web", r'deployment.apps "web" deleted'),
    "Nodes",
    ("taint node n1 dedicated=gpu:NoSchedule", r"node/n1 tainted"),
    ("describe node n1", r"(?s)Taints: +dedicated=gpu:NoSchedule.*Allocatable:.*cpu: +4"),
    ("taint node n1 dedicated:NoSchedule-", r"node/n1 untainted"),
    ("cordon n1", r"node/n1 cordoned"),
    ("get nodes", r"n1 +Ready,SchedulingDisabled"),
    ("uncordon n1", r"node/n1 uncordoned"),
    ("drain n0 --force", r"(?s)evicting pod default/p.*n0 (drained|evicted)"),
    ("get pods", r"No resources found"),
    "Mistakes",
    ("create -f wrong.yaml", r'unknown field "(spec\.)?contaners"', 1),
    ("get frogs", r"the server doesn't have a resource type", 1),
    ("get pod frog", r'pods "frog" not found', 1),
    "Custom resources",
    ("apply -f crd.yaml", r"created"),
    ("wait --for=condition=established crd/widgets.example.com", r"condition met"),
    ("apply -f widget.yaml", r"widget.example.com/w created"),
    ("get wg", r"(?s)NAME +SIZE.*w +3"),
    ("scale widgets/w --replicas=4", r"scaled"),
    ("explain widgets.spec", r"size\s+<integer>"),
    ("delete crd widgets.example.com", r"deleted"),
    "Namespaces",
    ("create namespace team", r"namespace/team created"),
    ("run x --image=pause -n team", r"pod/x created"),
    ("get pods -A", r"team +x "),
    ("delete namespace team --timeout=10s", r'namespace "team" deleted'),
]  # fmt: skip


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH")
def test_a_session(tmp_path: Path) -> None:
    files = {
        "pod.yaml": POD,
        "web.yaml": DEPLOYMENT,
        "other.yaml": DEPLOYMENT.replace("replicas: 2", "replicas: 9"),
        "wrong.yaml": POD.replace("containers", "contaners"),
        "crd.yaml": WIDGETS,
        "widget.yaml": WIDGET,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    token, ca = None, None
    options: dict[str, Any] = {}
    if importlib.util.find_spec("cryptography") is not None:
        # kubectl sends a token over TLS only.
        made = make_certificates(tmp_path / "tls", _Now())
        token, ca, options = "secret", made.ca, {"token": "secret", "tls_cert": made.cert, "tls_key": made.key}
    with cluster(**options) as server:
        config = write_kubeconfig(tmp_path / "config", server.url, token=token, ca=ca)
        environment = {
            **os.environ,
            "KUBECONFIG": str(config),
            "HOME": str(tmp_path),
            "EDITOR": "sed -i s/replicas:.5/replicas:\\ 6/",
        }
        pages: list[str] = []
        for step in SESSION:
            if isinstance(step, str):
                pages.append(f"\n## {step}\n")
                continue
            command, pattern, code = (*step, 0)[:3]
            output, found = _kubectl(command, tmp_path, environment)
            assert re.search(pattern, output, re.MULTILINE), f"kubectl {command}\n{output}"
            assert (found != 0) is (code != 0), f"kubectl {command}\n{output}"
            pages.append(f"```console\n$ kubectl {command}\n{output.rstrip()}\n```\n")
    if os.environ.get("KUBESCHED_WRITE_TRANSCRIPT"):
        _write(pages, server.url, files)


def _kubectl(command: str, directory: Path, environment: dict[str, str]) -> tuple[str, int]:
    assert KUBECTL is not None
    done = subprocess.run(
        [KUBECTL, *command.split(" ")],
        cwd=directory,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=30,
        check=False,
    )
    return done.stdout, done.returncode


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH")
def test_a_watch_in_a_terminal(tmp_path: Path) -> None:
    assert KUBECTL is not None
    with cluster() as server:
        config = write_kubeconfig(tmp_path / "config", server.url)
        environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}
        (tmp_path / "pod.yaml").write_text(POD)
        watch = subprocess.Popen(
            [KUBECTL, "get", "pods", "-w"],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(200):
                if server.open_watches:
                    break
                time.sleep(0.02)
            _kubectl("create -f pod.yaml", tmp_path, environment)
            assert watch.stdout is not None
            lines = []
            for line in watch.stdout:
                lines.append(line)
                if " Running " in line:
                    break
        finally:
            watch.terminate()
            watch.communicate(timeout=10)
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:3] == ["p", "0/1", "Pending"]
    assert len([line for line in lines if line.startswith("NAME")]) == 1


def _write(pages: list[str], url: str, files: dict[str, str]) -> None:
    """The transcript, without what differs from run to run."""
    text = "".join(pages).replace(url, "https://127.0.0.1:6443")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", "01234567-89ab-4cde-8f01-23456789abcd", text)  # fmt: skip
    text = re.sub(r"(?m)^(WARNING: version difference.*|Kustomize Version.*)\n", "", text)
    shown = "".join(f"\n`{name}`:\n\n```yaml\n{body}```\n" for name, body in files.items())
    head = (
        "# A session with kubectl\n\n"
        "Written by `tests/http/test_http_kubectl.py`, which runs it wherever kubectl is installed: an embedded cluster of "
        "two nodes,\nhollow kubelets, and stand-ins: a scheduler that takes the first node, a controller that calls every "
        "deployment done without\nmaking pods.\n"
    )
    TRANSCRIPT.write_text(f"{head}{text}\n## The files\n{shown}")

"""Control planes that the scenarios run against: the embedded API server, and etcd with kube-apiserver.

Each is a process of its own that listens on a free loopback port, keeps that port when it is started again, and is
ended by the test that started it. Starting and stopping block; scenarios talk to it with the project's own client.
"""

from __future__ import annotations

import base64
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Protocol

from certificates import authority, key_pem

from kubesched.api.yamltext import to_yaml
from kubesched.client.access import load_kubeconfig
from kubesched.client.http import HttpTransport

#: Seconds that anything may take on a busy machine.
PATIENCE = 120.0
ASSETS = "KUBEBUILDER_ASSETS"
MANAGER = "kube-controller-manager"
#: Controllers that finish what a scheduler begins: volumes, claims of devices, budgets, and deletions.
CONTROLLERS = (
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "resourceclaim-controller",
    "disruption-controller",
    "garbage-collector-controller",
)
#: Names of these controllers before Kubernetes 1.28, without that of device claims.
OLD_CONTROLLERS = ("persistentvolume-binder", "pvc-protection", "pv-protection", "disruption", "garbagecollector")


class ControlPlane(Protocol):
    """An API server under test. ``kubeconfig`` is an administrator's."""

    name: str
    kubeconfig: Path
    #: Whether its nodes run pods without help.
    runs_pods: bool
    #: Minor version of Kubernetes.
    minor: int

    def start(self) -> None:
        """Start, or start again with everything that was stored; returns once it answers."""
        ...

    def stop(self) -> None:
        """Stop the API server; again does nothing."""
        ...

    def close(self) -> None:
        """Stop everything."""
        ...


async def transport_of(plane: ControlPlane) -> HttpTransport:
    """A client of a control plane."""
    return HttpTransport.connect(await load_kubeconfig(plane.kubeconfig), user_agent="scenario")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def finish(process: subprocess.Popen[Any] | None) -> None:
    """End a process: politely, then not."""
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(PATIENCE / 4)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Embedded:
    """``kubesched up`` without its scheduler; restarts go through ``--snapshot``."""

    name = "embedded"
    runs_pods = True
    minor = 36

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kubeconfig = folder / "admin.kubeconfig"
        self._port = free_port()
        ca = authority("scenario-ca")
        (folder / "ca.crt").write_bytes(ca.pem)
        ca.write(folder, "apiserver", "embedded", hosts=("localhost",), addresses=("127.0.0.1",))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = (self._folder / "apiserver.log").open("ab")
        command = [sys.executable, "-m", "kubesched.cli", "up", "--no-scheduler", "--quiet", "--no-controllers"]
        command += ["--port", str(self._port), "--kubeconfig-out", str(self.kubeconfig)]
        command += [
            "--authorization-mode",
            "RBAC",
            "--token",
            "scenario-token",
            "--snapshot",
            str(self._folder / "state.jsonl.gz"),
        ]
        for option, name in (("--tls-cert", "apiserver.crt"), ("--tls-key", "apiserver.key"), ("--tls-ca", "ca.crt")):
            command += [option, str(self._folder / name)]
        with log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self._process.stdout.close()
        assert line, f"the embedded API server did not start: {(self._folder / 'apiserver.log').read_text()}"

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(2)
            process.wait(PATIENCE)

    def close(self) -> None:
        self.stop()


class KubeApiserver:
    """etcd and kube-apiserver from ``KUBEBUILDER_ASSETS``, started as controller projects do.

    If the folder has kube-controller-manager, too, it runs the controllers whose work the scheduler waits for.

    The certificates are made here: one authority for the server and for the administrator's client certificate.
    """

    name = "kube-apiserver"
    runs_pods = False

    def __init__(self, folder: Path, assets: Path) -> None:
        self._folder = folder
        self._assets = assets
        self.minor = _minor_version(assets / "kube-apiserver")
        self.kubeconfig = folder / "admin.kubeconfig"
        self._port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()
        self._etcd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._manager: subprocess.Popen[bytes] | None = None
        self._make_files()

    def etcd_command(self) -> list[str]:
        url = f"http://127.0.0.1:{self._etcd_port}"
        return [
            str(self._assets / "etcd"),
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls=http://127.0.0.1:{self._peer_port}",
            "--unsafe-no-fsync=true",
        ]

    def server_command(self) -> list[str]:
        folder = self._folder
        return [
            str(self._assets / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--cert-dir={folder}",
            f"--tls-cert-file={folder / 'apiserver.crt'}",
            f"--tls-private-key-file={folder / 'apiserver.key'}",
            f"--client-ca-file={folder / 'ca.crt'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--service-account-issuer=https://127.0.0.1:{self._port}/",
            f"--service-account-key-file={folder / 'sa.key'}",
            f"--service-account-signing-key-file={folder / 'sa.key'}",
            "--authorization-mode=RBAC",
            # Nothing creates service accounts here, and nothing takes the not-ready taint from new nodes.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--allow-privileged=true",
        ]

    def manager_command(self) -> list[str]:
        """An administrator runs it: the role under test is the scheduler's. Nodes have no heartbeats for it to watch."""
        return [
            str(self._assets / MANAGER),
            f"--kubeconfig={self.kubeconfig}",
            f"--cert-dir={self._folder}",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--leader-elect=false",
            f"--controllers={','.join(CONTROLLERS if self.minor >= 28 else OLD_CONTROLLERS)}",
        ]

    def start(self) -> None:
        if self._etcd is None:
            self._etcd = self._spawn(self.etcd_command(), "etcd.log")
            self._wait(f"http://127.0.0.1:{self._etcd_port}/health", self._etcd, "etcd.log")
        self._server = self._spawn(self.server_command(), "apiserver.log")
        self._wait(f"https://127.0.0.1:{self._port}/readyz", self._server, "apiserver.log")
        if self._manager is None and os.access(self._assets / MANAGER, os.X_OK):
            self._manager = self._spawn(self.manager_command(), "controller-manager.log")

    def stop(self) -> None:
        finish(self._server)
        self._server = None

    def close(self) -> None:
        finish(self._manager)
        self._manager = None
        self.stop()
        finish(self._etcd)
        self._etcd = None

    def _spawn(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self._folder / log).open("ab") as file:
            return subprocess.Popen(command, stdout=file, stderr=file, cwd=self._folder)

    def _wait(self, url: str, process: subprocess.Popen[bytes], log: str) -> None:
        """Poll until it answers 200; the only place where these tests wait by the clock."""
        context = None
        if url.startswith("https:"):
            context = ssl.create_default_context(cafile=str(self._folder / "ca.crt"))
            context.load_cert_chain(self._folder / "admin.crt", self._folder / "admin.key")
        deadline = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None, f"{process.args!r} ended: {(self._folder / log).read_text()[-4000:]}"
            assert time.monotonic() < deadline, f"{url} does not answer: {(self._folder / log).read_text()[-4000:]}"
            try:
                with urllib.request.urlopen(url, timeout=5, context=context) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue

    def _make_files(self) -> None:
        ca = authority("scenario-ca")
        folder = self._folder
        (folder / "ca.crt").write_bytes(ca.pem)
        ca.write(folder, "apiserver", "kube-apiserver", hosts=("localhost",), addresses=("127.0.0.1",))
        ca.write(folder, "admin", "scenario-admin", organization="system:masters")
        (folder / "sa.key").write_bytes(key_pem())
        write_kubeconfig_with_certificate(self.kubeconfig, f"https://127.0.0.1:{self._port}", folder)


def _minor_version(program: Path) -> int:
    """The minor version of a program of Kubernetes: 36 for ``Kubernetes v1.36.0``."""
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return int(text.split(".")[1])


def write_kubeconfig_with_certificate(path: Path, url: str, folder: Path) -> None:
    """A kubeconfig with the client certificate ``admin`` of a folder."""

    def data(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority-data": data("ca.crt")}}],
        "users": [
            {
                "name": "admin",
                "user": {"client-certificate-data": data("admin.crt"), "client-key-data": data("admin.key")},
            }
        ],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "admin"}}],
        "current-context": "c",
    }
    path.write_text(to_yaml(config, sort_keys=False))
    path.chmod(0o600)


def missing_assets() -> str:
    """Return why the real control plane cannot be started here; "" when it can."""
    folder = os.environ.get(ASSETS, "")
    if not folder:
        return f"{ASSETS} is not set: scenarios against etcd and kube-apiserver are skipped"
    lacking = [name for name in ("etcd", "kube-apiserver") if not os.access(Path(folder) / name, os.X_OK)]
    return f"{ASSETS}={folder} has no executable {' and no '.join(lacking)}" if lacking else ""

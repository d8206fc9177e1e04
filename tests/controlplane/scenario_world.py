"""Helpers for the scenarios: a client of the control plane, scheduler processes, and waiting for what they do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import yaml
from planes import PATIENCE, ControlPlane, transport_of

from kubesched.api.kinds import (
    CLAIMS,
    CORE_EVENTS,
    DEVICE_CLASSES,
    LEASE_CANDIDATES,
    LEASES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    VOLUMES,
    Kind,
    kind_by_plural,
)
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError, tolerate
from kubesched.api.yamltext import to_yaml
from kubesched.base.tasks import Supervisor
from kubesched.base.times import SteadyClock
from kubesched.client.http import HttpTransport
from kubesched.client.informer import Informer
from kubesched.cluster.kubelets import HollowKubelets

LEASE = ("kube-system", "kube-scheduler")
_KUSTOMIZE = Path(__file__).parents[2] / "deploy" / "kustomize"
#: Shipped roles by the name of their service account.
SHIPPED_ROLES = {
    "kubesched": _KUSTOMIZE / "base" / "rbac.yaml",
    "kubesched-reader": _KUSTOMIZE / "components" / "reader" / "rbac.yaml",
}
#: Kinds that scenarios make objects of, in the order in which these are removed.
_MADE = (
    *(PODS, NODES, LEASES, LEASE_CANDIDATES, RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES),
    *(CLAIMS, VOLUMES, STORAGE_CLASSES, PRIORITY_CLASSES),
)
#: leaseDuration, renewDeadline and retryPeriod for scenarios in which no lease may be lost by a slow machine.
CALM = (60, 50, 1)
#: The same where a lease has to run out.
BRISK = (12, 10, 1)


class SchedulerProcess:
    """One ``kubesched run``."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def says(self, text: str) -> None:
        """Wait until its log has a text. A file tells nobody that it grows, so it is read again and again."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.log:
                assert self.process.returncode is None, f"{self.name} ended without {text!r}:\n{self.log[-3000:]}"
                await asyncio.sleep(0.1)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    async def terminate(self) -> int:
        """Stop it as its supervisor does."""
        self.signal(signal.SIGTERM)
        return await self.ended()


class World:
    """A control plane in use. ``pods`` and ``leases`` are followed; :meth:`until` waits for them to change."""

    def __init__(self, plane: ControlPlane, folder: Path, client: HttpTransport, kubeconfig: Path) -> None:
        self.plane = plane
        #: The schedulers': a service account's with the shipped role.
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.client = client
        self._changed = asyncio.Event()
        self.pods = self._follow(PODS)
        self.leases = self._follow(LEASES)
        self.candidates = self._follow(LEASE_CANDIDATES) if plane.runs_pods else None
        self._processes: list[SchedulerProcess] = []
        #: UID to the nodes a pod was seen on: more than one is a pod bound twice.
        self.seen_on: dict[str, set[str]] = {}

    def _follow(self, kind: Any) -> Informer:
        informer = Informer(self.client, kind, rng=Random(1))
        informer.add_handler(self)
        return informer

    # -- the informers' handler --------------------------------------------------------------------------

    def on_add(self, obj: Any, is_initial: bool) -> None:
        self._look(obj)

    def on_update(self, old: Any, new: Any) -> None:
        self._look(new)

    def on_delete(self, obj: Any) -> None:
        self._changed.set()

    def _look(self, obj: Any) -> None:
        if isinstance(obj, Pod) and obj.spec.node_name:
            self.seen_on.setdefault(obj.uid, set()).add(obj.spec.node_name)
        self._changed.set()

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until a condition on what is followed holds."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            logs = "\n".join(f"-- {process.name}\n{process.log[-3000:]}" for process in self._processes)
            raise AssertionError(f"{what}: not within {PATIENCE} s\n{logs}") from None

    # -- schedulers --------------------------------------------------------------------------------------

    async def scheduler(
        self, name: str, timings: tuple[int, int, int] = CALM, *flags: str, elect: bool = True
    ) -> SchedulerProcess:
        """Start a scheduler process."""
        duration, deadline, period = timings
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 500, "burst": 1000},
            "leaderElection": {
                "leaderElect": elect,
                "leaseDuration": f"{duration}s",
                "renewDeadline": f"{deadline}s",
                "retryPeriod": f"{period}s",
            },
        }
        file, log = self.folder / f"{name}.yaml", self.folder / f"{name}.log"
        file.write_text(to_yaml(config))
        command = [sys.executable, "-m", "kubesched.cli", "run", "--config", str(file), "--secure-port", "0", *flags]
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=output, stderr=output, env={**os.environ, "PYTHONUNBUFFERED": "1"}
            )
        started = SchedulerProcess(name, process, log)
        self._processes.append(started)
        return started

    @property
    def lease(self) -> dict[str, Any]:
        """The spec of the scheduler's lease; empty without one."""
        found = self.leases.get(*LEASE)
        return dict(found.get("spec") or {}) if found is not None else {}

    @property
    def holder(self) -> str:
        return str(self.lease.get("holderIdentity") or "")

    async def leader(self, *, but: Iterable[str] = ("",)) -> str:
        """The identity of a leader that is none of these."""
        known = set(but)
        await self.until(lambda: self.holder and self.holder not in known, f"a leader other than {known}")
        return self.holder

    # -- objects -----------------------------------------------------------------------------------------

    async def nodes(self, count: int, cpu: str = "64") -> None:
        amounts = {"cpu": cpu, "memory": "256Gi", "pods": "1000"}
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "hollow"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
        for number in range(1, count + 1):
            labels = {"kubernetes.io/hostname": f"n{number}"}
            await self.client.create(
                NODES, "", {"metadata": {"name": f"n{number}", "labels": labels}, "status": status}
            )

    async def create_pods(self, names: Iterable[str], cpu: str = "10m", **spec: Any) -> None:
        """Create pods of one container. ``spec`` are further fields of their spec."""
        gate = asyncio.Semaphore(16)

        async def create(name: str) -> None:
            container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
            async with gate:
                await self.client.create(
                    PODS, "default", {"metadata": {"name": name}, "spec": {**spec, "containers": [container]}}
                )

        await asyncio.gather(*(create(name) for name in names))

    def node_of(self, name: str) -> str:
        pod = self.pods.get("default", name)
        return "" if pod is None else str(pod.spec.node_name)

    def bound(self) -> int:
        return sum(1 for pod in self.pods.values() if pod.spec.node_name)

    async def all_bound(self, names: Iterable[str]) -> None:
        names = list(names)
        await self.until(lambda: all(self.node_of(name) for name in names), f"{len(names)} pods are bound")
        twice = {uid: nodes for uid, nodes in self.seen_on.items() if len(nodes) > 1}
        assert not twice, f"S1: bound twice: {twice}"

    async def events(self, name: str, reason: str) -> list[dict[str, Any]]:
        """The events about a pod as ``kubectl get events`` reads them; waits until there is one."""
        selector = f"involvedObject.name={name},reason={reason}"
        async with asyncio.timeout(PATIENCE):
            while True:
                page = await self.client.list(CORE_EVENTS, "default", field_selector=selector)
                if page.items:
                    return [item.data() for item in page.items]
                async for batch in self.client.watch(
                    CORE_EVENTS, "default", field_selector=selector, resource_version=page.resource_version
                ):
                    if any(event.type == "ADDED" for event in batch):
                        break

    async def until_object(
        self, kind: Kind, namespace: str, name: str, condition: Callable[[dict[str, Any]], Any]
    ) -> dict[str, Any]:
        """Wait until a condition on an object of any kind holds; return the object."""
        selector = f"metadata.name={name}"
        async with asyncio.timeout(PATIENCE):
            while True:
                page = await self.client.list(kind, namespace, field_selector=selector)
                for item in page.items:
                    if condition(item.data()):
                        return dict(item.data())
                async for batch in self.client.watch(
                    kind, namespace, field_selector=selector, resource_version=page.resource_version
                ):
                    for event in batch:
                        if event.type != "BOOKMARK" and condition(event.item.data()):
                            return dict(event.item.data())

    @staticmethod
    async def conflicts(call: Awaitable[Any]) -> bool:
        """Do a write; whether the server refused it as a conflict."""
        try:
            await call
        except ApiError as error:
            if error.code != 409:
                raise
            return True
        return False

    async def clean(self) -> None:
        """Remove what the scenario made."""
        for process in self._processes:
            if process.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.process.kill()
            await process.process.wait()
        for kind in _MADE:
            try:
                items = (await self.client.list(kind)).items
            except ApiError as error:
                if error.code != 404:
                    raise
                continue
            for item in items:
                if kind is PRIORITY_CLASSES and item.name.startswith("system-"):
                    continue
                with contextlib.suppress(ApiError):
                    await self.client.delete(kind, item.namespace, item.name, grace_period_seconds=0)


async def shipped_account(plane: ControlPlane, folder: Path, client: HttpTransport, account: str = "kubesched") -> Path:
    """A kubeconfig of a service account that the manifests make, with their role and nothing else."""
    for item in yaml.safe_load_all(SHIPPED_ROLES[account].read_text(encoding="utf-8")):
        if item["metadata"]["name"] == "kubesched" and item["kind"] == "Role":
            item["rules"][1]["resourceNames"] = [LEASE[1]]  # as the variant that replaces kube-scheduler
        await create_once(client, item)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400}}
    raw = await client._request("POST", f"/api/v1/namespaces/kube-system/serviceaccounts/{account}/token", body=body)
    config = yaml.safe_load(plane.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": json.loads(raw)["status"]["token"]}
    place = folder / f"{account}.kubeconfig"
    place.write_text(to_yaml(config))
    place.chmod(0o600)
    return place


async def create_once(client: HttpTransport, item: Mapping[str, Any]) -> None:
    """Create an object, unless it is there."""
    kind = kind_by_plural(item["apiVersion"].rpartition("/")[0], f"{item['kind'].lower()}s")
    assert kind is not None
    with tolerate(409):
        await client.create(kind, item["metadata"].get("namespace", ""), item)


@asynccontextmanager
async def world(plane: ControlPlane, folder: Path) -> AsyncIterator[World]:
    """A world for one scenario, cleaned up behind it."""
    async with await transport_of(plane) as client:
        found = World(plane, folder, client, await shipped_account(plane, folder, client))
        try:
            async with Supervisor("scenario") as tasks:
                for informer in (found.pods, found.leases, found.candidates):
                    if informer is not None:
                        tasks.spawn(informer.run(), f"informer-{informer.kind.plural}")
                if not plane.runs_pods:
                    kubelets = HollowKubelets(client, SteadyClock(), rng=Random(2))
                    tasks.spawn(kubelets.run(), "kubelets")
                yield found
        finally:
            # After the watches have been cut: their connections end while these requests are answered.
            await found.clean()

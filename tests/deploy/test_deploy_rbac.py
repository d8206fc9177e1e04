"""The manifests' permissions are what the scheduler needs: it does everything with them, and each of them is used.

The scheduler runs once against a server that streams lists and once against one that pages them; what it requested is
recorded. Every permission is then taken away by itself: a recorded request must be refused.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml
from rbac_kit import AUTHENTICATION_READER, KUSTOMIZE, Guarded, Permission, create, documents, permissions, without

from kubesched.api.kinds import CLAIMS, LEASES, NODES, POD_GROUPS, PODS, STORAGE_CLASSES, VOLUMES, Kind, kind_by_plural
from kubesched.api.storage import SELECTED_NODE
from kubesched.api.wire import ApiError
from kubesched.cli.run.command import _Process
from kubesched.cli.run.flags import FLAG_SET
from kubesched.cluster.http import write_kubeconfig
from kubesched.cluster.http.bootstrap import create_bootstrap_roles
from kubesched.cluster.http.rbac import Attributes, RoleAuthorizer
from kubesched.cluster.http.users import service_account
from kubesched.cluster.store import Store

USER = "system:serviceaccount:kube-system:kubesched"
#: The base, and what the component for pod groups adds; the scheduler runs with their gates.
SHIPPED = [
    *documents(KUSTOMIZE / "base" / "rbac.yaml", KUSTOMIZE / "components" / "pod-groups" / "rbac.yaml"),
    AUTHENTICATION_READER,
]
GRANTED = permissions(SHIPPED, ("kube-system", "kubesched"))

#: Permissions that are shipped and not used, and why.
KEPT = {
    **{
        Permission(group, "podgroups", verb): "the plugin PodGroupMigration needs it, which is in no default profile"
        for group in ("scheduling.volcano.sh", "scheduling.x-k8s.io")
        for verb in ("list", "watch")
    },
    Permission("resource.k8s.io", "resourceclaims/binding", "update"): (
        "upstream grants patch and update together; a plugin of the user's that writes the status of claims by PUT needs both"
    ),
}

#: A scheduler that is refused nothing needs two seconds; a slow machine gets more.
_SECONDS = 120.0

#: What the scheduler is seen to do.
CACHES = "its caches are filled"
LEASE = "it takes the lease and renews it"
LEADER_EVENT = "it records that it leads"
BINDING = "a pod is bound"
EVENT = "the pod's event is written"
REPEATED = "an event that occurs again is counted"
CONDITION = "an unschedulable pod has a condition"
PREEMPTION = "a pod of lower priority is evicted"
VOLUME = "a volume is reserved for a pod's claim"
PROVISION = "a pod's claim is to be provisioned for its node"
TOKEN = "the bearer of a token gets metrics"
ACCESS = "a user who may read metrics gets them"
AUTHORITIES = "the authorities of client certificates are followed"
DEVICES = "a claim is allocated and reserved for its pod"
FINALIZER = "an allocated claim is protected"
CONFLICT = "a claim that was changed in between is read and written again"
EXTENDED = "a claim is made for extended resources"
LEFTOVER = "a claim that an earlier attempt made is deleted"
GROUP = "a pod group has a condition, and its members are bound"

#: Permissions without which the scheduler is run, one of each part of it that makes requests, and what fails then.
REMOVED = {
    Permission("", "nodes", "list"): CACHES,
    Permission("", "pods", "watch"): CACHES,
    Permission("", "pods/binding", "create"): BINDING,
    Permission("", "pods/status", "patch"): CONDITION,
    Permission("", "pods", "delete"): PREEMPTION,
    Permission("", "persistentvolumes", "patch"): VOLUME,
    Permission("events.k8s.io", "events", "patch"): REPEATED,
    Permission("authentication.k8s.io", "tokenreviews", "create"): TOKEN,
    Permission("authorization.k8s.io", "subjectaccessreviews", "create"): ACCESS,
    Permission("coordination.k8s.io", "leases", "update", "kubesched", "kube-system"): LEASE,
    Permission("resource.k8s.io", "resourceclaims/status", "patch"): DEVICES,
    Permission("resource.k8s.io", "resourceclaims/binding", "patch"): DEVICES,
    Permission("resource.k8s.io", "resourceclaims", "create"): EXTENDED,
    Permission("scheduling.k8s.io", "podgroups", "list"): CACHES,
    Permission("scheduling.k8s.io", "podgroups/status", "patch"): GROUP,
    Permission("", "configmaps", "watch", "extension-apiserver-authentication", "kube-system"): AUTHORITIES,
}


def _kind(group: str, plural: str) -> Kind:
    kind = kind_by_plural(group, plural)
    assert kind is not None
    return kind


EVENTS, CORE_EVENTS = _kind("events.k8s.io", "events"), _kind("", "events")
CONFIG_MAPS, PRIORITIES = _kind("", "configmaps"), _kind("scheduling.k8s.io", "priorityclasses")


RESOURCE_CLAIMS = _kind("resource.k8s.io", "resourceclaims")
SLICES, CLASSES = _kind("resource.k8s.io", "resourceslices"), _kind("resource.k8s.io", "deviceclasses")


class _FixedClock:
    """A moment."""

    def now(self) -> float:
        return 1_780_000_000.0


class _Clock:
    """The event loop's seconds, since some moment."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        return 1_780_000_000.0 + self._loop.time()


def _node(name: str, cpu: str = "2", **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "4Gi", "pods": "20"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, "name": name}}
    return {"metadata": metadata, "spec": spec, "status": {"capacity": amounts, "allocatable": amounts}}


def _fill(store: Store, scheduler: str) -> None:
    def pod(name: str, cpu: str, labels: dict[str, str] | None = None, **spec: Any) -> None:
        container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}
        metadata = {"name": name, "namespace": "default", "labels": labels or {}}
        store.create(
            PODS,
            "default",
            {"metadata": metadata, "spec": {"schedulerName": scheduler, "containers": [container], **spec}},
        )

    store.create(NODES, "", _node("a"))
    store.create(NODES, "", _node("c", "500m"))
    store.create(PRIORITIES, "", {"metadata": {"name": "high"}, "value": 1000})
    store.create(CONFIG_MAPS, "kube-system", {"metadata": {"name": "extension-apiserver-authentication"}, "data": {}})
    pod("victim", "1500m", nodeName="a")
    pod("plain", "100m", nodeSelector={"name": "c"})
    pod("urgent", "1500m", priorityClassName="high")
    # A pod that must not be with others; attempts for it are made again when one of them goes.
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"kind": "other"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    pod("apart", "10m", nodeSelector={"name": "c"}, affinity=affinity)
    for name in ("other-1", "other-2", "other-3"):
        pod(name, "10m", {"kind": "other"}, nodeName="c")
    for name, provisioner in (("found", "kubernetes.io/no-provisioner"), ("made", "csi.example.com")):
        storage_class = {"metadata": {"name": name}, "provisioner": provisioner}
        store.create(STORAGE_CLASSES, "", {**storage_class, "volumeBindingMode": "WaitForFirstConsumer"})
        amount = {"storage": "1Gi"}
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
        store.create(
            CLAIMS, "default", {"metadata": {"name": name}, "spec": {**spec, "resources": {"requests": amount}}}
        )
        pod(
            name,
            "10m",
            nodeSelector={"name": "c"},
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}],
        )
    disk = {"accessModes": ["ReadWriteOnce"], "storageClassName": "found", "capacity": {"storage": "1Gi"}}
    volume = {
        "metadata": {"name": "disk"},
        "spec": {**disk, "hostPath": {"path": "/disk"}},
        "status": {"phase": "Available"},
    }
    store.create(VOLUMES, "", volume)
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    store.create(POD_GROUPS, "default", {"metadata": {"name": "gang"}, "spec": policy})
    for name in ("member-1", "member-2"):
        pod(name, "10m", nodeSelector={"name": "c"}, schedulingGroup={"podGroupName": "gang"})
    _fill_devices(store, scheduler)


def _fill_devices(store: Store, scheduler: str) -> None:
    """Devices of a node, a pod with a claim, one that requests them as a resource, and one with a claim left behind."""
    resource = "example.com/gpu"
    store.create(CLASSES, "", {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": resource}})
    pool = {"name": "c", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(4)]
    spec = {"driver": "gpu.example.com", "nodeName": "c", "pool": pool, "devices": devices}
    store.create(SLICES, "", {"metadata": {"name": "c-gpus"}, "spec": spec})
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    asked = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    store.create(RESOURCE_CLAIMS, "default", {"metadata": {"name": "one-gpu"}, "spec": asked})

    def pod(name: str, requests: dict[str, str], **more: Any) -> dict[str, Any]:
        limits = {key: value for key, value in requests.items() if key == resource}
        container = {"name": "c", "image": "app", "resources": {"requests": requests, "limits": limits}, **more}
        spec = {"schedulerName": scheduler, "containers": [container]}
        return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}

    claiming = pod("claiming", {"cpu": "10m"})
    claiming["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "one-gpu"}]
    store.create(PODS, "default", claiming)
    store.create(PODS, "default", pod("extended", {"cpu": "10m", resource: "1"}))
    held_back = store.create(PODS, "default", pod("held-back", {"cpu": "10m", resource: "1"}))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "held-back", "uid": held_back.uid, "controller": True}
    metadata = {
        "name": "left-behind",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    store.create(RESOURCE_CLAIMS, "default", {"metadata": metadata, "spec": asked})


class _Denials(logging.Handler):
    """The messages of the scheduler's log that say that something is forbidden."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if '" cannot ' in text or "user may not " in text:
            self.texts.append(text)


class World:
    """The state that scenarios are seen in."""

    def __init__(self, server: Guarded, lease: str) -> None:
        self.server = server
        self._lease_name = lease
        self.store = server.store
        self.pages: dict[str, int] = {}

    def pod(self, name: str) -> dict[str, Any]:
        data: dict[str, Any] = self.store.get(PODS, "default", name).data()
        return data

    def _lease(self) -> dict[str, Any]:
        with suppress(ApiError):
            spec: dict[str, Any] = self.store.get(LEASES, "kube-system", self._lease_name).data()["spec"]
            return spec
        return {}

    def _events(self, kind: Kind, namespace: str) -> list[dict[str, Any]]:
        return [item.data() for item in self.store.list(kind, namespace).items]

    def _watched(self, *resources: str) -> bool:
        seen = {item.resource for item in self.server.recorder.allowed if item.verb == "watch"}
        return seen.issuperset(resources)

    def failures_of(self, name: str) -> int:
        """Count the events that say that a pod could not be scheduled."""
        events = self._events(EVENTS, "default")
        return sum(1 for item in events if item["reason"] == "FailedScheduling" and item["regarding"]["name"] == name)

    def _conditions(self, name: str) -> list[str]:
        return [item["reason"] for item in self.pod(name)["status"].get("conditions", ()) if "reason" in item]

    def scenarios(self) -> dict[str, Callable[[], bool]]:
        read = {item.resource for item in GRANTED if item.verb == "watch" and item.resource != "configmaps"}
        followed = {item.verb for item in self.server.recorder.allowed if item.resource == "configmaps"}
        return {
            CACHES: lambda: self._watched(*read),
            LEASE: lambda: self._lease().get("renewTime", "") > self._lease().get("acquireTime", ""),
            LEADER_EVENT: lambda: any(
                item["reason"] == "LeaderElection" for item in self._events(CORE_EVENTS, "kube-system")
            ),
            BINDING: lambda: self.pod("plain")["spec"].get("nodeName") == "c",
            EVENT: lambda: any(item["reason"] == "Scheduled" for item in self._events(EVENTS, "default")),
            REPEATED: lambda: any((item.get("series") or {}).get("count") for item in self._events(EVENTS, "default")),
            CONDITION: lambda: "Unschedulable" in self._conditions("apart"),
            VOLUME: lambda: "claimRef" in self.store.get(VOLUMES, "", "disk").data()["spec"],
            PROVISION: lambda: SELECTED_NODE in self.store.get(CLAIMS, "default", "made").typed.metadata.annotations,
            PREEMPTION: lambda: bool(self.pod("victim")["metadata"].get("deletionTimestamp")),
            TOKEN: lambda: self.pages.get("token") == 200,
            ACCESS: lambda: self.pages.get("anonymous") == 200,
            DEVICES: lambda: bool((self._claim("one-gpu").get("status") or {}).get("reservedFor")),
            FINALIZER: lambda: bool(self._claim("one-gpu")["metadata"].get("finalizers")),
            CONFLICT: lambda: (
                "changed" in self._claim("one-gpu")["metadata"].get("labels", {})
                and self.pod("claiming")["spec"].get("nodeName") == "c"
            ),
            EXTENDED: self._has_made_a_claim,
            LEFTOVER: lambda: not self._claim("left-behind"),
            GROUP: self._has_placed_the_group,
            AUTHORITIES: lambda: followed == {"get", "list", "watch"},
        }

    def _claim(self, name: str) -> dict[str, Any]:
        with suppress(ApiError):
            claim: dict[str, Any] = self.store.get(RESOURCE_CLAIMS, "default", name).data()
            return claim
        return {}

    def _has_placed_the_group(self) -> bool:
        conditions = self.store.get(POD_GROUPS, "default", "gang").typed.status.conditions
        members = [self.pod(name)["spec"].get("nodeName") for name in ("member-1", "member-2")]
        return members == ["c", "c"] and [one.status for one in conditions] == ["True"]

    def _has_made_a_claim(self) -> bool:
        made = (self.pod("extended").get("status") or {}).get("extendedResourceClaimStatus") or {}
        return bool((self._claim(made.get("resourceClaimName", "")).get("status") or {}).get("allocation"))

    def interfere(self, wanted: Attributes) -> None:
        """Change the claim just before its allocation is written for the first time."""
        claim = self._claim("one-gpu")
        if (wanted.resource, wanted.subresource) == ("resourceclaims", "status") and not claim["metadata"].get(
            "labels"
        ):
            claim["metadata"]["labels"] = {"changed": "meanwhile"}
            self.store.update(RESOURCE_CLAIMS, "default", "one-gpu", claim)

    def missing(self) -> list[str]:
        """The scenarios that have not been seen."""
        return [name for name, seen in self.scenarios().items() if not seen()]


async def _fetch_pages(world: World, port: int, token: str) -> None:
    """Read metrics as a bearer and as nobody, once the scheduler listens."""
    async with aiohttp.ClientSession() as session:
        for name, headers in (("token", {"Authorization": f"Bearer {token}"}), ("anonymous", {})):
            while name not in world.pages:
                try:
                    url = f"https://127.0.0.1:{port}/metrics"
                    async with session.get(url, headers=headers, ssl=False) as answer:
                        await answer.read()
                        world.pages[name] = answer.status
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.02)


async def _until_done(world: World, denials: _Denials, running: asyncio.Task[int]) -> None:
    """Return when nothing is missing, something was refused, or the scheduler ended."""
    gone = 0
    while world.missing() and not denials.texts and not running.done():
        # The first attempt's condition makes a new version of the pod; the events of the next two are alike.
        if gone < 2 and world.failures_of("apart") == gone + 1:
            gone += 1
            world.store.delete(PODS, "default", f"other-{gone}", grace_period_seconds=0)
        await asyncio.sleep(0.02)


class Played(NamedTuple):
    """Outcome of a scheduler's run: what it has not done, its exit code, and the requests it was allowed and refused."""

    missing: list[str]
    code: int
    allowed: set[Attributes]
    refused: set[Attributes]


#: Who reads the scheduler's metrics: a service account, and everybody.
READERS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus", "namespace": "kube-system"}},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:monitoring"},
        "subjects": [
            {"kind": "ServiceAccount", "name": "prometheus", "namespace": "kube-system"},
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"},
        ],
    },
]


async def _play(
    objects: list[dict[str, Any]],
    folder: Path,
    denials: _Denials,
    variant: str = "second-scheduler",
    account: str = "kubesched",
    *,
    streams_lists: bool = True,
) -> Played:
    """Run the scheduler as a service account until it has done everything or was refused something."""
    store = Store(_Clock(), random=Random(1))
    config = yaml.safe_load((KUSTOMIZE / variant / "config.yaml").read_text())
    _fill(store, config["profiles"][0]["schedulerName"])
    create(store, [*objects, *READERS])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    user = f"system:serviceaccount:kube-system:{account}"
    async with Guarded(store, user, streams_lists=streams_lists) as server:
        world = World(server, config["leaderElection"]["resourceName"])
        server.recorder.on_allowed = world.interfere
        own, reader = (server.access.accounts.issue("kube-system", name, (), 3600) for name in (account, "prometheus"))
        kubeconfig = write_kubeconfig(folder / "kubeconfig", server.url, token=own)
        config["podMaxBackoffSeconds"] = 1
        config["clientConnection"] = {"kubeconfig": str(kubeconfig)}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        flags = [f"--{name}-kubeconfig={kubeconfig}" for name in ("authentication", "authorization")]
        flags += [f"--config={folder / 'config.yaml'}", "--bind-address=127.0.0.1", f"--secure-port={port}", "--seed=1"]
        flags += ["--feature-gates=AllPodGroups=true"]
        process = _Process(FLAG_SET.parse(flags))
        running = asyncio.create_task(process.run())
        pages = asyncio.create_task(_fetch_pages(world, port, reader))
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(_until_done(world, denials, running), _SECONDS)
        finally:
            pages.cancel()
            await asyncio.gather(pages, return_exceptions=True)
            missing = world.missing()
            signal.raise_signal(signal.SIGTERM) if not running.done() else None
            code = await running
    return Played(missing, code, server.recorder.allowed, server.recorder.refused)


@pytest.fixture
def denials() -> Iterator[_Denials]:
    """Collect what the log says is forbidden; afterwards logging is as before."""
    root, ours = logging.getLogger(), logging.getLogger("kubesched")
    before = list(root.handlers), root.level, ours.level
    handler = _Denials()
    ours.addHandler(handler)
    try:
        yield handler
    finally:
        ours.removeHandler(handler)
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])


#: What the scheduler requested with all permissions: of a server that streams lists, and of one that does not.
RECORDED: dict[bool, set[Attributes]] = {}


def _record(folder: Path, denials: _Denials, *, streams_lists: bool) -> set[Attributes]:
    """Run the scheduler with everything it is given; once in a process, as nothing differs."""
    if streams_lists not in RECORDED:
        played = asyncio.run(_play(SHIPPED, folder, denials, streams_lists=streams_lists))
        assert (played.missing, denials.texts, played.refused, played.code) == ([], [], set(), 0)
        RECORDED[streams_lists] = played.allowed
    return RECORDED[streams_lists]


@pytest.mark.parametrize("streams_lists", [True, False])
def test_with_all_its_permissions_the_scheduler_does_everything_and_stops_in_order(
    tmp_path: Path, denials: _Denials, *, streams_lists: bool
) -> None:
    assert _record(tmp_path, denials, streams_lists=streams_lists)


def test_the_role_of_kube_scheduler_is_enough_for_the_static_pod(tmp_path: Path, denials: _Denials) -> None:
    played = asyncio.run(_play(_kube_scheduler(), tmp_path, denials, "replacement", "static"))
    assert (played.missing, denials.texts, played.refused, played.code) == ([], [], set(), 0)


def _kube_scheduler() -> list[dict[str, Any]]:
    """A service account with what every cluster binds to the user that is in kube-scheduler's kubeconfig."""
    store = Store(_FixedClock(), random=Random(1))
    create_bootstrap_roles(store)
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "static", "namespace": "kube-system"}}
    ]
    for plural in ("rolebindings", "clusterrolebindings"):
        for item in store.list(_kind("rbac.authorization.k8s.io", plural)).items:
            data = item.data()
            if any(one["name"] == "system:kube-scheduler" for one in data["subjects"]):
                subject = {"kind": "ServiceAccount", "name": "static", "namespace": "kube-system"}
                metadata = {"name": f"static-{item.name}", "namespace": item.namespace}
                made.append({**data, "metadata": metadata, "subjects": [subject]})
    assert len(made) == 5
    return made


@pytest.mark.parametrize("permission", GRANTED, ids=str)
def test_without_this_permission_a_request_of_the_scheduler_is_refused(
    permission: Permission, tmp_path: Path, denials: _Denials
) -> None:
    # A server that streams lists needs no permission to list.
    requested = _record(tmp_path, denials, streams_lists=permission.verb != "list")
    store = Store(_FixedClock(), random=Random(1))
    create(store, without(SHIPPED, permission))
    authorizer, user = RoleAuthorizer(store), service_account("kube-system", "kubesched")
    refused = [wanted for wanted in requested if not wanted.path and not authorizer.decide(user, wanted).allowed]
    if permission in KEPT:
        assert refused == [], "it is used: take it off the list"
    else:
        assert refused, "no request needs it: take it out of the manifests, or say why it is kept"


def test_no_permission_is_given_twice() -> None:
    assert len(GRANTED) == len(set(GRANTED))
    assert set(KEPT) | set(REMOVED) <= set(GRANTED)


@pytest.mark.parametrize("removed", REMOVED, ids=str)
def test_without_one_permission_a_scenario_fails_and_the_log_names_it(
    removed: Permission, tmp_path: Path, denials: _Denials
) -> None:
    played = asyncio.run(_play(without(SHIPPED, removed), tmp_path, denials, streams_lists=removed.verb != "list"))
    assert REMOVED[removed] in played.missing
    named = (
        f'cannot {removed.verb} resource "{removed.resource}" in API group "{removed.group}"',
        f"may not {removed.verb} {removed.resource}.{removed.group}",
    )
    assert any(name in text for text in denials.texts for name in named), denials.texts

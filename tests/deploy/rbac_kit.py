"""The roles of manifests, one permission at a time, and an embedded cluster that enforces them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import yaml
from aiohttp import web

from kubesched.api.kinds import kind_by_plural
from kubesched.api.wire import ApiError
from kubesched.cluster.http import HttpServer
from kubesched.cluster.http.rbac import Attributes, Decision, RoleAuthorizer
from kubesched.cluster.http.users import User
from kubesched.cluster.store import Store

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUSTOMIZE = DEPLOY / "kustomize"

#: Every cluster has this role (rules/serving §10.2).
AUTHENTICATION_READER = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "extension-apiserver-authentication-reader", "namespace": "kube-system"},
    "rules": [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["extension-apiserver-authentication"],
            "verbs": ["get", "list", "watch"],
        }
    ],
}


def documents(*files: Path) -> list[dict[str, Any]]:
    """The objects of YAML files."""
    return [item for file in files for item in yaml.safe_load_all(file.read_text(encoding="utf-8")) if item]


class Permission(NamedTuple):
    """One verb on one resource. ``name`` "" is any object, ``namespace`` "" every namespace."""

    group: str
    resource: str
    verb: str
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{f' {self.name}' if self.name else ''}{place}"


def _of_rules(rules: Iterable[dict[str, Any]], namespace: str) -> list[Permission]:
    return [
        Permission(group, resource, verb, name, namespace)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    ]


def permissions(objects: Sequence[dict[str, Any]], who: tuple[str, str] | str) -> list[Permission]:
    """Return what the bindings among ``objects`` give to a service account, as (namespace, name), or to a user."""
    roles = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item["rules"]
        for item in [*objects, AUTHENTICATION_READER]
        if item["kind"] in ("Role", "ClusterRole")
    }
    if isinstance(who, str):
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who}
    else:
        subject = {"kind": "ServiceAccount", "name": who[1], "namespace": who[0]}
    found: list[Permission] = []
    for item in objects:
        if item["kind"] in ("RoleBinding", "ClusterRoleBinding") and subject in item["subjects"]:
            namespace = item["metadata"].get("namespace", "")
            role = item["roleRef"]
            key = (role["kind"], namespace if role["kind"] == "Role" else "", role["name"])
            found += _of_rules(roles[key], namespace)
    return found


def without(objects: Sequence[dict[str, Any]], removed: Permission | None) -> list[dict[str, Any]]:
    """The objects, their rules taken apart into single permissions, and one of these left out."""
    made = []
    for item in objects:
        if "rules" not in item:
            made.append(item)
            continue
        left = [one for one in _of_rules(item["rules"], item["metadata"].get("namespace", "")) if one != removed]
        rules = [
            {
                "apiGroups": [one.group],
                "resources": [one.resource],
                "verbs": [one.verb],
                **({"resourceNames": [one.name]} if one.name else {}),
            }
            for one in left
        ]
        made.append({**item, "rules": rules})
    return made


def create(store: Store, objects: Iterable[dict[str, Any]]) -> None:
    """Create the objects of manifests."""
    for item in objects:
        kind = kind_by_plural(item["apiVersion"].rpartition("/")[0], f"{item['kind'].lower()}s")
        assert kind is not None
        store.create(kind, item["metadata"].get("namespace", ""), item)


class Recorder(RoleAuthorizer):
    """Decides by the stored roles, and records what one user wanted."""

    def __init__(self, store: Store, user: str) -> None:
        super().__init__(store)
        self._user = user
        self.allowed: set[Attributes] = set()
        self.refused: set[Attributes] = set()
        #: Called with what is allowed, before the request is handled.
        self.on_allowed: Callable[[Attributes], None] = lambda wanted: None

    def decide(self, user: User, wanted: Attributes) -> Decision:
        decision = super().decide(user, wanted)
        if user.name == self._user:
            (self.allowed if decision.allowed else self.refused).add(wanted)
            if decision.allowed:
                self.on_allowed(wanted)
        return decision


class Guarded(HttpServer):
    """An embedded cluster that checks roles and records what ``user`` does.

    Without ``streams_lists`` it is like a server of a release that lists only in pages.
    """

    def __init__(self, store: Store, user: str, *, streams_lists: bool = True) -> None:
        super().__init__(store, authorization_mode="RBAC")
        self.recorder = self.access.roles = Recorder(store, user)
        self._streams_lists = streams_lists

    def _admit(self, request: web.BaseRequest, path: str, query: str) -> User:
        if "sendInitialEvents" in parse_qs(query) and not self._streams_lists:
            text = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            raise ApiError(422, "Invalid", text)
        return super()._admit(request, path, query)

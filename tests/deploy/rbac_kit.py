"""Role-based access control in front of the embedded cluster: the manifests' rules, enforced for one user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import yaml
from aiohttp import web

from kubesched.api.wire import ApiError
from kubesched.cluster.http import HttpServer
from kubesched.cluster.http.calls import parse_path
from kubesched.cluster.store import Store

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUSTOMIZE = DEPLOY / "kustomize"

_READ_VERBS = frozenset({"list", "watch", "deletecollection"})
#: Every cluster has this role (spec "Serving, high availability" section 10.2).
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
    """What the bindings among ``objects`` give to a service account, as (namespace, name), or to a user."""
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


class Guarded(HttpServer):
    """An embedded cluster whose only HTTP client is ``user``, with these permissions.

    Without ``streams_lists`` it is like a server of a release that lists only in pages.
    """

    def __init__(self, store: Store, user: str, granted: Iterable[Permission], *, streams_lists: bool = True) -> None:
        super().__init__(store)
        self.user = user
        self._streams_lists = streams_lists
        self._granted = frozenset(granted)
        #: What was requested and allowed.
        self.allowed: set[Permission] = set()
        #: Called with what is allowed, before the request is handled.
        self.on_allowed: Callable[[Permission], None] = lambda permission: None

    def _authenticate(self, request: web.BaseRequest, path: str) -> None:
        super()._authenticate(request, path)
        target = parse_path(path) if path.startswith(("/api/", "/apis/")) else None
        if target is None or not target.plural:
            return  # health, version and discovery are open to every user
        query = parse_qs(request.rel_url.raw_query_string)
        if "sendInitialEvents" in query and not self._streams_lists:
            text = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            raise ApiError(422, "Invalid", text)
        name = target.name
        verb = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(request.method, "get")
        if verb == "get" and (target.watch or query.get("watch", ["0"])[0] in ("1", "true")):
            verb = "watch"
        elif verb == "get" and not name:
            verb = "list"
        if verb in _READ_VERBS and not name:
            selector = query.get("fieldSelector", [""])[0]
            name = selector.removeprefix("metadata.name=") if selector.startswith("metadata.name=") else ""
        resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
        for given_name in (name, ""):
            for namespace in (target.namespace, ""):
                wanted = Permission(target.group, resource, verb, given_name, namespace)
                if wanted in self._granted:
                    self.allowed.add(wanted)
                    self.on_allowed(wanted)
                    return
        qualified = f"{target.plural}.{target.group}" if target.group else target.plural
        subject = f'{qualified} "{name}"' if name else qualified
        place = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        raise ApiError(
            403,
            "Forbidden",
            f'{subject} is forbidden: User "{self.user}" cannot {verb} resource "{resource}" '
            f'in API group "{target.group}" {place}',
            {"kind": target.plural},
        )

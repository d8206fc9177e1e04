"""Decisions by stored roles, against a plain reading of all roles and bindings, while these change at random."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
from http_world import a_store

from kubesched.api.kinds import Kind, kind_by_plural
from kubesched.api.wire import tolerate
from kubesched.cluster.http.rbac import Attributes, RoleAuthorizer
from kubesched.cluster.http.users import User, service_account
from kubesched.cluster.store import Store

GROUP = "rbac.authorization.k8s.io"
NAMESPACES = ("default", "kube-system")
USERS = (User("ann", ("ops",)), User("ben", ("ops", "dev")), service_account("default", "ann"))


def kind_of(plural: str) -> Kind:
    kind = kind_by_plural(GROUP, plural)
    assert kind is not None
    return kind


ROLES, CLUSTER_ROLES = kind_of("roles"), kind_of("clusterroles")
BINDINGS, CLUSTER_BINDINGS = kind_of("rolebindings"), kind_of("clusterrolebindings")
WANTED = [
    *(
        Attributes(verb, group, resource, subresource, namespace, name)
        for verb, group, resource, subresource, namespace, name in product(
            ("get", "list"), ("", "apps"), ("pods", "nodes"), ("", "status"), ("", *NAMESPACES), ("", "x")
        )
    ),
    *(Attributes("get", path=path) for path in ("/metrics", "/metrics/slis")),
]


# -- the plain reading -------------------------------------------------------------------------------------


def matches(rule: dict[str, Any], wanted: Attributes) -> bool:
    def has(field: str, *words: str) -> bool:
        return not {"*", *words}.isdisjoint(rule.get(field, []))

    if wanted.path:
        urls = rule.get("nonResourceURLs", [])
        return has("verbs", wanted.verb) and any(
            url == wanted.path or (url[-1:] == "*" and wanted.path.startswith(url[:-1])) for url in urls
        )
    resources = [wanted.resource]
    if wanted.subresource:
        resources = [f"{wanted.resource}/{wanted.subresource}", f"*/{wanted.subresource}"]
    names = rule.get("resourceNames", [])
    return (
        has("verbs", wanted.verb)
        and has("apiGroups", wanted.group)
        and has("resources", *resources)
        and (not names or wanted.name in names)
    )


def is_meant(subject: dict[str, Any], user: User, namespace: str) -> bool:
    if subject["kind"] == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{subject['name']}"
    return subject["name"] in ((user.name,) if subject["kind"] == "User" else user.groups)


def expected(store: Store, user: User, wanted: Attributes) -> bool:
    for kind in (CLUSTER_BINDINGS, BINDINGS):
        for item in store.list(kind).items:
            data = item.data()
            if kind is BINDINGS and item.namespace != wanted.namespace:
                continue
            if not any(is_meant(one, user, item.namespace) for one in data.get("subjects", [])):
                continue
            ref = data["roleRef"]
            of, place = (ROLES, item.namespace) if ref["kind"] == "Role" else (CLUSTER_ROLES, "")
            role = store.table(of).objects.get((place, ref["name"]))
            if role is not None and any(matches(rule, wanted) for rule in role.data().get("rules", [])):
                return True
    return False


# -- random changes ----------------------------------------------------------------------------------------


def a_rule(rng: Random) -> dict[str, Any]:
    def some(*words: str) -> list[str]:
        return rng.sample(words, rng.choice((1, 1, 2)))

    if rng.random() < 0.2:
        return {"verbs": some("get", "*"), "nonResourceURLs": some("/metrics", "/metrics/*", "*")}
    rule = {"verbs": some("get", "list", "*"), "apiGroups": some("", "apps", "*")}
    rule["resources"] = some("pods", "nodes", "pods/status", "*/status", "*")
    return {**rule, "resourceNames": ["x"]} if rng.random() < 0.3 else rule


def change(store: Store, rng: Random) -> None:
    kind = rng.choice((ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS))
    namespace, name = rng.choice(NAMESPACES) if kind.namespaced else "", rng.choice("abc")
    with tolerate(404):
        store.delete(kind, namespace, name)
    if rng.random() < 0.3:
        return
    data: dict[str, Any] = {"metadata": {"name": name}}
    if kind in (ROLES, CLUSTER_ROLES):
        data["rules"] = [a_rule(rng) for _ in range(rng.choice((0, 1, 2)))]
    else:
        role = rng.choice(("Role", "ClusterRole")) if kind.namespaced else "ClusterRole"
        data["roleRef"] = {"apiGroup": GROUP, "kind": role, "name": rng.choice("abc")}
        data["subjects"] = [
            {"kind": "User", "name": "ann", "apiGroup": GROUP},
            {"kind": "Group", "name": rng.choice(("ops", "dev")), "apiGroup": GROUP},
            {"kind": "ServiceAccount", "name": "ann", "namespace": "default"},
        ][rng.randrange(3) :]
    store.create(kind, namespace, data)


@pytest.mark.parametrize("seed", range(4))
def test_decisions_are_those_of_a_plain_reading(seed: int) -> None:
    rng, store = Random(seed), a_store(history=16)
    authorizer = RoleAuthorizer(store)
    allowed = refused = 0
    for _ in range(60):
        for _ in range(rng.choice((1, 1, 3))):
            change(store, rng)
        for wanted in rng.sample(WANTED, 12):
            for user in USERS:
                right = expected(store, user, wanted)
                assert authorizer.decide(user, wanted).allowed is right, (user, wanted)
                allowed, refused = allowed + right, refused + (not right)
    assert min(allowed, refused) > 100

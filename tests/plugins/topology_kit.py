"""Random manifests for the topology plugins: pods with rules about others, and clusters that make them matter."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from topology_twins import HARD, HOST, SOFT, ZONE

from kubesched.lab.conformance.world import complete

JSON = dict[str, Any]

KEYS = (ZONE, HOST, "rack")
NAMESPACES = ("default", "dev", "prod")

# -- random objects ----------------------------------------------------------------------------------------

_apps = st.sampled_from(["web", "web", "db"])
labels = st.fixed_dictionaries({}, optional={"app": _apps, "tier": st.sampled_from(["x", "y"])})


@st.composite
def selectors(draw: st.DrawFn) -> JSON | None:
    """A label selector: mostly one that asks for an app; also absent, empty and negative ones."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return None
    if kind == 1:
        return {}
    if kind == 2:
        return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [draw(_apps)]}]}
    if kind == 3:
        return {"matchExpressions": [{"key": "tier", "operator": draw(st.sampled_from(["Exists", "DoesNotExist"]))}]}
    if kind == 4:
        values = draw(st.lists(st.sampled_from(["web", "db", "job"]), min_size=1, max_size=3, unique=True))
        return {"matchExpressions": [{"key": "app", "operator": "In", "values": values}], "matchLabels": {"tier": "x"}}
    return {"matchLabels": {"app": draw(_apps)}}


@st.composite
def terms(draw: st.DrawFn) -> JSON:
    term: JSON = {"topologyKey": draw(st.sampled_from(KEYS)), "labelSelector": draw(selectors())}
    if draw(st.booleans()):
        term["namespaces"] = draw(st.lists(st.sampled_from(NAMESPACES), max_size=2, unique=True))
    if draw(st.integers(0, 3)) == 0:
        term["namespaceSelector"] = draw(
            st.sampled_from(
                [
                    {},
                    {"matchLabels": {"env": "test"}},
                    {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["live"]}]},
                ]
            )
        )
    return {name: value for name, value in term.items() if value is not None}


@st.composite
def affinities(draw: st.DrawFn) -> JSON:
    """podAffinity and podAntiAffinity, each with up to two required and two preferred terms."""

    def one() -> JSON:
        weighted = st.builds(
            lambda weight, term: {"weight": weight, "podAffinityTerm": term}, st.integers(1, 9), terms()
        )
        return {
            "requiredDuringSchedulingIgnoredDuringExecution": draw(st.lists(terms(), max_size=2)),
            "preferredDuringSchedulingIgnoredDuringExecution": draw(st.lists(weighted, max_size=2)),
        }

    found = {}
    if draw(st.booleans()):
        found["podAffinity"] = one()
    if draw(st.booleans()):
        found["podAntiAffinity"] = one()
    return found


@st.composite
def constraints(draw: st.DrawFn) -> JSON:
    item: JSON = {
        "topologyKey": draw(st.sampled_from(KEYS)),
        "maxSkew": draw(st.sampled_from([1, 1, 2])),
        "whenUnsatisfiable": draw(st.sampled_from([HARD, SOFT])),
        "labelSelector": draw(selectors()),
    }
    if item["whenUnsatisfiable"] == HARD and draw(st.booleans()):
        item["minDomains"] = draw(st.integers(1, 4))
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if draw(st.booleans()):
            item[policy] = draw(st.sampled_from(["Honor", "Ignore"]))
    if draw(st.integers(0, 3)) == 0:
        item["matchLabelKeys"] = draw(st.sampled_from([["tier", "nothing"], ["nothing"], ["app", "tier"]]))
    return {name: value for name, value in item.items() if value is not None}


tolerations = st.sampled_from(
    [
        {"operator": "Exists"},
        {"key": "dedicated", "operator": "Exists"},
        {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"},
        {"key": "dedicated", "value": "x", "effect": "NoSchedule"},
    ]
)
taints = st.sampled_from(
    [
        {"key": "dedicated", "value": "x", "effect": "NoSchedule"},
        {"key": "dedicated", "effect": "NoExecute"},
        {"key": "dedicated", "effect": "PreferNoSchedule"},
    ]
)
_node_terms: tuple[list[JSON], ...] = (
    [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "b"]}]}],
    [{"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}, {}],
    [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}],
    [{}],
)
node_affinities = st.sampled_from(
    [{"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": listed}} for listed in _node_terms]
)
owners = st.sampled_from(
    [
        {"apiVersion": version, "kind": kind, "name": "rs", "uid": "u", "controller": controls}
        for version, kind, controls in (
            ("apps/v1", "ReplicaSet", True),
            ("apps/v1", "ReplicaSet", False),
            ("apps/v1", "StatefulSet", True),
            ("apps/v1", "Deployment", True),
            ("v1", "ReplicationController", True),
            ("v1", "ReplicaSet", True),
        )
    ]
)


@st.composite
def pods(draw: st.DrawFn, name: str = "", node: str = "") -> JSON:
    """A pod with rules about others; on a node, if one is named. Pods without a node, to be placed, have more of them."""
    name = name or f"p{draw(st.integers(0, 10**9))}"
    spec: JSON = {"containers": [{"name": "c"}]}
    if node:
        spec["nodeName"] = node
    if draw(st.integers(0, 1 if not node else 2)) == 0:
        spec["affinity"] = draw(affinities())
    if draw(st.booleans()):
        spec["topologySpreadConstraints"] = draw(st.lists(constraints(), min_size=0 if node else 1, max_size=3))
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = {"disk": "ssd"}
    if draw(st.integers(0, 3)) == 0:
        spec["affinity"] = {**spec.get("affinity", {}), "nodeAffinity": draw(node_affinities)}
    if draw(st.integers(0, 2)) == 0:
        spec["tolerations"] = [draw(tolerations)]
    meta: JSON = {"name": name, "namespace": draw(st.sampled_from(NAMESPACES)), "labels": draw(labels)}
    if node and draw(st.integers(0, 5)) == 0:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if draw(st.booleans()):
        meta["ownerReferences"] = [draw(owners)]
    return complete({"metadata": meta, "spec": spec}, "Pod")


@st.composite
def nodes(draw: st.DrawFn, name: str) -> JSON:
    of = draw(
        st.fixed_dictionaries(
            {},
            optional={
                ZONE: st.sampled_from(["a", "b", "c", ""]),
                "rack": st.sampled_from(["r1", "r2"]),
                "disk": st.sampled_from(["ssd", "hdd"]),
            },
        )
    )
    if draw(st.integers(0, 5)):
        of[HOST] = name
    repelling = [draw(taints)] if draw(st.integers(0, 3)) == 0 else []
    return complete(
        {
            "metadata": {"name": name, "labels": of},
            "spec": {"taints": repelling},
            "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "200"}},
        },
        "Node",
    )


def namespace(name: str, env: str) -> JSON:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"env": env} if env else {}}}


@st.composite
def owning_objects(draw: st.DrawFn, space: str) -> list[JSON]:
    """Services and owners in a namespace."""
    found: list[JSON] = []
    pairs = st.fixed_dictionaries({}, optional={"app": _apps, "tier": st.just("x")})
    for version, kind, name, spec in (
        ("v1", "Service", "s1", st.fixed_dictionaries({"selector": pairs})),
        ("v1", "Service", "s2", st.fixed_dictionaries({}, optional={"selector": pairs})),
        ("v1", "ReplicationController", "rs", st.fixed_dictionaries({}, optional={"selector": pairs})),
        ("apps/v1", "ReplicaSet", "rs", st.fixed_dictionaries({"selector": selectors()})),
        ("apps/v1", "StatefulSet", "rs", st.fixed_dictionaries({"selector": selectors()})),
    ):
        if draw(st.booleans()):
            meta = {"name": name, "namespace": space}
            found.append({"apiVersion": version, "kind": kind, "metadata": meta, "spec": draw(spec)})
    return found


@st.composite
def objects(draw: st.DrawFn) -> list[JSON]:
    """Namespaces with their Services and owners; one namespace may be unknown."""
    found = [namespace(name, draw(st.sampled_from(["test", "live", ""]))) for name in NAMESPACES]
    found = found[draw(st.integers(0, 1)) :]
    for name in NAMESPACES:
        found += draw(owning_objects(name))
    return found


_affinity_args: list[JSON] = [
    {},
    {"hardPodAffinityWeight": 0},
    {"hardPodAffinityWeight": 7},
    {"ignorePreferredTermsOfExistingPods": True},
]
_spread_args: list[JSON] = [
    {},
    {},
    {"defaultingType": "List", "defaultConstraints": []},
    {
        "defaultingType": "List",
        "defaultConstraints": [
            {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": HARD, "nodeTaintsPolicy": "Honor"},
            {"topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": SOFT, "matchLabelKeys": ["tier"]},
            {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": SOFT},
        ],
    },
]
#: Arguments of InterPodAffinity and PodTopologySpread.
arguments = st.tuples(st.sampled_from(_affinity_args), st.sampled_from(_spread_args))


def configuration(affinity_args: JSON, spread_args: JSON) -> JSON:
    plugins = [{"name": "InterPodAffinity", "args": affinity_args}, {"name": "PodTopologySpread", "args": spread_args}]
    profile = {"schedulerName": "default-scheduler", "pluginConfig": plugins}
    return {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile]}

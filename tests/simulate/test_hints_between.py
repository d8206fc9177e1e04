"""Hints about spreading and affinity: counts per domain, who blocks, and changes that hold when they are made."""

from __future__ import annotations

import copy
import random
import re
from typing import Any

import pytest

from kubesched.lab.simulate import Result, run_simulation
from kubesched.scheduler.plugins import in_tree_registry

JSON = dict[str, Any]


def node(name: str, zone: str, cpu: str = "4") -> JSON:
    labels = {"kubernetes.io/hostname": name, **({"zone": zone} if zone else {})}
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
    }


def pod(name: str, at: str = "", *, cpu: str = "1", labels: JSON | None = None, **spec: Any) -> JSON:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    body: JSON = {"containers": [container], **spec}
    if at:
        body["nodeName"] = at
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels if labels is not None else {"app": "w"}},
        "spec": body,
    }


def spread(skew: int = 1, key: str = "zone", **more: Any) -> JSON:
    selector = {"matchLabels": {"app": "w"}}
    when = {"topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"maxSkew": skew, **when, **more}


def term(app: str, key: str = "zone") -> JSON:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def required(*terms: JSON) -> JSON:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def run(*objects: JSON) -> Result:
    return run_simulation(objects, registry=in_tree_registry(), until=30.0)


def hints(*objects: JSON) -> list[str]:
    (group,) = run(*objects).pending
    return group.hints


def test_spreading_shows_counts_and_the_smallest_skew_that_helps() -> None:
    full = [node("a", "a"), node("b", "b"), node("c", "c", "0")]
    there = [pod("p1", "a"), pod("p2", "a"), pod("p3", "b")]
    found = hints(*full, *there, pod("new", topologySpreadConstraints=[spread()]))
    assert found[0] == (
        "pods with app=w by zone: c 0, b 1, a 2; a domain may have at most 1 more than the least; "
        "set maxSkew to 2 instead of 1: 1 node would fit"
    )


def test_domains_that_are_missing_for_min_domains_are_counted() -> None:
    found = hints(node("a", "a"), pod("p1", "a"), pod("new", topologySpreadConstraints=[spread(1, minDomains=3)]))
    assert found[0] == (
        "pods with app=w by zone: a 1; 2 more domains are missing for minDomains 3: until then a domain may have at most "
        "1; leave out minDomains: 1 node would fit"
    )


def test_a_label_that_no_node_has_is_named() -> None:
    found = hints(node("a", ""), pod("new", topologySpreadConstraints=[spread()]))
    assert found[0] == (
        "pods with app=w by zone: no node that the constraint includes has the label zone; "
        "set whenUnsatisfiable: ScheduleAnyway: 1 node would fit"
    )


def test_two_constraints_that_block_each_other_are_dropped_together() -> None:
    nodes = [node("a1", "a"), node("a2", "a"), node("b1", "b", "0")]
    both = [spread(), spread(1, "kubernetes.io/hostname")]
    there = [pod("p1", "a1"), pod("p2", "a2")]
    found = hints(*nodes, *there, pod("new", topologySpreadConstraints=both))
    assert found[0] == "set whenUnsatisfiable: ScheduleAnyway in all spread constraints: 2 nodes would fit"
    assert len([text for text in found if text.startswith("pods with app=w by")]) == 2


def test_affinity_says_where_the_pods_are_that_it_needs() -> None:
    none = hints(node("a", "a"), pod("new", affinity={"podAffinity": required(term("db"))}))
    assert none[0] == (
        "affinity to pods with app=db: there is none on a node with the label zone; without this term 1 node would fit"
    )
    there = [pod(f"db{number}", "a", cpu="2", labels={"app": "db"}) for number in range(2)]
    away = hints(node("a", "a"), node("b", "b"), *there, pod("new", affinity={"podAffinity": required(term("db"))}))
    assert away[0] == (
        "affinity to pods with app=db, which are in these domains of zone: a 2; without this term 1 node would fit"
    )


def test_anti_affinity_says_who_is_in_the_way_and_how_many_domains_are_missing() -> None:
    nodes = [node("a", "a"), node("b", "b")]
    there = [pod("p1", "a"), pod("p2", "b"), pod("p3", "b")]
    found = hints(*nodes, *there, pod("new", affinity={"podAntiAffinity": required(term("w"))}))
    assert found[0] == (
        "anti-affinity to pods with app=w, which are in zone a (default/p1), b (default/p2, default/p3); every domain has "
        "one: 1 more domain is missing for each such pod; without this term 2 nodes would fit"
    )
    others = [pod("p", "a", affinity={"podAntiAffinity": required(term("w"))}), node("a", "a")]
    kept_away = hints(*others, pod("new"))
    assert "other pods have an anti-affinity to this pod, in zone a (default/p)" in kept_away


def test_pods_that_resources_keep_away_get_no_hints_about_rules() -> None:
    found = hints(node("a", "a"), pod("new", cpu="9", topologySpreadConstraints=[spread(5)]))
    assert not [text for text in found if "app=w" in text]


@pytest.mark.parametrize("seed", range(12))
def test_what_a_hint_promises_comes_true(seed: int) -> None:
    """Random clusters: the changed pod fits on as many nodes as the hint says, by a run of its own."""
    rng = random.Random(seed)
    nodes = [node(f"n{number}", rng.choice("abc"), str(rng.choice((2, 4)))) for number in range(5)]
    there = [
        pod(f"p{number}", f"n{rng.randrange(5)}", cpu="100m", labels={"app": rng.choice(("w", "db"))})
        for number in range(8)
    ]
    affinity = {"podAntiAffinity": required(term("w", rng.choice(("zone", "kubernetes.io/hostname"))))}
    constraints = [spread(1, rng.choice(("zone", "kubernetes.io/hostname")), minDomains=rng.choice((1, 4)))]
    new = pod("new", cpu="3", topologySpreadConstraints=constraints)
    if rng.random() < 0.5:
        new = pod("new", cpu="3", affinity=affinity)
    result = run(*nodes, *there, new)
    for text in result.pending[0].hints if result.pending else ():
        match = re.search(
            r"(set maxSkew to (\d+)|leave out minDomains|without this term|whenUnsatisfiable).* (\d+) node", text
        )
        if match is None:
            continue
        changed = copy.deepcopy(new)
        spec = changed["spec"]
        if match[2]:
            spec["topologySpreadConstraints"][0]["maxSkew"] = int(match[2])
        elif match[1] == "leave out minDomains":
            del spec["topologySpreadConstraints"][0]["minDomains"]
        elif match[1] == "without this term":
            del spec["affinity"]
        else:
            spec["topologySpreadConstraints"][0]["whenUnsatisfiable"] = "ScheduleAnyway"
        assert run(*nodes, *there, changed).pending == [], text

"""Obstacles of spreading and affinity: counts per domain, who blocks, and changes that help."""

from __future__ import annotations

from typing import Any

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


def found(*objects: JSON) -> tuple[list[str], list[str]]:
    """Texts of the obstacles of the one group of pending pods, and what would help."""
    (group,) = run(*objects).pending
    return [one.text for one in group.obstacles], group.hints


def test_spreading_shows_counts_and_the_smallest_skew_that_helps() -> None:
    full = [node("a", "a"), node("b", "b"), node("c", "c", "0")]
    there = [pod("p1", "a"), pod("p2", "a"), pod("p3", "b")]
    obstacles, hints = found(*full, *there, pod("new", topologySpreadConstraints=[spread()]))
    assert "pods with app=w by zone: c 0, b 1, a 2; a domain may have at most 1 more than the least" in obstacles
    assert hints[0] == "set maxSkew to 2 instead of 1 for zone: 1 node would fit"


def test_domains_that_are_missing_for_min_domains_are_counted() -> None:
    new = pod("new", topologySpreadConstraints=[spread(1, minDomains=3)])
    obstacles, hints = found(node("a", "a"), pod("p1", "a"), new)
    assert obstacles == [
        "pods with app=w by zone: a 1; 2 more domains are missing for minDomains 3: until then a domain may have at most 1"
    ]
    assert hints[0] == "leave out minDomains for zone: 1 node would fit"


def test_a_label_that_no_node_has_is_named() -> None:
    obstacles, hints = found(node("a", ""), pod("new", topologySpreadConstraints=[spread()]))
    assert obstacles == ["pods with app=w by zone: no node that the constraint includes has the label zone"]
    assert hints == ["set whenUnsatisfiable: ScheduleAnyway for zone: 1 node would fit"]


def test_two_constraints_that_block_each_other_are_changed_together() -> None:
    nodes = [node("a1", "a"), node("a2", "a"), node("b1", "b", "0")]
    both = [spread(), spread(1, "kubernetes.io/hostname")]
    there = [pod("p1", "a1"), pod("p2", "a2")]
    obstacles, hints = found(*nodes, *there, pod("new", topologySpreadConstraints=both))
    assert len([text for text in obstacles if text.startswith("pods with app=w by")]) == 2
    assert hints == [
        "set maxSkew to 2 instead of 1 for kubernetes.io/hostname AND set maxSkew to 3 instead of 1 for zone: 2 nodes would fit",
        "ask for no cpu: 1 node would fit",
    ]


def test_affinity_says_where_the_pods_are_that_it_needs() -> None:
    near = pod("new", affinity={"podAffinity": required(term("db"))})
    obstacles, hints = found(node("a", "a"), near)
    assert obstacles == ["affinity to pods with app=db: there is none on a node with the label zone"]
    assert hints == ["drop the affinity to pods with app=db by zone: 1 node would fit"]
    there = [pod(f"db{number}", "a", cpu="2", labels={"app": "db"}) for number in range(2)]
    obstacles, hints = found(node("a", "a"), node("b", "b"), *there, near)
    assert "affinity to pods with app=db, which are in these domains of zone: a 2" in obstacles
    assert "drop the affinity to pods with app=db by zone: 1 node would fit" in hints


def test_anti_affinity_says_who_is_in_the_way_and_how_many_domains_are_missing() -> None:
    nodes = [node("a", "a"), node("b", "b")]
    there = [pod("p1", "a"), pod("p2", "b"), pod("p3", "b")]
    obstacles, hints = found(*nodes, *there, pod("new", affinity={"podAntiAffinity": required(term("w"))}))
    assert obstacles == [
        "anti-affinity to pods with app=w, which are in zone a (default/p1), b (default/p2, default/p3); every domain has "
        "one: 1 more domain is missing for each such pod"
    ]
    assert hints == [
        "drop the anti-affinity to pods with app=w by zone: 2 nodes would fit",
        "remove default/p1 from a (1 of its 1 pods): it would fit there",
    ]


def test_pods_that_keep_a_pod_away_are_named_and_their_eviction_helps() -> None:
    others = [pod("p", "a", affinity={"podAntiAffinity": required(term("w"))}), node("a", "a")]
    obstacles, hints = found(*others, pod("new"))
    assert obstacles == ["other pods have an anti-affinity to pods with app=w, in zone a (default/p)"]
    assert hints == [
        "drop the label app=w of the pod: 1 node would fit",
        "remove default/p from a (1 of its 1 pods): it would fit there",
    ]


def test_pods_that_resources_keep_away_get_no_hints_about_rules() -> None:
    obstacles, hints = found(node("a", "a"), pod("new", cpu="9", topologySpreadConstraints=[spread(5)]))
    assert obstacles == ["cpu: asks for 9, but the largest of these nodes has 4; at most 4 is free (a)"]
    assert hints == ["ask for 5 less cpu: 1 node would fit"]

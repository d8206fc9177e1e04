"""Explanations of pods with very many terms: each kind of them is one demand, and dropping it is tried."""

from __future__ import annotations

from typing import Any

import pytest
from explain_kit import a_house, explained, helps, texts

from builders import a_node, a_pod
from kubesched.api.decode import from_builtins
from kubesched.api.types import Pod
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes import PodInfo
from search_kit import brute_force

MANY = 400
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"


def term(number: int) -> dict[str, Any]:
    return {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": f"x{number}"}}}


def requirement(number: int) -> dict[str, Any]:
    return {"key": f"k{number}", "operator": "Exists"}


def of_node(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": one} for one in terms]}}}


SELECTOR = {"nodeSelector": {f"k{number}": "v" for number in range(MANY)}}
FAR = {"podAntiAffinity": {REQUIRED: [term(number) for number in range(MANY)]}}
NEAR = {"podAffinity": {REQUIRED: [term(number) for number in range(MANY)]}}
SPREAD = [
    {"topologyKey": f"k{number}", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    for number in range(30)
]
AMOUNTS = {"requests": {"cpu": "1", **{f"example.com/r{number}": "1" for number in range(MANY)}}}
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("nodeSelector with 400 labels", SELECTOR, ["drop the whole nodeSelector"]),
    ("node affinity with 400 terms", {"affinity": of_node(*([requirement(n)] for n in range(MANY)))}, ["drop the required node affinity"]),
    ("node affinity with 400 requirements", {"affinity": of_node([requirement(n) for n in range(MANY)])}, ["drop the required node affinity"]),
    ("anti-affinity with 400 required terms", {"affinity": FAR}, ["drop all required terms of the anti-affinity"]),
    ("affinity with 400 required terms", {"affinity": NEAR}, ["drop all required terms of the affinity"]),
    ("30 required topologySpreadConstraints", {"topologySpreadConstraints": SPREAD}, ["drop all topologySpreadConstraints"]),
    ("400 resources besides cpu and memory", {"containers": [{"name": "c", "image": "i", "resources": AMOUNTS}]}, ["ask for cpu and memory only"]),
    ("nodeSelector with 400 labels", {**SELECTOR, "affinity": FAR}, ["drop all required terms of the anti-affinity", "drop the whole nodeSelector"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "spec", "changes"), CASES, ids=lambda one: one if isinstance(one, str) else "")
def test_dropping_all_of_a_kind_is_one_change(text: str, spec: dict[str, Any], changes: list[str]) -> None:
    nodes = [a_node(name, labels={HOSTNAME: name}) for name in ("n1", "n2")]
    house = a_house(nodes, [a_pod(f"w-{one.name}", on=one.name, labels={"app": "x7"}) for one in nodes])
    plain = {"containers": [{"name": "c", "image": "i"}], **spec}
    new = from_builtins({"metadata": {"name": "new", "namespace": "ns", "uid": "new"}, "spec": plain}, Pod)
    found = explained(house, new)
    assert any(one.startswith(text) for one in texts(found))
    assert helps(found) == [(tuple(changes), 2)]
    changed = new
    for change in found.remedies[0].changes:
        changed = change.of(changed)
    verdicts = brute_force(house, changed)
    assert not isinstance(verdicts, Status)
    assert verdicts == {"n1": None, "n2": None}
    assert PodInfo(changed).fit_requests.milli_cpu == PodInfo(new).fit_requests.milli_cpu

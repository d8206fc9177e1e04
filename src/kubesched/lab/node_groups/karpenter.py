"""Node groups from Karpenter's NodePools: one for each kind of machine that the requirements of a pool allow.

The machines, their sizes, prices, zones and labels are in a catalogue that the user gives. Of a NodePool count labels,
taints, requirements, limits and the weight; of a node class the most pods, reserved amounts and the size of the first
disk. Startup taints, budgets, expiry and consolidation do not make a node different, and are not read.

Source: the API reference of Karpenter v1 (NodePool, EC2NodeClass).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubesched.api.quantity import Quantity, QuantityError, binary_text, parse_quantity

from .catalogue import Catalogue, Offer
from .fields import Fields, amount_problem
from .group import MOST_NODES, NodeGroup
from .offers import INSTANCE_TYPE, size_of, template_of

__all__ = ["NODE_CLASS_KINDS", "groups_of_pool", "reserved_by"]

#: Kinds of manifests that NodePools refer to by ``nodeClassRef``.
NODE_CLASS_KINDS: Final = ("EC2NodeClass", "AKSNodeClass", "GCENodeClass", "NodeClass", "KWOKNodeClass")
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
POOL: Final = "karpenter.sh/nodepool"
_ZONE: Final = "topology.kubernetes.io/zone"
_EC2: Final = "karpenter.k8s.aws/instance-"
_FAMILY: Final = re.compile(r"(([a-z]+)(\d*)[^.]*)\.(.+)")
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def reserved_by(data: Mapping[str, Any], where: str, problems: list[str]) -> dict[str, Any]:
    """Return what a node class takes from a machine: ``less`` amounts, and ``set`` amounts in place of its own."""
    spec = Fields(data, where, "", problems).within("spec")
    kubelet = spec.within("kubelet")
    less: dict[str, list[str]] = {}
    for name in ("kubeReserved", "systemReserved"):
        for resource, amount in kubelet.amounts(name).items():
            less.setdefault(resource, []).append(amount)
    eviction = kubelet.raw("evictionHard")
    least = eviction.get("memory.available") if isinstance(eviction, Mapping) else None
    if isinstance(least, str) and not least.endswith("%"):
        problem = amount_problem("memory", least)
        problems += [f"{where}: spec.kubelet.evictionHard.memory.available: {problem}"] if problem else []
        less.setdefault("memory", []).append(least)
    sizes: dict[str, str] = {}
    if kubelet.has("maxPods"):
        sizes["pods"] = str(kubelet.whole("maxPods", 110, most=10_000, least=1))
    disks = spec.raw("blockDeviceMappings")
    if isinstance(disks, list) and disks and isinstance(disks[0], Mapping):
        size = (disks[0].get("ebs") or {}).get("volumeSize") if isinstance(disks[0].get("ebs"), Mapping) else None
        if size is not None:
            problem = amount_problem("ephemeral-storage", size)
            problems += [f"{where}: spec.blockDeviceMappings[0].ebs.volumeSize: {problem}"] if problem else []
            sizes["ephemeral-storage"] = str(size)
    return {"less": less, "set": sizes}


def groups_of_pool(
    data: Mapping[str, Any],
    where: str,
    catalogue: Catalogue,
    classes: Mapping[str, dict[str, Any]],
    problems: list[str],
) -> list[NodeGroup]:
    """Return a group for each machine, and for spot and on-demand capacity, that a NodePool allows."""
    known = len(problems)
    top = Fields(data, where, "", problems)
    name = top.within("metadata").text("name")
    spec = top.within("spec")
    template = spec.within("template")
    labels = template.within("metadata").labels("labels")
    inner = template.within("spec")
    taints = inner.taints("taints")
    rules = inner.raw("requirements") or []
    limits = spec.amounts("limits")
    weight = spec.whole("weight", 0, most=1_000_000)
    if not name:
        top.bad("metadata.name", None, "expected the name of the NodePool")
    reference = inner.within("nodeClassRef").text("name")
    if reference and classes and reference not in classes:
        inner.bad(
            "nodeClassRef.name", reference, f"there is no node class of this name; there are {', '.join(classes)}"
        )
    taken = classes.get(reference, {"less": {}, "set": {}})
    if not catalogue:
        problems.append(
            f"{where}: NodePool {name}: needs a catalogue of instances with sizes and prices: --catalogue TABLE"
        )
    _check_rules(rules, inner, labels, catalogue)
    if len(problems) > known:
        return []
    pool = _Pool(name, labels, taints, rules, limits, weight, where)
    found = []
    for offer in catalogue.values():
        size = _left(size_of(offer, catalogue), taken)
        found += [one for capacity, price in _capacities(offer) if (one := pool.group(offer, size, capacity, price))]
    if not found:
        problems.append(
            f"{where}: NodePool {name}: no row of the catalogue meets all of spec.template.spec.requirements"
        )
    return found


@dataclass(frozen=True, slots=True)
class _Pool:
    """Requirements, labels and taints of a NodePool for its nodes."""

    name: str
    labels: dict[str, str]
    taints: list[dict[str, str]]
    rules: list[Mapping[str, Any]]
    limits: dict[str, str]
    weight: int
    where: str

    def group(self, offer: Offer, size: Mapping[str, str], capacity: str, price: float) -> NodeGroup | None:
        """Return the group of a machine; None if the requirements exclude it, or its size is not known."""
        own = {**_labels_of(offer, size, capacity), **self.labels, POOL: self.name}
        zones = _zones(offer, self.rules)
        if not size or zones is None or not all(_allows(rule, own, _ZONE) for rule in self.rules):
            return None
        suffix = f"-{capacity}" if offer.spot_price is not None else ""
        return NodeGroup(
            name=f"{self.name}-{offer.name}{suffix}"[:63].rstrip("-."),
            template=template_of(
                size,
                instance_type=offer.name,
                arch=offer.arch,
                labels={key: value for key, value in own.items() if value},
                taints=[*self.taints, *offer.taints],
            ),
            maximum=MOST_NODES,
            price=price,
            zones=zones,
            selector={POOL: self.name, INSTANCE_TYPE: offer.name, CAPACITY_TYPE: capacity},
            ready_after=offer.ready_after,
            spot_failure_rate=offer.spot_failure_rate if capacity == "spot" else 0.0,
            priority=self.weight,
            pool=self.name,
            limits=self.limits,
            source=self.where,
        )


def _capacities(offer: Offer) -> Iterator[tuple[str, float]]:
    yield "on-demand", offer.price
    if offer.spot_price is not None:
        yield "spot", offer.spot_price


def _labels_of(offer: Offer, size: Mapping[str, str], capacity: str) -> dict[str, str]:
    """Return the labels that requirements are about, as far as the row and the name of the machine say them."""
    found = {
        INSTANCE_TYPE: offer.name,
        "kubernetes.io/arch": offer.arch,
        "kubernetes.io/os": "linux",
        CAPACITY_TYPE: capacity,
    }
    parts = _FAMILY.fullmatch(offer.name)
    if parts is not None:
        found |= {
            f"{_EC2}family": parts[1],
            f"{_EC2}category": parts[2],
            f"{_EC2}generation": parts[3],
            f"{_EC2}size": parts[4],
        }
    if "cpu" in size:
        found[f"{_EC2}cpu"] = str(parse_quantity(offer.resources.get("cpu", size["cpu"])).value())
    if "memory" in size:
        found[f"{_EC2}memory"] = str(parse_quantity(offer.resources.get("memory", size["memory"])).value() >> 20)
    return {**found, **offer.labels}


def _check_rules(rules: Any, inner: Fields, labels: Mapping[str, str], catalogue: Catalogue) -> None:
    """Report requirements that cannot be read, and those about labels that nothing here knows."""
    if not isinstance(rules, list):
        inner.bad("requirements", rules, "expected a list of key, operator and values")
        return
    known = {_ZONE, POOL, *labels}
    for offer in catalogue.values():
        known |= _labels_of(offer, size_of(offer, catalogue), "").keys()
    for index, rule in enumerate(rules):
        place = f"requirements[{index}]"
        if (
            not isinstance(rule, Mapping)
            or rule.get("operator") not in _OPERATORS
            or not isinstance(rule.get("key"), str)
        ):
            inner.bad(place, rule, f"expected key, values and an operator: {', '.join(_OPERATORS)}")
            continue
        values = rule.get("values") or []
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            inner.bad(f"{place}.values", values, "expected a list of texts")
        elif rule["operator"] in ("Gt", "Lt") and not (len(values) == 1 and values[0].lstrip("-").isdecimal()):
            inner.bad(f"{place}.values", values, 'expected one whole number as a text, such as ["4"]')
        elif catalogue and rule["key"] not in known and rule["operator"] not in ("NotIn", "DoesNotExist"):
            inner.bad(
                f"{place}.key", rule["key"], "no row of the catalogue has this label; add it in the column labels"
            )


def _allows(rule: Mapping[str, Any], labels: Mapping[str, str], zone: str) -> bool:
    """Return True if a requirement allows a machine with these labels; zones are looked at elsewhere."""
    key: str = rule["key"]
    operator: str = rule["operator"]
    values: list[str] = rule.get("values") or []
    if key == zone:
        return True
    value = labels.get(key)
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator in ("Exists", "DoesNotExist"):
        return (value is None) == (operator == "DoesNotExist")
    if value is None or not value.lstrip("-").isdecimal():
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])


def _zones(offer: Offer, rules: Sequence[Mapping[str, Any]]) -> tuple[str, ...] | None:
    """Return the zones of a machine that the requirements leave; None when none is left."""
    about = [rule for rule in rules if rule["key"] == _ZONE]
    zones = list(offer.zones)
    if not zones:
        zones = [value for rule in about if rule["operator"] == "In" for value in rule.get("values") or []]
        if not zones:
            return ()
    left = [zone for zone in zones if all(_allows({**rule, "key": "zone"}, {"zone": zone}, _ZONE) for rule in about)]
    return tuple(dict.fromkeys(left)) or None


def _left(size: Mapping[str, str], taken: Mapping[str, Any]) -> dict[str, str]:
    """Return the amounts that pods can have on a machine of this size."""
    left = {**size, **taken["set"]}
    for resource, amounts in taken["less"].items():
        if resource not in left:
            continue
        try:
            rest = parse_quantity(left[resource]).nanos - sum(parse_quantity(one).nanos for one in amounts)
        except QuantityError:
            continue  # reported where it was read
        amount = Quantity(max(rest, 0))
        left[resource] = f"{amount.milli()}m" if resource == "cpu" else binary_text(amount.value())
    return left

"""VolumeBinding node by node, written from the specification (rules/volumes §2.4 to §2.10), without any cleverness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubesched.api.quantity import Quantity, int_value
from kubesched.api.selectors import NodeSelectorMatcher, compile_label_selector, label_selector_problem
from kubesched.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass, class_of
from kubesched.api.types import Node, Pod
from kubesched.scheduler.plugins.volumes.csi_translation import TranslationError, translation_of

MIGRATED = ("aws-ebs", "gce-pd", "azure-disk", "cinder", "portworx-volume")


class Problem(Exception):  # noqa: N818 - a status
    """An error status."""


@dataclass
class World:
    """Objects by key, as assumed."""

    volumes: dict[str, PersistentVolume]
    claims: dict[str, PersistentVolumeClaim]
    classes: Mapping[str, StorageClass]
    drivers: Mapping[str, Any]
    capacities: Mapping[str, Any]
    csi_nodes: Mapping[str, Any]


@dataclass
class Answer:
    """``reasons`` in order; what the pod would get."""

    reasons: tuple[str, ...] = ()
    static: dict[str, str] = field(default_factory=dict)
    dynamic: list[str] = field(default_factory=list)
    #: Class to requested and capacity.
    use: dict[str, tuple[int, int]] = field(default_factory=dict)


def claim_names(pod: Pod) -> list[str]:
    found = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            found.append(f"{pod.name}-{volume.name}")
    return found


def is_bound(claim: PersistentVolumeClaim) -> bool:
    return claim.spec.volume_name != "" and "pv.kubernetes.io/bind-completed" in claim.metadata.annotations


def size_of(amounts: Mapping[str, Any]) -> Quantity:
    return Quantity.parse(amounts.get("storage", 0))


def evaluate(world: World, pod: Pod, node: Node) -> Answer:
    """Return Filter's answer for a node and a pod that PreFilter let pass.

    Raises:
        Problem: when it is an error.
    """
    claims = [world.claims[f"{pod.namespace}/{name}"] for name in claim_names(pod)]
    bound_ok = unbound_ok = enough_space = found = True
    for claim in claims:
        if not is_bound(claim):
            continue
        volume = world.volumes.get(claim.spec.volume_name)
        if volume is None:
            found = False
            break
        if not reaches(world, volume, node, translate=True):
            bound_ok = False
            break
    answer = Answer()
    delayed = [claim for claim in claims if not is_bound(claim)]
    to_provision: list[PersistentVolumeClaim] = []
    to_match: list[PersistentVolumeClaim] = []
    stopped = False
    for claim in delayed:
        selected = claim.metadata.annotations.get("volume.kubernetes.io/selected-node")
        if selected is not None and selected != node.name:
            unbound_ok, stopped = False, True
            break
        (to_match if selected is None else to_provision).append(claim)
    if not stopped:
        taken: set[str] = set()
        for claim in sorted(to_match, key=lambda one: size_of(one.spec.resources.requests).nanos):
            volume = match(world, claim, node, taken)
            if volume is None:
                to_provision.append(claim)
                unbound_ok = False
                continue
            taken.add(volume.name)
            answer.static[claim.metadata.name] = volume.name
            requested, capacity = answer.use.get(volume.spec.storage_class_name, (0, 0))
            requested += size_of(claim.spec.resources.requests).value()
            answer.use[volume.spec.storage_class_name] = requested, capacity + size_of(volume.spec.capacity).value()
        if to_provision:
            unbound_ok, enough_space = provisioned(world, to_provision, node, answer)
    flags = (
        (bound_ok, "node(s) didn't match PersistentVolume's node affinity"),
        (unbound_ok, "node(s) didn't find available persistent volumes to bind"),
        (enough_space, "node(s) did not have enough free storage"),
        (found, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
    )
    answer.reasons = tuple(reason for flag, reason in flags if not flag)
    answer.dynamic = [claim.metadata.name for claim in to_provision]
    return answer


def reaches(world: World, volume: PersistentVolume, node: Node, *, translate: bool = False) -> bool:
    required = volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None
    row = translation_of(volume.spec)
    csi_node = world.csi_nodes.get(node.name)
    if translate and row is not None and row.plugin.removeprefix("kubernetes.io/") in MIGRATED and csi_node is not None:
        listed = csi_node.metadata.annotations.get("storage.alpha.kubernetes.io/migrated-plugins", "").split(",")
        if row.plugin in listed:
            try:
                row.handle(volume.spec, volume.metadata.labels)
            except TranslationError as error:
                raise Problem(f"could not translate pv: {error}") from None
            required = row.required_affinity(volume.metadata.labels, required)
    return required is None or NodeSelectorMatcher.compile(required).matches(node.labels, "")


def match(world: World, claim: PersistentVolumeClaim, node: Node, taken: set[str]) -> PersistentVolume | None:
    spec = claim.spec
    if problem := label_selector_problem(spec.selector):
        raise Problem(problem)
    best: PersistentVolume | None = None
    for volume in world.volumes.values():
        reference = volume.spec.claim_ref
        if class_of(volume) != class_of(claim) or volume.name in taken:
            continue
        refers = reference is not None and (
            (reference.namespace, reference.name) == (claim.metadata.namespace, claim.metadata.name)
            and reference.uid in ("", claim.metadata.uid)
        )
        if reference is not None and not refers:
            continue
        if size_of(volume.spec.capacity).nanos < size_of(spec.resources.requests).nanos:
            continue
        if (volume.spec.volume_mode or "Filesystem") != (spec.volume_mode or "Filesystem"):
            continue
        if (volume.spec.volume_attributes_class_name or "") != (spec.volume_attributes_class_name or ""):
            continue
        if volume.metadata.deletion_timestamp is not None:
            continue
        valid = reaches(world, volume, node)
        if refers:
            return volume if valid else None
        if volume.status.phase != "Available" or not valid:
            continue
        if spec.selector is not None and not compile_label_selector(spec.selector).matches(volume.metadata.labels):
            continue
        if not set(spec.access_modes) <= set(volume.spec.access_modes):
            continue
        if best is None or size_of(volume.spec.capacity).nanos < size_of(best.spec.capacity).nanos:
            best = volume
    return best


def provisioned(world: World, claims: list[PersistentVolumeClaim], node: Node, answer: Answer) -> tuple[bool, bool]:
    use: dict[str, tuple[int, int]] = {}
    for claim in claims:
        row = world.classes[class_of(claim)]
        if row.provisioner in ("", "kubernetes.io/no-provisioner"):
            return False, True
        terms = row.allowed_topologies
        if terms and not any(
            term.match_label_expressions
            and all(node.labels.get(item.key) in item.values for item in term.match_label_expressions)
            for term in terms
        ):
            return False, True
        size = size_of(claim.spec.resources.requests).value()
        driver = world.drivers.get(row.provisioner)
        if "storage" not in claim.spec.resources.requests or driver is None or driver.spec.storage_capacity is not True:
            continue
        for one in world.capacities.values():
            text = one.maximum_volume_size if one.maximum_volume_size is not None else one.capacity
            if one.storage_class_name != row.name or text is None or int_value(text) < size:
                continue
            if one.node_topology is not None and compile_label_selector(one.node_topology).matches(node.labels):
                name = claim.spec.storage_class_name or ""
                use[name] = use.get(name, (0, 0))[0] + size, int_value(one.capacity or 0)
                break
        else:
            return True, False
    if not answer.static:
        answer.use = use
    return True, True


def score(answer: Answer, line: list[tuple[int, int]]) -> int:
    """The mean over classes of the line at the use of each, in percent; ``line`` in points of 100."""
    found = []
    for requested, capacity in answer.use.values():
        percent = 100 if capacity == 0 or requested > capacity else requested * 100 // capacity
        at = line[-1][1]
        for index, (x, y) in enumerate(line):
            if percent <= x:
                if index == 0:
                    at = y
                else:
                    left, low = line[index - 1]
                    at = low + int((y - low) * (percent - left) / (x - left))
                break
        found.append(at)
    return int(sum(found) / len(found) + 0.5) if found else 0

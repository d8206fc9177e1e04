"""Admission of objects: values that the API server adds before it stores an object, and refusals by policy.

Added are defaults that scheduling can see, and values from the priority class, the runtime class and the default
storage class. Pods of one template share one defaulted spec: the bytes of a spec are looked up in a memo, so that only
the first pod of a kind is decoded, defaulted and validated.

Caller: ``store.create`` and ``store.update``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubesched.api.equality import json_key
from kubesched.api.groups import GATES
from kubesched.api.kinds import LIMIT_RANGES, NAMESPACES, PODS, PRIORITY_CLASSES, RUNTIME_CLASSES, STORAGE_CLASSES, Kind
from kubesched.api.quantity import parse_quantity
from kubesched.api.selectors import is_object_name
from kubesched.api.shared_parts import split_spec
from kubesched.base.kept import Kept

from ..schema import check_type, drop_gated, encode, fill_defaults
from .checks import check_pod_spec
from .custom import CustomSchema
from .limits import Limits, ObjectTable
from .validation import Causes, forbidden

__all__ = ["SYSTEM_PRIORITIES", "Admission", "PreparedSpec", "default_pod_spec"]

#: Priority classes that every cluster has.
SYSTEM_PRIORITIES: Final = ("system-cluster-critical", "system-node-critical")
#: Most bytes of pod specs, as sent and as defaulted, in the memo of defaulted specs.
_MEMO_SIZE: Final = 4 << 20
_GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"
_OVERHEAD_TEXT: Final = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


@dataclass(frozen=True, slots=True)
class PreparedSpec:
    """Pod spec that has been defaulted and validated, with the first status of a new pod that has it."""

    spec: msgspec.Raw
    status: msgspec.Raw
    grace_period_seconds: int

    def on_node(self, node: str) -> PreparedSpec:
        """Return the spec with the name of a node, which is valid; itself if the name is empty."""
        if not node:
            return self
        spec = msgspec.Raw(b'{"nodeName":"%b",%b' % (node.encode(), bytes(self.spec)[1:]))
        return PreparedSpec(spec, self.status, self.grace_period_seconds)


class Admission:
    """Admission of one store. ``table_of`` gives the table of a kind.

    ``default_tolerations`` adds the 300 s tolerations for nodes that are not ready or unreachable. Without
    ``priority_admission`` a pod's own ``spec.priority`` is believed, as in upstream's benchmark. ``taint_new_nodes``
    keeps pods off nodes that are not Ready yet when they are created; the node lifecycle controller ends that.
    ``features`` names the feature gates of pod groups that the API has on (rules/groups §2).
    """

    def __init__(
        self,
        table_of: Callable[[Kind], ObjectTable],
        *,
        now: Callable[[], str],
        default_tolerations: bool = True,
        priority_admission: bool = True,
        taint_new_nodes: bool = False,
        features: Iterable[str] = GATES,
    ) -> None:
        #: Feature gates of the API that are on.
        self.features = frozenset(features)
        #: Feature gates of the API that are off: clients cannot set their fields.
        self.features_off = frozenset(GATES) - self.features
        #: Clock for timestamps that a client left out.
        self.now = now
        #: Tables of the store, for rules about other objects.
        self.table_of = table_of
        self.taint_new_nodes = taint_new_nodes
        #: Feature gate MatchLabelKeysInPodTopologySpreadSelectorMerge; in pod affinity the keys are merged in any case.
        self.merges_spread_keys = True
        self._priority_classes = table_of(PRIORITY_CLASSES)
        self._namespaces = table_of(NAMESPACES)
        self._runtime_classes = table_of(RUNTIME_CLASSES)
        self._storage_classes = table_of(STORAGE_CLASSES)
        self._limit_ranges = table_of(LIMIT_RANGES)
        self.limits = Limits(self._limit_ranges)
        self._default_tolerations = default_tolerations
        self._priority_admission = priority_admission
        #: Defaulted specs without their nodes, by namespace (empty unless the namespace has limit ranges), whether the
        #: pod is restored, whether it has a node, and spec in JSON.
        self._memo: Kept[tuple[str, bool, bool, bytes], PreparedSpec] = Kept(_MEMO_SIZE)
        self._memo_of = (-1, -1, -1)
        #: Schemas of the custom resources that are served, by group resource.
        self.custom: dict[str, CustomSchema] = {}

    # -- pods ------------------------------------------------------------------------------------------

    def pod_spec(self, namespace: str, raw: bytes, name: str, *, restored: bool = False) -> PreparedSpec:
        """Return the spec that a new pod is stored with.

        If ``restored`` is True, the pod was imported, and keeps its priority and its resources. Restored pods whose specs
        begin with their nodes, and are equal but for these, share one prepared spec.

        Raises:
            ApiError: 400 for wrong types, 403 by limit range, priority or runtime class, 422 for invalid fields.
        """
        state = (self._priority_classes.end, self._runtime_classes.end, self._limit_ranges.end)
        if state != self._memo_of:
            self._memo.clear()
            self._memo_of = state
        node, text = split_spec(raw) if restored else ("", raw)
        key = (namespace if self.limits.rules(namespace) else "", restored, bool(node), text)
        known = self._memo.get(key)
        if known is not None and (not node or is_object_name(node)):
            return known.on_node(node)
        spec = msgspec.json.decode(raw)
        check_type("PodSpec", raw, PODS, "spec")
        self.drop_gated("PodSpec", spec, None)
        default_pod_spec(spec)
        if not restored:
            spec["serviceAccountName"] = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
            spec["serviceAccount"] = spec["serviceAccountName"]  # the old name of the field
            self.limits.apply(namespace, spec, name)
        self._runtime_class(spec, name, restored=restored)
        if spec.get("priority") is None or (self._priority_admission and not restored):
            self._priority(spec, name)
        self.default_tolerations(spec)
        causes = Causes(PODS, name)
        check_pod_spec(spec, causes)
        if spec.get("ephemeralContainers") and not restored:
            causes.forbidden("spec.ephemeralContainers", "cannot be set on create")
        causes.raise_if_any(PODS, name)
        if node:
            del spec["nodeName"]
        prepared = PreparedSpec(
            msgspec.Raw(encode(spec)), msgspec.Raw(encode(_first_status(spec))), spec["terminationGracePeriodSeconds"]
        )
        return self._memo.keep(key, prepared, len(raw) + len(prepared.spec)).on_node(node)

    def drop_gated(self, type_: str, data: dict[str, Any], old: Mapping[str, Any] | None) -> None:
        """Remove, in place, the fields of an object of a type whose gates are off, unless ``old`` has them."""
        if self.features_off:
            drop_gated(type_, data, dict(old) if old is not None else None, self.features_off)

    @property
    def priority_admission(self) -> bool:
        """True if priorities come from priority classes only."""
        return self._priority_admission

    def priority_class(self, name: str) -> dict[str, Any] | None:
        """Return a priority class, or None."""
        item = self._priority_classes.objects.get(("", name))
        return item.typed if item is not None else None

    def global_default(self) -> dict[str, Any] | None:
        """Return the priority class of pods that name none. If there are several, the class with the lowest value
        counts, as upstream.
        """
        defaults = [one for item in self._priority_classes.objects.values() if (one := item.typed).get("globalDefault")]
        return min(defaults, key=lambda one: (one.get("value", 0), one["metadata"]["name"]), default=None)

    def _priority(self, spec: dict[str, Any], name: str) -> None:
        class_name = spec.get("priorityClassName")
        if class_name:
            found = self.priority_class(class_name)
            if found is None:
                raise forbidden(PODS, name, f"no PriorityClass with name {class_name} was found")
        else:
            spec.pop("priorityClassName", None)
            found = self.global_default()
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
        for field, source, default, what in (
            ("priority", "value", 0, "the integer value of priority"),
            ("preemptionPolicy", "preemptionPolicy", "PreemptLowerPriority", "the string value of PreemptionPolicy"),
        ):
            computed = (found or {}).get(source) or default
            given = spec.get(field)
            if given is not None and given != computed:
                why = f"{what} ({given}) must not be provided in pod spec; priority admission controller computed"
                raise forbidden(PODS, name, f"{why} {computed} from the given PriorityClass name")
            spec[field] = computed

    def _runtime_class(self, spec: dict[str, Any], name: str, *, restored: bool) -> None:
        """Apply a pod's RuntimeClass in place: overhead, node selector and tolerations."""
        class_name = spec.get("runtimeClassName")
        if not class_name:
            if spec.get("overhead") and not restored:
                raise forbidden(PODS, name, _OVERHEAD_TEXT)
            return
        item = self._runtime_classes.objects.get(("", class_name))
        if item is None:
            raise forbidden(PODS, name, f'pod rejected: RuntimeClass "{class_name}" not found')
        data = item.data()
        overhead = (data.get("overhead") or {}).get("podFixed")
        if overhead:
            if spec.get("overhead") not in (None, overhead):
                why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
                raise forbidden(PODS, name, why)
            spec["overhead"] = overhead
        elif spec.get("overhead") and not restored:
            raise forbidden(PODS, name, _OVERHEAD_TEXT)
        scheduling = data.get("scheduling") or {}
        selector = dict(spec.get("nodeSelector") or {})
        for key, value in (scheduling.get("nodeSelector") or {}).items():
            if selector.setdefault(key, value) != value:
                raise forbidden(
                    PODS, name, f"conflict: node selector {key} of RuntimeClass {class_name} and pod differ"
                )
        if selector:
            spec["nodeSelector"] = selector
        tolerations = list(spec.get("tolerations") or [])
        known = set(map(json_key, tolerations))
        tolerations += [item for item in scheduling.get("tolerations") or [] if json_key(item) not in known]
        if tolerations:
            spec["tolerations"] = tolerations

    def default_tolerations(self, spec: dict[str, Any]) -> None:
        """Add the tolerations every pod gets, in place. Also called when a manifest replaces a pod."""
        tolerations = spec.get("tolerations") or []
        missing = [
            key
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            if not any(
                one.get("key") in (key, "", None) and one.get("effect") in ("NoExecute", "", None)
                for one in tolerations
            )
        ]
        if missing and self._default_tolerations:
            more = (
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} for key in missing
            )
            spec["tolerations"] = [*tolerations, *more]

    # -- other kinds -----------------------------------------------------------------------------------

    def merged(self, spec: msgspec.Raw, labels: Mapping[str, str]) -> msgspec.Raw:
        """Return a new pod's spec with ``matchLabelKeys`` and ``mismatchLabelKeys`` merged into the selectors."""
        return _merge_label_keys(spec, labels, in_spread=self.merges_spread_keys)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """The labels of a namespace; none when it does not exist."""
        item = self._namespaces.objects.get(("", name))
        return item.labels if item is not None else {}

    def default_storage_class(self) -> str:
        """Return the name of the newest StorageClass marked as default, or an empty text."""
        marked = []
        for item in self._storage_classes.items():
            metadata = item.section("metadata")
            if (metadata.get("annotations") or {}).get("storageclass.kubernetes.io/is-default-class") == "true":
                marked.append((metadata["creationTimestamp"], item.name))
        newest = max((created for created, _ in marked), default="")
        return min((name for created, name in marked if created == newest), default="")


# -- label keys -------------------------------------------------------------------------------------------


def _merge_label_keys(spec: msgspec.Raw, labels: Mapping[str, str], *, in_spread: bool) -> msgspec.Raw:
    """Merge the pod's values of ``matchLabelKeys`` and ``mismatchLabelKeys`` into the selectors of a new pod's spec.

    A spec without such keys is returned unchanged. The pod's own labels become requirements of the selector in the same
    term, so in pod affinity the scheduler need not know these fields at all. Source: rules/topology §A.2, §B.2
    (upstream ``pkg/registry/core/pod/strategy.go``).
    """
    if b"atchLabelKeys" not in bytes(spec):
        return spec
    data = msgspec.json.decode(spec)
    for term in _terms(data):
        _merge(term, labels)
    for constraint in (data.get("topologySpreadConstraints") or ()) if in_spread else ():
        _merge(constraint, labels)
    return msgspec.Raw(encode(data))


def _terms(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every pod affinity and anti-affinity term."""
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(side) or {}
        yield from rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for item in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            if item.get("podAffinityTerm"):
                yield item["podAffinityTerm"]


def _merge(term: dict[str, Any], labels: Mapping[str, str]) -> None:
    """Merge the keys of one term.

    A key without a label on the pod is ignored; without a selector all keys are ignored.
    """
    selector = term.get("labelSelector")
    if selector is None:
        return
    more = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(field) or ()
        if key in labels
    ]
    if more:
        selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *more]


# -- pod defaults ------------------------------------------------------------------------------------------


def default_template(spec: dict[str, Any]) -> None:
    """Fill in, in place, the defaults of a pod spec that ``rules.txt`` of the schema cannot express.

    ``rules.txt`` has been applied before.
    """
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            if not container.get("imagePullPolicy"):
                image, _, digest = (container.get("image") or "").partition("@")
                tag = image.rpartition("/")[2].partition(":")[2]
                latest = not digest and tag in ("", "latest")
                container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    for volume in spec.get("volumes") or ():
        if len(volume) == 1:
            volume["emptyDir"] = {}


def default_pod_spec(spec: dict[str, Any]) -> None:
    """Fill in, in place, the defaults of a pod. The types must have been checked."""
    fill_defaults("PodSpec", spec)
    default_template(spec)
    if not spec.get("nodeName"):
        spec.pop("nodeName", None)
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    host_network = bool(spec.get("hostNetwork"))
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            if host_network:
                for port in container.get("ports") or ():
                    if not port.get("hostPort"):
                        port["hostPort"] = port.get("containerPort", 0)
            _requests_from_limits(container)
    _requests_from_limits(spec)


def _requests_from_limits(owner: dict[str, Any]) -> None:
    limits = (owner.get("resources") or {}).get("limits")
    if limits:
        requests = owner["resources"].get("requests") or {}
        for name, amount in limits.items():
            requests.setdefault(name, amount)
        owner["resources"]["requests"] = requests


def _first_status(spec: dict[str, Any]) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": "Pending", "qosClass": _qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": _GATED_MESSAGE}
        ]
    return status


def _qos_class(spec: dict[str, Any]) -> str:
    """QoS class: Guaranteed, Burstable or BestEffort, by cpu and memory of the pod level or of all containers."""
    owners = [spec] if spec.get("resources") else [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    any_amount, guaranteed = False, True
    for owner in owners:
        resources = owner.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = parse_quantity(requests.get(name, "0")).nanos, parse_quantity(limits.get(name, "0")).nanos
            any_amount = any_amount or bool(request or limit)
            guaranteed = guaranteed and bool(limit) and request == limit
    if not any_amount:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"

"""Binding and eviction subresources of pods.

Caller: ``store``. Rules: rules/metrics-and-client §7.3, rules/cycle §9; texts follow upstream
``registry/core/pod/storage``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Unpack

import msgspec

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.equality import same_json
from kubesched.api.kinds import BUDGETS, PODS
from kubesched.api.selectors import SelectorError, compile_label_selector
from kubesched.api.types import LabelSelector
from kubesched.api.wire import ApiError

from ..admission import Causes, check_preconditions
from ..schema import (
    Document,
    Stored,
    StoredPod,
    apply_strategic_patch,
    check_form,
    encode,
    encode_clean,
    has_condition,
    open_section,
)
from .deletion import Deleting, Deletion
from .records import Records
from .replicas import Replicas

__all__ = ["PodActions"]

_GATES: Final = b'"schedulingGates"'
_NODE_NAME: Final = b'"nodeName"'
#: Members of a patch of the status that needs no general merge.
_STATUS_PATCH: Final = frozenset({"metadata", "status"})
#: Members of a status that differ between pods with otherwise equal patches.
_OWN: Final = frozenset({"nominatedNodeName", "podIP", "podIPs", "hostIP", "hostIPs"})
#: Most patched statuses that are remembered. When there are more, all are forgotten.
_MOST_PATCHED: Final = 1 << 10


class PodActions:
    """Binding and eviction on one store."""

    def __init__(self, records: Records, deletion: Deletion) -> None:
        self._records = records
        self._pods = records.table(PODS)
        self._deletion = deletion
        #: Pods that were bound, by their template.
        self._bound: Replicas[tuple[bytes, bytes, bytes]] = Replicas(records.now)
        #: Text of the status after a patch, by the texts of status and patch.
        self._patched: dict[tuple[bytes, bytes], bytes] = {}

    def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node_name: str,
        *,
        annotations: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> Stored:
        """Set ``spec.nodeName`` once, condition PodScheduled to True, and clear ``status.nominatedNodeName``.

        The node need not exist, as upstream. ``annotations`` of the Binding are copied onto the pod.

        Raises:
            ApiError: 404 for no such pod; 409 when it is another pod by UID, is being deleted, is gated or is
                assigned already; 422 without a node name.
        """
        records = self._records
        if not node_name:
            causes = Causes()
            causes.required("target.name")
            raise ApiError.invalid(PODS, name, causes)
        old = self._pods.objects.get((namespace, name))
        if old is None:
            raise ApiError.not_found(PODS, name)
        check_preconditions(PODS, old, uid)
        template = None
        if isinstance(old, StoredPod) and not annotations and not dry_run:
            template = old.template
            like = self._bound.like(template) if template is not None else None
            placed = old.placed(node_name, like, records.resource_version + 1) if like is not None else None
            if placed is not None:  # only node and version differ
                return records.adopt(self._pods, placed, old)
        document = old.document()
        metadata = document["metadata"]
        if "deletionTimestamp" in metadata:
            raise _cannot_bind(name, f"pod {name} is being deleted, cannot be assigned to a host")
        document["spec"] = _spec_on_node(document, name, node_name)
        status = open_section(document, "status") or {}
        status.pop("nominatedNodeName", None)
        self._set_scheduled(status, metadata.get("generation", 0))
        document["status"] = status
        if annotations:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
        item = records.commit(PODS, document, old, dry_run=dry_run, same_metadata=not annotations)
        if template is not None:
            self._bound.add(template, item)
        return item

    def patch_status(self, old: Stored, patch: Any) -> Stored | None:
        """Apply a strategic merge patch of the status alone, as schedulers and kubelets send it, without the general
        merge.

        The result equals the result of the general merge. For other pods and patches, and for patches that must be
        refused, it does nothing and returns None; the caller then uses the general merge.
        """
        # Nearly always plain dicts. Recognising another mapping type takes much longer.
        if type(patch) is not dict or not patch.keys() <= _STATUS_PATCH or not isinstance(old, StoredPod):
            return None
        texts, wanted = old.texts, patch.get("status")
        if texts is None or type(wanted) is not dict or "$patch" in wanted:
            return None
        if "metadata" in patch and patch["metadata"] not in ({}, {"uid": old.uid}):
            return None
        try:
            after = self._patched_alike(texts[1], wanted)
        except ApiError:
            return None
        if after == texts[1]:
            return old
        records = self._records
        item = records.adopt(self._pods, old.next_version(records.resource_version + 1, after), old)
        records.settle_later()  # a pod that has ended may free its quota
        return item

    def _patched_alike(self, status: bytes, wanted: dict[str, Any]) -> bytes:
        """Patch a status as :func:`_patched` does, but remember the results for equal statuses and patches.

        Members that differ from pod to pod are patched separately and not remembered.
        """
        if b'IP"' in status or b'IPs"' in status or b'"nominatedNodeName"' in status:
            return _patched(status, wanted)
        own: dict[str, Any] = {}
        if not _OWN.isdisjoint(wanted):
            own = {name: value for name, value in wanted.items() if name.rpartition("/")[2] in _OWN}
            wanted = {name: value for name, value in wanted.items() if name not in own}
        key = status, encode_clean(wanted, nulls=True)
        after = self._patched.get(key)
        if after is None:
            if len(self._patched) >= _MOST_PATCHED:
                self._patched.clear()
            after = self._patched[key] = _patched(status, msgspec.json.decode(key[1]))
        return b"{%b}" % b",".join(filter(None, (after[1:-1], _patched(b"{}", own)[1:-1]))) if own else after

    def _set_scheduled(self, status: dict[str, Any], generation: int) -> None:
        """Set condition PodScheduled=True. Its transition time stays when the pod was scheduled already."""
        condition: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": self._records.now(),
        }
        if generation:
            condition["observedGeneration"] = generation
        conditions = status.get("conditions") or []
        before = next((one for one in conditions if one.get("type") == "PodScheduled"), None)
        if before and before.get("status") == "True" and before.get("lastTransitionTime"):
            condition["lastTransitionTime"] = before["lastTransitionTime"]
        others = [condition if one is before else one for one in conditions]
        status["conditions"] = others if before else [*others, condition]

    # -- eviction --------------------------------------------------------------------------------------

    def evict(self, namespace: str, name: str, **options: Unpack[Deleting]) -> None:
        """Delete a pod if its disruption budget allows it, and charge the budget.

        Raises:
            ApiError: 404, 409 for another UID or version, 429 when the budget allows no disruption or has not been
                computed yet, 500 when more than one budget selects the pod.
        """
        pod = self._records.get(PODS, namespace, name)
        check_preconditions(PODS, pod, options.get("uid", ""), options.get("resource_version", ""))
        data = pod.data()
        if not _needs_no_consent(data) and (budget := self._budget_of(pod)) is not None:
            self._charge(budget, data, dry_run=options.get("dry_run", False))
        if not options.get("dry_run"):
            pod = self._condemned(pod)
            options["resource_version"] = ""  # it was checked, and the condition changed it
        self._deletion.delete(pod, **options)
        self._records.settle_later()

    def _condemned(self, pod: Stored) -> Stored:
        """Return a pod with the condition that says why it ends. Rules: upstream ``addConditionAndDeletePod``."""
        document = pod.document()
        status, generation = open_section(document, "status") or {}, document["metadata"].get("generation")
        if has_condition({"status": status}, "DisruptionTarget"):
            return pod
        condition = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": self._records.now()}
        condition |= {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
        if generation:
            condition["observedGeneration"] = generation
        others = [one for one in status.get("conditions") or () if one.get("type") != condition["type"]]
        document["status"] = {**status, "conditions": [*others, condition]}
        return self._records.commit(PODS, document, pod, same_metadata=True)

    def _budget_of(self, pod: Stored) -> Stored | None:
        found = []
        for budget in self._records.table(BUDGETS).items(pod.namespace):
            selector = (budget.section("spec") or {}).get("selector")
            with suppress(DecodeError, SelectorError):  # an invalid selector protects nothing
                compiled = compile_label_selector(None if selector is None else from_builtins(selector, LabelSelector))
                if compiled.matches(pod.labels):
                    found.append(budget)
        if len(found) > 1:
            text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise ApiError(500, "InternalError", text)
        return found[0] if found else None

    def _charge(self, budget: Stored, pod: dict[str, Any], *, dry_run: bool) -> None:
        document = budget.document()
        spec, status = open_section(document, "spec") or {}, open_section(document, "status") or {}
        healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        if not has_condition(pod, "Ready"):
            always = spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
            if always or (healthy >= desired and desired > 0):
                return
        if status.get("observedGeneration", 0) < document["metadata"].get("generation", 0):
            raise _too_many(f"The disruption budget {budget.name} is still being processed by the server.", 10)
        allowed = status.get("disruptionsAllowed", 0)
        if allowed <= 0:
            text = f"The disruption budget {budget.name} needs {desired} healthy pods and has {healthy} currently"
            raise _too_many(text, 0)
        status["disruptionsAllowed"] = allowed - 1
        status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: self._records.now()}
        document["status"] = status
        self._records.commit(BUDGETS, document, budget, dry_run=dry_run)


def _cannot_bind(name: str, why: str) -> ApiError:
    details = {"name": name, "group": "", "kind": "pods/binding"}
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
    return ApiError(409, "Conflict", message, details)


def _spec_on_node(document: Document, name: str, node_name: str) -> Any:
    """Return the spec with a node name. The bytes are only opened when they may already have a node name, or gates."""
    raw = bytes(document["spec"])
    if _NODE_NAME not in raw and _GATES not in raw and len(raw) > 2:
        return msgspec.Raw(b'{"nodeName":' + encode(node_name) + b"," + raw[1:])
    spec = msgspec.json.decode(raw)
    if spec.get("nodeName"):
        raise _cannot_bind(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _cannot_bind(name, f"pod {name} has non-empty .spec.schedulingGates")
    spec["nodeName"] = node_name
    return spec


def _needs_no_consent(pod: dict[str, Any]) -> bool:
    """True for a pod that does not run, whose eviction is no disruption."""
    phase = (pod.get("status") or {}).get("phase")
    return bool(pod["metadata"].get("deletionTimestamp")) or phase in ("Succeeded", "Failed", "Pending")


def _too_many(cause: str, retry_after: int) -> ApiError:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    details: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return ApiError(429, "TooManyRequests", message, details)


def _patched(status: bytes, wanted: dict[str, Any]) -> bytes:
    """Return the text of a status with a patch applied. If nothing changes it is the given object."""
    after = apply_strategic_patch(msgspec.json.decode(status), wanted, ("status",))
    raw = encode_clean(after)
    if same_json(after, msgspec.json.decode(status)):
        return status
    check_form(PODS, b'{"status":%b}' % raw)
    return raw

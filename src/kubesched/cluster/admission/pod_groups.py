"""Admission of pod groups and of Jobs that have one: what lines of ``rules.txt`` cannot express.

Rules: rules/groups §3.4 to §4 (upstream ``pkg/registry/scheduling/podgroup`` and the admission plugins
PodGroupWorkloadExists, Priority and JobValidation). Callers: :mod:`.kinds` on create, :mod:`.updates` on update.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kubesched.api.groups import MODE_POD
from kubesched.api.kinds import JOBS, POD_GROUPS, WORKLOADS

from .checks import check_object
from .validation import Causes, forbidden

if TYPE_CHECKING:
    from .admission import Admission

__all__ = ["check_new_group", "check_parallelism", "check_status", "default_group", "resolve_priority"]

Data = dict[str, Any]

_STATUSES: Final = ("False", "True", "Unknown")
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_TEXT: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_'"
)
_LONGEST_REASON: Final = 1024
_LONGEST_MESSAGE: Final = 32 * 1024


def default_group(data: Data, admission: Admission) -> None:
    """Fill in the disruption mode, in place. An empty text is an error, not a missing value."""
    if data["spec"].get("disruptionMode") is None:
        data["spec"]["disruptionMode"] = MODE_POD


def resolve_priority(data: Data, admission: Admission) -> None:
    """Write priority and class of a new group, in place, by the rules for pods.

    Raises:
        ApiError: 403 for an unknown class, or a priority that is not that of the class.
    """
    spec, name = data["spec"], data["metadata"]["name"]
    if not admission.priority_admission or "WorkloadAwarePreemption" not in admission.features:
        return
    class_name = spec.get("priorityClassName") or ""
    found = admission.priority_class(class_name) if class_name else admission.global_default()
    if class_name and found is None:
        raise forbidden(POD_GROUPS, name, f"no PriorityClass with name {class_name} was found")
    computed, given = (found or {}).get("value") or 0, spec.get("priority")
    if given is not None and given != computed:
        why = f"priority set in the pod group ({given}) must match the priority computed ({computed}) based on the"
        raise forbidden(POD_GROUPS, name, f"{why} priority class set in the spec")
    spec["priority"] = computed
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]


def check_new_group(data: Data, admission: Admission) -> None:
    """Check that a new group's template exists. The template's contents are not compared.

    Raises:
        ApiError: 403.
    """
    wanted = (data["spec"].get("podGroupTemplateRef") or {}).get("workload")
    if not wanted or "GenericWorkload" not in admission.features:
        return
    metadata, name, template = data["metadata"], wanted["workloadName"], wanted["podGroupTemplateName"]
    item = admission.table_of(WORKLOADS).objects.get((metadata["namespace"], name))
    workload = item.data() if item is not None else None
    if workload is None:
        why = f'Workload "{name}" not found'
    elif workload["metadata"].get("deletionTimestamp"):
        why = f'Workload "{name}" is being deleted'
    elif all(one.get("name") != template for one in (workload.get("spec") or {}).get("podGroupTemplates") or ()):
        why = f'PodGroupTemplate "{template}" not found in Workload "{name}"'
    else:
        return
    raise forbidden(POD_GROUPS, metadata["name"], f"PodGroup rejected: {why}")


# -- updates -----------------------------------------------------------------------------------------------


def check_status(old: Data, new: Data, causes: Causes, admission: Admission) -> None:
    """Check the status of a group: its conditions, and that its claims are those of the spec.

    Without the gate, the status of claims that the spec does not have is dropped, in place.
    """
    status = new.get("status") or {}
    claims = {one.get("name") for one in (old.get("spec") or {}).get("resourceClaims") or ()}
    if "DRAWorkloadResourceClaims" not in admission.features and not claims:
        status.pop("resourceClaimStatuses", None)
    if not status:
        new.pop("status", None)
        return
    _check_conditions(status.get("conditions") or (), causes)
    check_object("V1alpha2PodGroupStatus", status, "status", causes)
    for index, one in enumerate(status.get("resourceClaimStatuses") or ()):
        if one.get("name") and one["name"] not in claims:
            why = "must match the name of an entry in `spec.resourceClaims`"
            causes.invalid(f"status.resourceClaimStatuses[{index}].name", one["name"], why)


def _check_conditions(conditions: Any, causes: Causes) -> None:
    """Check conditions as upstream's ``ValidateConditions`` does."""
    types: set[str] = set()
    for index, one in enumerate(conditions):
        path, type_ = f"status.conditions[{index}]", one.get("type") or ""
        if not type_:
            causes.required(f"{path}.type")
        else:
            causes.check_format("key!", f"{path}.type", type_)
        if type_ in types:
            causes.duplicate(f"{path}.type", type_)
        types.add(type_)
        if one.get("status") not in _STATUSES:
            causes.unsupported(f"{path}.status", one.get("status") or "", _STATUSES)
        if (generation := one.get("observedGeneration") or 0) < 0:
            causes.invalid(f"{path}.observedGeneration", generation, "must be greater than or equal to zero")
        if not one.get("lastTransitionTime"):
            causes.required(f"{path}.lastTransitionTime")
        _check_words(one, path, causes)


def _check_words(condition: Mapping[str, Any], path: str, causes: Causes) -> None:
    reason, message = condition.get("reason") or "", condition.get("message") or ""
    if not reason:
        causes.required(f"{path}.reason")
    elif len(reason) > _LONGEST_REASON:
        causes.too_long(f"{path}.reason", _LONGEST_REASON)
    elif not _REASON.fullmatch(reason):
        causes.invalid(f"{path}.reason", reason, _REASON_TEXT)
    if len(message.encode()) > _LONGEST_MESSAGE:
        causes.too_long(f"{path}.message", _LONGEST_MESSAGE)


def check_parallelism(old: Data, new: Data, causes: Causes, admission: Admission) -> None:
    """Check that the parallelism of a Job with a gang stays.

    Raises:
        ApiError: 403.
    """
    before, after = (data["spec"].get("parallelism") for data in (old, new))
    if before == after or not admission.features & {"GenericWorkload", "WorkloadWithJob"}:
        return
    for group in _groups_of(old, admission):
        if ((group.get("spec") or {}).get("schedulingPolicy") or {}).get("gang") is not None:
            name = group["metadata"]["name"]
            why = f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{name}"'
            raise forbidden(JOBS, old["metadata"]["name"], why)


def _groups_of(job: Data, admission: Admission) -> list[Data]:
    """Return the group that a Job's template names, or else the groups that the Job controls."""
    table, namespace = admission.table_of(POD_GROUPS), job["metadata"]["namespace"]
    named = ((job["spec"].get("template") or {}).get("spec") or {}).get("schedulingGroup")
    if named:
        item = table.objects.get((namespace, named.get("podGroupName") or ""))
        return [item.data()] if item is not None else []
    uid = job["metadata"]["uid"]
    owned = [item.data() for item in table.objects.values() if item.namespace == namespace and uid in item.owners]
    return [
        group
        for group in owned
        if any(one.get("uid") == uid and one.get("controller") for one in group["metadata"]["ownerReferences"])
    ]

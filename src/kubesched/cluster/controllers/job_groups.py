"""Pod groups of Jobs: a Workload and a PodGroup for each indexed Job that runs all its pods at once.

Works with the feature gate WorkloadWithJob. A Job whose objects are ambiguous or another owner's gets ordinary pods.
Caller: :mod:`.jobs`, before it makes pods. Rules: rules/groups §5.2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from kubesched.api.kinds import JOBS, POD_GROUPS, WORKLOADS
from kubesched.api.wire import ApiError, Item
from kubesched.client.event_writer import NORMAL

from ..schema import fnv_letters, has_condition
from .base import Controller
from .context import Context, controller_of, data_of, spec_of, status_of
from .pods import owner_reference

__all__ = ["JobGroups", "group_name", "is_eligible", "template_name", "workload_name"]

_log = logging.getLogger("kubesched.cluster.controllers")

#: Indexes: workloads by the Job that controls them, groups by their workload.
_BY_JOB, _BY_WORKLOAD = "job", "workload"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63


def is_eligible(spec: dict[str, Any]) -> bool:
    """True if a Job gets a group: it is indexed, runs all its pods at once, and its template names no group."""
    parallelism = spec.get("parallelism")
    return (
        spec.get("completionMode") == "Indexed"
        and parallelism is not None
        and parallelism > 1
        and spec.get("completions") == parallelism
        and not ((spec.get("template") or {}).get("spec") or {}).get("schedulingGroup")
    )


def workload_name(job: str, uid: str) -> str:
    """Return the name of a Job's workload. Jobs of one name but different UIDs get different names."""
    end = f"-{fnv_letters(uid)}"
    return job[: _LONGEST_NAME - len(end)].rstrip("-.") + end


def template_name(job: str) -> str:
    """Return the name of the only template, which is a DNS label: dots are replaced, and a long name is cut."""
    end = "-pgt-0"
    return job.replace(".", "-")[: _LONGEST_LABEL - len(end)].rstrip("-") + end


def group_name(workload: str, template: str) -> str:
    """Return the name of a group. Both parts get half of the room, and what the other one leaves."""
    end = f"-{fnv_letters(workload + template)}"
    room = _LONGEST_NAME - len(end) - 1
    half = room // 2
    first = workload[: max(half, room - len(template))].rstrip("-.")
    return f"{first}-{template[: room - len(first)].rstrip('-.')}{end}"


class JobGroups:
    """Maker of workloads and groups for a Jobs controller."""

    def __init__(self, context: Context, owner: Controller) -> None:
        self._context = context
        self._owner = owner
        self._workloads = context.cache(WORKLOADS)
        self._groups = context.cache(POD_GROUPS)
        self._workloads.add_index(_BY_JOB, _job_keys)
        self._groups.add_index(_BY_WORKLOAD, _workload_keys)

    async def group_of(self, job: Item) -> str:
        """Return the name of the Job's group, which is made if the Job is new; an empty text for ordinary pods.

        Raises:
            ApiError, OSError: when an object cannot be made.
        """
        if not is_eligible(spec_of(job)):
            return ""
        workload = await self._workload(job)
        return await self._group(job, workload) if workload is not None else ""

    async def _workload(self, job: Item) -> Item | None:
        """Return the Job's workload; None if the Job falls back to ordinary pods."""
        found = self._workloads.indexed(_BY_JOB, job.key)
        if len(found) > 1:
            text = "found %d Workloads referencing Job %s, falling back to default scheduling"
            _log.warning(text, len(found), job.key)
            return None
        if found:
            is_usable = len(spec_of(found[0]).get("podGroupTemplates") or ()) == 1 and _controls(job, found[0])
            return found[0] if is_usable else None
        if not self._is_new(job):
            return None
        template = {
            "name": template_name(job.name),
            "schedulingPolicy": {"gang": {"minCount": spec_of(job)["parallelism"]}},
        }
        reference = {"apiGroup": JOBS.group, "kind": JOBS.kind, "name": job.name}
        body = {
            "metadata": {"name": workload_name(job.name, job.uid), "ownerReferences": [owner_reference(job)]},
            "spec": {"controllerRef": reference, "podGroupTemplates": [template]},
        }
        made = await self._create(WORKLOADS, job, body)
        if made is not None:
            text = f"Created Workload {made.name} for Job {job.name}"
            await self._owner.record(job, NORMAL, "WorkloadCreated", text)
        return made

    async def _group(self, job: Item, workload: Item) -> str:
        """Return the name of the group of a workload; an empty text if the Job falls back to ordinary pods."""
        found = self._groups.indexed(_BY_WORKLOAD, workload.key)
        if len(found) > 1:
            text = "found %d PodGroups referencing Workload %s, falling back to default scheduling"
            _log.warning(text, len(found), workload.key)
            return ""
        if found:
            return found[0].name if _controls(job, found[0]) else ""
        (template,) = spec_of(workload)["podGroupTemplates"]
        reference = {"workloadName": workload.name, "podGroupTemplateName": template["name"]}
        plain_owner = {**owner_reference(workload), "controller": False, "blockOwnerDeletion": False}
        body = {
            "metadata": {
                "name": group_name(workload.name, template["name"]),
                "ownerReferences": [owner_reference(job), plain_owner],
            },
            "spec": {
                "podGroupTemplateRef": {"workload": reference},
                "schedulingPolicy": template["schedulingPolicy"],
            },
        }
        made = await self._create(POD_GROUPS, job, body)
        return made.name if made is not None else ""

    async def _create(self, kind: Any, job: Item, body: dict[str, Any]) -> Item | None:
        """Create an object. If its name is taken, return the object of that name if it is the Job's, else None."""
        try:
            return await self._context.create(kind, job.namespace, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        known = await self._context.get(kind, job.namespace, body["metadata"]["name"])
        return known if known is not None and _controls(job, known) else None

    def _is_new(self, job: Item) -> bool:
        """True if the Job has never had a pod, and was never suspended or resumed."""
        status = status_of(job)
        begun = any(status.get(name) for name in ("startTime", "succeeded", "failed"))
        suspended = any(has_condition(data_of(job), "Suspended", word) for word in ("True", "False", "Unknown"))
        return not (begun or suspended or self._context.owned_pods(job.uid))


def _controls(job: Item, item: Item) -> bool:
    owner = controller_of(item)
    return owner is not None and owner.uid == job.uid


def _job_keys(item: Item) -> Iterable[str]:
    reference = spec_of(item).get("controllerRef") or {}
    if (reference.get("apiGroup"), reference.get("kind")) == (JOBS.group, JOBS.kind):
        yield f"{item.namespace}/{reference.get('name')}"


def _workload_keys(item: Item) -> Iterable[str]:
    reference = item.typed.spec.pod_group_template_ref
    if reference is not None and reference.workload is not None:
        yield f"{item.namespace}/{reference.workload.workload_name}"

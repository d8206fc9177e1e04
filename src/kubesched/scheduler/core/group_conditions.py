"""Writer of pod groups' condition ``PodGroupScheduled``, beside the scheduling cycle.

A condition becomes True when the API server shows enough members on nodes, never before. So it tells the truth when a
binding is refused or the scheduler ends in the middle of a group; and once it is True it stays so. What was written last
is remembered until the informer shows it. What is there already is not written again.

Source: rules/groups §10.10.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from kubesched.api.groups import POD_GROUP_SCHEDULED, PodGroup
from kubesched.api.kinds import POD_GROUPS
from kubesched.api.types import Pod, PodCondition
from kubesched.api.wire import ApiError
from kubesched.base.at_once import begin
from kubesched.base.tasks import Supervisor
from kubesched.base.times import Clock, timestamp

from ..framework.status import Status
from ..nodes.pod_groups import PodGroupStates, group_key
from .group_room import least_of
from .port import Port
from .profiles import Profile
from .status_writer import StatusWriter

__all__ = ["HELD_BACK", "GroupConditions"]

_log = logging.getLogger("kubesched.scheduler")

#: Reason of the condition PodScheduled of a member that no gate but a plugin holds back.
HELD_BACK: Final = "HeldBack"
_TYPE: Final = POD_GROUP_SCHEDULED
#: Number of remembered conditions above which those of deleted groups are dropped.
_MANY: Final = 1024
_Condition = dict[str, Any]


class GroupConditions:
    """Writer of group conditions: one patch at a time per group, the newest wins."""

    def __init__(
        self,
        port: Port,
        groups: Mapping[str, PodGroup],
        states: PodGroupStates,
        profiles: Mapping[str, Profile],
        statuses: StatusWriter,
        supervisor: Supervisor,
        clock: Clock,
    ) -> None:
        """``groups`` are the known PodGroup objects by ``namespace/name``; ``profiles`` are by scheduler name."""
        self._port = port
        self._groups = groups
        self._states = states
        self._profiles = profiles
        self._statuses = statuses
        self._supervisor = supervisor
        self._clock = clock
        #: UID to the condition that was written last, until the informer shows it.
        self._written: dict[str, _Condition] = {}
        self._most = _MANY
        #: Key to (UID, all conditions) that wait to be written.
        self._waiting: dict[str, tuple[str, list[_Condition]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def bound(self, pod: Pod) -> None:
        """Take a pod that the API server shows on a node: it may have made its group's quorum.

        Pods that no scheduler has bound, such as those made with a node, do not make the condition True.
        """
        key = group_key(pod)
        if not key or not any(each.type == "PodScheduled" and each.status == "True" for each in pod.status.conditions):
            return
        state, least = self._states.get(key), self._least(key, pod)
        if state is not None and least and len(state.assigned) >= least:
            self.write(key, None)

    def catch_up(self) -> None:
        """Write the conditions that an earlier scheduler has left unwritten."""
        for key in self._states:
            state = self._states.get(key)
            for pod in state.assigned.values() if state is not None else ():
                self.bound(pod)

    def refused(self, pod: Pod, why: str) -> None:
        """Take a member that could not be bound, after it was given back. The quorum may be out of reach now."""
        key = group_key(pod)
        state, least = self._states.get(key), self._least(key, pod)
        if state is not None and state.scheduled < least:
            text = f"{state.scheduled} of {least} members have a node; binding {pod.name} failed: {why}"
            self.write(key, Status.from_error(text))

    def held_back(self, pod: Pod, plugin: str) -> None:
        """Take a member that a plugin holds back from the queue. A condition about gates that it has no more is replaced.

        Without that, it would keep the condition until its group is tried, perhaps for ever.
        """
        shown = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
        if shown is not None and shown.reason == "SchedulingGated" and not pod.spec.scheduling_gates:
            text = f"no scheduling gates are left; the pod is held back by {plugin}"
            held = PodCondition(type="PodScheduled", status="False", reason=HELD_BACK, message=text)
            self._statuses.write(pod, held, None)

    def _least(self, key: str, pod: Pod) -> int:
        group, profile = self._groups.get(key), self._profiles.get(pod.spec.scheduler_name)
        return least_of(group, profile.framework) if group is not None and profile is not None else 0

    def write(self, key: str, status: Status | None) -> None:
        """Write a group's condition for a status of its cycle; None is success."""
        group = self._groups.get(key)
        if group is None:
            _log.error("the condition of pod group %s cannot be written: the object does not exist", key)
            return
        uid = group.metadata.uid
        if not uid:
            return  # a group of another project, which was only read
        known = self._known(uid, group)
        new = _condition(status, group.metadata.generation or 0)
        if known is not None:
            if known["status"] == "True" and new["status"] != "True":
                return
            if all(known.get(name) == value for name, value in new.items()):
                return
        is_new = known is None or known["status"] != new["status"]
        new["lastTransitionTime"] = (
            timestamp(self._clock.now()) if is_new or known is None else known["lastTransitionTime"]
        )
        self._remember(uid, new)
        others = [_plain(each) for each in group.status.conditions if each.type != _TYPE]
        self._waiting[key] = uid, [*others, new]
        if key not in self._tasks:
            rest = begin(self._run(key), self._port.at_once)
            if rest is not None:
                self._tasks[key] = self._supervisor.spawn(rest, f"condition of pod group {key}", lasting=False)

    def _known(self, uid: str, group: PodGroup) -> _Condition | None:
        """Return a group's condition as it was written last, or as the informer shows it."""
        shown = next((_plain(each) for each in group.status.conditions if each.type == _TYPE), None)
        written = self._written.get(uid)
        if written is not None and shown == written:
            del self._written[uid]
        return written if written is not None else shown

    def _remember(self, uid: str, condition: _Condition) -> None:
        if len(self._written) >= self._most:
            live = {group.metadata.uid for group in self._groups.values()}
            self._written = {known: each for known, each in self._written.items() if known in live}
            self._most = max(_MANY, 2 * len(self._written))
        self._written[uid] = condition

    async def finish(self) -> None:
        """Wait until all conditions are written."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _run(self, key: str) -> None:
        try:
            while (waiting := self._waiting.pop(key, None)) is not None:
                await self._send(key, *waiting)
        finally:
            self._tasks.pop(key, None)

    async def _send(self, key: str, uid: str, conditions: list[_Condition]) -> None:
        namespace, _, name = key.partition("/")
        patch = {"metadata": {"uid": uid}, "status": {"conditions": conditions}}
        try:
            await self._port.patch_object(POD_GROUPS, namespace, name, patch, subresource="status")
        except Exception as error:
            self._written.pop(uid, None)
            if isinstance(error, ApiError | OSError):
                level = logging.DEBUG if isinstance(error, ApiError) and error.code == 404 else logging.ERROR
                _log.log(level, "cannot patch the status of pod group %s: %s", key, error)
            else:
                _log.error("patching the status of pod group %s failed unexpectedly", key, exc_info=error)


def _condition(status: Status | None, generation: int) -> _Condition:
    """Return the condition for a cycle's status, without a time."""
    if status is None:
        outcome = ("True", "Scheduled", "")
    elif status.is_rejected:
        outcome = ("False", "Unschedulable", status.message())
    else:
        outcome = ("False", "SchedulerError", status.message())
    condition: _Condition = dict(zip(("status", "reason", "message"), outcome, strict=True), type=_TYPE)
    if generation:
        condition["observedGeneration"] = generation
    return condition


def _plain(condition: Any) -> _Condition:
    plain = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.last_transition_time,
    }
    if condition.observed_generation:
        plain["observedGeneration"] = condition.observed_generation
    return plain

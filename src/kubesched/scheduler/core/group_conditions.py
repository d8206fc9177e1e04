"""Writer of pod groups' condition ``PodGroupScheduled``, beside the scheduling cycle.

A condition that is True never goes back: what was written last is remembered until the informer shows it. A cycle that
would write what is there already writes nothing.

Source: rules/groups §10.10.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from kubesched.api.groups import POD_GROUP_SCHEDULED, PodGroup
from kubesched.api.kinds import POD_GROUPS
from kubesched.api.wire import ApiError
from kubesched.base.at_once import begin
from kubesched.base.tasks import Supervisor
from kubesched.base.times import Clock, timestamp

from ..framework.status import Status
from .port import Port

__all__ = ["GroupConditions"]

_log = logging.getLogger("kubesched.scheduler")

_TYPE: Final = POD_GROUP_SCHEDULED
#: Number of remembered conditions above which those of deleted groups are dropped.
_MANY: Final = 1024
_Condition = dict[str, Any]


class GroupConditions:
    """Writer of group conditions: one patch at a time per group, the newest wins."""

    def __init__(self, port: Port, groups: Mapping[str, PodGroup], supervisor: Supervisor, clock: Clock) -> None:
        """``groups`` are the known PodGroup objects by ``namespace/name``."""
        self._port = port
        self._groups = groups
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

"""Pod group that is explained: its object, its members, and who of them may be tried now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kubesched.api.groups import POD_GROUP_SCHEDULED, PodGroup
from kubesched.api.kinds import POD_GROUPS
from kubesched.api.types import Pod
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.nodes import PodInfo
from kubesched.scheduler.scheduler import Scheduler

__all__ = ["Subject", "subject_of"]

#: Plugin that holds members until enough of them exist, which a change of a single member does not help against.
_QUORUM = "GangScheduling"


@dataclass(slots=True)
class Subject:
    """Pod group with its members by what holds them.

    Attributes:
        key: ``namespace/name``.
        group: the object; None if it does not exist.
        members: number of all members.
        scheduled: members that have a node.
        queued: members that may be tried now, or once enough members exist.
        gated: members that a plugin holds before the queue.
        deleting: members without a node that are being deleted.
        held: message of the plugin that holds the first held member, be it for the quorum.
        problem: what makes an attempt of the group fail; empty if nothing.
    """

    key: str
    group: PodGroup | None
    members: int = 0
    scheduled: list[Pod] = field(default_factory=list)
    queued: list[Pod] = field(default_factory=list)
    gated: list[Pod] = field(default_factory=list)
    deleting: list[Pod] = field(default_factory=list)
    held: str = ""
    problem: str = ""

    @property
    def is_gang(self) -> bool:
        return self.group is not None and self.group.spec.scheduling_policy.gang is not None

    @property
    def topology(self) -> str:
        """Label that confines the group; empty for none."""
        constraints = self.group.spec.scheduling_constraints if self.group is not None else None
        return constraints.topology[0].key if constraints is not None and constraints.topology else ""

    @property
    def needed(self) -> int:
        """Number of members that have to find a node: what is missing to the quorum, or all of a basic group."""
        if self.group is not None and self.is_gang:
            return max(0, self.group.min_count - len(self.scheduled))
        return len(self.queued) + len(self.gated)

    @property
    def unplaced(self) -> Sequence[Pod]:
        return (*self.queued, *self.gated, *self.deleting)

    @property
    def uids(self) -> tuple[set[str], set[str]]:
        """UIDs of the members that may be tried, and of the others without a node."""
        return {pod.uid for pod in self.queued}, {pod.uid for pod in (*self.gated, *self.deleting)}

    @property
    def condition(self) -> str:
        """Message of the group's condition, if it is not True; else the message of the plugin that holds members."""
        conditions = self.group.status.conditions if self.group is not None else ()
        shown = next((one for one in conditions if one.type == POD_GROUP_SCHEDULED and one.status != "True"), None)
        return shown.message if shown is not None and shown.message else self.held


def subject_of(scheduler: Scheduler, key: str) -> Subject:
    """Return a group as the scheduler knows it now. A member's pod lacks the fields that feature gates turn off."""
    subject = Subject(key, scheduler.informers.objects(POD_GROUPS.plural).get(key))
    state = scheduler.groups.get(key) if scheduler.groups is not None else None
    if state is None:
        return subject
    subject.members, subject.scheduled = len(state.all), list(state.scheduled_pods())
    names = sorted({pod.spec.scheduler_name for pod in state.unscheduled.values()})
    unknown = [name for name in names if name not in scheduler.profiles]
    if unknown:
        subject.problem = f'no profile is named "{unknown[0]}" (there is {", ".join(scheduler.profiles)})'
    elif len(names) > 1:
        subject.problem = f"its members name several schedulers ({', '.join(names)}); a group needs one"
    for pod in state.unscheduled.values():
        _sort(scheduler, subject, pod)
    return subject


def _sort(scheduler: Scheduler, subject: Subject, pod: Pod) -> None:
    """Put a member without a node where it belongs."""
    if pod.metadata.deletion_timestamp is not None:
        subject.deleting.append(pod)
        return
    framework = scheduler.frameworks.get(pod.spec.scheduler_name)
    plugins = framework.pre_enqueue_plugins if framework is not None else {}
    try:
        found = [(name, plugin(PodInfo(pod))) for name, plugin in plugins.items()]
    except PluginFailedError as error:
        subject.problem, found = str(error), []
    held = [(name, status) for name, status in found if status is not None]
    by_pod = [status for name, status in held if name != _QUORUM]
    if held:
        subject.held = subject.held or (by_pod[0] if by_pod else held[0][1]).message()
    (subject.gated if by_pod else subject.queued).append(pod)

"""PostFilter: what preemption would do for a rejected pod, compared with the record.

The status of the whole stage, the node nominated and whether a nomination is cleared come from running the
profile's PostFilter plugins. Victims and nodes tried in vain are compared when the plugin can list them
(:class:`ListsCandidates`). A profile with a PostFilter plugin that is not built is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interface import NodeToStatus, PostFilterResult
from kubesched.framework.nominating import NominatingMode
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Code, Status, is_success

from .attempts import rejection_of, status_of
from .comparison import Comparison
from .needs import missing_plugins, not_built
from .server import completed
from .wording import without_wording
from .world import World

__all__ = [
    "DEALLOCATED",
    "PREEMPTION_KINDS",
    "ListsCandidates",
    "apply_deallocation",
    "compare_effects",
    "compare_preemption",
    "post_filter_text",
]

JSON = dict[str, Any]

#: Member of the record to its record kind; a record has those that are there.
PREEMPTION_KINDS: Final = {
    "status": "preemption.status",
    "nominated": "preemption.nominated",
    "cleared": "preemption.cleared",
    "candidates": "preemption.candidates",
    "rejected": "preemption.rejected",
}
#: The reason when a claim lost its devices for a pod.
DEALLOCATED: Final = "deallocation of ResourceClaim completed"
_NO_LIST: Final = "no PostFilter plugin lists its candidates (method list_candidates)"


@runtime_checkable
class ListsCandidates(Protocol):
    """A PostFilter plugin that can report its candidates without doing anything.

    The first value is node name to (victims, most important first; number of violated disruption budgets), for
    every node where preemption helps, as if the number of candidates had no limit; the second is node name to the
    status of each node that was tried in vain.
    """

    def list_candidates(
        self, state: CycleState, pod: PodInfo, statuses: NodeToStatus
    ) -> tuple[Mapping[str, tuple[Sequence[PodInfo], int]], Mapping[str, Status]]: ...


def post_filter_text(record: JSON | None) -> str:
    """What the recorded PostFilter stage adds to the pod's message, with the space before it."""
    if record is None or record["status"]["code"] == Code.SUCCESS.label:
        return ""
    text = ", ".join(record["status"].get("reasons", ()))
    return f" {text}" if text else ""


def compare_preemption(comparison: Comparison, world: World, pod: PodInfo, record: JSON, where: str) -> None:
    """Run the PostFilter stage and compare every member of the record."""
    missing = missing_plugins(world, pod, "postFilter")
    if missing:
        for member in PREEMPTION_KINDS.keys() & record.keys():
            comparison.leave(PREEMPTION_KINDS[member], not_built(missing[0]))
        return
    rejection = rejection_of(world, pod)
    framework = world.frameworks[pod.spec.scheduler_name]
    answer = framework.post_filter(rejection.state, pod, rejection.diagnosis.statuses)
    result, status = answer if isinstance(answer, tuple) else completed(answer)
    wanted = record["status"]
    got = _status(status, "plugin" in wanted)
    comparison.check("preemption.status", f"{where}: preemption.status", without_wording(wanted), without_wording(got))
    world.server.settle(keep=False)
    node, cleared = _nomination(result)
    _compare_nomination(comparison, record, node, cleared, where)
    rejection = rejection_of(world, pod)  # with a state that no plugin has worked on
    for plugin in (framework.plugins[name] for name, _ in framework.points["postFilter"]):
        if isinstance(plugin, ListsCandidates):
            _compare_candidates(comparison, record, plugin, (rejection.state, pod, rejection.diagnosis.statuses), where)
            return
    for member in ("candidates", "rejected"):
        if member in record:
            comparison.leave(PREEMPTION_KINDS[member], _NO_LIST)


def compare_effects(comparison: Comparison, world: World, pod: PodInfo, step: JSON, where: str) -> None:
    """Let PostFilter really preempt, and compare what it did with a step: node, victims, nominations that ended.

    Of several nodes that are as good as each other the record has the first by name; chance is set until it is taken.
    """
    missing = missing_plugins(world, pod, "postFilter")
    if missing:
        for kind in ("node", "victims", "clearedNominations"):
            comparison.leave(kind, not_built(missing[0]))
        return
    node = ""
    for number in range(len(world.snapshot.nodes())):
        world.chance.drawn = number
        rejection = rejection_of(world, pod)
        world.server.settle(keep=False)
        framework = world.frameworks[pod.spec.scheduler_name]
        answer = framework.post_filter(rejection.state, pod, rejection.diagnosis.statuses)
        node, _ = _nomination((answer if isinstance(answer, tuple) else completed(answer))[0])
        if node == step["node"]:
            break
    world.chance.drawn = 0
    deleted, denominated = world.server.deleted, world.server.denominated
    world.server.settle(keep=False)
    comparison.check("node", f"{where}: node", step["node"], node)
    # Those that are being deleted already are left alone.
    ending = {each.key for each in world.cache.pods.values() if each.metadata.deletion_timestamp is not None}
    victims = set(step["preemption"]["candidates"].get(step["node"], {}).get("victims", ())) - ending
    comparison.check("victims", f"{where}: victims", sorted(victims), sorted(deleted))
    comparison.check(
        "clearedNominations",
        f"{where}: clearedNominations",
        sorted(step.get("clearedNominations", ())),
        sorted(denominated),
    )


def apply_deallocation(world: World, pod: PodInfo) -> None:
    """Let the deallocation of a claim that PostFilter of a rejected pod led to take effect."""
    rejection = rejection_of(world, pod)
    answer = world.frameworks[pod.spec.scheduler_name].post_filter(rejection.state, pod, rejection.diagnosis.statuses)
    if not isinstance(answer, tuple):
        completed(answer)
    world.server.settle(keep=True)


def _status(status: Status | None, with_plugin: bool) -> JSON:
    if status is None or is_success(status):
        return {"code": Code.SUCCESS.label}
    return {**status_of(status), **({"plugin": status.plugin} if with_plugin else {})}


def _nomination(result: PostFilterResult | None) -> tuple[str, bool]:
    """The node nominated ("" for none), and whether an earlier nomination ends."""
    nominating = result.nominating if result is not None else None
    if nominating is None or nominating.mode is not NominatingMode.OVERRIDE:
        return "", False
    return nominating.nominated_node_name, not nominating.nominated_node_name


def _compare_nomination(comparison: Comparison, record: JSON, node: str, cleared: bool, where: str) -> None:
    kind = PREEMPTION_KINDS["nominated"]
    if node and node in record["nominated"]:
        comparison.check(kind, where, node, node)  # any of them is right
    else:
        comparison.check(kind, f"{where}: preemption.nominated", record["nominated"], [node] if node else [])
    if "cleared" in record or cleared:
        comparison.check(
            PREEMPTION_KINDS["cleared"], f"{where}: preemption.cleared", record.get("cleared", False), cleared
        )


def _compare_candidates(
    comparison: Comparison,
    record: JSON,
    plugin: ListsCandidates,
    question: tuple[CycleState, PodInfo, NodeToStatus],
    where: str,
) -> None:
    candidates, rejected = plugin.list_candidates(*question)
    found: dict[str, JSON] = {
        "candidates": {
            node: {"victims": [victim.key for victim in victims], "numPDBViolations": violations}
            for node, (victims, violations) in candidates.items()
        },
        "rejected": {
            node: {
                **({"plugin": status.plugin} if status.plugin else {}),
                "code": status.code.label,
                "reasons": sorted(status.reasons()),
            }
            for node, status in rejected.items()
        },
    }
    for member, got in found.items():
        if member in record or got:
            want = record.get(member, {})
            pair = [{node: without_wording(each) for node, each in one.items()} for one in (want, got)]
            comparison.check(PREEMPTION_KINDS[member], f"{where}: preemption.{member}", *pair)

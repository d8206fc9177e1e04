"""PostFilter for a rejected pod, compared with the record: status, nominated node, candidates.

The status of the whole stage, the node nominated and the end of a nomination come from running the profile's PostFilter
plugins. Victims and nodes tried in vain are compared when the plugin can list them
(:class:`.candidates.ListsCandidates`). A profile with a PostFilter plugin that is not built is not compared.
"""

from __future__ import annotations

from typing import Any, Final

from kubesched.base.at_once import completed
from kubesched.scheduler.framework.interface import PostFilterResult
from kubesched.scheduler.framework.status import Code, Status, is_success
from kubesched.scheduler.nodes.nominating import NominatingMode
from kubesched.scheduler.nodes.podinfo import PodInfo

from .candidates import ListsCandidates, Question, listed, lister
from .comparison import Comparison
from .equal_victims import arrange, in_any_order
from .needs import missing_plugins, not_built
from .wording import without_wording
from .world import World
from .written_attempt import rejection_of, status_of

__all__ = [
    "PREEMPTION_KINDS",
    "apply_deallocation",
    "compare_effects",
    "compare_preemption",
    "post_filter_text",
]

JSON = dict[str, Any]

#: Kinds of records by member. A record has some of these members.
PREEMPTION_KINDS: Final = {
    "status": "preemption.status",
    "nominated": "preemption.nominated",
    "cleared": "preemption.cleared",
    "candidates": "preemption.candidates",
    "rejected": "preemption.rejected",
}
_NO_LIST: Final = "no PostFilter plugin lists its candidates (method list_candidates)"


def post_filter_text(record: JSON | None) -> str:
    """Return the text that the recorded PostFilter stage adds to the pod's message, with the space before it."""
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
    if world.reading.equal_victims_as_recorded:
        arrange(world, pod, record)
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
    plugin = lister(world, pod)
    if plugin is not None:
        rejection = rejection_of(world, pod)  # with a state that no plugin has written
        question = (rejection.state, pod, rejection.diagnosis.statuses)
        _compare_candidates(comparison, world, record, plugin, question, where)
        return
    for member in ("candidates", "rejected"):
        if member in record:
            comparison.leave(PREEMPTION_KINDS[member], _NO_LIST)


def compare_effects(comparison: Comparison, world: World, pod: PodInfo, step: JSON, where: str) -> None:
    """Let PostFilter really preempt, and compare its effects with a step: node, victims, nominations that ended.

    If several nodes are equally good, the record has the first by name. The random share is varied until that node is
    chosen.
    """
    missing = missing_plugins(world, pod, "postFilter")
    if missing:
        for kind in ("node", "victims", "clearedNominations"):
            comparison.leave(kind, not_built(missing[0]))
        return
    node = ""
    places = len(rejection_of(world, pod).diagnosis.statuses.nodes_for_code(Code.UNSCHEDULABLE))
    # One more place than nodes is tried, because the first search may begin where an earlier search without success
    # began.
    for place in range(places + 1):
        world.chance.share = (place + 0.5) / (places + 1)
        rejection = rejection_of(world, pod)
        world.server.settle(keep=False)
        framework = world.frameworks[pod.spec.scheduler_name]
        answer = framework.post_filter(rejection.state, pod, rejection.diagnosis.statuses)
        node, _ = _nomination((answer if isinstance(answer, tuple) else completed(answer))[0])
        if node == step["node"]:
            break
    world.chance.share = 0.0
    deleted, denominated = world.server.deleted, world.server.denominated
    world.server.settle(keep=False)
    comparison.check("node", f"{where}: node", step["node"], node)
    # PostFilter does not delete pods that are being deleted already.
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
    """Apply the deallocation of a claim, if PostFilter of a rejected pod led to one."""
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
    """Return the node nominated ("" for none), and True if an earlier nomination ends."""
    nominating = result.nominating if result is not None else None
    if nominating is None or nominating.mode is not NominatingMode.OVERRIDE:
        return "", False
    return nominating.nominated_node_name, not nominating.nominated_node_name


def _compare_nomination(comparison: Comparison, record: JSON, node: str, cleared: bool, where: str) -> None:
    kind = PREEMPTION_KINDS["nominated"]
    if node and node in record["nominated"]:
        comparison.check(kind, where, node, node)  # any equally good node is right
    else:
        comparison.check(kind, f"{where}: preemption.nominated", record["nominated"], [node] if node else [])
    if "cleared" in record or cleared:
        comparison.check(
            PREEMPTION_KINDS["cleared"], f"{where}: preemption.cleared", record.get("cleared", False), cleared
        )


def _compare_candidates(
    comparison: Comparison,
    world: World,
    record: JSON,
    plugin: ListsCandidates,
    question: Question,
    where: str,
) -> None:
    for member, found in listed(plugin, question).items():
        if member in record or found:
            want, got = record.get(member, {}), found
            if world.reading.equal_victims_as_recorded and member == "candidates":
                want, got = in_any_order(world, want), in_any_order(world, got)
            pair = [{node: without_wording(each) for node, each in one.items()} for one in (want, got)]
            comparison.check(PREEMPTION_KINDS[member], f"{where}: preemption.{member}", *pair)

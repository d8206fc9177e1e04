"""Comparison of a recorded attempt with ours, member by member."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kubesched.scheduler.framework.status import Code
from kubesched.scheduler.nodes.podinfo import PodInfo

from .comparison import Comparison
from .devices import devices_member
from .needs import missing_plugin, missing_plugins, not_built
from .preemption import PREEMPTION_KINDS, compare_preemption, post_filter_text
from .wording import failed_plugin, without_wording
from .world import World
from .written_attempt import evaluated, found

__all__ = ["FINDS", "compare_attempt"]

JSON = dict[str, Any]

#: Number of calls of ``Search.find`` for each pod: the first computes the answer, the others read the cache.
FINDS: Final = 3
_CHANCE: Final = "which nodes are filtered before a plugin fails depends on chance"
_KINDS: Final = {"preFilter": ("preFilter.code", "preFilter.nodes", "preFilter.skipped")}
#: Members that identify the attempt, or follow from it and are compared there.
_ADDRESS: Final = frozenset({"pod", "pass", "node", "clearedNominations", "reserve"})


def compare_attempt(comparison: Comparison, world: World, pod: PodInfo, expected: JSON, where: str) -> JSON | None:
    """Evaluate the pod, find its node, and compare the verdicts and the node with the recorded ones. Return our own record.

    A record is left out as a whole if it needs a plugin that is not built; the result is None then.
    """
    missing = missing_plugin(world, pod)
    if missing is not None:
        _leave_all(comparison, expected, not_built(missing))
        return None
    answer = evaluated(world, pod)
    if not comparison.check("outcome", f"{where}: outcome", expected["outcome"], answer["outcome"]):
        return answer
    _Attempt(comparison, world, pod, expected, answer, where).compare()
    if expected["outcome"] != "gated":
        for number in range(1, FINDS + 1):
            _compare_find(comparison, expected, found(world, pod), _errors(expected, answer), f"{where}: find {number}")
    return answer


def _leave_all(comparison: Comparison, expected: JSON, reason: str) -> None:
    for member, value in expected.items():
        if member in _ADDRESS and member != "node":
            continue
        if member == "preemption":
            kinds: Iterable[str] = (PREEMPTION_KINDS[name] for name in PREEMPTION_KINDS.keys() & value.keys())
        else:
            kinds = _KINDS.get(member, (member,))
        for kind in kinds:
            comparison.leave(kind, reason)
    comparison.leave("find", reason)


class _Attempt:
    """Comparison of one attempt's members."""

    def __init__(
        self, comparison: Comparison, world: World, pod: PodInfo, expected: JSON, answer: JSON, where: str
    ) -> None:
        self.comparison = comparison
        self.world = world
        self.pod = pod
        self.expected = expected
        self.answer = answer
        self.where = where
        self._met = {"outcome", *_ADDRESS}

    def compare(self) -> None:
        """Compare every member of the record, or leave it out with a reason."""
        self._compare()
        for member in self.expected.keys() - self._met:
            if self.expected["outcome"] == "error" and member in ("unschedulablePlugins", "pendingPlugins"):
                self.comparison.leave(member, _CHANCE)
            else:
                self.comparison.leave(member, f"{member} is not compared here")

    def _compare(self) -> None:
        expected, answer = self.expected, self.answer
        for member in ("feasible", "best"):
            if member in expected:
                self._check(member, expected[member], answer[member])
        if expected["outcome"] == "gated":
            self._check("preEnqueue", expected["preEnqueue"], answer["preEnqueue"])
            return
        if "preFilter" in expected:
            self._pre_filter(expected["preFilter"], answer.get("preFilter", {}))
            self._filters()
        if "nominatedNodeUsed" in expected or "nominatedNodeUsed" in answer:
            self._check("nominatedNodeUsed", expected.get("nominatedNodeUsed"), answer.get("nominatedNodeUsed"))
        outcome = expected["outcome"]
        if outcome == "scheduled":
            self._scores()
            self._devices()
        elif outcome == "unschedulable":
            self._unschedulable()
        else:
            self._met.add("message")
            any_of = _errors(expected, answer)
            self.comparison.check_error(
                "message", f"{self.where}: message", expected["message"], answer["message"], any_of
            )

    def _check(self, kind: str, want: Any, got: Any, what: str = "") -> None:
        self._met.add(kind.split(".", maxsplit=1)[0])
        self.comparison.check(kind, f"{self.where}: {what or kind}", want, got)

    def _pre_filter(self, want: JSON, got: JSON) -> None:
        for member in ("code", "nodes"):
            self._check(f"preFilter.{member}", want.get(member), got.get(member))
        if want["code"] != Code.SUCCESS.label:
            self._check("preFilter.plugin", want.get("plugin", ""), got.get("plugin"))
            wanted, given = want.get("reasons", []), got.get("reasons", [])
            if want["code"] == Code.ERROR.label:
                wanted, given = ([failed_plugin(text) for text in texts] for texts in (wanted, given))
            self._check("preFilter.reasons", wanted, given)
        skipped = set(got.get("skipped", ()))
        missing = missing_plugins(self.world, self.pod, "preFilter")
        if want["code"] == Code.SUCCESS.label:
            skipped.update(missing)  # these plugins have nothing to do for the pod
        else:
            skipped.update(name for name in missing if name in want["skipped"])  # plugins before the one that stopped
        self._check("preFilter.skipped", want["skipped"], sorted(skipped))

    def _filters(self) -> None:
        # The record does not list nodes outside those that PreFilter allows.
        allowed = self.expected["preFilter"].get("nodes")
        got = {
            name: status
            for name, status in self.answer.get("filters", {}).items()
            if allowed is None or name in allowed
        }
        want, got = (
            {name: without_wording(status) for name, status in each.items()}
            for each in (self.expected.get("filters", {}), got)
        )
        self._check("filters", want, got)

    def _scores(self) -> None:
        expected, answer = self.expected, self.answer
        if "scoreSkipped" in expected:
            # A missing plugin that extends PreScore would have skipped the pod. Any other missing plugin adds zero.
            missing = missing_plugins(self.world, self.pod, "preScore")
            skipped = sorted({*answer.get("scoreSkipped", ()), *missing})
            self._check("scoreSkipped", expected["scoreSkipped"], skipped)
        if "scores" in expected:
            # Plugins that the pod does not concern add zero, too.
            absent = self.world.searches[self.pod.spec.scheduler_name].ask(self.pod).plan.absent
            zeros = absent.union(missing_plugins(self.world, self.pod, "score"))
            self._met.add("scores")
            scores = answer.get("scores", {})
            for plugin, want in expected["scores"].items():
                zero = dict.fromkeys(want, 0) if plugin in zeros else None
                self._check("scores", want, scores.get(plugin, zero), f"scores of {plugin}")
            for plugin in scores.keys() - expected["scores"].keys():
                self._check("scores", None, scores[plugin], f"scores of {plugin}")
        if "totals" in expected or "totals" in answer:
            self._check("totals", expected.get("totals"), answer.get("totals"))
        planned = answer.get("volumes", {})
        if "node" in expected:  # a step of a sequence records only the chosen node
            planned = {node: record for node, record in planned.items() if node == expected["node"]}
        if "volumes" in expected or planned:
            self._check("volumes", expected.get("volumes", {}), planned)

    def _devices(self) -> None:
        """Compare the devices. A step of a sequence records only the chosen node."""
        got = devices_member(self.answer["allocations"])
        if "node" in self.expected:
            got = {name: listed for name, listed in got.items() if name == self.expected["node"]}
        if "devices" in self.expected or got:
            self._check("devices", self.expected.get("devices"), got)

    def _unschedulable(self) -> None:
        expected, answer = self.expected, self.answer
        preemption = expected.get("preemption")
        self._check("message", expected["message"], answer["message"] + post_filter_text(preemption))
        for member in ("unschedulablePlugins", "pendingPlugins"):
            self._check(member, expected.get(member, []), answer[member])
        if preemption is not None:
            self._met.add("preemption")
            compare_preemption(self.comparison, self.world, self.pod, preemption, self.where)


def _errors(expected: JSON, answer: JSON) -> set[str]:
    """Return the errors of single nodes, without their wording. The attempt may end with any of them.

    They are read from the record, or from our answer if the record does not list nodes.
    """
    filters = expected.get("filters", {}) if "preFilter" in expected else answer.get("filters", {})
    failed = [each for each in filters.values() if each["code"] == Code.ERROR.label]
    return {failed_plugin(reason) for each in failed for reason in each["reasons"]}


def _compare_find(comparison: Comparison, expected: JSON, answer: JSON, errors: set[str], where: str) -> None:
    """Check that the node found is one of the best, or that a rejection has the recorded message."""
    outcome = expected["outcome"]
    if answer["outcome"] != outcome:
        comparison.check("find", f"{where}: outcome", outcome, answer["outcome"])
    elif outcome == "scheduled":
        if answer["node"] in expected["best"]:
            comparison.passed["find"] += 1
        else:
            comparison.fail("find", f"{where}: expected one of {expected['best']}, got {answer['node']}")
    elif outcome == "error":
        comparison.check_error("find", where, expected["message"], answer["message"], errors)
    else:
        text = post_filter_text(expected.get("preemption"))
        want = {
            "message": expected["message"],
            "unschedulablePlugins": expected.get("unschedulablePlugins", []),
            "pendingPlugins": expected.get("pendingPlugins", []),
        }
        got = {**answer, "message": answer["message"] + text}
        comparison.check("find", where, want, {name: got[name] for name in want})

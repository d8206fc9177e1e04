"""Golden vectors about pod groups: scenarios of operations, replayed against an embedded cluster and the scheduler.

Facts that were equal in every recorded run are compared as they are. Of the others, chance decides; what was seen is
compared with what is found, and whatever holds in every run is checked.

The format is described in the README next to the golden files; :mod:`.group_play` plays, :mod:`.group_facts` looks.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubesched.cluster.schema import drop_nulls
from kubesched.scheduler.config import ConfigError, FeatureGateError, FeatureGates
from kubesched.scheduler.framework.registry import Registry

from ..simulate.run.virtual_time import run_virtual
from .comparison import Comparison
from .group_facts import facts_of
from .group_play import Player
from .group_promises import CHANCE, broken_promises, contended, promised, told_otherwise, without_nodes, without_words
from .group_readings import AS_IT_IS, Reading, readings

__all__ = ["Level", "compare_facts", "compare_groups", "facts_of_phases"]

JSON = dict[str, Any]

_TOLD: Final = "members that are not tried as often are not told as much"
_EVENTS: Final = frozenset({"events", "eventsCoarse"})
#: Facts that name nodes.
_PLACES: Final = frozenset({"pods", "podsCoarse", "nodes", "groupNodes", "events", "groups"})
_OWN_WAYS: Final = "how Kubernetes' queue takes groups up again is its own affair"
#: Facts about the inner ways of the recorded scheduler.
_INNER: Final = frozenset({"queue", "cycles", "metrics", "settled"})
_CHANCE: Final = "chance decides, and no recorded run came to this"
_TWICE: Final = re.compile(r"\{\{([^{}]*)\} \+\d+\}")
#: Facts whose order does not count, and the member by which they are put in order.
_UNORDERED: Final = frozenset({"pods", "podsCoarse", "events", "eventsCoarse"})


class Level(enum.Enum):
    """Strictness of a comparison of facts."""

    #: As they are.
    EXACT = "exact"
    #: Without the names of nodes.
    NODES = "nodes"
    #: Without the names of nodes, and without what members and groups are told.
    TOLD = "told"
    #: Only what always holds: all or none of a gang, and members that share a claim where its devices are.
    ALWAYS = "always"


def compare_groups(comparison: Comparison, vector: JSON, registry: Registry) -> tuple[Comparison, str]:
    """Compare every fact after every phase, and the failure to start.

    Return the comparison, and the declared differences that explain the vector; "" if none was needed, or none does.
    """
    expected = vector["expected"]
    try:
        found = facts_of_phases(vector, registry)
    except (ConfigError, FeatureGateError) as error:
        comparison.check("startError", "startError", "startError" in expected, True)
        if "startError" not in expected:
            comparison.fail("vector", f"the scheduler does not start: {error}")
        return comparison, ""
    if "startError" in expected:
        comparison.fail("startError", f"expected the scheduler not to start: {expected['startError']}")
        return comparison, ""
    compare_facts(comparison, vector, found, Level.EXACT)
    if not comparison.differences:
        return comparison, ""
    for again, why in _explained(vector, registry, found):
        if not again.differences:
            return again, why
    return comparison, ""


def _explained(vector: JSON, registry: Registry, found: list[JSON]) -> Iterator[tuple[Comparison, str]]:
    """Yield comparisons in which declared differences are undone, with their names, those that change least first."""
    yield _compared(vector, found, Level.NODES), CHANCE
    if why := promised(vector):
        yield _compared(vector, found, Level.ALWAYS), why
    if why := told_otherwise(vector):
        yield _compared(vector, found, Level.TOLD), why
    for reading in readings():
        played = facts_of_phases(vector, registry, reading)
        for level in (Level.EXACT, Level.NODES):
            yield _compared(vector, played, level), reading.why
    if why := contended(vector):
        yield _compared(vector, found, Level.ALWAYS), why


def _compared(vector: JSON, found: list[JSON], level: Level) -> Comparison:
    comparison = Comparison()
    compare_facts(comparison, vector, found, level)
    return comparison


def compare_facts(comparison: Comparison, vector: JSON, found: list[JSON], level: Level) -> None:
    """Compare the facts after every phase with the recorded ones."""
    for want, got in zip(vector["expected"]["phases"], found, strict=True):
        if level is Level.ALWAYS:
            for text in broken_promises(vector, got):
                comparison.fail("always", f"{want['phase']}: {text}")
            comparison.passed["always"] += 1
        else:
            _compare_phase(comparison, want, got, level)


def facts_of_phases(vector: JSON, registry: Registry, reading: Reading = AS_IT_IS) -> list[JSON]:
    """Play a scenario. Return the facts after each phase.

    Raises:
        ConfigError, FeatureGateError: when the scheduler does not start.
    """
    return run_virtual(_played(vector["scenario"], registry, reading))


async def _played(scenario: JSON, registry: Registry, reading: Reading) -> list[JSON]:
    gates = FeatureGates.of(scenario["gates"])
    player = Player.of(scenario, reading.registry(registry), gates, reading.seed)
    player.retries = reading.retries
    found = []
    try:
        await player.start()
        with player.scheduler.tasks.guard():
            for phase in scenario["phases"]:
                answers, events = await player.play(phase)
                found.append(facts_of(player, answers, events, gates.enabled("TopologyAwareWorkloadScheduling")))
    finally:
        await player.scheduler.stop()
    return found


def _compare_phase(comparison: Comparison, want: JSON, got: JSON, level: Level) -> None:
    phase = want["phase"]
    for fact, value in want["exact"].items():
        if fact in _INNER:
            comparison.leave(fact, _OWN_WAYS)
        elif level is Level.TOLD and fact in _EVENTS:
            comparison.leave(fact, _TOLD)
        else:
            wanted, given = _seen(fact, value, value, level), _seen(fact, value, got[fact], level)
            comparison.check(fact, f"{phase}: {fact}", wanted, given)
    for fact, values in want.get("allowed", {}).items():
        if fact in got and fact not in _INNER:
            if _seen(fact, values[0], got[fact], level) in [_seen(fact, value, value, level) for value in values]:
                comparison.passed[fact] += 1
            else:
                comparison.leave(fact, _CHANCE)
    _check_allowed_groups(comparison, phase, want.get("groupsAllowed", {}), got["groups"])


def _seen(fact: str, want: Any, value: Any, level: Level) -> Any:
    """Return a fact in a form that is equal for facts that agree. ``want`` is the recorded fact."""
    if fact == "ops":
        return [_answer(each) for each in value]
    if fact in ("nodes", "placed", "groupNodes"):
        value = {key: each for key, each in value.items() if key in want or each}
    if level is not Level.EXACT and fact in _PLACES:
        value = without_nodes(value)
    if level is Level.TOLD and fact in ("pods", "podsCoarse", "podGroups"):
        value = without_words(value)
    return _ordered(fact, value)


def _check_allowed_groups(comparison: Comparison, phase: str, allowed: Mapping[str, JSON], got: JSON) -> None:
    for key, limits in allowed.items():
        group = got.get(key, {"placed": 0})
        if limits.get("oneDomain"):
            number = len(group.get("domains", {}))
            comparison.check("oneDomain", f"{phase}: domains of {key} are one", True, number <= 1)
        if group["placed"] in limits["placed"]:
            comparison.passed["groups"] += 1
        else:
            comparison.leave("groups", _CHANCE)


def _answer(answer: JSON) -> JSON:
    """Return an answer without members that are null or empty lists, with its causes in order."""
    answer = _without_empty(drop_nulls(answer))
    if "causes" in answer:
        causes = sorted(answer["causes"], key=lambda cause: json.dumps(cause, sort_keys=True))
        return {**answer, "causes": causes}
    return answer


def _without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_empty(each) for name, each in value.items() if each != []}


def _ordered(fact: str, value: Any) -> Any:
    if fact not in _UNORDERED:
        return value
    if fact.startswith("events"):
        return _distinct(value)
    return _sorted([{**each, "outcomes": _sorted(each["outcomes"])} for each in value])


def _distinct(events: list[JSON]) -> list[JSON]:
    """Return the distinct events. The recorder wrote some classes twice over, as ``{{class} +9}``."""
    texts = {_TWICE.sub(r"{\1}", json.dumps(each, sort_keys=True)) for each in events}
    return [json.loads(text) for text in sorted(texts)]


def _sorted(items: list[JSON]) -> list[JSON]:
    return sorted(items, key=lambda each: json.dumps(each, sort_keys=True))

"""When a plugin is asked: what it answered in one attempt is not used in another."""

from __future__ import annotations

from typing import Any

from builders import a_node, a_pod, info
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.framework.question import Question
from kubesched.scheduler.framework.status import Status
from search_kit import SIGNING, House, make_asking, rows_like


def late(name: str, concerned: set[str], **members: Any) -> type:
    """A plugin that pods concern while its name is in a set."""
    plugin: Any = make_asking(name, is_local=False, **members)
    ask = plugin.ask
    plugin.ask = lambda self, pod, nodes: ask(self, pod, nodes) if name in concerned else None
    return plugin  # type: ignore[no-any-return]


def test_a_pod_that_begins_to_concern_several_plugins_is_evaluated_by_all_of_them() -> None:
    """The first that has something to do ends the question who has; the other was asked in an earlier attempt."""
    concerned: set[str] = set()
    early = late("Early", concerned, verdicts=rows_like(0))
    denying = late("Late", concerned, pre_filter=lambda self, nodes: Status.unschedulable("denied"))
    house = House([a_node("a"), a_node("b")], plugins=[*SIGNING, early, denying])
    pod = info(a_pod())
    for _ in range(2):
        concerned.clear()
        assert isinstance(house.search.find(pod), Decision)
        concerned.update(("Early", "Late"))
        found = house.search.find(pod)
        assert isinstance(found, Rejection)
        assert found.message() == "0/2 nodes are available: denied."


def test_a_question_about_the_spec_alone_is_asked_once_and_another_at_every_attempt() -> None:
    asked: list[str] = []

    def noting(name: str, **members: Any) -> type:
        plugin: Any = make_asking(name, key=(), verdicts=rows_like(0), **members)
        ask = plugin.ask

        def noted(self: Any, pod: Any, nodes: Any) -> Question:
            asked.append(name)
            return ask(self, pod, nodes)  # type: ignore[no-any-return]

        plugin.ask = noted
        return plugin  # type: ignore[no-any-return]

    plugins: list[str | type] = [*SIGNING, noting("Local", by_spec=True), noting("Far", is_local=False)]
    house = House([a_node("a"), a_node("b")], plugins=plugins)
    pod = info(a_pod())
    for attempt in range(1, 5):
        assert isinstance(house.search.find(pod), Decision)
        assert (asked.count("Far"), asked.count("Local") <= 2) == (attempt, True)

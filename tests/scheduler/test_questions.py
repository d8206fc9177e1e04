"""Questions to plugins: an answer of one attempt is not used in another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from builders import a_node, a_pod, info
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.search import Decision, Path
from kubesched.scheduler.framework.question import NO_ROWS, Question
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


@pytest.mark.parametrize(("may_fail", "path"), [(False, Path.INTERACTION), (True, Path.FULL_SCAN)])
def test_a_filter_that_may_fail_is_called_for_nodes_that_a_later_one_rejects(may_fail: bool, path: Path) -> None:
    """A layer would call it for the nodes that are left by the others alone."""
    more = {"may_fail": True} if may_fail else {}
    far = make_asking("Far", key=(), is_local=False, verdicts=rows_like(0), changed=lambda self: NO_ROWS, **more)
    house = House([a_node("a"), a_node("b"), a_node("c", unschedulable=True)], plugins=[far, *SIGNING])
    paths: list[Path] = []
    house.search.observer = paths.append
    for _ in range(3):
        house.find(a_pod())
    assert paths == [Path.FULL_SCAN, path, path]


@pytest.mark.parametrize("named", [1, 6, 20])
def test_a_layer_follows_a_filter_that_names_rows_few_or_many(named: int) -> None:
    """Every pod has the same question; which of these rows it rejects changes with something outside of the cluster."""
    closed: set[int] = set()

    def verdicts(self: Any, rows: Any) -> Any:
        return np.array([row in closed for row in rows.tolist()], np.uint64)

    far = make_asking("Far", key=(), is_local=False, verdicts=verdicts, changed=lambda self: np.arange(named))
    house = House([a_node(f"n{index}") for index in range(20)], plugins=[*SIGNING, far])
    paths: list[Path] = []
    house.search.observer = paths.append
    for step in range(6):
        closed = {row for row in range(named) if row % 2 == step % 2}
        for _ in range(20):
            decision = house.find(a_pod())
            assert decision.feasible == 20 - len(closed)
            assert decision.node.row not in closed
        assert set(paths[1:]) == {Path.INTERACTION}

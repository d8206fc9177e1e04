"""Disruption budgets as preemption reads them (rules/preemption §4.3)."""

from __future__ import annotations

from typing import Any

import pytest

from builders import a_pod
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.preemption.budgets import BudgetReader


def a_budget(app: str, status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": app, "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": status,
    }


def test_each_pod_uses_up_a_disruption_of_every_budget_that_covers_it() -> None:
    pods = [PodInfo(a_pod(name, namespace="ns", labels={"app": "web"})) for name in ("a", "b", "c")]
    status = {"disruptionsAllowed": 1, "disruptedPods": {"a": "2026-01-01T00:00:00Z"}}
    violating, others = BudgetReader().read({"ns/web": a_budget("web", status)}).split(pods)
    assert [pod.name for pod in violating] == ["c"]
    assert [pod.name for pod in others] == ["a", "b"]


@pytest.mark.parametrize("status", [{"disruptionsAllowed": "many"}, {"disruptedPods": 3}, "none"])
def test_a_budget_whose_status_cannot_be_read_allows_no_disruption(
    status: Any, caplog: pytest.LogCaptureFixture
) -> None:
    budgets = BudgetReader().read({"ns/web": a_budget("web", status)})
    violating, _ = budgets.split([PodInfo(a_pod("a", namespace="ns", labels={"app": "web"}))])
    assert len(violating) == 1
    assert "PodDisruptionBudget ns/web allows no disruption: status: " in caplog.text


def test_budgets_are_the_same_object_until_one_changes() -> None:
    reader, objects = BudgetReader(), {"ns/web": a_budget("web", {"disruptionsAllowed": 1})}
    first = reader.read(objects)
    assert reader.read(objects) is first
    objects["ns/web"] = a_budget("web", {"disruptionsAllowed": 0})
    assert reader.read(objects) is not first
    assert len(reader.read({})) == 0


def test_a_budget_whose_selector_changes_covers_other_pods() -> None:
    reader, objects = BudgetReader(), {"ns/a": a_budget("web", {"disruptionsAllowed": 0})}
    pods = [PodInfo(a_pod(app, namespace="ns", labels={"app": app})) for app in ("web", "db")]
    assert [pod.name for pod in reader.read(objects).split(pods)[0]] == ["web"]
    objects["ns/a"] = a_budget("web", {"disruptionsAllowed": 1})
    assert [pod.name for pod in reader.read(objects).split(pods)[0]] == []
    objects["ns/a"] = a_budget("db", {"disruptionsAllowed": 0})
    assert [pod.name for pod in reader.read(objects).split(pods)[0]] == ["db"]

"""Audits of budgets are true: the eviction API refuses exactly the pods that they say, in a cluster with controllers."""

from __future__ import annotations

from itertools import product
from typing import Any

from controllers_world import BUDGETS, DEPLOYMENTS, World, play, workload

from kubesched.api.kinds import PODS
from kubesched.api.wire import ApiError
from kubesched.explain.audit import Audit, Limits, audit_cluster

#: Fields that a budget may have.
SPECS: tuple[dict[str, Any], ...] = (
    {"maxUnavailable": 0},
    {"maxUnavailable": "0%"},
    {"maxUnavailable": 1},
    {"maxUnavailable": "30%"},
    {"minAvailable": 0},
    {"minAvailable": 1},
    {"minAvailable": 2},
    {"minAvailable": 4},
    {"minAvailable": "50%"},
    {"minAvailable": "67%"},
    {"minAvailable": "100%"},
    {},
)


def budget(name: str, selector: Any, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"selector": selector, **spec}}


def audit_of(world: World) -> Audit:
    scheduler, objects = world.embedded.scheduler, world.embedded.objects
    return audit_cluster(scheduler, objects, world.embedded.pods(), limits=Limits(is_wide=True))


def named(audit: Audit, rule: str) -> set[str]:
    return {name.removeprefix("default/") for one in audit.findings if one.rule == rule for name in one.objects}


def refusal(world: World, name: str) -> int:
    """The code with which the API refuses to evict a pod; 0 if it would evict it."""
    try:
        world.store.evict("default", name, dry_run=True)
    except ApiError as error:
        return error.code
    return 0


def test_budgets_that_block_are_those_for_which_no_pod_can_be_evicted() -> None:
    async def scenario(world: World) -> None:
        cases = {f"w{place}": case for place, case in enumerate(product(SPECS, (1, 2, 3)))}
        for name, (spec, replicas) in cases.items():
            world.create(DEPLOYMENTS, workload(name, replicas))
            world.create(BUDGETS, budget(name, {"matchLabels": {"app": name}}, **spec))
        await world.settle()
        blocking = named(audit_of(world), "budget-blocks-evictions")
        refused = {
            name for name in cases if all(refusal(world, pod.metadata.name) == 429 for pod in world.pods(app=name))
        }
        assert blocking == refused
        assert 0 < len(blocking) < len(cases)
        assert not named(audit_of(world), "budget-spent")

    play(scenario)


def test_pods_of_several_budgets_are_refused_and_selectors_count_as_the_api_counts_them() -> None:
    async def scenario(world: World) -> None:
        for name in ("web", "db"):
            world.create(DEPLOYMENTS, workload(name, 2))
        world.create(BUDGETS, budget("web", {"matchLabels": {"app": "web"}}, maxUnavailable=1))
        world.create(
            BUDGETS, budget("also-web", {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]})
        )
        world.create(BUDGETS, budget("nothing", {"matchLabels": {"app": "cache"}}))
        world.create(BUDGETS, {"metadata": {"name": "null"}, "spec": {"maxUnavailable": 1}})
        await world.settle()
        audit = audit_of(world)
        assert named(audit, "budget-selects-nothing") == {"nothing", "null"}
        overlapping = named(audit, "budgets-overlap")
        assert overlapping == {pod.metadata.name for pod in world.pods() if refusal(world, pod.metadata.name) == 500}
        assert len(overlapping) == 2
        world.create(BUDGETS, budget("all", {}, maxUnavailable=1))
        await world.settle()
        assert len(named(audit_of(world), "budgets-overlap")) == 2
        assert {refusal(world, pod.metadata.name) for pod in world.pods(app="db")} == {0}

    play(scenario)


def test_a_budget_is_spent_while_a_pod_is_not_ready() -> None:
    async def scenario(world: World) -> None:
        world.create(DEPLOYMENTS, workload("web", 3))
        world.create(BUDGETS, budget("web", {"matchLabels": {"app": "web"}}, maxUnavailable=1))
        await world.settle()
        assert not audit_of(world).findings
        first, *others = world.pods(app="web")
        unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        world.patch(PODS, first.metadata.name, unready, subresource="status")
        await world.settle()
        (found,) = audit_of(world).findings
        assert (found.rule, found.objects) == ("budget-spent", ["default/web"])
        assert found.message == "default/web allows no eviction at present: 2 of 3 pods healthy, 2 must be"
        assert {refusal(world, pod.metadata.name) for pod in others} == {429}

    play(scenario)

"""A long, random day in a cluster with everything running: whatever happens, it comes to rest in the right state."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from controllers_world import (
    BUDGETS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    QUOTAS,
    STATEFUL_SETS,
    World,
    daemon_set,
    job,
    play,
    pod_template,
    workload,
)

from kubesched.api.kinds import NAMESPACES, NODES, PODS
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError
from kubesched.lab.simulate.run.virtual_time import VirtualTimeLoop

QUOTA = 30
TEAM = "team"


def is_up(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and any(
        item.type == "Ready" and item.status == "True" for item in pod.status.conditions
    )


class Day:
    """Random actions on one world, and what must hold while they happen."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = Random(seed)
        self.next_node = 8
        self.jobs = 0
        self.images = 1

    def set_up(self) -> None:
        world = self.world
        world.create(NAMESPACES, {"metadata": {"name": TEAM}})
        for name, replicas in (("web", 12), ("api", 6)):
            world.create(DEPLOYMENTS, workload(name, replicas))
            selector = {"matchLabels": {"app": name}}
            world.create(BUDGETS, {"metadata": {"name": name}, "spec": {"selector": selector, "maxUnavailable": "25%"}})
        world.create(STATEFUL_SETS, workload("db", 3))
        world.create(DAEMON_SETS, daemon_set("agent"))
        world.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": str(QUOTA)}}}, TEAM)
        world.create(DEPLOYMENTS, workload("big", 20), TEAM)

    async def act(self) -> None:
        choices = (
            self.scale,
            self.scale,
            self.roll,
            self.fail,
            self.recover,
            self.drain,
            self.uncordon,
            self.add_node,
            self.remove_node,
            self.add_job,
            self.delete_pod,
        )
        action: Any = self.random.choice(choices)
        result = action()
        if asyncio.iscoroutine(result):
            await result

    def scale(self) -> None:
        name, namespace, most = self.random.choice((("web", "default", 20), ("api", "default", 9), ("big", TEAM, 45)))
        self.world.patch(DEPLOYMENTS, name, {"spec": {"replicas": self.random.randrange(most)}}, namespace)

    def roll(self) -> None:
        self.images += 1
        kind, name = self.random.choice(((DEPLOYMENTS, "web"), (STATEFUL_SETS, "db"), (DAEMON_SETS, "agent")))
        template = pod_template(name, image=f"app:{self.images}")
        self.world.patch(kind, name, {"spec": {"template": template}})

    def _nodes(self) -> list[str]:
        return [name for name in self.world.names(NODES, "") if name not in self.world.kubelets.failed_nodes]

    def fail(self) -> None:
        if len(self._nodes()) > 5:
            self.world.kubelets.fail_node(self.random.choice(self._nodes()))

    def recover(self) -> None:
        if self.world.kubelets.failed_nodes:
            self.world.kubelets.recover_node(sorted(self.world.kubelets.failed_nodes)[0])

    async def drain(self) -> None:
        """As ``kubectl drain``: cordon, then evict again and again until the budgets allow it."""
        world = self.world
        if len(self._nodes()) <= 5:
            return
        node = self.random.choice(self._nodes())
        world.patch(NODES, node, {"spec": {"unschedulable": True}})
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        for _ in range(20):
            # A budget knows what its controller has seen: what is lost this very moment it cannot know yet.
            await loop.idle()
            left = [pod for pod in world.pods() if pod.spec.node_name == node and pod.metadata.labels["app"] != "agent"]
            for pod in left:
                self.evict(pod)
            if not left:
                return
            await asyncio.sleep(self.random.choice((0.02, 1.0, 5.0)))

    def evict(self, pod: Pod) -> None:
        """Evict a pod; when that is granted, enough others must be up."""
        world, app = self.world, pod.metadata.labels["app"]
        was_up = is_up(world.store.get(PODS, "default", pod.name).typed)
        try:
            world.store.evict("default", pod.name)
        except ApiError as error:
            if error.code not in (429, 404):
                raise
            return
        if app not in ("web", "api") or not was_up:
            return
        wanted = world.get(DEPLOYMENTS, app)["spec"]["replicas"]
        if world.get(BUDGETS, app)["status"]["expectedPods"] != wanted:
            return  # scaled this very moment: the budget is judged by the scale it was computed for
        up = sum(is_up(other) for other in world.pods(app=app))
        assert up >= wanted - -(-wanted // 4), f"{app}: {up} of {wanted} are up after an eviction"

    def uncordon(self) -> None:
        for node in self.world.names(NODES, ""):
            if self.world.get(NODES, node)["spec"].get("unschedulable"):
                self.world.patch(NODES, node, {"spec": {"unschedulable": None}})
                return

    def add_node(self) -> None:
        self.world.add_nodes(1, start=self.next_node)
        self.next_node += 1

    def remove_node(self) -> None:
        if len(self._nodes()) > 5:
            self.world.store.delete(NODES, "", self.random.choice(self.world.names(NODES, "")))

    def add_job(self) -> None:
        self.jobs += 1
        seconds = f"{self.random.randrange(1, 60)}s"
        mode = {"completionMode": "Indexed"} if self.random.random() < 0.5 else {}
        self.world.create(JOBS, job(f"job{self.jobs}", seconds, parallelism=2, completions=3, backoffLimit=50, **mode))

    def delete_pod(self) -> None:
        pods = self.world.pods()
        if pods:
            grace = self.random.choice((None, 0))
            self.world.store.delete(PODS, "default", self.random.choice(pods).name, grace_period_seconds=grace)

    def check_quota(self) -> None:
        live = [item.typed for item in self.world.store.list(PODS, TEAM).items]
        assert len([pod for pod in live if pod.status.phase not in ("Succeeded", "Failed")]) <= QUOTA

    def repair(self) -> None:
        while self.world.kubelets.failed_nodes:
            self.recover()
        for _ in self.world.names(NODES, ""):
            self.uncordon()

    def check_rest(self) -> None:
        world = self.world
        nodes = set(world.names(NODES, ""))
        all_pods = [item.typed for item in world.store.list(PODS).items]
        for pod in all_pods:
            assert pod.spec.node_name in nodes, f"{pod.key} is on a node that is gone: {pod.spec.node_name!r}"
            assert pod.metadata.deletion_timestamp is None, f"{pod.key} should have stopped"
        for kind, name, namespace in (
            (DEPLOYMENTS, "web", "default"),
            (DEPLOYMENTS, "api", "default"),
            (DEPLOYMENTS, "big", TEAM),
            (STATEFUL_SETS, "db", "default"),
        ):
            data = world.get(kind, name, namespace)
            wanted = data["spec"]["replicas"]
            if namespace == TEAM:
                wanted = min(wanted, QUOTA)
            up = [pod for pod in world.pods(namespace, app=name) if is_up(pod)]
            assert len(up) == len(world.pods(namespace, app=name)) == wanted, f"{name}: {len(up)} of {wanted}"
            assert data["status"].get("readyReplicas", 0) == wanted
            images = {pod.spec.containers[0].image for pod in up}
            assert images <= {data["spec"]["template"]["spec"]["containers"][0]["image"]}
        assert world.nodes_used(app="agent") == sorted(nodes)
        for name in world.names(JOBS):
            assert world.get(JOBS, name)["status"]["succeeded"] == 3
        assert world.get(QUOTAS, "q", TEAM)["status"]["used"]["pods"] == str(len(world.pods(TEAM)))


@pytest.mark.parametrize("seed", range(6))
def test_a_random_day_ends_well(seed: int) -> None:
    async def scenario(world: World) -> None:
        day = Day(world, seed)
        day.set_up()
        await world.settle()
        for _ in range(60):
            await day.act()
            day.check_quota()
            await asyncio.sleep(day.random.choice((0.0, 0.05, 1.0, 8.0, 60.0, 400.0)))
        day.repair()
        await world.settle(limit=7200)
        await asyncio.sleep(700)  # what was stuck at a quota or in back-off is tried again
        await world.settle(limit=7200)
        day.check_rest()

    play(scenario, nodes=8, seed=seed)


def test_the_same_seed_gives_the_same_day() -> None:
    def history() -> list[tuple[str, str]]:
        result: list[tuple[str, str]] = []

        async def scenario(world: World) -> None:
            day = Day(world, 3)
            day.set_up()
            for _ in range(25):
                await day.act()
                await asyncio.sleep(day.random.choice((0.0, 1.0, 60.0)))
            result.extend((item.key, item.typed.spec.node_name) for item in world.store.list(PODS).items)
            result.append((str(world.store.resource_version), ""))
            day.repair()

        play(scenario, nodes=8, seed=3)
        return result

    assert history() == history()

"""The example policies, loaded as a user would load them, and a placement of pods on made-up nodes."""

import importlib
import json
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kubesched.api.types import Node, Pod
from kubesched.cli.main import main
from kubesched.lab.simulate.trials.placement import Placement, Ties
from kubesched.lab.traces import OpenbNode, OpenbPod
from kubesched.scheduler.config import load_config_data
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.points import capabilities
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry

POLICIES = Path(__file__).parents[2] / "examples" / "policies"

TYPICAL = [
    {"cpuMilli": 4000, "gpuMilli": 1000, "gpus": 1, "share": 0.5},
    {"cpuMilli": 2000, "gpuMilli": 400, "gpus": 1, "share": 0.3},
    {"cpuMilli": 8000, "gpuMilli": 1000, "gpus": 2, "share": 0.1},
    {"cpuMilli": 1000, "gpuMilli": 0, "gpus": 0, "share": 0.1},
]


def load(module: str) -> Any:
    """A module of ``examples/policies``."""
    if str(POLICIES) not in sys.path:
        sys.path.insert(0, str(POLICIES))
    return importlib.import_module(module)


def profile(name: str, args: Any, *, scores: bool) -> Any:
    needed = ("PrioritySort", "NodeAffinity", "NodeResourcesFit", "DefaultBinder", name)
    plugins = {
        "multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": one} for one in needed]},
        "score": {"disabled": [{"name": "*"}], "enabled": [{"name": name}] if scores else []},
    }
    return load_config_data(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [
                {
                    "schedulerName": "default-scheduler",
                    "plugins": plugins,
                    "pluginConfig": [{"name": name, "args": args}],
                }
            ],
        }
    )


def placement(
    policy: type, nodes: Iterable[Node], *, seed: int = 0, ties: Ties = Ties.FIRST, args: Any = None
) -> Placement:
    """A cluster whose only score is the policy's; the arguments are typical pods unless others are given."""
    registry = in_tree_registry()
    registry.register(policy)
    name: str = policy.name  # type: ignore[attr-defined]
    config = profile(name, {"typicalPods": TYPICAL} if args is None else args, scores="score" in capabilities(policy))
    return Placement(nodes, config, registry, seed=seed, ties=ties)


def gpu_node(name: str, gpus: int, cpu: int = 32) -> Node:
    return OpenbNode(name, cpu * 1000, 1 << 20, gpus, "T4" if gpus else "").as_node()


def gpu_pod(name: str, milli: int = 0, gpus: int = 1, cpu: int = 1) -> Pod:
    return OpenbPod(name, cpu * 1000, 64, gpus if milli else 0, milli).as_pod()


def random_cluster(rng: random.Random) -> tuple[list[Node], list[Pod]]:
    nodes = [gpu_node(f"n{index}", rng.choice((0, 1, 2, 4, 8)), rng.choice((8, 16, 64))) for index in range(12)]
    shapes: Sequence[tuple[int, int]] = [(0, 0), (1000, 1), (1000, 2), (1000, 4), (400, 1), (250, 1), (810, 1)]
    pods = [
        gpu_pod(f"p{index}", milli, gpus, rng.choice((1, 2, 4, 8)))
        for index, (milli, gpus) in enumerate(rng.choices(shapes, k=90))
    ]
    return nodes, pods


def scores_of(cluster: Placement, policy: str, pod: Pod) -> dict[str, int]:
    """Node name to the policy's raw score, where its Filter passes."""
    plugin: Any = cluster.framework.answering[policy]
    table = cluster.cache.snapshot().table
    info, state, rows = PodInfo(pod), CycleState(), table.order()
    if "filter" in plugin.points:
        rows = rows[plugin.question(state, info, "filter").verdicts(rows) == 0]
    found = plugin.question(state, info, "score").scores(rows)
    return {table.info(row).name: score for row, score in zip(rows.tolist(), found.tolist(), strict=True)}


def simulated(capsys: Any, manifests: str, config: str, module: str, *more: str) -> dict[str, Any]:
    """``kubesched simulate`` with an example policy: its result as plain data."""
    load(module)
    options = ["--plugin-module", module, "--config", str(POLICIES / config), "-o", "json", *more]
    assert main(["simulate", "-f", str(POLICIES / manifests), *options]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def nodes_of(result: dict[str, Any]) -> dict[str, str]:
    """Pod name to node name."""
    return {placement["name"]: placement["node"] for placement in result["placements"]}

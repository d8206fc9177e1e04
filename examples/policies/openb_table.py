"""GPU allocation of the policies on the openb trace: the table of the FGD study, computed again.

    python examples/policies/openb_table.py --trace PATH

PATH is a directory with ``openb_node_list_all_node.csv`` and ``openb_pod_list_default.csv``. Pods arrive one after the other
until they request 130 % of all GPUs, and none leaves; the figure is the share of all GPUs that is in use then. See
docs/policies.md.
"""

import argparse
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import gpu_sharing

from kubesched.config import load_config_data
from kubesched.framework import Registry
from kubesched.plugins import in_tree_registry
from kubesched.simulate.placement import Placement, Ties
from kubesched.simulate.traces import TraceError, read_nodes, read_pods, typical_pods, with_load

#: Policy to the median of the study's ten runs with the default workload at 130 % (its ``analysis_allo_discrete.csv``).
PUBLISHED = {
    "GpuRandomFit": 87.38,
    "GpuDotProduct": 90.80,
    "GpuPacking": 92.06,
    "GpuBestFit": 93.11,
    "FragmentationGradientDescent": 95.40,
    "BalancedFragmentation": None,
}
#: The study's simulator takes the first of equally good nodes, by names that begin with a random number. Random fit needs
#: real chance; the last policy leaves nothing to a fixed order.
RANDOM_TIES = {"GpuRandomFit", "BalancedFragmentation"}
#: As in the published runs.
FIRST_SEED = 42
LOAD = 1.3


def registry_with(policies):
    """The plugins of Kubernetes, and the policies."""
    registry: Registry = in_tree_registry()
    for policy in policies:
        registry.register(policy)
    return registry


def profile_of(policy, typical):
    """A configuration whose only score is the policy's."""
    scored = [{"name": policy.name}] if hasattr(policy, "score_rows") else []
    needed = ("PrioritySort", "NodeAffinity", "NodeResourcesFit", "DefaultBinder", policy.name)
    plugins = {
        "multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in needed]},
        "score": {"disabled": [{"name": "*"}], "enabled": scored},
    }
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": plugins,
        "pluginConfig": [{"name": policy.name, "args": {"typicalPods": typical}}],
    }
    return load_config_data(
        {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile]}
    )


def allocation(nodes, pods, policy, seed, load=LOAD):
    """Percent of all GPUs in use when the pods that arrived request ``load`` of them.

    As in the study: the mean over the arrivals at which the load in percent, rounded, is that number; in a small cluster there may be
    none, and the figure at the end is used. GPU nodes only.
    """
    nodes = [node for node in nodes if node.gpus]
    capacity = 1000 * sum(node.gpus for node in nodes)
    placement = Placement(
        [node.as_node() for node in nodes],
        profile_of(policy, typical_pods(pods)),
        registry_with([policy]),
        seed=seed,
        ties=Ties.RANDOM if policy.name in RANDOM_TIES else Ties.FIRST,
    )
    arrived = used = 0
    samples = []
    for number, pod in enumerate(with_load(pods, capacity, load, seed)):
        arrived += pod.total_gpu_milli
        if placement.place(pod.as_pod(f"{pod.name}-{number}")) is not None:
            used += pod.total_gpu_milli
        if round(100 * arrived / capacity) == round(100 * load):
            samples.append(100 * used / capacity)
    return statistics.fmean(samples) if samples else 100 * used / capacity


def run(trace, name, seed):
    """One run; called in a process of its own."""
    nodes = read_nodes(Path(trace) / "openb_node_list_all_node.csv")
    pods = read_pods(Path(trace) / "openb_pod_list_default.csv")
    return allocation(nodes, pods, getattr(gpu_sharing, name), seed)


def table(results):
    """Lines of the table, for policy to figures."""
    lines = [f"{'policy':<30}{'published':>10}{'median':>8}{'least':>8}{'most':>8}{'runs':>6}"]
    for name, figures in results.items():
        published = PUBLISHED[name]
        known = f"{published:.2f}" if published is not None else "-"
        median, least, most = statistics.median(figures), min(figures), max(figures)
        lines.append(f"{name:<30}{known:>10}{median:>8.2f}{least:>8.2f}{most:>8.2f}{len(figures):>6}")
    return lines


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", required=True, help="directory with the two tables of the trace")
    parser.add_argument("--seeds", type=int, default=10, help="number of runs of each policy (default: 10)")
    parser.add_argument(
        "--first-seed", type=int, default=FIRST_SEED, help=f"seed of the first run (default: {FIRST_SEED})"
    )
    parser.add_argument("--processes", type=int, default=2, help="how many runs at a time (default: 2)")
    parser.add_argument("--policy", action="append", choices=list(PUBLISHED), help="only this one; repeatable")
    options = parser.parse_args(arguments)
    try:
        read_nodes(Path(options.trace) / "openb_node_list_all_node.csv")
        read_pods(Path(options.trace) / "openb_pod_list_default.csv")
    except TraceError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    begin = time.perf_counter()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with ProcessPoolExecutor(options.processes) as pool:
        runs = {
            name: [pool.submit(run, options.trace, name, seed) for seed in seeds]
            for name in options.policy or PUBLISHED
        }
        results = {name: [one.result() for one in futures] for name, futures in runs.items()}
    sys.stdout.write("\n".join(table(results)) + "\n")
    sys.stderr.write(f"{time.perf_counter() - begin:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

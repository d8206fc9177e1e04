"""GPU allocation of the policies on the openb trace: the table of the FGD study, computed again.

    kubesched sweep examples/policies/config/openb.yaml --set trace=PATH

calls :func:`run` for every policy and seed. PATH is a directory with ``openb_node_list_all_node.csv`` and ``openb_pod_list_default.csv``. Pods arrive one after the other
until they request 130 % of all GPUs, and none leaves; the figure is the share of all GPUs that is in use then. See
docs/policies.md.
"""

import statistics
from pathlib import Path

import gpu_sharing

from kubesched.lab.simulate.trials.placement import Placement, Ties
from kubesched.lab.traces import read_nodes, read_pods, typical_pods, with_load
from kubesched.scheduler.config import load_config_data
from kubesched.scheduler.framework import Registry
from kubesched.scheduler.framework.points import capabilities
from kubesched.scheduler.plugins import in_tree_registry

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
LOAD = 1.3


def registry_with(policies):
    """The plugins of Kubernetes, and the policies."""
    registry: Registry = in_tree_registry()
    for policy in policies:
        registry.register(policy)
    return registry


def profile_of(policy, typical):
    """A configuration whose only score is the policy's."""
    scored = [{"name": policy.name}] if "score" in capabilities(policy) else []
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


def run(trace, policy, seed, load=LOAD):
    """One run of the sweep: its figure, and the study's."""
    nodes = read_nodes(Path(trace) / "openb_node_list_all_node.csv")
    pods = read_pods(Path(trace) / "openb_pod_list_default.csv")
    figure = allocation(nodes, pods, getattr(gpu_sharing, policy), seed, load)
    return {"allocation": figure, "published": PUBLISHED[policy]}

"""Gangs by Permit, by the coscheduling policy and as pod groups, on one workload: the table of docs/gang-comparison.md.

    kubesched sweep examples/policies/config/gangs-compared.yaml

calls :func:`run` for every scheduler and seed. The workload is drawn from published distributions, or read from a trace of Philly
(``--set trace=cluster_job_log``). All times are virtual.
"""

import asyncio
import random
import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import kubesched
from kubesched.lab.traces import Trace, TraceTask, read_philly
from kubesched.scheduler.framework import Plugin

#: GPUs of a job, and share of the jobs, as in the evaluation of Gavel (Narayanan et al., OSDI 2020, section 7.1), which follow the Philly trace.
SIZES, SHARES = (1, 2, 4, 8), (0.70, 0.10, 0.15, 0.05)
GPU = "nvidia.com/gpu"
GPUS_OF_A_NODE = 8

GROUPS = "GenericWorkload=true,GangScheduling=true"
#: Seconds after which Kubernetes 1.36 tries a group again at the latest: the greatest backoff.
BACKOFF = 10
HERE = Path(__file__).parent


class RetryByBackoff(Plugin):
    """Groups are tried again every ten seconds, as by Kubernetes 1.36, whether or not anything has changed.

    Its scheduler does so even more often while it is idle. In this workload that is all in which its decisions differ: nothing fails or
    is evicted, and there are no topologies, claims or extenders.
    """

    name = "RetryByBackoff"

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.pending = {}  # UID: pod that has no node

    def pre_enqueue(self, pod):
        if pod.spec.scheduling_group is not None:
            if not self.pending:
                self.call_later()
            self.pending[pod.uid] = pod.pod

    def post_bind(self, state, pod, node_name):
        self.pending.pop(pod.uid, None)

    def call_later(self):
        asyncio.get_running_loop().call_later(BACKOFF, self.retry)

    def retry(self):
        one_of_each = {pod.spec.scheduling_group.pod_group_name: pod for pod in self.pending.values()}
        self.handle.activate({pod.key: pod for pod in one_of_each.values()})
        if self.pending:
            self.call_later()


#: Scheduler to the form in which jobs are gangs, and what `kubesched.simulate` needs for it.
SCHEDULERS = {
    "gang by Permit": ("labels", {"plugins": [HERE.parent / "plugins/gang_by_permit.py"]}),
    "coscheduling": ("labels", {"plugins": ["coscheduling"], "config": HERE / "config/gangs.yaml"}),
    "1.36": ("PodGroup", {"gates": GROUPS, "plugins": [RetryByBackoff]}),
    "kubesched": ("PodGroup", {"gates": GROUPS}),
}


def duration(rng):
    """Seconds of a job: 10^x minutes, x uniform in 1.5…3, as for 80 % of the jobs of that evaluation.

    The other jobs run for up to a week: the longest of them would be the makespan.
    """
    return 60 * 10 ** rng.uniform(1.5, 3)


def drawn(jobs, gpus, load, seed):
    """A trace of jobs whose pods have one GPU each, which arrive at random and request `load` times the GPUs meanwhile."""
    rng = random.Random(seed)
    sizes = rng.choices(SIZES, SHARES, k=jobs)
    times = [duration(rng) for _ in sizes]
    span = sum(size * seconds for size, seconds in zip(sizes, times, strict=True)) / gpus / load
    arrivals = sorted(rng.uniform(0, span) for _ in sizes)
    tasks = [
        TraceTask(f"job-{number}", arrival, seconds, size, gpus=1)
        for number, (arrival, seconds, size) in enumerate(zip(arrivals, times, sizes, strict=True))
    ]
    return Trace(tuple(tasks))


def run(scheduler, seed, jobs=60, nodes=4, load=1.5, trace=None):
    """One run of the sweep: its figures."""
    gpus = GPUS_OF_A_NODE * nodes
    workload = drawn(jobs, gpus, load, seed) if trace is None else first_jobs(read_philly(trace), jobs, gpus)
    form, options = SCHEDULERS[scheduler]
    objects = [each for task in workload.tasks for each in task.as_objects(gang=form)]
    result = kubesched.simulate(
        objects, nodes=nodes, node_resources={GPU: GPUS_OF_A_NODE}, seed=seed, until="20000h", **options
    )
    return figures(result, workload, gpus)


def first_jobs(trace, jobs, gpus):
    """The first jobs of a trace that the cluster can hold. They request nothing but GPUs."""
    parts = defaultdict(list)
    for task in trace.tasks:
        parts[task.job or task.name].append(replace(task, cpu_milli=0, memory_mib=0))
    fits = [
        job
        for job in parts.values()
        if sum(task.instances * task.gpus for task in job) <= gpus and max(task.gpus for task in job) <= GPUS_OF_A_NODE
    ]
    return Trace(tuple(task for job in fits[:jobs] for task in job))


def figures(result, workload, gpus):
    """Hours until all is done; percent of the GPUs at work until the last arrival; mean waits in minutes; attempts for single pods."""
    tasks = {task.name: task for task in workload.tasks}
    bound = defaultdict(float)
    for placement in result.placements:
        name = placement.name if placement.name in tasks else placement.name.rpartition("-")[0]
        bound[name] = max(bound[name], placement.bound_at)
    end = max(task.arrival for task in workload.tasks) or result.times.makespan
    work = 0.0
    for name, since in bound.items():
        work += tasks[name].instances * tasks[name].gpus * max(0.0, min(end, since + tasks[name].duration) - since)
    waits = {one: [] for one in (False, True)}
    for name, since in bound.items():
        waits[bool(tasks[name].gang)].append((since - tasks[name].arrival) / 60)
    return {
        "started": len(bound),
        "jobs": len(tasks),
        "makespan": result.times.makespan / 3600,
        "at work": 100 * work / gpus / end,
        "wait of gangs": statistics.fmean(waits[True] or [0.0]),
        "wait of others": statistics.fmean(waits[False] or [0.0]),
        "attempts": result.totals.attempts,
    }

"""Applications: workloads, the workloads that each depends on, and the order in which they are scheduled.

An application group is given as an argument, in the fields of scheduler-plugins' AppGroup that matter here::

    appGroups:
      shop:
        web: [{workload: cart, maxNetworkCost: 15}]
        cart: [{workload: database}]
        database: []

Pods are of a workload by two labels, as there.
"""

from typing import NamedTuple

GROUP = "appgroup.diktyo.x-k8s.io"
WORKLOAD = "appgroup.diktyo.x-k8s.io.workload"


class Dependency(NamedTuple):
    """A workload that another one talks to, and the highest network cost that it accepts."""

    workload: str
    max_cost: float


def of_pod(pod):
    """(namespace, group, workload) of a pod; None when it is of none."""
    labels = pod.metadata.labels
    group, workload = labels.get(GROUP), labels.get(WORKLOAD)
    return (pod.metadata.namespace, group, workload) if group and workload else None


#: In which order the workloads of a group are scheduled: those that others depend on last, or first.
ALGORITHMS = ("KahnSort", "ReverseKahn")


class AppGroups:
    """``dependencies`` and ``order`` are by (group, workload)."""

    def __init__(self, given, algorithm="KahnSort"):
        """Raises ValueError: naming the group and workload."""
        if algorithm not in ALGORITHMS:
            raise ValueError(f"topologySortingAlgorithm: {algorithm!r}; expected one of {', '.join(ALGORITHMS)}")
        if not isinstance(given, dict):
            raise ValueError(f"appGroups: {given!r}; expected groups by name, with workloads and their dependencies")
        self.dependencies = {}
        self.order = {}
        for group, workloads in given.items():
            for workload, needed in workloads.items():
                where = f"appGroups.{group}.{workload}"
                self.dependencies[group, workload] = [self._dependency(where, one) for one in needed or ()]
            ordered = self._sorted(group, list(workloads))
            for index, workload in enumerate(ordered if algorithm == "KahnSort" else reversed(ordered)):
                self.order[group, workload] = index

    def _dependency(self, where, given):
        try:
            return Dependency(given["workload"], float(given.get("maxNetworkCost", float("inf"))))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ValueError(f"{where}: {given!r}; expected workload, and maxNetworkCost if there is a limit") from None

    def _sorted(self, group, workloads):
        """Kahn's algorithm; of workloads that could be next, the last in the list comes first, as upstream's do."""
        users = dict.fromkeys(workloads, 0)
        for workload in workloads:
            for dependency in self.dependencies[group, workload]:
                if dependency.workload not in users:
                    raise ValueError(
                        f"appGroups.{group}.{workload}: depends on {dependency.workload}, which is not given"
                    )
                users[dependency.workload] += 1
        ready = [workload for workload in workloads if not users[workload]]
        found = []
        while ready:
            workload = ready.pop()
            found.append(workload)
            for dependency in self.dependencies[group, workload]:
                users[dependency.workload] -= 1
                if not users[dependency.workload]:
                    ready.append(dependency.workload)
        if len(found) < len(workloads):
            rest = ", ".join(sorted(set(workloads) - set(found)))
            raise ValueError(f"appGroups.{group}: the dependencies of {rest} form a circle")
        return found

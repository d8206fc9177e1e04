"""Pods and nodes of a recording one by one: lists, the life of a pod, and the pods on a node.

Caller: :mod:`.source`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from kubesched.lab.simulate.results.result import NodeTimes, PodTimes

from ..schema import Condition, Link, Moment, NodePage, PodList, PodPage, PodRow, PodShare
from ..source import PodQuery, Refused
from .queue import PLACES, Waiting
from .recording import Recording, key_of

__all__ = ["Lives"]

#: Most pods that a page of a node lists, and most of one list.
_MOST_PODS: Final = 500
_MOST_IN_LIST: Final = 1_000


class Lives:
    """Lives of the pods of a recording, looked at from a moment."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._line = recording.line

    def pods(self, query: PodQuery, at: float) -> PodList:
        line = self._line
        present = line.present(at)
        if query.node:
            row = line.rows.get(query.node, -2)
            present &= (line.node_of == row) & (line.arrived <= at)
        waiting = line.waiting(at) & present
        order = np.concatenate((np.flatnonzero(waiting), np.flatnonzero(present & ~waiting)))
        places = self._places(at)
        found: list[PodRow] = []
        total = 0
        for index in order.tolist():
            pod = line.pods[index]
            if (
                (query.namespace and pod.namespace != query.namespace)
                or (query.workload and query.workload not in (pod.workload, _full_workload(pod)))
                or (query.text and query.text not in pod.name)
            ):
                continue
            state = self._state_of(index, at, places)
            if query.state and state != query.state:
                continue
            total += 1
            if len(found) < min(query.limit, _MOST_IN_LIST):
                found.append(self._row(index, at, state))
        return PodList(pods=found, total=total)

    def _places(self, at: float) -> dict[int, str]:
        """Return the place in the queue, by pod."""
        waiting = Waiting.of(self._line, self._recording.told, at)
        return {pod: PLACES[place] for pod, place in zip(waiting.pods.tolist(), waiting.places.tolist(), strict=True)}

    def _state_of(self, index: int, at: float, places: Mapping[int, str]) -> str:
        """Return the state of a pod at a moment: a place in the queue, a phase, or ``Removed``."""
        line = self._line
        if at >= line.removed[index]:
            return "Removed"
        if at >= line.finished[index]:
            return line.pods[index].phase
        if index in places:
            return places[index]
        came_running = np.isinf(line.bound[index]) and np.isinf(line.started[index])
        return "Running" if at >= line.started[index] or came_running else "Pending"

    def _row(self, index: int, at: float, state: str) -> PodRow:
        line = self._line
        pod = line.pods[index]
        return PodRow(
            namespace=pod.namespace,
            name=pod.name,
            workload=pod.workload,
            state=state,
            node=pod.node if line.arrived[index] <= at else "",
            priority=pod.priority,
            created=pod.created,
        )

    def _index(self, namespace: str, name: str, at: float) -> int:
        """Return the last pod of a name up to a moment.

        Raises:
            Refused: if there is none.
        """
        line = self._line
        found = [i for i, one in enumerate(line.pods) if one.name == name and one.namespace == namespace]
        if not found:
            raise Refused(404, f"{self._recording.name}: no pod is named {namespace}/{name}")
        there = [index for index in found if line.created[index] <= at]
        if not there:
            comes = float(line.created[found].min())
            raise Refused(
                404, f"{namespace}/{name} comes {comes - at:g} s later, {comes - line.start:g} s after the start"
            )
        return max(there, key=lambda index: (line.created[index], line.removed[index]))

    def pod(self, namespace: str, name: str, at: float) -> PodPage:
        line, told = self._line, self._recording.told
        index = self._index(namespace, name, at)
        pod = line.pods[index]
        places = self._places(at)
        links = [Link(kind="Node", name=pod.node)] if pod.node and line.arrived[index] <= at else []
        kind, _, workload = pod.workload.partition("/")
        if workload:
            links.append(Link(kind=kind, namespace=namespace, name=workload))
        if pod.group:
            links.append(Link(kind="PodGroup", namespace=namespace, name=pod.group))
        last = np.flatnonzero((told.pods == index) & (told.times <= at))
        message = told.texts[int(told.reasons[last[-1]])][0] if len(last) and index in places else ""
        return PodPage(
            pod=self._row(index, at, self._state_of(index, at, places)),
            requests=pod.requests,
            links=links,
            life=self._life(index),
            message=message,
        )

    def _life(self, index: int) -> list[Moment]:
        pod = self._line.pods[index]
        came = Moment(at=pod.created, what="created", text="with a node" if pod.node and pod.bound is None else "")
        found = [came]
        if pod.queued is not None and pod.queued > pod.created:
            found.append(Moment(at=pod.queued, what="queued", text="no longer held back"))
        found += self._recording.moments_of(index)
        if pod.bound is not None:
            tries = f"at attempt {pod.attempts}" if pod.attempts > 1 else ""
            found.append(Moment(at=pod.bound, what="bound", node=pod.node, text=tries))
        if pod.started is not None:
            found.append(Moment(at=pod.started, what="started", node=pod.node))
        if pod.finished is not None:
            found.append(Moment(at=pod.finished, what="finished", text=pod.phase))
        if pod.removed is not None:
            found.append(Moment(at=pod.removed, what="removed", text="preempted" if pod.preempted else ""))
        return sorted(found, key=lambda one: one.at)

    def node(self, name: str, at: float) -> NodePage:
        line = self._line
        row = line.rows.get(name)
        if row is None:
            raise Refused(404, f"{self._recording.name}: no node is named {name}")
        state = int(line.states(at)[row])
        if state < 0:
            raise Refused(404, f"node {name} is not there at this moment, {at - line.start:g} s after the start")
        node = line.nodes[state]
        here = np.flatnonzero((line.node_of == row) & line.on_nodes(at)).tolist()
        here.sort(key=lambda index: (-_share(line.pods[index], node), key_of(line.pods[index])))
        places: dict[int, str] = {}
        return NodePage(
            row=row,
            name=name,
            status=line.statuses[line.status_index[state]],
            allocatable={one: node.allocatable.get(one, 0) for one in line.resources},
            requested=dict(zip(line.resources, line.requested(at)[:, row].tolist(), strict=True)),
            labels=node.labels,
            taints=node.taints,
            conditions=[Condition(type="Ready", status="Unknown" if "NotReady" in node.status else "True")],
            pods=[
                PodShare(
                    namespace=pod.namespace,
                    name=pod.name,
                    workload=pod.workload,
                    phase=self._state_of(index, at, places),
                    priority=pod.priority,
                    requests=pod.requests,
                )
                for index, pod in ((index, line.pods[index]) for index in here[:_MOST_PODS])
            ],
            left_out=max(0, len(here) - _MOST_PODS),
        )


def _full_workload(pod: PodTimes) -> str:
    kind, _, name = pod.workload.partition("/")
    return f"{kind}/{pod.namespace}/{name}"


def _share(pod: PodTimes, node: NodeTimes) -> float:
    """Return the largest share of the node that a pod asks for."""
    return max(
        (amount / node.allocatable.get(name, amount) for name, amount in pod.requests.items() if amount), default=0.0
    )

"""Nominations that tests change as they like."""

from __future__ import annotations

from collections.abc import Iterable

from kubesched.api.change_log import ChangeLog
from kubesched.framework.podinfo import PodInfo


class Nominated:
    """Node name to the pods nominated there."""

    def __init__(self) -> None:
        self._pods: dict[str, list[PodInfo]] = {}
        self.changed: ChangeLog[str] = ChangeLog(0)

    @property
    def pods(self) -> dict[str, list[PodInfo]]:
        """For tests to change as they like: everything may be another now."""
        self.changed.forget()
        return self._pods

    def nominated_nodes(self) -> Iterable[str]:
        return self._pods

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]:
        return list(self._pods.get(node_name, ()))

    def node_of(self, uid: str) -> str | None:
        return next((node for node, pods in self._pods.items() if any(pod.uid == uid for pod in pods)), None)

"""A fast plugin whose answers depend on other nodes: at most so many pods of a team in a zone.

What is kept of the answers for a team stays true until its count in a zone reaches the limit or falls below it: ``changed``
names the nodes of these zones. It counts again in every attempt, which is simple and slow with many nodes;
``scheduler/plugins/inter_pod_affinity.py`` keeps such counts up to date.
"""

from collections import Counter

import numpy as np

from kubesched.scheduler.framework import (
    ActionType,
    ClusterEvent,
    ClusterEventWithHint,
    EventResource,
    Plugin,
    Question,
    Status,
)

ZONE = "topology.kubernetes.io/zone"


class TeamInZones(Question):
    is_local = False

    def __init__(self, team, most, handle, nodes):
        self.key = self.team = team
        self.most, self.handle, self.nodes = most, handle, nodes
        self.counts = Counter()

    def counted(self):
        counts = Counter()
        for node in self.handle.snapshot.nodes():
            counts[node.labels.get(ZONE)] += self.among(node.pods.values())
        return counts

    def among(self, pods):
        return sum(pod.labels.get("team") == self.team for pod in pods)

    def pre_filter(self, nodes):
        self.counts = self.counted()

    def changed(self):
        before, self.counts = self.counts, self.counted()
        flipped = {zone for zone, count in self.counts.items() if (count < self.most) != (before[zone] < self.most)}
        rows = (
            [node.row for node in self.handle.snapshot.nodes() if node.labels.get(ZONE) in flipped] if flipped else []
        )
        return np.array(rows, np.intp)

    def verdict(self, node):
        return int(self.counts[node.labels.get(ZONE)] >= self.most)

    def verdicts(self, rows):
        return np.array([self.verdict(self.nodes.info(row)) for row in rows.tolist()], np.uint64)

    def why(self, verdict):
        return Status.unschedulable("node(s) were in a zone with enough pods of the team")

    def assuming(self, node, added, removed):
        other = TeamInZones(self.team, self.most, self.handle, self.nodes)
        other.counts = self.counts.copy()
        other.counts[node.labels.get(ZONE)] += self.among(added) - self.among(removed)
        return other


class TeamsPerZone(Plugin):
    name = "TeamsPerZone"
    asks = TeamInZones

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.most = (args or {}).get("most", 10)

    def ask(self, pod, nodes):
        team = pod.labels.get("team")
        return TeamInZones(team, self.most, self.handle, nodes) if team else None

    def events_to_register(self):
        return [
            ClusterEventWithHint(ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE)),
            ClusterEventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)),
        ]

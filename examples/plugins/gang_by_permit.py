"""A plain plugin with a memory: gangs by Permit. Each pod of a gang takes a place as soon as it finds one, and waits there for the rest.

After so many seconds (argument ``seconds``, 60) all that wait give up their places. This is how gangs are made without pod groups. Gangs
that wait hold places that others could use, and two gangs may each hold what the other lacks: docs/gang-comparison.md has figures. The
package examples/policies/coscheduling does more against that.

kubesched simulate -f examples/policies/gangs.yaml --plugin-module examples/plugins/gang_by_permit.py
"""

from collections import defaultdict

from kubesched.scheduler.framework import Plugin, Status

NAME = "pod-group.scheduling.sigs.k8s.io/name"
LEAST = "pod-group.scheduling.sigs.k8s.io/min-available"


class GangByPermit(Plugin):
    name = "GangByPermit"

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.seconds = (args or {}).get("seconds", 60)
        self.placed = defaultdict(set)  # gang: its pods that have a node, in fact or while they wait

    def gang_of(self, pod):
        name, least = pod.labels.get(NAME), pod.labels.get(LEAST, "")
        return (pod.namespace, name) if name and least.isdecimal() else None

    def waiting(self, gang):
        return [waiting for waiting in self.handle.waiting_pods if self.gang_of(waiting.pod) == gang]

    def reserve(self, state, pod, node_name):
        if gang := self.gang_of(pod):
            self.placed[gang].add(pod.uid)

    def permit(self, state, pod, node_name):
        gang = self.gang_of(pod)
        if not gang:
            return None
        if len(self.placed[gang]) < int(pod.labels[LEAST]):
            return Status.wait("the gang is not complete"), self.seconds
        for waiting in self.waiting(gang):
            waiting.allow(self.name)
        return None

    def unreserve(self, state, pod, node_name):
        gang = self.gang_of(pod)
        if not gang or pod.uid not in self.placed[gang]:
            return
        self.placed[gang].discard(pod.uid)
        for waiting in self.waiting(gang):
            waiting.reject(self.name, "the gang gives up its places")

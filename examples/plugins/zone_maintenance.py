"""A plain plugin: sees one node at a time. Keeps new pods out of a zone that is about to be switched off.

kubesched simulate -f examples/web-shop examples/nodes --plugin-module examples/plugins/zone_maintenance.py
"""

from kubesched.scheduler.framework.interface import Plugin
from kubesched.scheduler.framework.status import Status


class ZoneMaintenance(Plugin):
    name = "ZoneMaintenance"

    def sign(self, pod):
        return ()  # reads nothing of the pod: results are cached per node, which makes it fast

    def filter(self, state, pod, node):
        if node.labels.get("topology.kubernetes.io/zone") == "zone-c":
            return Status.unresolvable("node(s) were in a zone under maintenance")
        return None
